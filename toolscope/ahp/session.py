"""From an AHP session to what the engine asks about: one toolset, and a scope per chat."""

from collections.abc import Mapping

import attrs

from toolscope.ahp import wire
from toolscope.ahp._chats import Chat, derive
from toolscope.errors import Fault
from toolscope.model import Agent, Tool, Toolset

__all__ = ["Chat", "Session"]


@attrs.frozen(kw_only=True, eq=False)
class Session:
    """What an AHP session says about tools and chats, ready for `toolscope.PolicyEngine`.

    Attributes:
        toolset: The server's tools, then each client's, in order.
        chats: Each chat by its URI, in order. Asking it for a chat that is not there is a
            `WireError` which names the chats that are.
        agents: The agents that the session's customizations define and that are enabled. The key
            is an agent's name; where several bear one name, the later ones have their URI as key.
        warnings: What was read, but not as it is written.
        errors: Agents that a chat names and that cannot be resolved: such a chat gets no tools.
        state: The session as it was read.
    """

    toolset: Toolset
    chats: Mapping[str, Chat]
    agents: Mapping[str, Agent]
    warnings: tuple[Fault, ...]
    errors: tuple[Fault, ...]
    state: wire.SessionState = attrs.field(repr=False)

    @classmethod
    def read(cls, document: wire.Document) -> "Session":
        """Reads a ``SessionState``, or a lone ``ChatState`` as the one chat of an empty session.

        Raises:
            WireError: Something in it is wrong; all faults, by JSON path.
        """
        return cls.of(wire.read_session(document))

    @classmethod
    def of(cls, state: wire.SessionState) -> "Session":
        """The session that this state describes."""
        chats, agents, warnings, errors = derive(state)
        return cls(
            toolset=Toolset(tools_of(state)),
            chats=chats,
            agents=agents,
            warnings=tuple(warnings),
            errors=tuple(errors),
            state=state,
        )


def tools_of(state: wire.SessionState) -> list[Tool]:
    """The server's tools, then each client's, in order."""
    return [*state.server_tools, *(tool for client in state.clients for tool in client.tools)]
