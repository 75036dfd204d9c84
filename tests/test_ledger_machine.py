"""The ledger against its oracle: any sequence of calls, answers, grants, claims and restarts."""

import json
from collections.abc import Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pytest
from hypothesis import assume, settings
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


class LedgerMachine(RuleBasedStateMachine):
    """One host with a few chats, tools and call ids, so that everything meets everything."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.says = Says()
        self.engine = PolicyEngine([self.says])
        self.file: SQLiteStore | None = None
        self.ledger = CallLedger(self.engine)
        self.oracle = LedgerOracle()
        self.numbers: dict[Approval, int] = {}
        self.asking: dict[tuple[str, str], Decision] = {}
        self.ran: list[tuple[str | None, str | None]] = []
        self.seen: list[tuple[str, str | None, str, str, str | None]] = []
        self.mute: set[str] = set()
        self.hidden: set[tuple[str, str]] = set()
        self.time = 0

    def teardown(self) -> None:
        if self.file is not None:
            self.file.close()
        self.folder.cleanup()

    # What a chat is like --------------------------------------------------------------------

    def scope(self, chat: str) -> Scope:
        row: list[Any] = [
            Ancestor(origin=CHATS[one][0]) if one in CHATS else UNKNOWN for one in above(chat)
        ]
        listed = frozenset(name for name in NAMES if (chat, name) not in self.hidden)
        return Scope(
            origin=CHATS[chat][0],
            ancestry=row,
            can_ask=chat not in self.mute,
            agent=Agent(name="a", tools=listed),
        )

    def call(self, chat: str, id_: str | None, name: str, given: str) -> ToolCall:
        ancestors = tuple(one if one in CHATS else None for one in above(chat))
        return ToolCall(
            id=id_, name=name, chat=chat, ancestors=ancestors, arguments=ARGUMENTS[given]
        )

    def moment(self) -> int:
        self.time += 1
        return self.time

    # Rules of the host ----------------------------------------------------------------------

    @rule(name=names, given=arguments, opinion=st.sampled_from(["allow", "ask", "deny"]))
    def change_policy(self, name: str, given: str, opinion: str) -> None:
        """The policy changes; an ask comes in new words each time."""
        self.says.opinions[name, given] = (
            f"about {name} {given}, {self.moment()}" if opinion == "ask" else opinion
        )

    @rule(chat=chats, name=st.none() | st.sampled_from(NAMES))
    def change_scope(self, chat: str, name: str | None) -> None:
        """A chat gains or loses its person, or a tool."""
        if name is None:
            self.mute ^= {chat}
        else:
            self.hidden ^= {(chat, name)}

    @rule(
        chat=chats,
        id_=st.none() | ids,
        name=names,
        given=arguments,
        produced=st.none() | arguments,
        is_async=st.booleans(),
    )
    def submit(
        self,
        chat: str,
        id_: str | None,
        name: str,
        given: str,
        produced: str | None,
        is_async: bool,
    ) -> None:
        """A call comes, as it was produced or rewritten."""
        self.seen.append((chat, id_, name, given, produced))
        forms = {given, produced or given}
        opinions = {self.says.of(name, one) for one in forms}
        expected = self.oracle.decide(
            chat,
            id_,
            name,
            given,
            listed=(chat, name) not in self.hidden,
            denied="deny" in opinions,
            asks=frozenset(opinions - {"allow", "deny"}),
            can_ask=chat not in self.mute,
        )
        one = self.call(chat, id_, name, given)
        first = None if produced is None else self.call(chat, id_, name, produced)
        if is_async:
            question = self.ledger.on_tool_call_async(one, TOOLS, self.scope(chat), produced=first)
            decision = drive(question)
        else:
            decision = self.ledger.on_tool_call(one, TOOLS, self.scope(chat), produced=first)
        self.check(decision, expected, opinions)
        if decision.effect is Effect.ASK and id_ is not None:
            self.asking[chat, id_] = decision

    @precondition(lambda self: self.seen)
    @rule(data=st.data(), is_async=st.booleans())
    def submit_again(self, data: st.DataObject, is_async: bool) -> None:
        """A call that came before comes again, just so."""
        self.submit(*data.draw(st.sampled_from(self.seen)), is_async)

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

    @precondition(lambda self: self.asking)
    @rule(
        data=st.data(),
        allows=st.lists(st.booleans(), min_size=1, max_size=2),
        reach=reaches,
        any_arguments=st.booleans(),
        edited=st.none() | arguments,
    )
    def answer(
        self,
        data: st.DataObject,
        allows: list[bool],
        reach: str,
        any_arguments: bool,
        edited: str | None,
    ) -> None:
        """A person answers an ask that was shown at some time, perhaps twice at once."""
        chat, id_ = data.draw(st.sampled_from(sorted(self.asking)))
        decision = self.asking[chat, id_]
        assert decision.tool is not None
        shown = next(k for k, v in ARGUMENTS.items() if v == decision.call.arguments)
        wide = reach != "once" and any_arguments
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
                    chat=chat,
                    call=id_,
                    tool=decision.tool.name,
                    arguments=None if wide else edited or shown,
                    asks=frozenset(one.verdict.reason for one in decision.verdicts),
                    reach=reach,
                )
                kept = answer if reach == "once" else attrs.evolve(answer, call_id=None)
                self.numbers[kept] = number
        expected = self.oracle.answer(chat, id_, given, deny=not all(allows))
        before = len(self.ledger.ignored)
        if expected == "error":
            with pytest.raises(ApprovalError, match="waits for no answer"):
                self.ledger.answer(*answers)
        else:
            self.ledger.answer(*answers, *answers)
            assert len(self.ledger.ignored) - before == (expected == "ignored")
        if data.draw(st.booleans(), label="submitted again at once"):
            again = next(one for one in reversed(self.seen) if one[:2] == (chat, id_))
            self.submit(*again[:3], edited or again[3], again[4], is_async=False)

    @rule(chat=chats, name=names, reach=reaches, given=st.none() | arguments)
    def grant(self, chat: str, name: str, reach: str, given: str | None) -> None:
        """The host grants calls of a tool beforehand."""
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

    @precondition(lambda self: self.numbers)
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        """A grant is taken back, whether it is still there or not."""
        made, number = data.draw(
            st.sampled_from(sorted(self.numbers.items(), key=lambda item: item[1]))
        )
        assume(made.call_id is None)
        self.ledger.revoke(made)
        self.oracle.grants.pop(number, None)

    @rule(chat=chats, id_=ids, way=st.sampled_from(["completed", "failed", "cancelled"]))
    def end(self, chat: str, id_: str, way: str) -> None:
        """A report on a call comes, early, late or in time."""
        if way == "cancelled":
            from_: tuple[str, ...] = ("asked", "handed_out")
            now = self.ledger.cancelled(chat, id_)
        else:
            from_ = ("handed_out",)
            now = self.ledger.completed(chat, id_, failed=way == "failed")
        assert now == self.oracle.end(chat, id_, way, from_=from_)

    @rule()
    def shop_leaves(self) -> None:
        """The provider of the tool ``buy`` goes, for good."""
        gone = self.ledger.provider_left(SHOP, now=self.moment())
        assert set(gone) == self.oracle.leave(["buy"])

    @precondition(lambda self: self.seen)
    @rule(data=st.data(), is_async=st.booleans())
    def claim(self, data: st.DataObject, is_async: bool) -> None:
        """An execution arrives without a call id, of something that was called before."""
        chat, _, name, given, _ = data.draw(st.sampled_from(self.seen))
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
            listed=(chat, name) not in self.hidden,
            denied=opinion == "deny",
            asks=frozenset({opinion} - {"allow", "deny"}),
            can_ask=False,
        )
        self.check(decision, expected, {opinion})

    @rule(to_file=st.booleans())
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

    # What holds throughout ------------------------------------------------------------------

    @invariant()
    def no_call_runs_twice(self) -> None:
        """L6: whatever was answered, granted, saved, loaded, claimed and submitted again."""
        assert len(self.ran) == len(set(self.ran))
        assert set(self.ran) == set(self.oracle.ran)

    @invariant()
    def the_states_are_those_of_the_oracle(self) -> None:
        """Every call is where the oracle has it."""
        for (chat, id_), one in self.oracle.calls.items():
            assert self.ledger.state(chat, id_) == one["state"]


LedgerMachine.TestCase.settings = settings(stateful_step_count=30)
test_no_sequence_breaks_the_ledger = LedgerMachine.TestCase
