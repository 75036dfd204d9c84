"""What an MCP request says of its caller, and how the person behind the caller is asked.

Shared by the adapters for MCP servers. A server runs in another task than the agent that calls it,
so it never reads `toolscope.scopes.current`: all it knows of a caller is what the request claims.
"""

import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import is_
from secrets import token_hex
from typing import Any, Final

import attrs
from mcp.server import Server
from mcp.server.session import ServerSession
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    InputResponses,
    ListToolsResult,
    TextContent,
    ToolAnnotations,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import from_json, to_json

from toolscope.calls import CallState
from toolscope.hosts._marks import ORIGIN_KEY
from toolscope.hosts._point import EnforcementPoint, Policy
from toolscope.model import (
    Annotations,
    Origin,
    Scope,
    ToolCall,
    Toolset,
    arguments_digest,
    canonical_json,
    narrower_origin,
)
from toolscope.verdicts import Decision, Effect, Failure

__all__ = [
    "CODE_KEY",
    "ORIGIN_HEADER",
    "Round",
    "ServerPoint",
    "annotations_of",
    "as_sent",
    "can_elicit",
    "claimed_origin",
    "failed_result",
    "failure_of",
    "hint_values",
    "open_round",
    "same_objects",
    "uncached",
]

ORIGIN_HEADER: Final = "toolscope-origin"
"""The HTTP header in which a caller claims the origin of its chat."""
CODE_KEY: Final = "dev.toolscope/code"
"""The key in a failed result's ``_meta`` that holds the failure's code, for programs."""

_log = logging.getLogger("toolscope")

# --------------------------------------------------------------------------------------------
# The caller's scope
# --------------------------------------------------------------------------------------------


def claimed_origin(
    meta: Mapping[str, Any] | None, session: ServerSession | None, request: Any
) -> Origin | str | None:
    """The narrowest origin that the request claims; None where it claims none.

    The claim is a text, or ``{"origin": text}``, under ``dev.toolscope/origin`` in the request's
    ``_meta`` or in the client's extension settings, or the header ``Toolscope-Origin``. One that
    cannot be read counts as ``tool``.
    """
    claims: list[object] = []
    if meta and ORIGIN_KEY in meta:
        claims.append(meta[ORIGIN_KEY])
    capabilities = None if session is None else session.client_capabilities
    extensions = None if capabilities is None else capabilities.extensions
    if extensions and ORIGIN_KEY in extensions:
        claims.append(extensions[ORIGIN_KEY])
    headers = getattr(request, "headers", None)
    if headers is not None:
        claims += headers.getlist(ORIGIN_HEADER)
    origin: Origin | str | None = None
    for claim in claims:
        origin = narrower_origin(origin, _read(claim))
    return origin


def _read(claim: object) -> Origin | str:
    value = claim.get("origin") if isinstance(claim, Mapping) else claim
    return Origin.read(value) if isinstance(value, str) else Origin.TOOL


# --------------------------------------------------------------------------------------------
# Asking the person behind the client (MCP elicitation)
# --------------------------------------------------------------------------------------------

_ANSWER: Final = "dev.toolscope/approval"
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"approve": {"type": "boolean", "title": "Run it"}},
    "required": ["approve"],
}
_LONGEST_ARGUMENTS: Final = 2_000


def can_elicit(session: ServerSession | None) -> bool:
    """Whether the client has said that it can show a form to its person."""
    capabilities = None if session is None else session.client_capabilities
    if session is None or capabilities is None or capabilities.elicitation is None:
        return False
    elicitation = capabilities.elicitation
    if elicitation.form is None and elicitation.url is not None:
        return False
    return _is_modern(session) or session.can_send_request


def _is_modern(session: ServerSession) -> bool:
    """Whether questions travel as results (2026-07-28) rather than as requests of the server."""
    return session.protocol_version in MODERN_PROTOCOL_VERSIONS


@attrs.frozen(kw_only=True)
class Round:
    """One request of a call: with 2026-07-28 an asked call comes back in a second request.

    ``answer`` is what the person said, None where nobody has been asked, and ``shown`` names what
    they were asked about (`_shown`). ``foreign`` says that the request carries on an exchange that
    the tool itself began.
    """

    call: ToolCall
    answer: ElicitResult | None = None
    shown: str | None = None
    foreign: bool = False

    @property
    def id(self) -> str:
        """The call's id; every call that a person may be asked about has one."""
        return self.call.id or ""

    def within(self) -> "Round":
        """This round for a call that the server's own tool made: no client hears its questions."""
        if self.answer is not None:
            return self
        return attrs.evolve(self, foreign=True)


def open_round(
    name: str,
    arguments: Mapping[str, Any] | None,
    session: ServerSession | None,
    request_state: str | None,
    responses: InputResponses | None,
    can_ask: bool,
) -> Round:
    """The call that a request is about: a new one, or the one that the person was asked about.

    An MCP request is delivered once, so each is a call of its own: it has an id, by which the
    ledger remembers it, only where it may have to wait for an answer. What a client returns as
    state counts only for the same tool and the same arguments.
    """
    id_ = token_hex(16)
    if request_state is None:
        chat = _chat(session) or id_
        call_id = id_ if can_ask else None
        return Round(call=ToolCall(id=call_id, name=name, arguments=arguments or {}, chat=chat))
    call = ToolCall(id=id_, name=name, arguments=arguments or {}, chat=id_)
    asked = _asked(request_state, call)
    answer = (responses or {}).get(_ANSWER)
    if asked is None or not isinstance(answer, ElicitResult):
        return Round(call=call, foreign=True)
    id_, shown = asked
    return Round(call=attrs.evolve(call, id=id_, chat=id_), answer=answer, shown=shown)


def _chat(session: ServerSession | None) -> str | None:
    """One id for one connection; None where every request is a connection of its own."""
    if session is None or _is_modern(session):
        return None
    connection = getattr(session, "_connection", None)
    if connection is None:
        return None
    chat: str | None = connection.state.get(_CHAT_KEY)
    if chat is None:
        chat = connection.state[_CHAT_KEY] = token_hex(16)
    return chat


_CHAT_KEY: Final = "dev.toolscope/chat"


def _state(decision: Decision) -> str:
    call = decision.call
    parts = [call.id, call.name, arguments_digest(call.arguments), _shown(decision)]
    return json.dumps({_ANSWER: parts})


def _shown(decision: Decision) -> str:
    """Names what a person is asked about beside the arguments: the asks, and the definition."""
    asks = sorted(repr(attrs.astuple(one.key)) for one in decision.verdicts)
    definition = None if decision.tool is None else decision.tool.digest
    return arguments_digest({"asks": asks, "definition": definition})


def _asked(request_state: str, call: ToolCall) -> tuple[str, str] | None:
    """The id of the call that was asked about, and what was shown; None where it is not ours."""
    try:
        state = json.loads(request_state)
    except ValueError:
        return None
    match state:
        case {"dev.toolscope/approval": [str(id_), call.name, str(digest), str(shown)]}:
            return (id_, shown) if digest == arguments_digest(call.arguments) else None
        case _:
            return None


def _question(decision: Decision) -> ElicitRequestFormParams:
    """What the person reads: the tool, the exact arguments, and why a rule asks."""
    arguments = canonical_json(decision.call.arguments)
    if len(arguments) > _LONGEST_ARGUMENTS:
        more = len(arguments) - _LONGEST_ARGUMENTS
        arguments = f"{arguments[:_LONGEST_ARGUMENTS]} (and {more} more characters)"
    reasons = "; ".join(one.verdict.reason for one in decision.verdicts)
    message = (
        f"An agent wants to run the tool {json.dumps(decision.call.name)} with the arguments "
        f"{arguments}. Your approval is needed: {reasons}"
    )
    return ElicitRequestFormParams(message=message, requested_schema=_SCHEMA)


# --------------------------------------------------------------------------------------------
# The enforcement point
# --------------------------------------------------------------------------------------------


class ServerPoint(EnforcementPoint):
    """The enforcement point of an MCP server: the callers' scopes, and the questions to people.

    A claim that counts as ``tool`` always counts. A wider one counts only with
    ``trust_declared_origin``; else the origin of the configured ``scope`` stays.
    """

    def __init__(
        self, policy: Policy, scope: Scope | None = None, *, trust_declared_origin: bool = False
    ) -> None:
        super().__init__(policy)
        self._configured = scope or Scope()
        self._trust = trust_declared_origin
        self._scopes: dict[tuple[Origin | str | None, bool], Scope] = {}
        self._waiting: deque[str] = deque()

    def scope_of(
        self, meta: Mapping[str, Any] | None, session: ServerSession | None, request: Any
    ) -> Scope:
        """The scope of a request, from what it claims and whether its client can ask a person."""
        key = (claimed_origin(meta, session, request), can_elicit(session))
        made = self._scopes.get(key)
        if made is None:
            claim, can_ask = key
            origin = self._configured.origin
            if claim is not None and (self._trust or Origin.counted(claim) is Origin.TOOL):
                origin = claim
            made = attrs.evolve(self._configured, origin=origin, can_ask=can_ask)
            if len(self._scopes) >= _SCOPES_KEPT:  # callers choose the texts of claims
                self._scopes.clear()
            self._scopes[key] = made
        return made

    async def decide(
        self,
        this: Round,
        tools: Toolset,
        again: Callable[[], Awaitable[Toolset]],
        scope: Scope,
        session: ServerSession | None,
        request_id: Any,
    ) -> Decision | InputRequiredResult:
        """The decision on a call, with the person asked where a rule asks.

        ``again`` looks the tools up anew: what runs is what they are when the person has answered.

        Never an ask: it is answered, or sent to the client as an `InputRequiredResult`
        (2026-07-28), or, where the client fails to answer, denied as ``approval_unavailable``.
        """
        if this.foreign and scope.can_ask:
            # A second question would replace the state of the tool's own exchange.
            scope = attrs.evolve(scope, can_ask=False)
        if this.answer is not None and self.ledger.state(this.call.chat, this.id) is None:
            this = attrs.evolve(this, answer=None)  # nobody was asked here: ask
        decision = await self.on_tool_call_async(this.call, tools, scope)
        if decision.effect is not Effect.ASK or session is None:
            return decision
        # An answer to other asks, or about another definition, is no answer to these.
        answer = this.answer if this.shown == _shown(decision) else None
        if answer is None and _is_modern(session):
            self._keep_waiting(this.id)
            request = ElicitRequest(params=_question(decision))
            return InputRequiredResult(
                input_requests={_ANSWER: request}, request_state=_state(decision)
            )
        if answer is None:
            answer = await self._ask(decision, session, request_id)
            tools = await again()
        if answer is not None:
            content = answer.content or {}
            approved = answer.action == "accept" and content.get("approve") is True
            self.answered(decision, allow=approved)
            decision = await self.on_tool_call_async(this.call, tools, scope)
        if decision.effect is Effect.ASK:
            unasked = attrs.evolve(scope, can_ask=False)
            decision = await self.on_tool_call_async(this.call, tools, unasked)
        return decision

    async def _ask(
        self, decision: Decision, session: ServerSession, request_id: Any
    ) -> ElicitResult | None:
        """Asks over the connection, before 2026-07-28. None: the client failed to answer."""
        question = _question(decision)
        try:
            return await session.elicit_form(
                question.message, question.requested_schema, related_request_id=request_id
            )
        except Exception:  # noqa: BLE001  (the edge to the client: whatever fails is no answer)
            _log.exception("the client did not answer an elicitation; the call is denied")
            return None
        except BaseException:  # the request was cancelled while the person was thinking
            self.cancelled(decision.call)
            raise

    def _keep_waiting(self, id_: str) -> None:
        """Bounds the calls that wait for clients that may never come back."""
        self._waiting.append(id_)
        if len(self._waiting) > _WAITING_KEPT:
            oldest = self._waiting.popleft()
            if self.ledger.state(oldest, oldest) is CallState.ASKED:
                self.ledger.cancelled(oldest, oldest)


_SCOPES_KEPT: Final = 64
_WAITING_KEPT: Final = 1_000


class _Uncached:
    """A ``tools/list`` handler whose results say that no other scope may be served with them."""

    def __init__(self, handler: Callable[[Any, Any], Awaitable[Any]]) -> None:
        self._handler = handler

    async def __call__(self, request: Any, params: Any) -> Any:
        result = await self._handler(request, params)
        if isinstance(result, ListToolsResult):
            # What is set explicitly wins over the server's cache hints.
            return result.model_copy(update={"ttl_ms": 0, "cache_scope": "private"})
        return result


def uncached(server: Server[Any], *, only_look: bool = False) -> bool:
    """Has the low-level server mark its tool lists as not to be cached; says whether it does."""
    entry = server.get_request_handler("tools/list")
    if entry is None:
        return False
    if isinstance(entry.handler, _Uncached):
        return True
    if not only_look:
        server.add_request_handler("tools/list", entry.params_type, _Uncached(entry.handler))
    return not only_look


# --------------------------------------------------------------------------------------------
# Values
# --------------------------------------------------------------------------------------------


def annotations_of(hints: ToolAnnotations | None) -> Annotations:
    """The hints of an MCP tool; absent ones are the worst case."""
    if hints is None:
        return Annotations()
    given = {
        "read_only": hints.read_only_hint,
        "destructive": hints.destructive_hint,
        "idempotent": hints.idempotent_hint,
        "open_world": hints.open_world_hint,
    }
    present = {name: value for name, value in given.items() if value is not None}
    return Annotations(title=hints.title, **present)


def hint_values(hints: ToolAnnotations | None) -> tuple[object, ...]:
    """What hints say, to find out whether they were changed in place."""
    if hints is None:
        return ()
    return (
        hints.title, hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint,
        hints.open_world_hint,
    )  # fmt: skip


def as_sent(schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A schema as a client gets it: a default of infinity, which JSON does not have, is null."""
    if schema is None:
        return None
    sent: Mapping[str, Any] = from_json(to_json(schema, inf_nan_mode="null"))
    return sent


def failure_of(decision: Decision) -> Failure:
    """The failure of a denied decision."""
    if decision.failure is None:
        raise ValueError(f"the decision is {decision.effect}, so it has no failure")
    return decision.failure


def failed_result(decision: Decision) -> CallToolResult:
    """What a denied call ends with, seen by the model; the code is for programs."""
    failure = failure_of(decision)
    return CallToolResult(
        content=[TextContent(type="text", text=failure.message)],
        is_error=True,
        _meta={CODE_KEY: str(failure.code)},
    )


def same_objects(one: Sequence[object], other: Sequence[object]) -> bool:
    """Whether two rows hold the same objects."""
    return len(one) == len(other) and all(map(is_, one, other))
