"""One turn of an OpenAI Agents run: its scope, its tools, and the calls decided in it."""

from collections.abc import Sequence
from contextvars import ContextVar
from functools import lru_cache
from secrets import token_hex
from typing import Any, Final

import attrs
from agents import RunContextWrapper
from agents.tool_context import ToolContext

from toolscope import scopes
from toolscope.calls import CallState
from toolscope.hosts._point import EnforcementPoint, failed_decision
from toolscope.listings import Listing
from toolscope.model import (
    UNKNOWN,
    Agent,
    FrozenDict,
    Origin,
    Scope,
    Tool,
    ToolCall,
    Toolset,
    read_arguments,
)
from toolscope.verdicts import Decision, Effect

__all__ = ["Turn", "current_turn", "run_of", "scope_of_run", "turn_of"]

current_turn: ContextVar["Turn | None"] = ContextVar("toolscope_turn", default=None)
"""The turn whose calls run in this context: set with the tool list, before the model is asked.

A run that a hook of the host starts may leave its turn behind in the hook's context: see `turn_of`.
"""

_RUN: Final = "_toolscope_run"
_MOST_TIMES: Final = 1_000


class Run:
    """What stays with a run of the host: its name, and its last turn.

    The host gives a run no name, and models use the same call ids in many runs.
    """

    __slots__ = ("chat", "outer", "turn")

    def __init__(self) -> None:
        self.outer = current_turn.get()
        """The turn that this run was started in, by a tool or by a hook."""
        self.chat = token_hex(16)
        self.turn: Turn | None = None

    def __deepcopy__(self, memo: object) -> "Run":
        return self


def run_of(run_context: RunContextWrapper[Any]) -> Run:
    """The run of a context: kept in it, since the host copies the contexts of interrupted runs."""
    members = vars(run_context)
    run: Run | None = members.get(_RUN)
    if run is None:
        run = members[_RUN] = Run()
    return run


def turn_of(context: RunContextWrapper[Any]) -> "Turn | None":
    """The turn that a hook of the host is called in: of this run, and of this agent."""
    run: Run | None = vars(context).get(_RUN)
    if run is not None:
        return run.turn
    turn = current_turn.get()
    agent = getattr(context, "agent", None)
    while turn is not None and agent is not None and turn.agent is not agent:
        turn = turn.outer
    return turn


@attrs.define
class Decided:
    """One call between its decision and its execution."""

    decision: Decision
    text: str | None
    """The arguments as the model wrote them; None where the host handed them on parsed only."""
    provisional: bool = False
    """Whether the host asks a person before the call is submitted to the ledger."""

    @property
    def is_settled(self) -> bool:
        """Whether no person's answer can change it any more."""
        return not self.provisional and self.decision.effect is not Effect.ASK

    @property
    def is_handed_out(self) -> bool:
        """Whether the ledger has handed the call out."""
        return not self.provisional and self.decision.effect is Effect.ALLOW

    @property
    def arguments(self) -> FrozenDict:
        """The arguments that were decided."""
        return self.decision.call.arguments


@attrs.define(eq=False)
class Turn:
    """What the hooks of one turn share."""

    agent: object
    point: EnforcementPoint
    scope: Scope | None
    guarded: Sequence[object]
    tools: Toolset
    listing: Listing | None
    chat: str
    outer: "Turn | None" = attrs.field(repr=False)
    decided: dict[str, Decided] = attrs.field(factory=dict)

    def tool_of(self, guarded: object) -> Tool | None:
        """What the rules know of one of the host's tools, None for one of another list."""
        for known, tool in zip(self.guarded, self.tools, strict=False):
            if known is guarded:
                return tool
        return None

    async def decide(
        self,
        tool: Tool | None,
        name: str,
        call_id: str,
        arguments: object,
        *,
        approved: bool = False,
        provisional: bool = False,
    ) -> Decision:
        """The decision on a call, taken once a turn as long as its arguments stay the same.

        ``tool`` is the one that the host picked, None where it found none; ``approved`` says that a
        person has answered. A ``provisional`` decision hands nothing out; its denials are final.
        """
        known = self.decided.get(call_id)
        read = read_arguments(arguments)
        text = arguments if isinstance(arguments, str) else None
        # By their texts: 1, True and 1.0 are equal, and are not the same arguments.
        same = known is not None and repr(known.arguments) == repr(read)
        if (
            known is not None
            and same
            and (provisional or not known.provisional)
            and not (approved and known.decision.effect is Effect.ASK)
        ):
            known.text = text
            return known.decision
        call = ToolCall(
            id=self._ledger_id(call_id),
            name=name,
            provider=None if tool is None else tool.provider,
            arguments=read,
            chat=self.chat,
        )
        scope = self.scope
        if scope is None:
            decision = failed_decision(call, Scope())
        elif known is not None and known.is_handed_out and not same:
            # Something changed the arguments of an allowed call: nobody can be asked any more.
            call, scope = attrs.evolve(call, id=None), attrs.evolve(scope, can_ask=False)
            return await self.point.on_tool_call_async(call, self._toolset_of(tool, name), scope)
        else:
            tools = self._toolset_of(tool, name)
            decision = await self._ask(call, tools, scope, approved, provisional)
        self.decided[call_id] = Decided(decision, text, provisional)
        return decision

    async def _ask(
        self, call: ToolCall, tools: Toolset, scope: Scope, approved: bool, provisional: bool
    ) -> Decision:
        if provisional:
            first = await self.point.ledger.engine.on_tool_call_async(call, tools, scope)
            if first.effect is not Effect.DENY:
                return first
        decision = await self.point.on_tool_call_async(call, tools, scope)
        if decision.effect is Effect.ASK and approved:
            self.point.answered(decision, allow=True)
            decision = await self.point.on_tool_call_async(call, tools, scope)
        return decision

    def _ledger_id(self, call_id: str) -> str:
        """The call's id, which the host lets a run use once; anew for each time it was put off."""
        for number in range(2, _MOST_TIMES):
            found = call_id if number == 2 else f"{call_id}#{number - 1}"
            if self.point.ledger.state(self.chat, found) is not CallState.CANCELLED:
                return found
        return call_id

    def _toolset_of(self, tool: Tool | None, name: str) -> Toolset:
        if tool is not None:
            return self.tools if tool in self.tools else Toolset([tool])
        found = self.tools.by_name(name)
        listed = found and self.listing is not None and found[0] in self.listing
        # A tool that is allowed, and that the host does not offer in this turn, is unknown.
        return Toolset() if listed else self.tools

    def ended(self, call_id: str, *, failed: bool) -> None:
        """The call has run, or will not."""
        decided = self._handed_out(call_id)
        if decided is not None:
            self.point.completed(decided.call, failed=failed)

    def put_off(self, call_id: str) -> None:
        """The call waits for people that it asked itself, and comes again."""
        decided = self._handed_out(call_id)
        if decided is not None:
            self.point.cancelled(decided.call)

    def _handed_out(self, call_id: str) -> Decision | None:
        decided = self.decided.pop(call_id, None)
        return decided.decision if decided is not None and decided.is_handed_out else None

    def close(self) -> None:
        """The turn is over: what was handed out and did not run here does not run any more."""
        for call_id in list(self.decided):
            self.ended(call_id, failed=True)


def scope_of_run(run_context: RunContextWrapper[Any], declared: Scope, name: str) -> Scope:
    """The scope of the run that this list is for: the narrowest of what is declared and seen.

    The host gives an agent that runs as a tool the context of that tool's call.
    """
    return _narrowest(declared, name, scopes.current(), isinstance(run_context, ToolContext))


@lru_cache(maxsize=256)
def _narrowest(declared: Scope, name: str, outer: Scope | None, as_tool: bool) -> Scope:
    if declared.agent is None:
        declared = attrs.evolve(declared, agent=Agent(name=name))
    if outer is not None:
        # Only the interruptions of an agent that runs as a tool are forwarded to its caller.
        return outer.child(declared if as_tool else attrs.evolve(declared, can_ask=False))
    if as_tool:  # below an agent that is not protected
        return attrs.evolve(declared, origin=Origin.TOOL, ancestry=(UNKNOWN,))
    return declared
