"""The ledger under threads, tasks, processes and cancellation: nothing is handed out twice."""

import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.environments import ROOT
from tests.ledgers import BANK, PAY, TOOLS, USER, asked, call, code, effect, make_ledger
from tests.strategies import Rule
from toolscope import scopes
from toolscope.calls import CallLedger, CallState, answer_to, grant_for
from toolscope.engine import PolicyEngine
from toolscope.errors import ApprovalError
from toolscope.hookspecs import hookimpl
from toolscope.listings import Listing
from toolscope.model import AnyArguments, Reach, ToolCall
from toolscope.stores import MemoryStore, SQLiteStore, Store
from toolscope.verdicts import Decision, Effect, Verdict, ask

THREADS = 16
BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def at_once(act: Callable[[int], Any]) -> list[Any]:
    """What ``act`` gives in 16 threads that start together."""
    start = threading.Barrier(THREADS)

    def one(place: int) -> Any:
        start.wait(30)
        return act(place)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(THREADS)))


def submit(ledger: CallLedger, one: ToolCall, _: int) -> Decision:
    """One thread's question."""
    return ledger.on_tool_call(one, TOOLS, USER)


# --------------------------------------------------------------------------------------------
# Threads and processes
# --------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Each kind of store, new."""
    if request.param == "memory":
        yield MemoryStore()
    else:
        with closing(SQLiteStore(str(tmp_path / "ledger.db"))) as made:
            yield made


def test_one_id_in_many_threads_is_handed_out_once(store: Store) -> None:
    """Allowed by the rules, answered, or by a standing grant; the others are settled."""
    ledger = make_ledger(store=store)
    ledger.answer(answer_to(asked(ledger, call("answered")), allow=True))
    ledger.grant(grant_for(PAY, chat="g", reach=Reach.CHAT, arguments=AnyArguments.ANY))
    for one in [call("free", name="read"), call("answered"), call("granted", chat="g")]:
        given = at_once(partial(submit, ledger, one))
        assert Counter(str(one.effect) for one in given) == {"allow": 1, "deny": THREADS - 1}
        assert {code(one) for one in given if one.failure} == {"call_settled"}


def test_many_ids_in_many_threads_spend_each_one_time_grant_once(store: Store) -> None:
    """Five grants, sixteen calls: five run, the others ask, and no grant is left or lost."""
    ledger = make_ledger(store=store)
    for place in range(5):
        grant = grant_for(PAY, chat="main", reach=Reach.ONCE, arguments=AnyArguments.ANY, at=place)
        ledger.grant(grant)
    given = at_once(lambda place: effect(ledger, call(f"c{place}")))
    assert Counter(map(str, given)) == {"allow": 5, "ask": THREADS - 5}
    assert [key for key, _ in ledger.save()["records"] if key[0] == "grant"] == []
    assert effect(ledger, call("late")) is Effect.ASK


def test_one_execution_is_claimed_once(store: Store) -> None:
    """Sixteen threads, three calls that wait: three claims are matched, each to its own."""
    ledger = make_ledger({}, store=store)
    for place in range(3):
        effect(ledger, call(f"c{place}"))
    given = at_once(lambda _: ledger.claim(BANK, "transfer", {}, TOOLS, USER).call.id)
    assert sorted(one for one in given if one) == ["c0", "c1", "c2"]


def test_denials_in_many_threads_are_all_counted(store: Store) -> None:
    """Each of sixteen calls has its own number."""
    ledger = make_ledger(store=store)
    given = at_once(lambda place: ledger.on_tool_call(call(f"c{place}", name="wipe"), TOOLS, USER))
    counts = sorted(one.failure.attempts for one in given)
    assert counts == list(range(1, THREADS + 1))


@pytest.mark.parametrize("shift", range(20))
def test_answers_and_hand_outs_that_cross_agree(shift: int) -> None:
    """A refusal that was taken is never run; one that came too late is recorded."""
    ledger = make_ledger()
    decision = asked(ledger, call())
    allow, refuse = (answer_to(decision, allow=one) for one in (True, False))

    def act(place: int) -> Any:
        try:
            match (place + shift) % 4:
                case 0:
                    return ledger.answer(allow)
                case 1:
                    return ledger.answer(refuse)
                case 2:
                    return ledger.cancelled("main", "c1")
                case _:
                    return effect(ledger, call())
        except ApprovalError as error:  # an answer to a call that is out
            return error

    given = at_once(act)
    state = ledger.state("main", "c1")
    assert state in (CallState.DENIED, CallState.CANCELLED)
    assert given.count(Effect.ALLOW) <= (state is CallState.CANCELLED)


def test_a_file_may_be_opened_by_many_at_once(tmp_path: Path) -> None:
    """Whoever comes first makes it; all of them work in it."""
    path = str(tmp_path / "ledger.db")

    def act(place: int) -> bool:
        with closing(SQLiteStore(path)) as store:
            return store.swap(("call", None, str(place % 4)), None, {"state": "asked"})

    assert sorted(at_once(act)) == [False] * (THREADS - 4) + [True] * 4


PROGRAM = """
import sys, json
from tests.ledgers import *
from toolscope.stores import SQLiteStore
store = SQLiteStore(sys.argv[1])
ledger = make_ledger(store=store)
sys.stdin.readline()
ran = []
for place in range(25):
    for name in ("read", "pay"):
        if effect(ledger, call(f"{name}{place}", name=name)) is Effect.ALLOW:
            ran.append(f"{name}{place}")
print(json.dumps(ran))
store.close()
"""


@pytest.mark.slow
def test_processes_over_one_file_never_hand_a_call_out_twice(tmp_path: Path) -> None:
    """Four processes submit the same fifty calls; ten one-time grants permit ten of the asks."""
    path = str(tmp_path / "ledger.db")
    with closing(SQLiteStore(path)) as store:
        ledger = make_ledger(store=store)
        for place in range(10):
            ledger.grant(
                grant_for(PAY, chat="main", reach=Reach.ONCE, arguments=AnyArguments.ANY, at=place)
            )

    async def race() -> list[str]:
        processes = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", PROGRAM, path, cwd=ROOT,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )
            for _ in range(4)
        ]  # fmt: skip
        given = await asyncio.gather(*(one.communicate(b"go\n") for one in processes))
        return [name for output, _ in given for name in json.loads(output)]

    ran = asyncio.run(asyncio.wait_for(race(), 120))
    assert len(ran) == len(set(ran)) == 25 + 10
    assert sum(name.startswith("read") for name in ran) == 25


# --------------------------------------------------------------------------------------------
# Tasks and cancellation
# --------------------------------------------------------------------------------------------

STEPS = 3


class Slow:
    """A rule that waits three times before it answers, and says before which of them it is."""

    name = "slow"

    def __init__(self, verdict: Verdict | None = None) -> None:
        self.verdict = verdict
        self.reached: Callable[[int], object] = lambda step: None
        self.heard: list[Decision] = []

    @hookimpl
    async def on_tool_call(self) -> Verdict | None:
        for step in range(STEPS):
            self.reached(step)
            await anyio.sleep(0)
        self.reached(STEPS)
        return self.verdict

    @hookimpl
    def on_decision(self, outcome: Decision | Listing) -> None:
        if isinstance(outcome, Decision):
            self.heard.append(outcome)


def run(backend: str, act: Callable[[], Awaitable[Any]]) -> Any:
    """Runs a coroutine function in a new event loop of this kind, for 30 seconds at most."""

    async def bounded() -> Any:
        with anyio.fail_after(30):
            return await act()

    return anyio.run(bounded, backend=backend)


@BACKENDS
def test_one_id_in_many_tasks_is_handed_out_once(backend: str) -> None:
    """A hundred tasks wait for the same rule at the same time; observers hear what counts."""
    rule = Slow()
    ledger = CallLedger(PolicyEngine([rule]))
    given: list[Decision] = []

    async def one() -> None:
        given.append(await ledger.on_tool_call_async(call(), TOOLS, USER))

    async def all_() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(one)

    run(backend, all_)
    assert Counter(str(one.effect) for one in given) == {"allow": 1, "deny": 99}
    assert sorted(map(id, rule.heard)) == sorted(map(id, given))


@BACKENDS
@pytest.mark.parametrize("step", range(STEPS + 1))
@pytest.mark.parametrize("way", ["call", "rewritten", "claim"])
def test_a_cancelled_question_leaves_no_trace(backend: str, step: int, way: str) -> None:
    """At any await: no record, no spent grant, no entered scope; the call runs once later."""
    rule = Slow(ask("slow asks"))
    ledger = CallLedger(PolicyEngine([rule]))
    for chat in ("main", None):
        grant = grant_for(PAY, chat=chat, reach=Reach.ONCE, arguments=AnyArguments.ANY)
        ledger.grant(grant)
    before = ledger.save()
    left: list[Decision] = []

    async def question() -> Decision:
        if way == "claim":
            return await ledger.claim_async(BANK, "transfer", {}, TOOLS, USER)
        produced = call() if way == "rewritten" else None
        return await ledger.on_tool_call_async(call(), TOOLS, USER, produced=produced)

    async def cancelled() -> None:
        with anyio.CancelScope() as scope:
            rule.reached = lambda at: scope.cancel() if at == step else None
            left.append(await question())
        assert scope.cancelled_caught is not bool(left)
        assert scopes.current() is None

    run(backend, cancelled)
    assert left == []
    assert ledger.save() == before
    assert [one.failure.code for one in rule.heard if one.failure] == ["policy_error"]
    rule.reached = lambda at: None
    assert run(backend, question).effect is Effect.ALLOW
    second = run(backend, question)
    assert (second.effect, second.provider) == (Effect.DENY, None)


def test_a_task_that_is_cancelled_by_asyncio_leaves_no_trace() -> None:
    """The same for a host that cancels the task itself."""
    rule = Slow()
    ledger = CallLedger(PolicyEngine([rule]))

    async def cancel() -> None:
        task = asyncio.create_task(ledger.on_tool_call_async(call(), TOOLS, USER))
        rule.reached = lambda at: at == 1 and task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(cancel(), 30))
    assert ledger.save()["records"] == []


@BACKENDS
def test_a_call_that_is_settled_while_rules_are_asked_is_not_handed_out(backend: str) -> None:
    """Cancelled or refused by somebody else meanwhile: the answer of the rules comes too late."""
    rule = Slow()
    ledger = CallLedger(PolicyEngine([rule, Rule(name="rules", called={"pay": "ask"})]))
    decision = run(backend, lambda: ledger.on_tool_call_async(call(), TOOLS, USER))
    ledger.answer(answer_to(decision, allow=True))
    rule.reached = lambda at: None if at else ledger.answer(answer_to(decision, allow=False))
    late = run(backend, lambda: ledger.on_tool_call_async(call(), TOOLS, USER))
    assert code(late) == "approval_refused"
    rule.reached = lambda at: None
    assert rule.heard[-1] is late


@BACKENDS
def test_the_async_questions_are_the_sync_ones(backend: str) -> None:
    """The same calls in the same order get the same decisions."""
    questions: list[tuple[ToolCall, ToolCall | None]] = [
        (call("a", name="read"), None),
        (call("a", name="read"), None),
        (call("b"), None),
        (call("c", name="wipe"), None),
        (call("c", name="wipe"), None),
        (call("d"), call("d", arguments={"x": 1})),
        (call(None, name="none"), None),
        (call("e", arguments="{"), None),
    ]
    sync, other = make_ledger(), make_ledger()
    for one, produced in questions:
        expected = sync.on_tool_call(one, TOOLS, USER, produced=produced)
        ask_async = partial(other.on_tool_call_async, one, TOOLS, USER, produced=produced)
        assert run(backend, ask_async) == expected
    claim_async = partial(other.claim_async, BANK, "transfer", {}, TOOLS, USER)
    assert run(backend, claim_async) == sync.claim(BANK, "transfer", {}, TOOLS, USER)
    assert other.save() == sync.save()
