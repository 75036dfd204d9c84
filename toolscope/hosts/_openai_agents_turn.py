"""One turn of an OpenAI Agents run: its scope, its tools, and the calls decided in it."""

import itertools
import uuid
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final

import attrs
from agents import RunContextWrapper
from agents.tool_context import ToolContext

from toolscope import scopes
from toolscope.hosts._point import EnforcementPoint, failed_decision
from toolscope.listings import Listing
from toolscope.model import UNKNOWN, Agent, Origin, Scope, Tool, ToolCall, Toolset
from toolscope.verdicts import Decision, Effect

__all__ = ["Turn", "current_turn", "next_turn_id", "scope_of_run"]

current_turn: ContextVar["Turn | None"] = ContextVar("toolscope_turn", default=None)
"""The turn whose calls run in this context: set with the tool list, before the model is asked."""

_PROCESS: Final = uuid.uuid4().hex[:12]
_numbers = itertools.count()


def next_turn_id() -> str:
    """Tells apart the turns, in which models may use the same call ids."""
    return f"{_PROCESS}-{next(_numbers)}"


@attrs.define
class Decided:
    """One call between its decision and its execution."""

    decision: Decision
    text: str | None
    """The arguments as the model wrote them; None where the host handed them on parsed only."""


@attrs.define(eq=False)
class Turn:
    """What the hooks of one turn share."""

    point: EnforcementPoint
    scope: Scope | None
    tools: Toolset
    listing: Listing | None
    chat: str
    id: str
    decided: dict[str, Decided] = attrs.field(factory=dict)

    async def decide(
        self, tool: Tool | None, name: str, call_id: str, arguments: object, *, approved: bool
    ) -> Decided:
        """The decision on a call, taken once a turn as long as its arguments stay the same.

        ``tool`` is the one that the host picked, None where it found none.
        """
        call = ToolCall(
            id=f"{call_id}@{self.id}",
            name=name,
            provider=None if tool is None else tool.provider,
            arguments=arguments,
            chat=self.chat,
        )
        text = arguments if isinstance(arguments, str) else None
        known = self.decided.get(call_id)
        if known is not None and known.decision.call.arguments == call.arguments:
            if text is not None:
                known.text = text
            if not (approved and known.decision.effect is Effect.ASK):
                return known
        if self.scope is None:
            decided = Decided(failed_decision(call, Scope()), text)
        else:
            tools = self._toolset_of(tool, name)
            decision = await self.point.on_tool_call_async(call, tools, self.scope)
            if decision.effect is Effect.ASK and approved:
                self.point.answered(decision, allow=True)
                decision = await self.point.on_tool_call_async(call, tools, self.scope)
            decided = Decided(decision, text)
        self.decided[call_id] = decided
        return decided

    def _toolset_of(self, tool: Tool | None, name: str) -> Toolset:
        if tool is not None:
            return self.tools if tool in self.tools else Toolset([tool])
        found = self.tools.by_name(name)
        listed = found and self.listing is not None and found[0] in self.listing
        # A tool that is allowed, and that the host does not offer in this turn, is unknown.
        return Toolset() if listed else self.tools

    def ended(self, call_id: str, *, failed: bool) -> None:
        """The call has run, or will not."""
        decided = self.decided.pop(call_id, None)
        if decided is not None and decided.decision.effect is Effect.ALLOW:
            self.point.completed(decided.decision.call, failed=failed)

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
        # The interruptions of an agent that runs as a tool are forwarded to its caller.
        forwarded = attrs.evolve(declared, can_ask=declared.can_ask or as_tool)
        return outer.child(forwarded if as_tool else attrs.evolve(declared, can_ask=False))
    if as_tool:  # below an agent that is not protected
        return attrs.evolve(declared, origin=Origin.TOOL, ancestry=(UNKNOWN,))
    return declared
