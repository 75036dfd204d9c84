"""What every adapter does the same way: ask the ledger, and never raise into the host."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeAlias

from toolscope.calls import CallLedger, answer_to
from toolscope.engine import PolicyEngine
from toolscope.listings import Listing
from toolscope.model import Scope, Tool, ToolCall, Toolset
from toolscope.verdicts import Code, Decision, Effect, Failure

__all__ = ["EnforcementPoint", "Policy"]

_log = logging.getLogger("toolscope")

Policy: TypeAlias = PolicyEngine | CallLedger | Callable[[], PolicyEngine]
"""What an adapter takes: an engine, a ledger over one, or a callable that returns the engine."""


class EnforcementPoint:
    """One adapter's way to the ledger. Errors of our own end as an empty list or a denial.

    Keep one per place where the host assembles a tool list: it remembers the last toolset, so that
    a list that the host rebuilds every step is computed once (`Toolset.renewed`).
    """

    def __init__(self, policy: Policy) -> None:
        self.ledger = policy if isinstance(policy, CallLedger) else CallLedger(policy)
        self._last = Toolset()

    def toolset(self, tools: Iterable[Tool]) -> Toolset:
        """The toolset of these tools: the last one where no rule could see a difference.

        The tools come in the host's order, so ``zip`` maps them to the host's own objects.

        Raises:
            ToolsetError: They contradict each other.
        """
        self._last = self._last.renewed(tools)
        return self._last

    def filter_tools(self, tools: Toolset, scope: Scope, prefer: str | None = None) -> Listing:
        """As `CallLedger.filter_tools`; where that fails, a listing of nothing."""
        try:
            return self.ledger.filter_tools(tools, scope, prefer)
        except Exception:  # noqa: BLE001  (the edge to the host: an error of ours shows nothing: law L4)
            _log.exception("toolscope failed to filter a tool list; it is sent empty")
            return _nothing(scope)

    def on_tool_call(
        self,
        call: ToolCall,
        tools: Toolset,
        scope: Scope,
        prefer: str | None = None,
        *,
        produced: ToolCall | None = None,
    ) -> Decision:
        """As `CallLedger.on_tool_call`; where that fails, a denial (``policy_error``)."""
        try:
            return self.ledger.on_tool_call(
                call, tools, scope, prefer, produced=produced, claimed=True
            )
        except Exception:  # noqa: BLE001  (as above)
            _log.exception("toolscope failed to decide a call; it is denied")
            return failed_decision(call, scope)

    async def on_tool_call_async(
        self,
        call: ToolCall,
        tools: Toolset,
        scope: Scope,
        prefer: str | None = None,
        *,
        produced: ToolCall | None = None,
    ) -> Decision:
        """As `on_tool_call`, with awaitable rules awaited."""
        try:
            return await self.ledger.on_tool_call_async(
                call, tools, scope, prefer, produced=produced, claimed=True
            )
        except Exception:  # noqa: BLE001  (as above)
            _log.exception("toolscope failed to decide a call; it is denied")
            return failed_decision(call, scope)

    def answered(self, decision: Decision, *, allow: bool, reason: str | None = None) -> None:
        """Takes the answer that a person gave to an asking decision by the host's own means.

        Submit the call again afterwards. An answer that does not fit is logged: the call then asks
        again, or is denied.
        """
        if decision.effect is Effect.ASK:
            try:
                self.ledger.answer(answer_to(decision, allow=allow, reason=reason))
            except Exception:  # noqa: BLE001  (the edge to the host: what was not taken allows nothing)
                _log.exception("an answer to %r was not taken", decision.call.id)

    def completed(self, call: ToolCall, *, failed: bool = False) -> None:
        """Records that a call that was handed out has ended.

        Where that fails, it stays handed out, and is not run again; the host keeps its result.
        """
        if call.id is not None:
            try:
                self.ledger.completed(call.chat, call.id, failed=failed)
            except Exception:  # noqa: BLE001  (the edge to the host: the call has run)
                _log.exception("the end of the call %r could not be recorded", call.id)

    def cancelled(self, call: ToolCall) -> None:
        """Records that a call will not run, or that its host will run it anew. As `completed`."""
        if call.id is not None:
            try:
                self.ledger.cancelled(call.chat, call.id)
            except Exception:  # noqa: BLE001  (as above)
                _log.exception("the end of the call %r could not be recorded", call.id)


def failed_decision(call: ToolCall, scope: Scope) -> Decision:
    """The denial of a call that toolscope itself failed to decide."""
    message = "The policy failed to decide about this call, so it was not run."
    failure = Failure(code=Code.POLICY_ERROR, message=message, final=False)
    return Decision(effect=Effect.DENY, call=call, tool=None, scope=scope, failure=failure)


def _nothing(scope: Scope) -> Listing:
    return Listing(
        toolset=Toolset(),
        scope=scope,
        answers=(),
        tools=(),
        shadowed=frozenset(),
        collisions={},
    )
