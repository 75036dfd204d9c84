"""The ledger against its oracle: any sequence of calls, answers, grants, claims and restarts."""

import json
import random
from collections.abc import Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.ledger_oracle import CHATS, LedgerOracle, above, approval
from toolscope.calls import CallLedger, answer_to, grant_for
from toolscope.engine import PolicyEngine
from toolscope.errors import ApprovalError
from toolscope.hookspecs import hookimpl
from toolscope.model import (
    UNKNOWN,
    Agent,
    Ancestor,
    AnyArguments,
    Approval,
    Provider,
    Reach,
    Scope,
    Tool,
    ToolCall,
    Toolset,
)
from toolscope.stores import SQLiteStore
from toolscope.verdicts import Decision, Effect, Verdict, ask, deny

BANK, SHOP = Provider.mcp("bank"), Provider.mcp("shop")
TOOLS = Toolset(
    [
        Tool(name="pay", own_name="transfer", provider=BANK),
        Tool(name="look", provider=BANK),
        Tool(name="buy", provider=SHOP),
    ]
)
NAMES = [tool.name for tool in TOOLS]
ARGUMENTS = {"none": {}, "small": {"sum": 2**53}, "large": {"sum": 2**53 + 1}}

# Most of what is drawn is about the same few things, or nothing would ever meet.
chats = st.sampled_from(["main"] * 6 + ["worker"] * 3 + sorted(CHATS))
ids = st.sampled_from("1234")
names = st.sampled_from(["pay"] * 6 + NAMES)
arguments = st.sampled_from(["small"] * 4 + sorted(ARGUMENTS))
reaches = st.sampled_from([str(reach) for reach in Reach])
seeds = st.integers(0, 2**32)


class Says:
    """A rule whose opinion of a tool with arguments is changed from outside."""

    name = "says"

    def __init__(self) -> None:
        self.opinions = {("pay", given): f"about pay {given}" for given in ARGUMENTS}

    def of(self, name: str, given: str) -> str:
        """``allow``, ``deny``, or the text of an ask."""
        return self.opinions.get((name, given), "allow")

    @hookimpl
    def on_tool_call(self, call: ToolCall, tool: Tool) -> Verdict | None:
        given = next(one for one, value in ARGUMENTS.items() if value == call.arguments)
        match self.of(tool.name, given):
            case "allow":
                return None
            case "deny":
                return deny("denied")
            case text:
                return ask(text)


def drive(question: Coroutine[Any, Any, Decision]) -> Decision:
    """Runs a question that awaits nothing."""
    try:
        question.send(None)
    except StopIteration as done:
        decision: Decision = done.value
        return decision
    raise AssertionError("it awaited something")


class Host:
    """One host with a ledger and its oracle; every act is checked against the oracle."""

    def __init__(self) -> None:
        self.folder = TemporaryDirectory()
        self.says = Says()
        self.engine = PolicyEngine([self.says])
        self.file: SQLiteStore | None = None
        self.ledger = CallLedger(self.engine)
        self.oracle = LedgerOracle()
        self.numbers: dict[Approval, int] = {}
        self.asking: dict[tuple[str, str], Decision] = {}
        self.seen: list[tuple[str, str | None, str, str, str | None]] = []
        self.ran: list[tuple[str | None, str | None]] = []
        self.mute: set[str] = set()
        self.hidden: tuple[str, str] | None = None
        self.time = 0

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
        self.folder.cleanup()

    def moment(self) -> int:
        self.time += 1
        return self.time

    def scope(self, chat: str) -> Scope:
        row: list[Any] = [
            Ancestor(origin=CHATS[one][0]) if one in CHATS else UNKNOWN for one in above(chat)
        ]
        listed = frozenset(name for name in NAMES if (chat, name) != self.hidden)
        return Scope(
            origin=CHATS[chat][0],
            ancestry=row,
            can_ask=chat not in self.mute,
            agent=Agent(name="a", tools=listed),
        )

    def change_policy(self, name: str, given: str, opinion: str) -> None:
        """The policy changes; an ask comes in new words each time."""
        self.says.opinions[name, given] = (
            f"about {name} {given}, {self.moment()}" if opinion == "ask" else opinion
        )

    def change_scope(self, chat: str, name: str | None) -> None:
        """A chat gains or loses its person, or loses a tool; the others have all of theirs."""
        self.hidden = None if name is None else (chat, name)
        if name is None:
            self.mute ^= {chat}

    # Calls ----------------------------------------------------------------------------------

    def submit(
        self,
        chat: str,
        id_: str | None,
        name: str,
        given: str,
        produced: str | None,
        is_async: bool,
        claimed: bool,
    ) -> None:
        """A call comes, as it was produced or rewritten; the host executes it itself, or not."""
        self.seen.append((chat, id_, name, given, produced))
        opinions = {self.says.of(name, one) for one in (given, produced or given)}
        expected = self.oracle.decide(
            chat,
            id_,
            name,
            given,
            listed=(chat, name) != self.hidden,
            denied="deny" in opinions,
            asks=frozenset(opinions - {"allow", "deny"}),
            can_ask=chat not in self.mute,
        )
        ancestors = tuple(one if one in CHATS else None for one in above(chat))
        call, first = (
            None
            if one is None
            else ToolCall(
                id=id_, name=name, chat=chat, ancestors=ancestors, arguments=ARGUMENTS[one]
            )
            for one in (given, produced)
        )
        assert call is not None
        parts = (call, TOOLS, self.scope(chat))
        if is_async:
            decision = drive(
                self.ledger.on_tool_call_async(*parts, produced=first, claimed=claimed)
            )
        else:
            decision = self.ledger.on_tool_call(*parts, produced=first, claimed=claimed)
        self.check(decision, expected, opinions)
        if claimed and decision.effect is Effect.ALLOW and id_ is not None:
            self.oracle.calls[chat, id_]["fresh"] = False
        if decision.effect is Effect.ASK and id_ is not None:
            self.asking[chat, id_] = decision

    def check(self, decision: Decision, expected: dict[str, Any], opinions: set[str]) -> None:
        failure = decision.failure
        assert str(decision.effect) == expected["effect"]
        assert (None if failure is None else str(failure.code)) == expected["code"]
        assert (None if failure is None else failure.attempts) == expected["attempts"]
        assert (decision.provider is None) is (decision.effect is Effect.DENY), "L5"
        if decision.effect is not Effect.ALLOW:
            return
        assert "deny" not in opinions, "an approval permitted what a rule denies"
        if decision.call.id is not None:
            self.ran.append((decision.call.chat, decision.call.id))
        asks = opinions - {"allow"}
        used = {self.numbers[one] for one in decision.approvals}
        assert used <= expected["fitting"]
        assert self.oracle.answered(used, asks) == asks
        lasting = {one for one in expected["fitting"] if not self.oracle.is_once(one)}
        for number in used - lasting:
            mine = self.oracle.answered([number], asks)
            assert mine - self.oracle.answered(lasting, asks), "spent where it was not needed"
        self.oracle.handed_out(used)

    def claim(self, chat: str, name: str, given: str, *, is_async: bool) -> None:
        """An execution arrives without a call id."""
        tool = TOOLS.by_name(name)[0]
        parts = (tool.provider, tool.own_name, ARGUMENTS[given], TOOLS, self.scope(chat))
        matched = self.oracle.claim(name, given)
        decision = drive(self.ledger.claim_async(*parts)) if is_async else self.ledger.claim(*parts)
        if matched is not None:
            assert decision.effect is Effect.ALLOW
            assert (decision.call.chat, decision.call.id) == matched
            return
        opinion = self.says.of(name, given)
        expected = self.oracle.decide(
            None,
            None,
            name,
            given,
            listed=(chat, name) != self.hidden,
            denied=opinion == "deny",
            asks=frozenset({opinion} - {"allow", "deny"}),
            can_ask=False,
        )
        self.check(decision, expected, {opinion})

    def end(self, chat: str, id_: str, way: str) -> None:
        """A report on a call comes, early, late or in time."""
        if way == "cancelled":
            from_: tuple[str, ...] = ("asked", "handed_out")
            now = self.ledger.cancelled(chat, id_)
        else:
            from_ = ("handed_out",)
            now = self.ledger.completed(chat, id_, failed=way == "failed")
        assert now == self.oracle.end(chat, id_, way, from_=from_)

    def shop_leaves(self) -> None:
        """The provider of the tool ``buy`` goes, for good."""
        gone = self.ledger.provider_left(SHOP, now=self.moment())
        assert set(gone) == self.oracle.leave(["buy"])

    # Approvals ------------------------------------------------------------------------------

    def answer(
        self, to: tuple[str, str], allows: list[bool], reach: str, bind: str, edited: str | None
    ) -> None:
        """A person answers an ask that was shown at some time, perhaps in two minds."""
        decision = self.asking[to]
        assert decision.tool is not None
        shown = next(k for k, v in ARGUMENTS.items() if v == decision.call.arguments)
        wide = reach != "once" and bind == "any"
        given: dict[int, dict[str, Any]] = {}
        answers = []
        for allow in allows:
            number = self.moment()
            answer = answer_to(
                decision,
                allow=allow,
                at=number,
                reach=Reach(reach) if allow else Reach.ONCE,
                arguments=None if edited is None else ARGUMENTS[edited],
                bind=AnyArguments.ANY if wide and allow else None,
            )
            answers.append(answer)
            if allow:
                given[number] = approval(
                    chat=to[0],
                    call=to[1],
                    tool=decision.tool.name,
                    arguments=None if wide else edited or shown,
                    asks=frozenset(one.verdict.reason for one in decision.verdicts),
                    reach=reach,
                )
                kept = answer if reach == "once" else attrs.evolve(answer, call_id=None)
                self.numbers[kept] = number
        expected = self.oracle.answer(*to, given, deny=not all(allows))
        before = len(self.ledger.ignored)
        if expected == "error":
            with pytest.raises(ApprovalError, match="waits for no answer"):
                self.ledger.answer(*answers)
        else:
            self.ledger.answer(*answers, *answers)
            assert len(self.ledger.ignored) - before == (expected == "ignored")

    def grant(self, chat: str, name: str, reach: str, given: str | None) -> None:
        """The host grants calls of a tool beforehand; each grant is told apart by its time."""
        number = self.moment()
        made = grant_for(
            TOOLS.by_name(name)[0],
            chat=chat,
            reach=Reach(reach),
            arguments=AnyArguments.ANY if given is None else ARGUMENTS[given],
            at=number,
        )
        self.ledger.grant(made)
        self.numbers[made] = number
        self.oracle.grants[number] = approval(
            chat=chat, call=None, tool=name, arguments=given, asks=None, reach=reach
        )

    def revoke(self, made: Approval) -> None:
        """A grant is taken back, whether it is still there or not."""
        if made.call_id is None:
            self.ledger.revoke(made)
            self.oracle.grants.pop(self.numbers[made], None)

    # ----------------------------------------------------------------------------------------

    def restart(self, to_file: bool) -> None:
        """The host saves, ends, and goes on in a new ledger, in memory or in a file."""
        saved = json.loads(json.dumps(self.ledger.save()))
        if self.file is not None:
            self.file.close()
            self.file = None
        if to_file:
            self.file = SQLiteStore(str(Path(self.folder.name) / f"{self.moment()}.db"))
        self.ledger = CallLedger(self.engine, self.file)
        self.ledger.load(saved)
        assert self.ledger.save() == saved

    def check_all(self) -> None:
        """L6, whatever was answered, granted, saved, loaded, claimed and submitted again."""
        assert len(self.ran) == len(set(self.ran))
        assert set(self.ran) == set(self.oracle.ran)
        for (chat, id_), one in self.oracle.calls.items():
            assert self.ledger.state(chat, id_) == one["state"]


# --------------------------------------------------------------------------------------------
# Short sequences, which Hypothesis makes shorter still where one fails
# --------------------------------------------------------------------------------------------


class LedgerMachine(RuleBasedStateMachine):
    """Draws the acts of a host."""

    def __init__(self) -> None:
        super().__init__()
        self.host = Host()

    def teardown(self) -> None:
        self.host.close()

    @rule(
        chat=chats,
        id_=st.none() | ids,
        name=names,
        given=arguments,
        produced=st.none() | arguments,
        is_async=st.booleans(),
        claimed=st.booleans(),
    )
    def submit(
        self,
        chat: str,
        id_: str | None,
        name: str,
        given: str,
        produced: str | None,
        is_async: bool,
        claimed: bool,
    ) -> None:
        self.host.submit(chat, id_, name, given, produced, is_async, claimed)

    @precondition(lambda self: self.host.seen)
    @rule(data=st.data(), is_async=st.booleans(), claimed=st.booleans())
    def submit_again(self, data: st.DataObject, is_async: bool, claimed: bool) -> None:
        self.host.submit(*data.draw(st.sampled_from(self.host.seen)), is_async, claimed)

    @precondition(lambda self: self.host.seen)
    @rule(data=st.data(), is_async=st.booleans())
    def claim(self, data: st.DataObject, is_async: bool) -> None:
        chat, _, name, given, _ = data.draw(st.sampled_from(self.host.seen))
        self.host.claim(chat, name, given, is_async=is_async)

    @rule(chat=chats, id_=ids, way=st.sampled_from(["completed", "failed", "cancelled"]))
    def end(self, chat: str, id_: str, way: str) -> None:
        self.host.end(chat, id_, way)

    @precondition(lambda self: self.host.asking)
    @rule(
        data=st.data(),
        allows=st.lists(st.booleans(), min_size=1, max_size=2),
        reach=reaches,
        bind=st.sampled_from(["exact", "any"]),
        edited=st.none() | arguments,
    )
    def answer(
        self, data: st.DataObject, allows: list[bool], reach: str, bind: str, edited: str | None
    ) -> None:
        to = data.draw(st.sampled_from(sorted(self.host.asking)))
        self.host.answer(to, allows, reach, bind, edited)

    @rule(chat=chats, name=names, reach=reaches, given=st.none() | arguments)
    def grant(self, chat: str, name: str, reach: str, given: str | None) -> None:
        self.host.grant(chat, name, reach, given)

    @precondition(lambda self: self.host.numbers)
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        self.host.revoke(data.draw(st.sampled_from(list(self.host.numbers))))

    @rule(name=names, given=arguments, opinion=st.sampled_from(["allow", "ask", "deny"]))
    def change_policy(self, name: str, given: str, opinion: str) -> None:
        self.host.change_policy(name, given, opinion)

    @rule(chat=chats, name=st.none() | names)
    def change_scope(self, chat: str, name: str | None) -> None:
        self.host.change_scope(chat, name)

    @rule()
    def shop_leaves(self) -> None:
        self.host.shop_leaves()

    @rule(to_file=st.booleans())
    def restart(self, to_file: bool) -> None:
        self.host.restart(to_file)

    @invariant()
    def all_is_as_the_oracle_has_it(self) -> None:
        self.host.check_all()


LedgerMachine.TestCase.settings = settings(
    max_examples=settings().max_examples // 3, stateful_step_count=30
)
test_no_sequence_breaks_the_ledger = LedgerMachine.TestCase

# --------------------------------------------------------------------------------------------
# Long ones, in which everything meets everything
# --------------------------------------------------------------------------------------------

STEPS = 300


@settings(max_examples=settings().max_examples // 10)
@given(seeds)
def test_no_long_sequence_breaks_the_ledger(seed: int) -> None:
    """Three hundred acts, most of them about the same chat, tool, arguments and last few calls."""
    choose = random.Random(seed)
    host = Host()
    try:
        for step in range(STEPS):
            act(host, choose, step // 8)
        host.check_all()
    finally:
        host.close()


def act(host: Host, choose: random.Random, age: int) -> None:
    """One act; call ids are of about this age."""

    def often(usual: str, others: list[str]) -> str:
        return usual if choose.random() < 0.7 else choose.choice(others)

    def some(value: str) -> str | None:
        return value if choose.random() < 0.3 else None

    chat, name = often("main", list(CHATS)), often("pay", NAMES)
    given, other = (often("small", list(ARGUMENTS)) for _ in range(2))
    id_, is_async = str(age + choose.randrange(3)), choose.random() < 0.5
    claimed = choose.random() < 0.2
    reach = choose.choice(["once", "chat", "subtree"])
    match choose.choices(
        ["submit", "again", "claim", "end", "answer", "grant", "revoke", "policy", "scope",
         "leaves", "restart"],
        [30, 15, 15, 6, 25, 5, 3, 3, 5, 1, 2],
    )[0]:  # fmt: skip
        case "submit":
            host.submit(chat, id_, name, given, some(other), is_async, claimed)
            if choose.random() < 0.1:
                host.submit(chat, None, name, given, None, is_async, claimed)
        case "again" if host.seen:
            host.submit(*choose.choice(host.seen[-12:]), is_async, claimed)
        case "claim" if host.seen:
            chat, _, name, given, _ = choose.choice(host.seen[-12:])
            host.claim(chat, name, given, is_async=is_async)
        case "end":
            host.end(chat, id_, choose.choice(["completed", "failed", "cancelled"]))
        case "answer" if host.asking:
            to = choose.choice(list(host.asking)[-4:])
            allows = choose.choice([[True], [True], [True], [False], [True, True], [False, True]])
            edited = some(other)
            host.answer(to, allows, often("once", [reach]), often("exact", ["any"]), edited)
            last = next(one for one in reversed(host.seen) if one[:2] == to)
            host.submit(*last[:3], edited or last[3], last[4], is_async, claimed)
        case "grant":
            host.grant(chat, name, often("once", [reach]), some(given))
        case "revoke" if host.numbers:
            host.revoke(choose.choice(list(host.numbers)[-6:]))
        case "policy":
            host.change_policy(name, given, often("ask", ["allow", "deny"]))
        case "scope":
            host.change_scope(often(chat, list(CHATS)), choose.choice([None, name]))
        case "leaves":
            host.shop_leaves()
        case "restart":
            host.restart(choose.random() < 0.3)
