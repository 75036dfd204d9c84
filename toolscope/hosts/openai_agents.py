"""OpenAI Agents SDK: filters what an agent's model is shown, and decides its function calls.

::

    attach(agent, PolicyEngine.load(), scope=Scope(origin="user"))
    await Runner.run(agent, "hi", run_config=run_config())

`attach` protects an agent and all it reaches (agents as tools, handoffs, MCP servers); `coverage`
lists what stays unprotected; `run_config` lets a run go on after a call of a tool it does not have.
"""

import copy
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias, TypeVar

import attrs
from agents import (
    Agent,
    FunctionTool,
    RunConfig,
    RunContextWrapper,
    ToolExecutionConfig,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailData,
)
from agents import (
    Tool as HostTool,
)
from agents.agent_tool_state import get_agent_tool_state_scope, peek_agent_tool_run_result
from agents.items import ToolApprovalItem
from agents.run_config import ToolErrorFormatter, ToolErrorFormatterArgs
from agents.tool_context import ToolContext
from agents.util._approvals import evaluate_function_tool_approval

from toolscope import scopes
from toolscope.hosts._openai_agents_reach import reached, uncovered
from toolscope.hosts._openai_agents_tools import Snapshot, function_of, read_tools
from toolscope.hosts._openai_agents_turn import (
    Turn,
    current_turn,
    run_of,
    scope_of_run,
    turn_of,
)
from toolscope.hosts._point import EnforcementPoint, Policy, failed_decision
from toolscope.model import Scope, ToolCall, Toolset
from toolscope.verdicts import Decision, Effect

__all__ = ["DeclaredScope", "attach", "coverage", "run_config"]

_log = logging.getLogger("toolscope")

DeclaredScope: TypeAlias = Scope | Callable[[RunContextWrapper[Any]], Scope]
"""The scope of the chats of an agent, or what makes it from the context of a run."""

A = TypeVar("A", bound=Agent[Any])


def attach(agent: A, policy: Policy, *, scope: DeclaredScope | None = None) -> A:
    """Protects an agent and all it reaches, in place, before its first run; returns the agent.

    Reached are agents as tools, handoffs, and the agents that functions of tools refer to. An agent
    that is attached already keeps its policy. ``scope`` is declared for the chats of this agent and
    of those it hands off to; a run that starts inside a tool is a child of that scope whatever is
    declared. ``can_ask`` says that somebody looks at the interruptions of a run.
    """
    first = EnforcementPoint(policy)
    for found in reached(agent):
        if not isinstance(found, _Attached):
            point = first if found is agent else EnforcementPoint(first.ledger)
            _attach_one(found, _Host(point, scope, own=found is agent))
    return agent


def coverage(agent: Agent[Any]) -> tuple[str, ...]:
    """What stays unprotected, one sentence each; empty where nothing is known to be."""
    return uncovered(agent, _Attached)


def run_config(base: RunConfig | None = None) -> RunConfig:
    """The configuration of a run in which calls of withheld and unknown tools fail one by one.

    Without it the host ends a run whose model calls a tool that it was not shown, and asks people
    about calls whose arguments cannot be read.
    """
    config = RunConfig() if base is None else base
    execution = config.tool_execution or ToolExecutionConfig()
    return replace(
        config,
        tool_not_found_behavior="return_error_to_model",
        tool_error_formatter=_formatter(config.tool_error_formatter),
        tool_execution=replace(execution, pre_approval_tool_input_guardrails=True),
    )


class _Attached(Agent[Any]):
    """The class of an attached agent is a subclass of this and of its own; clones keep it."""

    toolscope: ClassVar["_Host"]

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[HostTool]:
        """All tools of the agent that may be shown in this run."""
        tools = await super().get_all_tools(run_context)
        return self.toolscope.filter(self, run_context, tools)


def _attach_one(agent: Agent[Any], host: "_Host") -> None:
    kind = type(agent)
    members = {"toolscope": host, "__module__": kind.__module__, "__doc__": kind.__doc__}
    agent.__class__ = type(kind.__name__, (_Attached, kind), members)
    agent.tools = [host.guarded(tool) for tool in agent.tools]


class _Host:
    """The policy of one agent: what its lists and its tools' hooks ask."""

    def __init__(
        self, point: EnforcementPoint, declared: DeclaredScope | None, *, own: bool
    ) -> None:
        self._point = point
        self._declared = declared
        self._own = own
        self._known: tuple[Snapshot, list[HostTool], Toolset] | None = None
        self._guarded: dict[int, tuple[FunctionTool, FunctionTool]] = {}
        self._asked: dict[tuple[str, str], Decision] = {}

    # ----------------------------------------------------------------------------------------
    # The list
    # ----------------------------------------------------------------------------------------

    def filter(
        self, agent: Agent[Any], run_context: RunContextWrapper[Any], tools: list[HostTool]
    ) -> list[HostTool]:
        """The tools to show, guarded; begins a turn."""
        if self._asked:
            self._settle_refused(run_context)
        run = run_of(run_context)
        if run.turn is not None:
            run.turn.close()
        scope, toolset, listing = None, Toolset(), None
        guarded: list[HostTool] = []
        shown: list[HostTool] = []
        try:
            scope = scope_of_run(run_context, self._declared_for(run_context), agent.name)
            guarded, toolset = self._read(tools)
        except Exception:  # noqa: BLE001  (the edge to the host: what cannot be told is not shown)
            _log.exception("a tool list cannot be filtered; it is sent empty")
            scope = None
        if scope is not None:
            listing = self._point.filter_tools(toolset, scope)
            if len(listing) == len(toolset):
                shown = list(guarded)
            else:
                pairs = zip(guarded, toolset, strict=True)
                listed = set(listing)
                shown = [tool for tool, read in pairs if read in listed]
        run.turn = turn = Turn(
            agent, self._point, scope, guarded, toolset, listing, run.chat, run.outer
        )
        current_turn.set(turn)
        return shown

    def _declared_for(self, run_context: RunContextWrapper[Any]) -> Scope:
        declared = self._declared
        if declared is None:
            return _NOTHING
        scope = declared if isinstance(declared, Scope) else declared(run_context)
        # An allowlist is its agent's own.
        return scope if self._own or scope.agent is None else attrs.evolve(scope, agent=None)

    def _read(self, tools: list[HostTool]) -> tuple[list[HostTool], Toolset]:
        """The tools, guarded, and what rules know of them; both are kept while nothing changes."""
        known = self._known
        if known is None or not known[0].describes(tools):
            guarded = [self.guarded(tool) for tool in tools]
            toolset = self._point.toolset(read_tools(guarded))
            # An MCP server's tools are made for every list; there it is `toolset` that stays.
            self._known = known = (Snapshot.of(tools), guarded, toolset)
        return known[1], known[2]

    # ----------------------------------------------------------------------------------------
    # The call
    # ----------------------------------------------------------------------------------------

    def guarded(self, tool: HostTool) -> HostTool:
        """The tool with our hooks; others than function tools have no hooks of calls."""
        if not isinstance(tool, FunctionTool) or isinstance(tool.on_invoke_tool, _Invoker):
            return tool
        known = self._guarded.get(id(tool))
        if known is not None and known[0] is tool:
            return known[1]
        own = tool._mcp_tool_binding is None  # noqa: SLF001  (as in _openai_agents_tools)
        guarded = copy.copy(tool) if own else tool  # the host makes an MCP tool for every list
        invoker = _Invoker(self, guarded, tool)
        guarded.on_invoke_tool = invoker
        guarded.needs_approval = invoker.needs_approval
        guardrail: ToolInputGuardrail[Any] = ToolInputGuardrail(
            guardrail_function=invoker.check, name="toolscope"
        )
        guarded.tool_input_guardrails = [*(tool.tool_input_guardrails or ()), guardrail]
        if own:
            self._guarded[id(tool)] = (tool, guarded)
        return guarded

    def remember(self, name: str, call_id: str, decision: Decision) -> None:
        """Keeps an ask until the host knows the person's answer."""
        self._asked[name, call_id] = decision
        while len(self._asked) > _ASKED_KEPT:
            del self._asked[next(iter(self._asked))]

    def answered(self, name: str, call_id: str) -> None:
        """The person has allowed the call, which is decided anew."""
        self._asked.pop((name, call_id), None)

    def _settle_refused(self, run_context: RunContextWrapper[Any]) -> None:
        """Tells the ledger of refusals: the host shows them to no hook, only to the model."""
        for name, call_id in list(self._asked):
            if run_context.is_tool_approved(name, call_id) is False:
                decision = self._asked.pop((name, call_id))
                self._point.answered(decision, allow=False)


_ASKED_KEPT = 1_000
_NOTHING = Scope()


class _Invoker:
    """The hooks of one function tool, and its invoker: it runs what was decided, and only that."""

    def __init__(self, host: _Host, guarded: FunctionTool, original: FunctionTool) -> None:
        self.function = function_of(original)
        self.inner = guarded.on_invoke_tool
        self._host, self._tool = host, guarded
        self._needs = original.needs_approval
        # The host makes MCP tools anew, so those are guarded in place; their own setting stays.
        shared = original is guarded and callable(original.needs_approval)
        self._original = copy.copy(original) if shared else original

    async def needs_approval(
        self, run_context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str
    ) -> bool:
        """Whether a person is asked: by a rule, or by the tool's own setting. A denial is final."""
        own = bool(self._needs)
        if callable(self._needs):
            text = json.dumps(arguments)
            found = await evaluate_function_tool_approval(
                self._original, run_context, text, call_id
            )
            own = found.outcome != "invoke"
        decision = await self._decide(turn_of(run_context), call_id, arguments, provisional=own)
        if decision.effect is Effect.ASK:
            self._host.remember(self._tool.qualified_name, call_id, decision)
        # `check` rejects what is denied.
        return decision.effect is Effect.ASK or (own and decision.effect is Effect.ALLOW)

    async def check(self, data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        """Rejects a denied call with its reason; runs before a person is asked, and afterwards."""
        context = data.context
        decision = await self._decide(
            turn_of(context),
            context.tool_call_id,
            context.tool_arguments or "{}",
            context,
            provisional=self._needs is not False,
        )
        if decision.failure is not None:
            return ToolGuardrailFunctionOutput.reject_content(
                decision.failure.message, {"code": str(decision.failure.code)}
            )
        if decision.effect is Effect.ASK:
            # Without arguments the host asks by itself, and does not come to `needs_approval`.
            self._host.remember(self._tool.qualified_name, context.tool_call_id, decision)
        elif not context.tool_arguments and context.tool_call is not None and self._needs is False:
            # The host asks people about arguments that it cannot parse. None at all are none.
            context.approve_tool(
                ToolApprovalItem(
                    agent=data.agent, raw_item=context.tool_call, tool_name=self._tool.name
                )
            )
        return ToolGuardrailFunctionOutput.allow()

    async def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        """Runs the tool: runs that start in it are this chat's children."""
        turn, call_id = turn_of(context), context.tool_call_id
        decision = await self._decide(turn, call_id, arguments or "{}", context)
        if turn is None or turn.scope is None or decision.effect is not Effect.ALLOW:
            return _message(decision)
        failed = True
        try:
            with scopes.inside(turn.scope):
                result = await self.inner(context, arguments)
            failed = False
            if _is_interrupted(context):
                turn.put_off(call_id)
        finally:
            turn.ended(call_id, failed=failed)
        return result

    def _approved(self, context: ToolContext[Any]) -> bool:
        """Whether a person has allowed this call, by the host's own means."""
        name, call_id = self._tool.qualified_name, context.tool_call_id
        approved = context.is_tool_approved(name, call_id) is True
        if approved:
            self._host.answered(name, call_id)
        return approved

    async def _decide(
        self,
        turn: Turn | None,
        call_id: str,
        arguments: object,
        context: ToolContext[Any] | None = None,
        *,
        provisional: bool = False,
    ) -> Decision:
        """The decision; with the call's ``context``, a person's answer counts.

        A ``provisional`` one is for a call that the host asks people about: while they have not
        answered, it is not submitted to the ledger.
        """
        name = self._tool.qualified_name
        if turn is None:
            return failed_decision(ToolCall(name=name), _NOTHING)
        known = turn.decided.get(call_id)
        settled = known is not None and known.is_settled
        if known is not None and settled and known.text == arguments:
            return known.decision
        try:
            approved = not settled and context is not None and self._approved(context)
            return await turn.decide(
                turn.tool_of(self._tool),
                name,
                call_id,
                arguments,
                approved=approved,
                provisional=provisional and not approved and not settled,
            )
        except Exception:  # noqa: BLE001  (as above: what fails here is a denial, law L4)
            _log.exception("toolscope failed to decide a call; it is denied")
            return failed_decision(ToolCall(name=name), _NOTHING)


def _is_interrupted(context: ToolContext[Any]) -> bool:
    """Whether the agent that runs as this tool waits for people: the call is resumed later."""
    if context.tool_call is None:
        return False
    scope_id = get_agent_tool_state_scope(context)
    nested = peek_agent_tool_run_result(context.tool_call, scope_id=scope_id)
    return bool(getattr(nested, "interruptions", None))


def _message(decision: Decision) -> str:
    if decision.failure is not None:
        return decision.failure.message
    return "This call needs a person's approval, which it does not have, so it was not run."


def _formatter(base: ToolErrorFormatter | None) -> ToolErrorFormatter:
    async def format_error(args: ToolErrorFormatterArgs[Any]) -> str | None:
        turn = current_turn.get()
        if args.kind == "tool_not_found" and turn is not None:
            try:
                return _message(await turn.decide(None, args.tool_name, args.call_id, "{}"))
            except Exception:  # noqa: BLE001  (as above)
                _log.exception("toolscope failed to say why a tool is not there")
        if base is None:
            return None
        found = base(args)
        return found if found is None or isinstance(found, str) else await found

    return format_error
