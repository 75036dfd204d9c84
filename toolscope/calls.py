"""`CallLedger`: the engine's questions, each call once.

The engine remembers nothing of calls. The ledger does: it hands a call out at most once, gives a
denied call the same denial again, collects the answers of people, keeps grants, matches executions
that arrive without a call id, and counts denials so that a loop can be ended.
"""

import json
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, TypeAlias, cast

import attrs

from toolscope import _records
from toolscope._answers import answer_to, grant_for
from toolscope._grants import Conditions, Grants, Usable
from toolscope._records import (
    FINAL,
    CallState,
    about,
    call_key,
    claim_key,
    denials_key,
    left_key,
    state_of,
)
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
_CLAIMABLE: Final = 256
"""How many calls of one tool with one set of arguments wait to be claimed; the oldest go first."""

_Asking: TypeAlias = Generator[tuple[ToolCall, tuple[Approval, ...]], Decision, Decision]
"""One question on its way: yields what to ask the engine, and returns the decision that counts."""


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
    ) -> Decision:
        """As `PolicyEngine.on_tool_call`, each (chat, call id) once.

        Answers and grants that the ledger holds count beside ``approvals``. An allowed call is
        handed out: asked again, it is denied (``call_settled``); a denied one gets the same denial.
        ``produced`` is the call as the model produced it where the host changed its arguments: both
        forms are asked about, and the stricter answer counts; approvals bind the final form.

        Raises:
            LedgerError: The store cannot be read or written. The call was not handed out.
            RecursionRefused: It was called by a hook of the engine.
        """
        engine, started = self.engine, time.perf_counter()
        asking = self._ask(call, tools, scope, approvals, produced)
        try:
            asked, counting = next(asking)
            while True:
                decision = engine.on_tool_call(asked, tools, scope, prefer, counting, tell=False)
                asked, counting = asking.send(decision)
        except StopIteration as done:
            return self._told(engine, done.value, started)

    async def on_tool_call_async(
        self,
        call: ToolCall,
        tools: Toolset,
        scope: Scope,
        prefer: str | None = None,
        approvals: Sequence[Approval] = (),
        *,
        produced: ToolCall | None = None,
    ) -> Decision:
        """As `on_tool_call`, with awaitable rules awaited. Cancelled, it leaves no trace."""
        engine, started = self.engine, time.perf_counter()
        asking = self._ask(call, tools, scope, approvals, produced)
        try:
            asked, counting = next(asking)
            while True:
                decision = await engine.on_tool_call_async(
                    asked, tools, scope, prefer, counting, tell=False
                )
                asked, counting = asking.send(decision)
        except StopIteration as done:
            return self._told(engine, done.value, started)

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
                new = self._denial(key[1], record, failure)
            else:
                held = record.get("answers", [])
                new = {**record, "answers": held + [one for one in once if one not in held]}
            if self._store.swap(key, record, new):
                break
            if refusals:
                self._count(key[1], record, failure.code, -1)
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
        if not self._change(key, (CallState.HANDED_OUT,), _ended(to), by):
            self._ignore("completion", key)
        return self.state(chat, call_id)

    def cancelled(self, chat: str | None, call_id: str) -> CallState | None:
        """Records that a call will not run, or will not end; returns the state it is in now."""
        key = call_key(chat, call_id)
        if not self._change(key, _OPEN, _ended(CallState.CANCELLED)):
            self._ignore("cancel", key)
        return self.state(chat, call_id)

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
        until = now + grace
        if not math.isfinite(until):
            raise ValueError(f"the grace of {provider} ends at {until}; give finite seconds")
        self._store.swap(left_key(provider), None, {"until": until})
        return self.time_passed(now)

    def provider_returned(self, provider: Provider) -> None:
        """The provider is back within its grace: its calls go on."""
        key = left_key(provider)
        self._store.swap(key, self._store.get(key), None)

    def time_passed(self, now: float) -> tuple[tuple[str | None, str], ...]:
        """Fails the open calls of providers whose grace has ended; gives their (chat, call id)."""
        gone = {
            key[1]: (key, record)
            for key, record in self._store.items("left")
            if record["until"] <= now
        }
        if not gone:
            return ()
        failed = tuple(
            (key[1], cast("str", key[2]))
            for key, record in self._store.items("call")
            if record.get("provider") in gone and self._change(key, _OPEN, _ended(CallState.FAILED))
        )
        for key, record in gone.values():
            self._store.swap(key, record, None)
        return failed

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
            index = self._store.get(claim_key(tool, call.arguments_digest))
            for chat, call_id in () if index is None else index["calls"]:
                if self._change(call_key(chat, call_id), (CallState.HANDED_OUT,), _claimed):
                    claimed = Decision(
                        effect=Effect.ALLOW,
                        call=attrs.evolve(call, id=call_id, chat=chat),
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

    def _ask(
        self,
        call: ToolCall,
        tools: Toolset,
        scope: Scope,
        given: Sequence[Approval],
        produced: ToolCall | None,
    ) -> _Asking:
        key = None if call.id is None else call_key(call.chat, call.id)
        for _ in range(_TRIES):
            record = None if key is None else self._store.get(key)
            if record is not None and state_of(record) is not CallState.ASKED:
                unused = ("an approval was not used: the call is settled",) * bool(given)
                decision = _records.settled(call, tools, scope, record)
                return attrs.evolve(decision, unused_approvals=unused)
            answers = () if record is None else record.get("answers", ())
            usable = self._grants.usable(call, tools, scope, given, answers)
            if produced is None:
                decision = yield call, usable.approvals
            else:
                first = yield produced, ()
                second = yield call, ()
                decision = _records.stricter(call, scope, first, second, usable.approvals)
            if usable.unused:
                unused = (*usable.unused, *decision.unused_approvals)
                decision = attrs.evolve(decision, unused_approvals=unused)
            closed = self._close(key, record, usable, decision)
            if closed is not None:
                return closed
        return _records.contended(call, scope)

    def _close(
        self, key: Key | None, record: Record | None, usable: Usable, decision: Decision
    ) -> Decision | None:
        """Records the decision. None: the call changed meanwhile, so it is decided anew."""
        call = decision.call
        if decision.failure is not None:
            new = self._denial(call.chat, about(call, decision.tool), decision.failure, decision)
            if key is not None and not self._store.swap(key, record, new):
                self._count(call.chat, new, decision.failure.code, -1)
                return None
            return attrs.evolve(decision, failure=Failure(**new["failure"]))
        tool = cast("Tool", decision.tool)  # an allow and an ask are about a tool
        spent: list[Approval] = []
        if decision.effect is Effect.ALLOW:
            originals = [usable.originals[one] for one in decision.approvals]
            spent = [one for one in originals if one.is_one_time_grant]
            if spent and not self._grants.spend(spent, call):
                return None
        if key is not None:
            state, answers = CallState.HANDED_OUT, None
            if decision.effect is Effect.ASK:
                state, answers = CallState.ASKED, record and record.get("answers")
            new = {
                "state": state.value,
                **about(call, tool),
                "provider": str(tool.provider),
                "claimed": False,
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
            if state is CallState.HANDED_OUT:
                self._index(claim_key(tool, call.arguments_digest), key)
        for grant in spent:
            self._grants.revoke(grant)
        return decision

    def _denial(
        self,
        chat: str | None,
        named: Record,
        failure: Failure,
        decision: Decision | None = None,
    ) -> Record:
        """The record of a call that is denied, with the failure in the words of its count."""
        failure = failure.repeated(self._count(chat, named, failure.code, 1))
        verdicts = () if decision is None else decision.verdicts
        return {
            "state": CallState.DENIED.value,
            "name": named["name"],
            "tool": named["tool"],
            "failure": attrs.asdict(failure),
            "verdicts": [_records.verdict_to_json(one) for one in verdicts],
            "final": True,
        }

    def _count(self, chat: str | None, named: Record, code: str, by: int) -> int:
        """Counts one more (or less) denial of this tool in this chat for this cause."""
        key = denials_key(chat, named, code)
        while True:
            old = self._store.get(key)
            count = (0 if old is None else int(old["count"])) + by
            if self._store.swap(key, old, {"count": count, "final": True}):
                return count

    def _index(self, key: Key, call: Key) -> None:
        """Notes that an execution without a call id may be matched to this call."""
        while True:
            old = self._store.get(key)
            calls = [] if old is None else old["calls"][1 - _CLAIMABLE :]
            if self._store.swap(key, old, {"calls": [*calls, list(call[1:])], "final": True}):
                return

    def _change(
        self,
        key: Key,
        from_: tuple[CallState, ...],
        change: Callable[[Record], Record | None],
        by: Provider | None = None,
    ) -> bool:
        """Changes the record of a call that is in one of these states; was it, and was it taken?"""
        while True:
            record = self._store.get(key)
            if record is None or state_of(record) not in from_:
                return False
            if by is not None and record["provider"] != str(by):
                return False
            new = change(record)
            if new is None:
                return False
            if self._store.swap(key, record, new):
                return True

    def _ignore(self, what: str, key: Key) -> None:
        state = state_of(self._store.get(key))
        self._ignored.append(Ignored(what=what, chat=key[1], call_id=key[2], state=state))

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


_OPEN: Final = (CallState.ASKED, CallState.HANDED_OUT)


def _ended(to: CallState) -> Callable[[Record], Record]:
    """The change of a call's record that ends it."""

    def end(record: Record) -> Record:
        kept = {name: value for name, value in record.items() if name != "answers"}
        return {**kept, "state": to.value, "final": True}

    return end


def _claimed(record: Record) -> Record | None:
    """The change of a call's record that claims it, once."""
    return None if record["claimed"] else {**record, "claimed": True}
