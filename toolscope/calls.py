"""`CallLedger`: the engine's questions, each call once.

The engine remembers nothing of calls. The ledger does: it hands a call out at most once, gives a
denied call the same denial again, collects the answers of people, keeps grants, matches executions
that arrive without a call id, and counts denials so that a loop can be ended.
"""

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from toolscope import _records
from toolscope._answers import answer_to, grant_for
from toolscope._grants import Conditions, Grants, Usable
from toolscope._records import FINAL, OPEN, CallState, about, call_key, claim_key, state_of
from toolscope._register import Register
from toolscope.engine import PolicyEngine
from toolscope.errors import ApprovalError, LedgerError
from toolscope.listings import Listing
from toolscope.model import (
    Approval,
    FrozenDict,
    InvalidArguments,
    Provider,
    Reach,
    Scope,
    Tool,
    ToolCall,
    Toolset,
)
from toolscope.stores import Key, MemoryStore, Record, Store
from toolscope.verdicts import Decision, Effect, Failure, refusal

__all__ = ["CallLedger", "CallState", "Ignored", "answer_to", "grant_for"]

_log = logging.getLogger("toolscope")
_decisions = logging.getLogger("toolscope.decisions")


@attrs.frozen(kw_only=True)
class Ignored:
    """Something that came too late for a call, or for none: it changed nothing.

    ``what`` is ``answer``, ``completion`` or ``cancel``, ``state`` where the call was (None =
    unknown).
    """

    what: str
    chat: str | None
    call_id: str | None
    state: CallState | None


_TRIES: Final = 100
"""How often a call is decided anew where another thread or process changed it meanwhile."""
_IGNORED_KEPT: Final = 1_000


@attrs.define(eq=False)
class _Held:
    """What a ledger holds of a call when it asks about it: its record, and what may count."""

    key: Key | None
    record: Record | None
    usable: Usable
    forms: tuple[ToolCall, ...]
    """What to ask about: the call, and before it the one that was produced where that differs."""
    counting: tuple[Approval, ...]
    """The approvals that the engine shall see. None with two forms: each ask is answered once."""


class CallLedger:
    """Asks the engine, and hands each (chat, call id) out at most once (law L6).

    Safe to share between threads and tasks, and between processes over one `SQLiteStore`. A call
    without an id is decided but not remembered.

    Args:
        engine: The engine, or a callable that returns the one in force.
        store: Where the calls are kept; in memory by default.
        clock: Seconds since the epoch, for the expiry of approvals.
        conditions: Says whether the condition of a grant holds for arguments.
        stop_after: The number of like denials from which `is_looping` says yes.
        redactor: What of the arguments may be written to the decision log; nothing by default.
    """

    def __init__(
        self,
        engine: PolicyEngine | Callable[[], PolicyEngine],
        store: Store | None = None,
        *,
        clock: Callable[[], float] = time.time,
        conditions: Conditions | None = None,
        stop_after: int = 3,
        redactor: Callable[[FrozenDict], Any] | None = None,
    ) -> None:
        self._engine: Callable[[], PolicyEngine] = (
            (lambda: engine) if isinstance(engine, PolicyEngine) else engine
        )
        self._store: Store = MemoryStore() if store is None else store
        self._register = Register(self._store)
        self._grants = Grants(self._store, clock, conditions)
        self._stop_after = stop_after
        self._redactor = redactor
        self._ignored: deque[Ignored] = deque(maxlen=_IGNORED_KEPT)

    @property
    def engine(self) -> PolicyEngine:
        """The engine in force."""
        return self._engine()

    @property
    def ignored(self) -> tuple[Ignored, ...]:
        """The last 1,000 completions, cancels and answers that came too late, oldest first."""
        return tuple(self._ignored)

    # ----------------------------------------------------------------------------------------
    # The engine's questions
    # ----------------------------------------------------------------------------------------

    def filter_tools(self, tools: Toolset, scope: Scope, prefer: str | None = None) -> Listing:
        """As `PolicyEngine.filter_tools`."""
        return self.engine.filter_tools(tools, scope, prefer)

    def on_tool_call(
        self,
        call: ToolCall,
        tools: Toolset,
        scope: Scope,
        prefer: str | None = None,
        approvals: Sequence[Approval] = (),
        *,
        produced: ToolCall | None = None,
        claimed: bool = False,
    ) -> Decision:
        """As `PolicyEngine.on_tool_call`, each (chat, call id) once.

        Answers and grants that the ledger holds count beside ``approvals``. An allowed call is
        handed out: asked again, it is denied (``call_settled``); a denied one gets the same denial.
        ``produced`` is the call as the model produced it where the host changed its arguments: both
        forms are asked about, and the stricter answer counts; approvals bind the final form.
        ``claimed`` says that the caller executes the call itself, right here: no execution that
        arrives without an id is matched to it.

        Raises:
            LedgerError: The store cannot be read or written. The call was not handed out.
            RecursionRefused: It was called by a hook of the engine.
        """
        engine, started = self.engine, time.perf_counter()
        for _ in range(_TRIES):
            held = self._held(call, tools, scope, approvals, produced)
            if isinstance(held, Decision):
                return self._told(engine, held, started)
            decisions = [
                engine.on_tool_call(form, tools, scope, prefer, held.counting, tell=False)
                for form in held.forms
            ]
            closed = self._close(held, decisions, claimed)
            if closed is not None:
                return self._told(engine, closed, started)
        return self._told(engine, _records.contended(call, scope), started)

    async def on_tool_call_async(
        self,
        call: ToolCall,
        tools: Toolset,
        scope: Scope,
        prefer: str | None = None,
        approvals: Sequence[Approval] = (),
        *,
        produced: ToolCall | None = None,
        claimed: bool = False,
    ) -> Decision:
        """As `on_tool_call`, with awaitable rules awaited. Cancelled, it leaves no trace."""
        engine, started = self.engine, time.perf_counter()
        for _ in range(_TRIES):
            held = self._held(call, tools, scope, approvals, produced)
            if isinstance(held, Decision):
                return self._told(engine, held, started)
            decisions = [
                await engine.on_tool_call_async(
                    form, tools, scope, prefer, held.counting, tell=False
                )
                for form in held.forms
            ]
            closed = self._close(held, decisions, claimed)
            if closed is not None:
                return self._told(engine, closed, started)
        return self._told(engine, _records.contended(call, scope), started)

    def is_looping(self, decision: Decision) -> bool:
        """Whether the host should end this run: the model keeps producing the same denied call."""
        return decision.failure is not None and decision.failure.attempts >= self._stop_after

    # ----------------------------------------------------------------------------------------
    # Answers and grants
    # ----------------------------------------------------------------------------------------

    def answer(self, *approvals: Approval) -> None:
        """Takes people's answers, judged together; the host then submits the calls again.

        The same answer twice counts once. Allow and deny for one call is a deny, which settles the
        call. An answer with a wider reach becomes a standing grant, unless the call is refused.
        An answer to a call that is settled meanwhile is ignored and recorded.

        Raises:
            ApprovalError: One names no call, or a call that waits for none, or binds what this
                ledger cannot tell. Nothing was taken.
        """
        waiting: dict[Key, list[Approval]] = {}
        for approval in dict.fromkeys(approvals):
            if approval.call_id is None:
                raise ApprovalError("an answer names the call it answers; give a grant to grant()")
            if approval.reach is not Reach.ONCE:
                self._grants.check(attrs.evolve(approval, call_id=None))
            key = call_key(approval.chat, approval.call_id)
            state = state_of(self._store.get(key))
            if state is not CallState.ASKED and state not in FINAL:
                raise ApprovalError(
                    f"call {approval.call_id!r} in chat {approval.chat!r} waits for no answer; "
                    "nothing was taken"
                )
            waiting.setdefault(key, []).append(approval)
        for key, given in waiting.items():
            self._take(key, given)

    def _take(self, key: Key, given: Sequence[Approval]) -> None:
        refusals = [one for one in given if not one.allow]
        once = [one.to_json() for one in given if one.reach is Reach.ONCE]
        while True:
            record = self._store.get(key)
            if record is None or state_of(record) is not CallState.ASKED:
                self._ignore("answer", key)
                return
            failure = refusal(record["name"], [one.reason for one in refusals if one.reason])
            if refusals:
                new = self._register.denial(key[1], record, failure)
            else:
                held = record.get("answers", [])
                new = {**record, "answers": held + [one for one in once if one not in held]}
            if self._store.swap(key, record, new):
                break
            if refusals:
                self._register.count(key[1], record, failure.code, -1)
        for approval in given:
            if not refusals and approval.reach is not Reach.ONCE:
                self._grants.keep(attrs.evolve(approval, call_id=None))

    def grant(self, approval: Approval) -> None:
        """Keeps a standing grant. With the reach ``ONCE`` it is spent by the first call it answers.

        Raises:
            ApprovalError: It is an answer to one call, is spent, or binds a condition where this
                ledger evaluates none.
        """
        self._grants.check(approval)
        self._grants.keep(approval)

    def revoke(self, approval: Approval) -> None:
        """Takes a standing grant back. A grant that is not there is no error."""
        self._grants.revoke(approval)

    # ----------------------------------------------------------------------------------------
    # What becomes of calls
    # ----------------------------------------------------------------------------------------

    def state(self, chat: str | None, call_id: str) -> CallState | None:
        """Where the call is; None for one that is not remembered."""
        return state_of(self._store.get(call_key(chat, call_id)))

    def completed(
        self, chat: str | None, call_id: str, *, failed: bool = False, by: Provider | None = None
    ) -> CallState | None:
        """Records that a handed-out call ended; returns the state it is in now.

        ``by`` is who says so; anyone but the provider it was handed out to is ignored, as is every
        later completion, and both are recorded in `ignored`.
        """
        to = CallState.FAILED if failed else CallState.COMPLETED
        key = call_key(chat, call_id)
        if self._register.end(key, to, (CallState.HANDED_OUT,), by):
            return to
        return self._ignore("completion", key)

    def cancelled(self, chat: str | None, call_id: str) -> CallState | None:
        """Records that a call will not run, or will not end; returns the state it is in now."""
        key = call_key(chat, call_id)
        if self._register.end(key, CallState.CANCELLED, OPEN):
            return CallState.CANCELLED
        return self._ignore("cancel", key)

    def provider_left(
        self, provider: Provider, *, now: float, grace: float = 0.0
    ) -> tuple[tuple[str | None, str], ...]:
        """Fails the open calls of a provider that has gone, at once or ``grace`` seconds after.

        ``now`` is the time on the host's clock, in seconds. Returns (chat, call id) of each
        call that failed here. With a grace, call `time_passed` later, or `provider_returned`; to
        say it twice does not lengthen the grace.

        Raises:
            ValueError: The time or the grace is no finite number.
        """
        self._register.leave(provider, now + grace)
        return self._register.time_passed(now)

    def provider_returned(self, provider: Provider) -> None:
        """The provider is back within its grace: its calls go on."""
        self._register.come_back(provider)

    def time_passed(self, now: float) -> tuple[tuple[str | None, str], ...]:
        """Fails the open calls of providers whose grace has ended; gives their (chat, call id)."""
        return self._register.time_passed(now)

    # ----------------------------------------------------------------------------------------
    # Executions that arrive without a call id
    # ----------------------------------------------------------------------------------------

    def claim(
        self,
        provider: Provider,
        own_name: str,
        arguments: object,
        tools: Toolset,
        scope: Scope,
        prefer: str | None = None,
    ) -> Decision:
        """Decides an execution that reaches a tool without a call id (an endpoint, a sandbox).

        It is matched to one call that was handed out and not yet executed: same provider, own name
        and arguments, once. The decision is then an allow that names the call; neither log nor
        observers hear of it again. What fits none is decided as a call of its own in ``scope``,
        where an ask is a denial.
        """
        call, tools, scope, matched = self._match(provider, own_name, arguments, tools, scope)
        return matched or self.on_tool_call(call, tools, scope, prefer)

    async def claim_async(
        self,
        provider: Provider,
        own_name: str,
        arguments: object,
        tools: Toolset,
        scope: Scope,
        prefer: str | None = None,
    ) -> Decision:
        """As `claim`, with awaitable rules awaited."""
        call, tools, scope, matched = self._match(provider, own_name, arguments, tools, scope)
        return matched or await self.on_tool_call_async(call, tools, scope, prefer)

    def _match(
        self,
        provider: Provider,
        own_name: str,
        arguments: object,
        tools: Toolset,
        scope: Scope,
    ) -> tuple[ToolCall, Toolset, Scope, Decision | None]:
        """The execution as a call of its own, what to ask about it, or the call it is matched to.

        It is about the tool of this own name; one that has it as its name for models is another.
        """
        tool = next((t for t in tools if t.own_name == own_name and t.provider == provider), None)
        name = own_name if tool is None else tool.name
        call = ToolCall(name=name, provider=provider, arguments=arguments)
        unasked = attrs.evolve(scope, can_ask=False)
        if tool is None:
            return call, Toolset(), unasked, None
        if not isinstance(call.arguments, InvalidArguments):
            matched = self._register.claim(claim_key(tool, call.arguments_digest))
            if matched is not None:
                claimed = Decision(
                    effect=Effect.ALLOW,
                    call=attrs.evolve(call, id=matched[2], chat=matched[1]),
                    tool=tool,
                    scope=scope,
                    provider=provider,
                )
                return call, tools, scope, claimed
        return call, tools, unasked, None

    # ----------------------------------------------------------------------------------------
    # Saving
    # ----------------------------------------------------------------------------------------

    def save(self) -> dict[str, Any]:
        """All that is remembered, as a JSON object that `load` reads in another process.

        Save while no call is being decided: what is handed out meanwhile is in it, or is not.
        """
        return _records.save(self._store)

    def load(self, saved: object) -> None:
        """Takes what `save` gave, into a ledger that is new: all of it, or nothing.

        Raises:
            LedgerError: It is no such object, or of another schema, or this ledger is not empty.
        """
        _records.load(self._store, saved)

    # ----------------------------------------------------------------------------------------
    # One question
    # ----------------------------------------------------------------------------------------

    def _held(
        self,
        call: ToolCall,
        tools: Toolset,
        scope: Scope,
        given: Sequence[Approval],
        produced: ToolCall | None,
    ) -> "_Held | Decision":
        """What is held of a call before the engine is asked; the decision where it is settled."""
        key = record = None
        answers: Sequence[Record] = ()
        if call.id is not None:
            key = call_key(call.chat, call.id)
            record = self._store.get(key)
        if record is not None:
            if state_of(record) is not CallState.ASKED:
                unused = ("an approval was not used: the call is settled",) * bool(given)
                decision = _records.settled(call, tools, scope, record)
                return attrs.evolve(decision, unused_approvals=unused)
            answers = record.get("answers", ())
        usable = self._grants.usable(call, tools, scope, given, answers)
        if produced is None:
            return _Held(key, record, usable, (call,), usable.approvals)
        return _Held(key, record, usable, (produced, call), ())

    def _close(
        self, held: "_Held", decisions: Sequence[Decision], claimed: bool
    ) -> Decision | None:
        """Records what is decided. None: the call changed meanwhile, so it is decided anew."""
        key, record, usable = held.key, held.record, held.usable
        decision = decisions[-1]
        if len(decisions) > 1:
            decision = _records.stricter(decisions[0], decision, usable.approvals)
        if usable.unused:
            unused = (*usable.unused, *decision.unused_approvals)
            decision = attrs.evolve(decision, unused_approvals=unused)
        call = decision.call
        if decision.failure is not None:
            new = self._register.denial(
                call.chat, about(call, decision.tool), decision.failure, decision
            )
            if key is not None and not self._store.swap(key, record, new):
                self._register.count(call.chat, new, decision.failure.code, -1)
                return None
            return attrs.evolve(decision, failure=Failure(**new["failure"]))
        tool: Tool = decision.tool  # type: ignore[assignment]  # none but a denial is about no tool
        spent: list[Approval] = []
        if decision.approvals and decision.effect is Effect.ALLOW:
            originals = [usable.originals[one] for one in decision.approvals]
            spent = [one for one in originals if one.is_one_time_grant]
            if spent and not self._grants.spend(spent, call):
                return None
        if key is not None:
            state, answers = CallState.HANDED_OUT, None
            if decision.effect is Effect.ASK:
                state, answers = CallState.ASKED, record and record.get("answers")
            new = {
                "state": str(state),
                **about(call, tool),
                "provider": str(tool.provider),
                "claimed": bool(claimed),
                **({"answers": answers} if answers else {}),
            }
            try:
                kept = self._store.swap(key, record, new)
            except LedgerError:
                self._grants.give_back(spent, call)
                raise
            if not kept:
                self._grants.give_back(spent, call)
                return None
            if state is CallState.HANDED_OUT and not claimed:
                self._register.may_be_claimed(claim_key(tool, call.arguments_digest), key)
        for grant in spent:
            self._grants.revoke(grant)
        return decision

    def _ignore(self, what: str, key: Key) -> CallState | None:
        """Records what came too late; returns the state that the call is in."""
        state = state_of(self._store.get(key))
        self._ignored.append(Ignored(what=what, chat=key[1], call_id=key[2], state=state))
        return state

    def _told(self, engine: PolicyEngine, decision: Decision, started: float) -> Decision:
        """Tells observers and log of the decision that counts."""
        engine.tell(decision)
        if _decisions.isEnabledFor(logging.INFO):
            seconds = time.perf_counter() - started
            try:
                record = decision.record(arguments=self._redactor, seconds=seconds)
                _decisions.info("%s", json.dumps(record))
            except Exception:  # noqa: BLE001  (the host's redactor: the decision stands without it)
                _log.exception("the decision on %r could not be logged", decision.call.id)
        return decision
