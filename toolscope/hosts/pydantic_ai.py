"""Pydantic AI: one capability that filters what an agent's model is shown and decides its calls.

::

    agent = Agent(model, tools=[...], capabilities=[Toolscope(PolicyEngine.load())])

`attach` puts the capability on an agent that exists and on every agent its tools refer to;
`coverage` lists what stays unprotected.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import attrs
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.run import AgentRunResult
from pydantic_ai.toolsets import AbstractToolset, WrapperToolset
from pydantic_ai.toolsets.abstract import ToolsetTool
from pydantic_core import ValidationError

from toolscope import scopes
from toolscope.calls import CallState
from toolscope.hosts._point import EnforcementPoint, Policy, failed_decision
from toolscope.hosts._pydantic_ai_arguments import Form, json_of
from toolscope.hosts._pydantic_ai_reach import attach_to, uncovered
from toolscope.hosts._pydantic_ai_scopes import DeclaredScope, scope_of_run
from toolscope.hosts._pydantic_ai_tools import (
    STAND_IN,
    Snapshot,
    add_stand_ins,
    native_tool,
    read_definition,
)
from toolscope.listings import Listing
from toolscope.model import (
    Scope,
    Tool,
    ToolCall,
    Toolset,
    thaw,
)
from toolscope.verdicts import Decision, Effect

__all__ = ["DeclaredScope", "Toolscope", "attach", "coverage"]

_log = logging.getLogger("toolscope")


def attach(agent: Any, policy: Policy, *, scope: DeclaredScope | None = None) -> Any:
    """Protects an agent and every agent that its tools' functions refer to; returns the agent.

    An agent that has the capability already keeps it. See `coverage` for what is not reached.
    """
    attach_to(agent, Toolscope, lambda found: Toolscope(policy, scope=scope if found else None))
    return agent


def coverage(agent: Any) -> tuple[str, ...]:
    """What stays unprotected, one sentence each; empty where nothing is known to be."""
    return uncovered(agent, Toolscope)


@attrs.define
class _Decided:
    """One call between its decision and its execution."""

    decision: Decision
    call: ToolCall
    form: Form | None = None
    """The validated arguments, to find out whether a hook changed them afterwards."""


class Toolscope(AbstractCapability[Any]):
    """Filters the tools that the model is shown, and decides every call of a function tool.

    It runs innermost: on the arguments that all other capabilities have left. Withheld tools are
    dropped before tool search and sandboxes can see them. A call that must not run ends as a tool
    return with the outcome ``failed``, without costing a retry.

    Args:
        policy: The engine, a ledger over one, or a callable that returns the engine.
        scope: The declared scope of this agent's chats. A run that starts inside a tool of another
            run is a child of that scope whatever is declared. ``can_ask`` is true by itself where
            the agent can defer calls (`DeferredToolRequests` among its output types, or a
            capability that handles them); declare it where only the run's ``output_type`` says so.
    """

    def __init__(self, policy: Policy, *, scope: DeclaredScope | None = None) -> None:
        self._point = EnforcementPoint(policy)
        self._natives = EnforcementPoint(self._point.ledger)
        self._declared = scope
        self._known = _Known()
        # Of one run, set by `for_run`:
        self._scope: Scope | None = None
        self._tools = Toolset()
        self._listing: Listing | None = None
        self._decided: dict[str, _Decided] = {}

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """None: a policy is not part of an agent's file."""
        return None

    def get_ordering(self) -> CapabilityOrdering:
        """Innermost: the last to see the arguments, and the first to see the tools."""
        return CapabilityOrdering(position="innermost")

    async def for_run(self, ctx: RunContext[Any]) -> "Toolscope":
        """This capability with the scope of the run that starts, fixed until it ends."""
        run = object.__new__(type(self))
        run.__dict__.update(self.__dict__)
        run._start(ctx)
        return run

    def _start(self, ctx: RunContext[Any]) -> None:
        self._tools, self._listing, self._decided = Toolset(), None, {}
        try:
            self._scope = scope_of_run(ctx, self._declared, Toolscope)
        except Exception:  # noqa: BLE001  (the edge to the host: without a scope nothing is shown)
            _log.exception("the scope of a run cannot be told; it is shown no tools")
            self._scope = None

    # ----------------------------------------------------------------------------------------
    # The list
    # ----------------------------------------------------------------------------------------

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """The agent's toolset, filtered; tool search and others wrap it in turn."""
        return _Filtered(toolset, self)

    def filter(
        self, tools: dict[str, ToolsetTool[Any]], messages: list[Any]
    ) -> dict[str, ToolsetTool[Any]]:
        """The tools that may be shown. The host's own mapping is left alone."""
        if self._scope is None:
            shown: dict[str, ToolsetTool[Any]] = {}
        else:
            listing = self._list(list(tools.values()), self._scope)
            names = self._known.names(listing)
            shown = {name: tool for name, tool in tools.items() if name in names}
        # Resumed without a new request, or resolved again in the middle of a step: the calls that
        # are about to be dispatched are those of the last message.
        if messages and isinstance(messages[-1], ModelResponse):
            shown = dict(shown)
            add_stand_ins(shown, messages[-1])
        return shown

    def _list(self, given: list[ToolsetTool[Any]], scope: Scope) -> Listing:
        known = self._known
        snapshot = known.snapshot
        if snapshot is None or not snapshot.describes(given):
            try:
                snapshot = Snapshot.of(given, self._point.toolset)
            except Exception:  # noqa: BLE001  (as above: what cannot be read is not shown)
                _log.exception("a tool list cannot be read; it is sent empty")
                snapshot = Snapshot((), Toolset())
            known.snapshot = snapshot
        self._tools = snapshot.toolset
        self._listing = self._point.filter_tools(self._tools, scope)
        return self._listing

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Takes out of the request what came after the list: native tools, and wrappers' tools."""
        self._settle_refused(ctx)
        parameters = request_context.model_request_parameters
        functions, natives = parameters.function_tools, parameters.native_tools
        added = [d for d in functions if not self._tools.by_name(d.name)]
        if not added and not natives:
            return request_context
        if added:
            hidden = {d.name for d in added if not self._shown(read_definition, d)}
            functions = [d for d in functions if d.name not in hidden]
        if natives:
            natives = [native for native in natives if self._shown(native_tool, native)]
        request_context.model_request_parameters = replace(
            parameters, function_tools=functions, native_tools=natives
        )
        return request_context

    def _shown(self, read: Callable[[Any], Tool], given: object) -> bool:
        """Whether a tool beside the agent's toolset may be shown."""
        if self._scope is None:
            return False
        try:
            tools = self._natives.toolset([read(given)])
        except Exception:  # noqa: BLE001  (as above)
            _log.exception("a tool cannot be read; it is not shown")
            return False
        return len(self._natives.filter_tools(tools, self._scope)) == 1

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Lets calls of withheld and unknown tools reach the hooks, where they are denied.

        The host answers a name that is not in its list by itself: with the names of those that
        are, once, and then by ending the run.
        """
        manager = ctx.tool_manager
        if manager is not None and manager.tools is not None:
            add_stand_ins(manager.tools, response)
        return response

    # ----------------------------------------------------------------------------------------
    # The call
    # ----------------------------------------------------------------------------------------

    async def before_tool_validate(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: str | dict[str, Any],
    ) -> str | dict[str, Any]:
        """Decides the call, before it is validated and before anybody is asked to execute it."""
        decided = await self._decide(ctx, call, tool_def, args or "{}")
        if isinstance(args, str):
            # The text that was decided, unchanged. Read again by the host it gives the same value,
            # as JSON: the host is less strict with that than with Python values.
            return args
        arguments: dict[str, Any] = thaw(decided.call.arguments)
        return arguments

    async def after_tool_validate(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
    ) -> dict[str, Any]:
        """Keeps the form of the validated arguments; asks for a tool that the host defers."""
        decided = self._decided.get(call.tool_call_id)
        if decided is not None:
            decided.form = Form(args)
            if decided.decision.effect is Effect.ASK and tool_def.kind == "unapproved":
                raise _asking(self._decided.pop(call.tool_call_id).decision)
        return args

    async def on_tool_validate_error(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: str | dict[str, Any],
        error: ValidationError | ModelRetry,
    ) -> dict[str, Any]:
        """A call whose arguments the tool refuses has ended."""
        self._end(call.tool_call_id, failed=True)
        raise error

    async def before_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
    ) -> dict[str, Any]:
        """The last look: asks people, and decides what other hooks changed or never showed us."""
        decided = self._decided.get(call.tool_call_id)
        if decided is None:  # a hook skipped validation
            decided = await self._decide(ctx, call, tool_def, _arguments(args))
        elif decided.form != Form(args):
            await self._decide_changed(decided, args)
        if decided.decision.effect is Effect.ASK:
            raise _asking(self._decided.pop(call.tool_call_id).decision)
        return args

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Awaitable[Any]],
    ) -> Any:
        """Runs that start in the tool are this chat's children."""
        if self._scope is None:
            raise ToolFailed(_undecided(call.tool_name))
        failed = True
        try:
            with scopes.inside(self._scope):
                result = await handler(args)
            failed = False
        except (ApprovalRequired, CallDeferred):
            decided = self._decided.pop(call.tool_call_id, None)
            if decided is not None:  # the tool deferred itself: it has not run
                self._point.cancelled(decided.call)
            raise
        finally:
            self._end(call.tool_call_id, failed=failed)
        return result

    async def wrap_run(
        self, ctx: RunContext[Any], *, handler: Callable[[], Awaitable[AgentRunResult[Any]]]
    ) -> AgentRunResult[Any]:
        """Ends with the run what was handed out and never executed here."""
        try:
            return await handler()
        finally:
            for decided in list(self._decided.values()):
                if decided.decision.effect is Effect.ALLOW:
                    self._point.cancelled(decided.call)
            self._decided.clear()

    # ----------------------------------------------------------------------------------------

    async def _decide(
        self,
        ctx: RunContext[Any],
        call: ToolCallPart,
        definition: ToolDefinition,
        arguments: object,
    ) -> _Decided:
        """The decision, kept until the execution.

        Raises:
            ToolFailed: It is a denial: the host makes a failed result of it.
        """
        name, scope = call.tool_name, self._scope
        if scope is None:
            raise ToolFailed(_undecided(name))
        chat = ctx.conversation_id
        try:
            tools, tool = self._toolset_for(name, definition)
            asked = ToolCall(
                id=self._call_id(ctx, call),
                name=name,
                provider=None if tool is None else tool.provider,
                arguments=arguments,
                chat=chat,
            )
            if definition.kind == "external":  # executed elsewhere: the host cannot ask for it
                scope = attrs.evolve(scope, can_ask=False)
            if definition.kind == "unapproved" and not ctx.tool_call_approved:
                # A person is asked first, by the host. Only a denial is final before the answer.
                first = await self._point.ledger.engine.on_tool_call_async(asked, tools, scope)
                if first.effect is not Effect.DENY:
                    decided = _Decided(decision=first, call=asked)
                    if first.effect is Effect.ASK:
                        self._remember(call, first)
                        self._decided[call.tool_call_id] = decided
                    return decided
            decision = await self._point.on_tool_call_async(asked, tools, scope)
            if decision.effect is Effect.ASK and ctx.tool_call_approved:
                self._known.asked.pop((chat, call.tool_call_id), None)
                self._point.answered(decision, allow=True)
                decision = await self._point.on_tool_call_async(asked, tools, scope)
        except Exception:  # noqa: BLE001  (as above: what fails here is a denial, law L4)
            _log.exception("toolscope failed to decide a call; it is denied")
            raise ToolFailed(_undecided(name)) from None
        if decision.failure is not None:
            raise ToolFailed(decision.failure.message)
        if decision.effect is Effect.ASK:
            self._remember(call, decision)
        decided = _Decided(decision=decision, call=asked)
        if definition.kind == "external":
            self._point.completed(asked)
        else:
            self._decided[call.tool_call_id] = decided
        return decided

    def _call_id(self, ctx: RunContext[Any], call: ToolCallPart) -> str:
        """The call's id with the time of its response: some vendors count from 0 each time.

        Both are in the message history, so a call that is resumed keeps it. Where the tool deferred
        itself, its first execution was no run of it: the second one is a call of its own.
        """
        unique = call.tool_call_id
        for message in reversed(ctx.messages):
            if isinstance(message, ModelResponse):
                unique = f"{unique}@{message.timestamp.isoformat()}"
                break
        if ctx.tool_call_approved:
            state = self._point.ledger.state(ctx.conversation_id, unique)
            if state is CallState.CANCELLED:
                return f"{unique}#approved"
        return unique

    def _toolset_for(self, name: str, definition: ToolDefinition) -> tuple[Toolset, Tool | None]:
        """The toolset to decide a call in, and the tool that the host picked for it."""
        found = self._tools.by_name(name)
        if definition.metadata is STAND_IN:
            listed = found and self._listing is not None and found[0] in self._listing
            # A tool that is allowed, and that the host does not offer at this step, is unknown.
            return (Toolset() if listed else self._tools), None
        if found:
            return self._tools, found[0]
        added = read_definition(definition)  # by a wrapper outside of us: tool search, a sandbox
        return Toolset([*self._tools, added]), added

    async def _decide_changed(self, decided: _Decided, args: dict[str, Any]) -> None:
        """Another hook changed the validated arguments: what runs must be allowed as well."""
        decision = decided.decision
        changed = attrs.evolve(decided.call, id=None, arguments=_arguments(args))
        scope = attrs.evolve(decision.scope, can_ask=False)
        again = await self._point.on_tool_call_async(changed, self._tools, scope)
        if again.failure is not None:
            raise ToolFailed(again.failure.message)

    def _remember(self, call: ToolCallPart, decision: Decision) -> None:
        asked = self._known.asked
        asked[decision.call.chat, call.tool_call_id] = decision
        while len(asked) > _ASKED_KEPT:
            del asked[next(iter(asked))]

    def _settle_refused(self, ctx: RunContext[Any]) -> None:
        """Tells the ledger of refusals: the host shows them to no hook, only to the model."""
        asked = self._known.asked
        if asked and ctx.messages and isinstance(last := ctx.messages[-1], ModelRequest):
            for part in last.parts:
                if isinstance(part, ToolReturnPart) and part.outcome == "denied":
                    decision = asked.pop((ctx.conversation_id, part.tool_call_id), None)
                    if decision is not None:
                        self._point.answered(decision, allow=False)

    def _end(self, call_id: str, *, failed: bool) -> None:
        decided = self._decided.pop(call_id, None)
        if decided is not None and decided.decision.effect is Effect.ALLOW:
            self._point.completed(decided.call, failed=failed)


class _Known:
    """What the runs of one capability share: the last tool list, and calls that wait for people."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.asked: dict[tuple[str | None, str], Decision] = {}
        self._named: tuple[Listing | None, frozenset[str]] = (None, frozenset())

    def names(self, listing: Listing) -> frozenset[str]:
        """The listed names; the last listing's are kept."""
        known, names = self._named
        if known is not listing:
            names = frozenset(tool.name for tool in listing)
            self._named = (listing, names)
        return names


@dataclass
class _Filtered(WrapperToolset[Any]):
    """The agent's toolset without what is withheld in the scope of this run."""

    capability: Toolscope

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return self.capability.filter(await self.wrapped.get_tools(ctx), ctx.messages)


_ASKED_KEPT: Final = 1_000


def _arguments(args: Mapping[str, Any]) -> object:
    """Validated arguments as rules see them; a text that is no JSON where they cannot be shown."""
    try:
        return json_of(args)
    except Exception:  # noqa: BLE001  (what a value does when it is looked at is anybody's code)
        return "no JSON"


def _asking(decision: Decision) -> ApprovalRequired:
    """Defers the call; the person who is asked finds the reasons in the request's metadata."""
    asks = [
        {"plugin": one.plugin, "code": one.verdict.code, "reason": one.verdict.reason}
        for one in decision.verdicts
    ]
    return ApprovalRequired(metadata={"toolscope": asks})


def _undecided(name: str) -> str:
    return failed_decision(ToolCall(name=name), Scope()).failure.message  # type: ignore[union-attr]
