"""The values that `toolscope.ahp.wire` reads: views of JSON objects."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import attrs

from toolscope.errors import Fault
from toolscope.model import Origin, Tool

__all__ = [
    "Action",
    "ActiveClient",
    "ChatOrigin",
    "ChatState",
    "Contributor",
    "Customization",
    "Envelope",
    "SessionState",
    "Subagent",
    "ToolCallState",
    "Turn",
    "View",
]

Json: TypeAlias = dict[str, Any]


@attrs.frozen(kw_only=True, eq=False)
class View:
    """A JSON object and what toolscope reads of it.

    ``warnings`` are on the value that a whole document was read as.
    """

    _json: Json = attrs.field(repr=False)
    warnings: tuple[Fault, ...] = attrs.field(default=(), repr=False)


@attrs.frozen(kw_only=True, eq=False)
class ChatOrigin(View):
    """How a chat came to exist (``ChatOrigin``), by which call or turn of which other chat."""

    kind: Origin | str
    chat: str | None = None
    tool_call_id: str | None = None
    turn_id: str | None = None


@attrs.frozen(kw_only=True, eq=False)
class Contributor(View):
    """Who executes a tool call (``ToolCallContributor``): ``client`` or ``mcp``, with its id."""

    kind: str | None
    client_id: str | None = None


@attrs.frozen(kw_only=True, eq=False)
class Subagent(View):
    """The worker chat that a call's result names (``ToolResultSubagentContent``)."""

    resource: str | None
    agent_name: str | None = None


@attrs.frozen(kw_only=True, eq=False)
class ToolCallState(View):
    """A tool call in a turn, in whatever status."""

    id: str | None
    name: str | None
    status: str | None
    contributor: Contributor | None = None
    subagents: tuple[Subagent, ...] = ()


@attrs.frozen(kw_only=True, eq=False)
class Turn(View):
    """A turn, running or over. ``agent`` is the uri that its message selects.

    The empty text stands for a selection that has no uri: it resolves to nothing.
    """

    id: str | None
    agent: str | None = None
    tool_calls: tuple[ToolCallState, ...] = ()


@attrs.frozen(kw_only=True, eq=False)
class ChatState(View):
    """A chat: a ``ChatState``, or a ``ChatSummary`` (``summary`` is then true)."""

    resource: str
    title: str | None = None
    origin: ChatOrigin | None = None
    summary: bool = True
    turns: tuple[Turn, ...] = ()
    active_turn: Turn | None = None

    @property
    def selecting_turn(self) -> Turn | None:
        """The turn whose message selects the chat's agent: the active one, else the last."""
        return self.active_turn or (self.turns[-1] if self.turns else None)

    @property
    def tool_calls(self) -> Iterator[ToolCallState]:
        """The tool calls of all turns, in order."""
        for turn in (*self.turns, *((self.active_turn,) if self.active_turn else ())):
            yield from turn.tool_calls


@attrs.frozen(kw_only=True, eq=False)
class ActiveClient(View):
    """A client of a session and the tools it contributes (``SessionActiveClient``)."""

    id: str
    display_name: str | None = None
    tools: tuple[Tool, ...] = ()


@attrs.frozen(kw_only=True, eq=False)
class Customization(View):
    """A customization of any type; of type ``agent`` it defines an agent.

    ``tools`` is None where there is no restriction: AHP's empty list says the same as none.
    """

    type: str | None
    id: str | None = None
    uri: str | None = None
    name: str | None = None
    enabled: bool = True
    tools: frozenset[str] | None = None
    children: tuple["Customization", ...] = ()


@attrs.frozen(kw_only=True, eq=False)
class SessionState(View):
    """A session (``SessionState``). A lone ``ChatState`` is the one chat of an empty session."""

    title: str | None = None
    default_chat: str | None = None
    server_tools: tuple[Tool, ...] = ()
    clients: tuple[ActiveClient, ...] = ()
    chats: tuple[ChatState, ...] = ()
    customizations: tuple[Customization, ...] = ()
    lone_chat: bool = False


@attrs.frozen(kw_only=True, eq=False)
class Action(View):
    """An action of any type (``StateAction``) and the value it carries, where toolscope reads it.

    ``chat`` is the summary of ``session/chatAdded``, or the uri that ``session/chatUpdated`` and
    ``chatRemoved`` name; ``changes`` are those of ``chatUpdated``, whose ``resource`` is that uri.
    """

    type: str
    turn_id: str | None = None
    agent: str | None = None
    tool_call_id: str | None = None
    client: ActiveClient | None = None
    client_id: str | None = None
    tools: tuple[Tool, ...] | None = None
    chat: ChatState | str | None = None
    changes: ChatState | None = None
    customizations: tuple[Customization, ...] | None = None
    contributor: Contributor | None = None


@attrs.frozen(kw_only=True, eq=False)
class Envelope(View):
    """An action on a channel (``ActionEnvelope``). ``client_id`` is that of ``origin``."""

    channel: str
    action: Action
    server_seq: int | None = None
    client_id: str | None = None
    rejection_reason: str | None = None
