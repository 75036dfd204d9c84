"""`CallLedger`: the engine's questions, each call once.

The engine remembers nothing of calls. The ledger does: it hands a call out at most once, gives a
denied call the same denial again, collects the answers of people, keeps grants, matches executions
that arrive without a call id, and counts denials so that a loop can be ended.
"""

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from toolscope._records import (
    FINAL,
    KINDS,
    SCHEMA,
    CallState,
    Question,
    call_key,
    check_record,
    claim_key,
    contended,
    same_denial,
    state_of,
    stricter,
    verdict_to_json,
)
from toolscope.engine import PolicyEngine
from toolscope.errors import ApprovalError, LedgerError
from toolscope.listings import Listing
from toolscope.model import (
    AnyArguments,
    Approval,
    FrozenDict,
    InvalidArguments,
    Provider,
    Reach,
    Scope,
    Tool,
    ToolCall,
    Toolset,
    arguments_digest,
)
from toolscope.stores import Key, MemoryStore, Record, Store
from toolscope.verdicts import (
    Decision,
    Effect,
    decide_settled,
    refusal,
)

__all__ = ["CallLedger", "CallState", "Ignored", "answer_to", "grant_for"]

_decisions = logging.getLogger("toolscope.decisions")

Conditions: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any]], bool | None]
"""Says whether a condition (data) holds for arguments; None = it cannot be told."""


@attrs.frozen(kw_only=True)
class Ignored:
    """Something that came too late for a call, or for none: it changed nothing."""

    what: str
    chat: str | None
    call_id: str | None
    state: CallState | None


def answer_to(
    decision: Decision,
    *,
    allow: bool,
    by: str | None = None,
    at: float | None = None,
    expires: float | None = None,
    reason: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    reach: Reach = Reach.ONCE,
    bind: Mapping[str, Any] | AnyArguments | None = None,
) -> Approval:
    """A person's answer to the asks of an asking decision, for `CallLedger.answer`.

    ``arguments`` are the new arguments where the person edited them: the call comes back with
    those. With a wider ``reach`` than ``ONCE`` the answer is a standing grant as well, of exactly
    these arguments unless ``bind`` says ``AnyArguments.ANY`` or gives a condition.

    Raises:
        ApprovalError: The decision asks nothing, or its call has no id.
    """
    if decision.effect is not Effect.ASK or decision.tool is None:
        raise ApprovalError(f"the decision is {decision.effect}, so there is nothing to answer")
    if decision.call.id is None:
        raise ApprovalError("the call has no id, so an answer could not be told apart; give it one")
    final = decision.call.arguments if arguments is None else arguments
    return Approval(
        allow=allow,
        chat=decision.call.chat,
        call_id=decision.call.id,
        provider=decision.tool.provider,
        own_name=decision.tool.own_name,
        definition=decision.tool.digest,
        arguments=arguments_digest(final) if bind is None else bind,
        answers=frozenset(one.key for one in decision.verdicts),
        reach=reach,
        by=by,
        at=at,
        expires=expires,
        reason=reason,
    )


def grant_for(
    tool: Tool,
    *,
    chat: str | None,
    reach: Reach,
    arguments: Mapping[str, Any] | AnyArguments | None,
    condition: Mapping[str, Any] | None = None,
    by: str | None = None,
    at: float | None = None,
    expires: float | None = None,
) -> Approval:
    """A standing grant that a host gives beforehand: it answers every ask about the tool.

    ``arguments`` are exactly these, or ``AnyArguments.ANY``; ``{}`` is the call without arguments.
    With ``condition``, ``arguments`` is None.

    Raises:
        ApprovalError: Neither or both of arguments and condition are given.
    """
    if (arguments is None) == (condition is None):
        raise ApprovalError("a grant binds arguments or a condition on them: give one of the two")
    bound: Any = condition
    if arguments is not None:
        bound = arguments if isinstance(arguments, AnyArguments) else arguments_digest(arguments)
    return Approval(
        allow=True,
        chat=chat,
        provider=tool.provider,
        own_name=tool.own_name,
        definition=tool.digest,
        arguments=bound,
        reach=reach,
        by=by,
        at=at,
        expires=expires,
    )


_TRIES: Final = 8
"""How often a question is asked anew when another thread or process changed the call meanwhile."""
_IGNORED_KEPT: Final = 1_000


class CallLedger:
    """Asks the engine, and hands each (chat, call id) out at most once (law L6).

    Safe to share between threads and tasks, and between processes over one `SQLiteStore`. A call
    without an id is decided but not remembered.

    Args:
        engine: The engine, or a callable that returns the one in force.
        store: Where the calls are kept; in memory by default.
        clock: Seconds since the epoch, for the expiry of approvals.
        conditions: Evaluates conditions of grants; without it such grants never hold.
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
        self._clock = clock
        self._conditions = conditions
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
        """
        engine, started = self.engine, time.perf_counter()
        for _ in range(_TRIES):
            question = self._open(call, scope, approvals, engine)
            decision = question.settled
            if decision is None:
                first = None
                if produced is not None:
                    first = engine.on_tool_call(produced, tools, scope, prefer)
                decision = engine.on_tool_call(call, tools, scope, prefer, question.approvals)
                decision = self._close(question, call, scope, first, decision)
            if decision is not None:
                break
        else:
            decision = contended(call, scope)
        return self._logged(decision, started)

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
        for _ in range(_TRIES):
            question = self._open(call, scope, approvals, engine)
            decision = question.settled
            if decision is None:
                first = None
                if produced is not None:
                    first = await engine.on_tool_call_async(produced, tools, scope, prefer)
                decision = await engine.on_tool_call_async(
                    call, tools, scope, prefer, question.approvals
                )
                decision = self._close(question, call, scope, first, decision)
            if decision is not None:
                break
        else:
            decision = contended(call, scope)
        return self._logged(decision, started)

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
            ApprovalError: One names no call, or a call that waits for none. Nothing was taken.
        """
        waiting: dict[Key, tuple[Record, list[Approval]]] = {}
        for approval in dict.fromkeys(approvals):
            if approval.call_id is None:
                raise ApprovalError("an answer names the call it answers; give a grant to grant()")
            key = call_key(approval.chat, approval.call_id)
            record = self._store.get(key)
            state = state_of(record)
            if record is not None and state in FINAL:
                self._ignore("answer", approval.chat, approval.call_id, state)
            elif record is None or state is not CallState.ASKED:
                raise ApprovalError(
                    f"call {approval.call_id!r} in chat {approval.chat!r} waits for no answer; "
                    "nothing was taken"
                )
            else:
                waiting.setdefault(key, (record, []))[1].append(approval)
        for key, (record, given) in waiting.items():
            self._take(key, record, given)

    def _take(self, key: Key, record: Record, given: list[Approval]) -> None:
        refusals = [approval for approval in given if not approval.allow]
        if refusals:
            failure = refusal(record["name"], [one.reason for one in refusals if one.reason])
            failure = failure.repeated(self._count(key[1], record, failure.code))
            new = {**record, "state": "denied", "final": True, "failure": attrs.asdict(failure)}
            new.pop("answers", None)
        else:
            once = [one.to_json() for one in given if one.reach is Reach.ONCE]
            new = {**record, "answers": [*record.get("answers", ()), *once]}
        if not self._store.swap(key, record, new):
            self._ignore("answer", key[1], key[2], state_of(self._store.get(key)))
            return
        if not refusals:
            for approval in given:
                if approval.reach is not Reach.ONCE:
                    self.grant(attrs.evolve(approval, call_id=None))

    def grant(self, approval: Approval) -> None:
        """Keeps a standing grant. With the reach ``ONCE`` it is spent by the first call it answers.

        Raises:
            ApprovalError: It is a refusal, or an answer to one call.
        """
        if approval.call_id is not None:
            raise ApprovalError("a grant names no call; give an answer to answer()")
        self._store.swap(("grant", approval.digest), None, approval.to_json())

    def revoke(self, approval: Approval) -> None:
        """Takes a standing grant back. A grant that is not there is no error."""
        key = ("grant", attrs.evolve(approval, call_id=None).digest)
        self._store.swap(key, self._store.get(key), None)

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
        return self._end(chat, call_id, to, "completion", (CallState.HANDED_OUT,), by)

    def cancelled(self, chat: str | None, call_id: str) -> CallState | None:
        """Records that a call will not run, or will not end; returns the state it is in now."""
        from_ = (CallState.ASKED, CallState.HANDED_OUT)
        return self._end(chat, call_id, CallState.CANCELLED, "cancel", from_, None)

    def _end(
        self,
        chat: str | None,
        call_id: str,
        to: CallState,
        what: str,
        from_: tuple[CallState, ...],
        by: Provider | None,
    ) -> CallState | None:
        key = call_key(chat, call_id)
        while True:
            record = self._store.get(key)
            state = state_of(record)
            other = record is not None and by is not None and record.get("provider") != str(by)
            if record is None or state not in from_ or other:
                self._ignore(what, chat, call_id, state)
                return state
            new = {k: v for k, v in record.items() if k != "answers"}
            if self._store.swap(key, record, {**new, "state": to.value, "final": True}):
                return to

    def provider_left(
        self, provider: Provider, *, now: float, grace: float = 0.0
    ) -> tuple[tuple[str | None, str], ...]:
        """Fails the open calls of a provider that has gone, at once or ``grace`` seconds after.

        ``now`` is the time on the host's clock, in seconds. Returns (chat, call id) of each
        call that failed here. With a grace, call `time_passed` later, or `provider_returned`.
        """
        key = ("left", str(provider))
        self._store.swap(key, self._store.get(key), {"until": now + grace})
        return self.time_passed(now)

    def provider_returned(self, provider: Provider) -> None:
        """The provider is back within its grace: its calls go on."""
        key = ("left", str(provider))
        self._store.swap(key, self._store.get(key), None)

    def time_passed(self, now: float) -> tuple[tuple[str | None, str], ...]:
        """Fails the open calls of providers whose grace has ended; gives their (chat, call id)."""
        gone = set()
        for key, record in self._store.items("left"):
            if record["until"] <= now:
                gone.add(key[1])
                self._store.swap(key, record, None)
        failed = []
        if gone:
            for key, record in self._store.items("call"):
                if record.get("provider") in gone and state_of(record) not in FINAL:
                    new = {**record, "state": CallState.FAILED.value, "final": True}
                    if key[2] is not None and self._store.swap(key, record, new):
                        failed.append((key[1], key[2]))
        return tuple(failed)

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
        and arguments, once. The decision is then an allow that names the call. What fits none is
        decided as a call of its own in ``scope``, where an ask is a denial.
        """
        call, scope, claimed = self._claimed(provider, own_name, arguments, tools, scope)
        return claimed or self.on_tool_call(call, tools, scope, prefer)

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
        call, scope, claimed = self._claimed(provider, own_name, arguments, tools, scope)
        return claimed or await self.on_tool_call_async(call, tools, scope, prefer)

    def _claimed(
        self,
        provider: Provider,
        own_name: str,
        arguments: object,
        tools: Toolset,
        scope: Scope,
    ) -> tuple[ToolCall, Scope, Decision | None]:
        tool = next((t for t in tools if t.own_name == own_name and t.provider == provider), None)
        name = own_name if tool is None else tool.name
        call = ToolCall(name=name, provider=provider, arguments=arguments)
        unasked = attrs.evolve(scope, can_ask=False)
        if tool is None or isinstance(call.arguments, InvalidArguments):
            return call, unasked, None
        index = claim_key(tool, arguments_digest(call.arguments))
        for chat, call_id in (self._store.get(index) or {}).get("calls", ()):
            key = call_key(chat, call_id)
            record = self._store.get(key)
            if record is None or state_of(record) is not CallState.HANDED_OUT or record["claimed"]:
                continue
            if self._store.swap(key, record, {**record, "claimed": True}):
                matched = attrs.evolve(call, id=call_id, chat=chat)
                return (
                    call,
                    unasked,
                    Decision(
                        effect=Effect.ALLOW,
                        call=matched,
                        tool=tool,
                        scope=scope,
                        provider=tool.provider,
                    ),
                )
        return call, unasked, None

    # ----------------------------------------------------------------------------------------
    # Saving
    # ----------------------------------------------------------------------------------------

    def save(self) -> dict[str, Any]:
        """All that is remembered, as a JSON object that `load` reads in another process."""
        records = [
            [list(key), dict(record)] for kind in KINDS for key, record in self._store.items(kind)
        ]
        return {"schema": SCHEMA, "records": records}

    def load(self, saved: object) -> None:
        """Takes what `save` gave, into a ledger that is new.

        Raises:
            LedgerError: It is no such object, or of another schema, or this ledger is not empty.
        """
        if not isinstance(saved, Mapping) or saved.get("schema") != SCHEMA:
            raise LedgerError(
                f"the saved ledger is no object of schema {SCHEMA}; treat its calls as settled"
            )
        try:
            records = [(tuple(key), dict(record)) for key, record in saved["records"]]
            for key, record in records:
                check_record(key, record)
        except (KeyError, TypeError, ValueError, ApprovalError) as error:
            raise LedgerError(f"the saved ledger cannot be read: {error}") from error
        for key, record in records:
            if not self._store.swap(key, None, record):
                raise LedgerError(f"this ledger has a record {key!r} already; load into a new one")

    # ----------------------------------------------------------------------------------------
    # One question
    # ----------------------------------------------------------------------------------------

    def _open(
        self, call: ToolCall, scope: Scope, given: Sequence[Approval], engine: PolicyEngine
    ) -> Question:
        """What is known of the call: its settled decision, else the approvals that may count."""
        record = None if call.id is None else self._store.get(call_key(call.chat, call.id))
        state = state_of(record)
        if record is not None and state is not CallState.ASKED:
            if state is CallState.DENIED:
                settled = same_denial(call, scope, record)
            else:
                settled = decide_settled(call, None, scope)
            engine.tell(settled)
            return Question(record=record, settled=settled)
        held = [] if record is None else [Approval.from_json(a) for a in record.get("answers", ())]
        held += [Approval.from_json(grant) for _, grant in self._store.items("grant")]
        approvals: dict[Approval, Approval] = {}
        unused: list[str] = []
        for approval in [*given, *held]:
            why = self._unusable(approval)
            if why is None:
                approvals[self._narrowed(approval, call)] = approval
            elif approval in given:
                unused.append(f"an approval was not used: {why}")
        return Question(record=record, originals=approvals, unused=tuple(unused))

    def _unusable(self, approval: Approval) -> str | None:
        if approval.expires is not None and approval.expires <= self._clock():
            return "it has expired"
        if approval.call_id is None and self._store.get(("spent", approval.digest)) is not None:
            return "it is spent"
        return None

    def _narrowed(self, approval: Approval, call: ToolCall) -> Approval:
        """A grant whose condition holds for this call, as a grant of exactly its arguments."""
        condition = approval.arguments
        if not isinstance(condition, FrozenDict) or self._conditions is None:
            return approval
        if self._conditions(condition, call.arguments) is not True:
            return approval
        return attrs.evolve(approval, arguments=arguments_digest(call.arguments))

    def _close(
        self,
        question: Question,
        call: ToolCall,
        scope: Scope,
        first: Decision | None,
        decision: Decision,
    ) -> Decision | None:
        """Records the decision. None: the call changed meanwhile, so the question is asked anew."""
        if first is not None:
            decision = stricter(call, scope, first, decision, question.approvals)
        if question.unused:
            decision = attrs.evolve(
                decision, unused_approvals=(*question.unused, *decision.unused_approvals)
            )
        if decision.effect is Effect.DENY:
            return self._deny(question, call, decision)
        if decision.tool is None:  # never: an allow and an ask are about a tool
            return None
        digest = arguments_digest(call.arguments)
        if decision.effect is Effect.ALLOW and not self._spend(question, decision):
            return None
        if call.id is None:
            return decision
        record = {
            "state": CallState.ASKED.value,
            "name": call.name,
            "tool": decision.tool.identity,
            "provider": str(decision.tool.provider),
            "arguments": digest,
            "claimed": False,
        }
        if decision.effect is Effect.ASK:
            if question.record is not None and "answers" in question.record:
                record["answers"] = question.record["answers"]
        else:
            record["state"] = CallState.HANDED_OUT.value
        if not self._store.swap(call_key(call.chat, call.id), question.record, record):
            return None
        if decision.effect is Effect.ALLOW:
            self._index(claim_key(decision.tool, digest), call)
        return decision

    def _spend(self, question: Question, decision: Decision) -> bool:
        """Spends the one-time grants this decision rests on; False where one is spent already."""
        for used in decision.approvals:
            approval = question.originals.get(used, used)
            if approval.reach is Reach.ONCE and approval.call_id is None:
                digest = approval.digest
                if not self._store.swap(("spent", digest), None, {"final": True}):
                    return False
                self._store.swap(("grant", digest), approval.to_json(), None)
        return True

    def _index(self, key: Key, call: ToolCall) -> None:
        while True:
            old = self._store.get(key)
            calls = [
                [chat, call_id]
                for chat, call_id in (old or {}).get("calls", ())
                if self.state(chat, call_id) is CallState.HANDED_OUT
            ]
            new = {"calls": [*calls, [call.chat, call.id]], "final": True}
            if self._store.swap(key, old, new):
                return

    def _deny(self, question: Question, call: ToolCall, decision: Decision) -> Decision | None:
        failure = decision.failure
        if failure is None:  # never: a deny has its failure
            return None
        about = {
            "name": call.name,
            "tool": call.name if decision.tool is None else decision.tool.identity,
        }
        failure = failure.repeated(self._count(call.chat, about, failure.code))
        if failure is not decision.failure:
            decision = attrs.evolve(decision, failure=failure)
        if call.id is None:
            return decision
        record = {
            **about,
            "state": CallState.DENIED.value,
            "final": True,
            "failure": attrs.asdict(failure),
            "verdicts": [verdict_to_json(one) for one in decision.verdicts],
        }
        if not self._store.swap(call_key(call.chat, call.id), question.record, record):
            return None
        return decision

    def _count(self, chat: str | None, about: Mapping[str, Any], code: str) -> int:
        """Counts one more denial of this tool in this chat for this cause."""
        key = ("denials", chat, about["tool"], str(code))
        while True:
            old = self._store.get(key)
            count = 1 + (0 if old is None else int(old["count"]))
            if self._store.swap(key, old, {"count": count, "final": True}):
                return count

    def _ignore(
        self, what: str, chat: str | None, call_id: str | None, state: CallState | None
    ) -> None:
        self._ignored.append(Ignored(what=what, chat=chat, call_id=call_id, state=state))

    def _logged(self, decision: Decision, started: float) -> Decision:
        if _decisions.isEnabledFor(logging.INFO):
            seconds = time.perf_counter() - started
            record = decision.record(arguments=self._redactor, seconds=seconds)
            _decisions.info("%s", json.dumps(record))
        return decision
