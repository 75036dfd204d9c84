"""The call ledger: each call once, what becomes of calls, and executions without an id."""

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from tests.ledgers import (
    ALONE,
    BANK,
    PAY,
    READ,
    TOOLS,
    USER,
    WIPE,
    answered,
    asked,
    call,
    code,
    effect,
    make_ledger,
    message,
    reader,
)
from tests.strategies import Rule
from toolscope.calls import CallLedger, CallState, Ignored, answer_to, grant_for
from toolscope.engine import PolicyEngine
from toolscope.errors import ApprovalError, LedgerError
from toolscope.hookspecs import hookimpl
from toolscope.listings import Listing
from toolscope.model import HOST, AnyArguments, Approval, Provider, Reach, Tool, ToolCall, Toolset
from toolscope.stores import Key, MemoryStore, Record
from toolscope.verdicts import Decision, Effect, Verdict, ask, decide_settled, deny

# --------------------------------------------------------------------------------------------
# Each call once
# --------------------------------------------------------------------------------------------


def test_an_allowed_call_is_handed_out_once() -> None:
    """Asked again it is denied, and nobody is named: whatever tool and arguments come with it."""
    ledger = make_ledger()
    first = ledger.on_tool_call(call(name="read"), TOOLS, USER)
    assert (first.effect, first.provider) == (Effect.ALLOW, HOST)
    for again, tool in [
        (call(name="read"), READ),
        (call(name="read", arguments={"x": 1}), READ),
        (call(name="wipe"), None),
    ]:
        decision = ledger.on_tool_call(again, TOOLS, USER)
        assert (code(decision), decision.tool, decision.provider) == ("call_settled", tool, None)
    assert message(ledger.on_tool_call(call(name="read"), TOOLS, USER)) == (
        "This call of 'read' is settled, and no call runs twice: it was handed out to be executed. "
        "The same call cannot succeed here; do not repeat it."
    )


@pytest.mark.parametrize(
    ("state", "became"),
    [
        (CallState.COMPLETED, "it has completed"),
        (CallState.FAILED, "it has failed"),
        (CallState.CANCELLED, "it was cancelled"),
    ],
)
def test_a_finished_call_says_what_became_of_it(state: CallState, became: str) -> None:
    """The denial of a call that is over names the way in which it ended."""
    ledger = make_ledger()
    ledger.on_tool_call(call(name="read"), TOOLS, USER)
    if state is CallState.CANCELLED:
        assert ledger.cancelled("main", "c1") is state
    else:
        assert ledger.completed("main", "c1", failed=state is CallState.FAILED) is state
    decision = ledger.on_tool_call(call(name="read"), TOOLS, USER)
    assert f"no call runs twice: {became}." in message(decision)
    assert code(decision) == "call_settled"


def test_ids_are_apart_in_other_chats() -> None:
    """The same id in another chat, or in none, is another call."""
    ledger = make_ledger()
    for chat in ("main", "side", None):
        assert effect(ledger, call(name="read", chat=chat)) is Effect.ALLOW
        assert effect(ledger, call(name="read", chat=chat)) is Effect.DENY


def test_the_list_question_is_the_engines() -> None:
    """A ledger answers it as its engine does, preferred client included."""
    ledger = make_ledger()
    tools = Toolset([Tool(name="t", provider=Provider.client(one)) for one in ("a", "b")])
    for prefer in ("a", "b"):
        listing = ledger.filter_tools(tools, USER, prefer)
        assert listing is ledger.engine.filter_tools(tools, USER, prefer)
        assert [tool.provider.id for tool in listing] == [prefer]


def test_a_call_without_an_id_is_not_remembered() -> None:
    """It is decided each time."""
    ledger = make_ledger()
    for _ in range(2):
        assert effect(ledger, call(None, name="read")) is Effect.ALLOW
        assert effect(ledger, call(None)) is Effect.ASK
    assert ledger.save()["records"] == []


def test_a_denied_call_gets_the_same_denial() -> None:
    """Word for word, also when the policy would allow it by now, and nothing is counted twice."""
    engines = [PolicyEngine([Rule(name="rules", called={"wipe": "deny"})])]
    ledger = CallLedger(lambda: engines[-1])
    first = ledger.on_tool_call(call(name="wipe"), TOOLS, USER)
    engines.append(PolicyEngine([]))
    assert ledger.engine is engines[-1]
    for arguments in ("{}", '{"x": 1}'):
        again = ledger.on_tool_call(call(name="wipe", arguments=arguments), TOOLS, USER)
        assert (again.failure, again.verdicts, again.tool, again.provider) == (
            first.failure, first.verdicts, WIPE, None,
        )  # fmt: skip
    assert effect(ledger, call("c2", name="wipe")) is Effect.ALLOW


def test_the_id_of_a_denied_call_serves_no_other_tool() -> None:
    """Another tool under that id is denied in its own words, not in those of the first."""
    ledger = make_ledger()
    ledger.on_tool_call(call(name="wipe"), TOOLS, USER)
    decision = ledger.on_tool_call(call(name="read"), TOOLS, USER)
    assert (code(decision), decision.tool) == ("call_settled", None)
    assert "This call of 'read' is settled" in message(decision)
    assert "its id was used for another call, which was denied" in message(decision)


def test_an_ask_stays_open() -> None:
    """It is asked again, with the provider named, until it is answered or ended."""
    ledger = make_ledger()
    for _ in range(3):
        assert asked(ledger, call()).provider == BANK
        assert ledger.state("main", "c1") is CallState.ASKED


def test_an_ask_that_is_withheld_meanwhile_is_denied_for_good() -> None:
    """The call is settled by that, and an answer comes too late."""
    ledger = make_ledger()
    answer = answer_to(asked(ledger, call()), allow=True)
    ledger.answer(answer)
    decision = ledger.on_tool_call(call(), TOOLS, reader("read"))
    assert (code(decision), decision.provider) == ("tool_not_available", None)
    assert effect(ledger, call()) is Effect.DENY
    ledger.answer(answer)
    assert [one.what for one in ledger.ignored] == ["answer"]


def test_approvals_for_a_settled_call_are_not_used() -> None:
    """The decision says so."""
    ledger = make_ledger()
    grant = grant_for(PAY, chat="main", reach=Reach.CHAT, arguments=AnyArguments.ANY)
    assert ledger.on_tool_call(call(), TOOLS, USER, approvals=[grant]).effect is Effect.ALLOW
    decision = ledger.on_tool_call(call(), TOOLS, USER, approvals=[grant])
    assert code(decision) == "call_settled"
    assert decision.unused_approvals == ("an approval was not used: the call is settled",)


def test_calls_from_inside_are_decided_as_themselves() -> None:
    """``via`` has no effect: an inner call is asked about though the outer one was allowed."""
    ledger = make_ledger()
    assert effect(ledger, call("outer", name="read")) is Effect.ALLOW
    assert effect(ledger, call("inner", via="outer")) is Effect.ASK
    assert code(ledger.on_tool_call(call("i2", name="wipe", via="outer"), TOOLS, USER)) == (
        "tool_denied"
    )


# --------------------------------------------------------------------------------------------
# What becomes of calls
# --------------------------------------------------------------------------------------------


def test_what_comes_late_is_ignored_and_recorded() -> None:
    """A final state never changes; each late report is kept with the state it met."""
    ledger = make_ledger()
    answer = answered(ledger, call())
    assert effect(ledger, call()) is Effect.ALLOW
    assert ledger.completed("main", "c1") is CallState.COMPLETED
    assert ledger.completed("main", "c1", failed=True) is CallState.COMPLETED
    assert ledger.cancelled("main", "c1") is CallState.COMPLETED
    ledger.answer(answer)
    assert ledger.completed("main", "none") is None
    assert ledger.ignored == tuple(
        Ignored(what=what, chat="main", call_id=call_id, state=state)
        for what, call_id, state in [
            ("completion", "c1", CallState.COMPLETED),
            ("cancel", "c1", CallState.COMPLETED),
            ("answer", "c1", CallState.COMPLETED),
            ("completion", "none", None),
        ]
    )


def test_a_call_that_was_not_handed_out_does_not_complete() -> None:
    """An ask and a denied call stay what they are."""
    ledger = make_ledger()
    asked(ledger, call())
    assert ledger.completed("main", "c1") is CallState.ASKED
    ledger.on_tool_call(call("c2", name="wipe"), TOOLS, USER)
    assert ledger.completed("main", "c2") is CallState.DENIED
    assert ledger.cancelled("main", "c2") is CallState.DENIED
    assert [one.state for one in ledger.ignored] == ["asked", "denied", "denied"]


def test_an_ask_can_be_cancelled() -> None:
    """The answer comes too late then, and the call is settled."""
    ledger = make_ledger()
    answer = answer_to(asked(ledger, call()), allow=True)
    assert ledger.cancelled("main", "c1") is CallState.CANCELLED
    ledger.answer(answer)
    assert effect(ledger, call()) is Effect.DENY


def test_only_the_provider_completes_its_call() -> None:
    """A completion by another one is ignored and recorded."""
    ledger = make_ledger({})
    ledger.on_tool_call(call(), TOOLS, USER)
    assert ledger.completed("main", "c1", by=HOST) is CallState.HANDED_OUT
    assert ledger.completed("main", "c1", by=Provider.client("bank")) is CallState.HANDED_OUT
    assert ledger.completed("main", "c1", by=BANK) is CallState.COMPLETED
    assert len(ledger.ignored) == 2


def test_the_ignored_are_bounded() -> None:
    """The last thousand are kept."""
    ledger = make_ledger()
    for place in range(1_005):
        ledger.completed("main", str(place))
    assert len(ledger.ignored) == 1_000
    assert ledger.ignored[0].call_id == "5"


def test_calls_of_a_provider_that_left_fail_at_once() -> None:
    """Asked and handed out, in every chat; those of others and finished ones stay."""
    ledger = make_ledger()
    asked(ledger, call("asked"))
    grant = grant_for(PAY, chat="w", reach=Reach.CHAT, arguments=AnyArguments.ANY)
    for one in ("out", "done"):
        ledger.on_tool_call(call(one, chat="w"), TOOLS, USER, approvals=[grant])
    ledger.completed("w", "done")
    ledger.on_tool_call(call("other", name="read"), TOOLS, USER)
    assert ledger.provider_left(BANK, now=0) == (("main", "asked"), ("w", "out"))
    states = [ledger.state(*one) for one in (("main", "asked"), ("w", "out"), ("w", "done"))]
    assert states == ["failed", "failed", "completed"]
    assert ledger.state("main", "other") is CallState.HANDED_OUT
    assert ledger.completed("w", "out") is CallState.FAILED
    assert ledger.provider_left(BANK, now=0) == ()


def test_a_provider_may_return_within_its_grace() -> None:
    """Its calls go on; if it does not, they fail when the host says that the time has passed."""
    ledger = make_ledger({})
    ledger.on_tool_call(call(), TOOLS, USER)
    assert ledger.provider_left(BANK, now=100, grace=30) == ()
    assert ledger.time_passed(129.9) == ()
    ledger.provider_returned(BANK)
    assert ledger.time_passed(1_000) == ()
    assert ledger.state("main", "c1") is CallState.HANDED_OUT
    ledger.provider_left(BANK, now=2_000, grace=30)
    assert ledger.provider_left(BANK, now=2_020, grace=30) == ()  # no longer grace for that
    ledger.on_tool_call(call("c2"), TOOLS, USER)
    assert ledger.time_passed(2_030) == (("main", "c1"), ("main", "c2"))
    assert ledger.time_passed(9_999) == ()
    ledger.provider_returned(BANK)


@pytest.mark.parametrize("parts", [{"now": float("nan")}, {"now": 0, "grace": float("inf")}])
def test_a_grace_ends_at_a_time(parts: Any) -> None:
    """A time that is no number would never pass."""
    with pytest.raises(ValueError, match=r"the grace of mcp:bank ends at (nan|inf); give finite"):
        make_ledger().provider_left(BANK, **parts)


# --------------------------------------------------------------------------------------------
# Executions without a call id
# --------------------------------------------------------------------------------------------


def ask_ledger(
    ledger: CallLedger,
    produced: ToolCall | None,
    one: ToolCall,
    *,
    awaited: bool,
    tools: Toolset = TOOLS,
    prefer: str | None = None,
    **said: Any,
) -> Decision:
    """The decision on a call, as it was produced and as it is, at once or awaited."""
    said["produced"] = produced
    if awaited:
        return asyncio.run(ledger.on_tool_call_async(one, tools, USER, prefer, **said))
    return ledger.on_tool_call(one, tools, USER, prefer, **said)


def handed_out(ledger: CallLedger, one: ToolCall) -> None:
    assert effect(ledger, one) is Effect.ALLOW


def test_a_claim_is_matched_to_one_call_once() -> None:
    """Provider, own name and arguments; key order is free. The match names the call."""
    ledger = make_ledger({})
    handed_out(ledger, call(arguments={"a": 1, "b": 2}))
    decision = ledger.claim(BANK, "transfer", '{"b": 2, "a": 1}', TOOLS, ALONE)
    assert (decision.effect, decision.provider) == (Effect.ALLOW, BANK)
    assert (decision.call.id, decision.call.chat, decision.call.name) == ("c1", "main", "pay")
    assert decision.tool is PAY
    again = ledger.claim(BANK, "transfer", {"a": 1, "b": 2}, TOOLS, ALONE)
    assert again.call.id is None
    assert ledger.completed("main", "c1") is CallState.COMPLETED


@pytest.mark.parametrize(
    "claim",
    [
        (BANK, "transfer", {"sum": 2}),
        (BANK, "transfer", {}),
        (BANK, "transfer", "no json"),
        (BANK, "pay", {"sum": 1}),
        (HOST, "transfer", {"sum": 1}),
    ],
)
def test_a_claim_that_fits_nothing_is_a_call_of_its_own(claim: Any) -> None:
    """Other arguments, own name or provider: an ask is a denial there, and nothing is claimed."""
    ledger = make_ledger()
    answered(ledger, call(arguments={"sum": 1}))
    handed_out(ledger, call(arguments={"sum": 1}))
    provider, own_name, arguments = claim
    decision = ledger.claim(provider, own_name, arguments, TOOLS, USER)
    assert decision.effect is Effect.DENY
    assert decision.call.id is None
    assert ledger.claim(BANK, "transfer", {"sum": 1}, TOOLS, ALONE).call.id == "c1"


def test_a_claim_that_asks_is_denied() -> None:
    """Nobody waits at an endpoint for a person, whatever the chat could do."""
    decision = make_ledger().claim(BANK, "transfer", {}, TOOLS, USER)
    assert code(decision) == "approval_unavailable"
    assert make_ledger({}).claim(BANK, "transfer", {}, TOOLS, USER).effect is Effect.ALLOW


def test_a_claim_is_about_the_own_name() -> None:
    """A tool that bears the claimed name for models only is another tool."""
    decision = make_ledger({}).claim(BANK, "pay", {}, TOOLS, USER)
    assert code(decision) == "tool_unknown"


@pytest.mark.parametrize("end", ["asked", "completed", "cancelled", "left"])
def test_only_calls_that_are_out_can_be_claimed(end: str) -> None:
    """An ask, and a call that is over, permit no execution."""
    ledger = make_ledger({"pay": "ask"})
    answer = answer_to(asked(ledger, call()), allow=True)
    if end != "asked":
        ledger.answer(answer)
        handed_out(ledger, call())
    match end:
        case "completed":
            ledger.completed("main", "c1")
        case "cancelled":
            ledger.cancelled("main", "c1")
        case "left":
            ledger.provider_left(BANK, now=0)
    assert ledger.claim(BANK, "transfer", {}, TOOLS, USER).effect is Effect.DENY


@pytest.mark.parametrize("awaited", [False, True])
def test_a_call_that_its_caller_executes_cannot_be_claimed(awaited: bool) -> None:
    """It runs already: an execution without an id beside it would be a second one."""
    ledger = make_ledger({"pay": "ask"})
    answered(ledger, call())
    decision = ask_ledger(ledger, None, call(), awaited=awaited, claimed=True)
    assert decision.effect is Effect.ALLOW
    assert code(ledger.claim(BANK, "transfer", {}, TOOLS, USER)) == "approval_unavailable"
    assert kept(ledger, "claim") == {}
    assert [record["claimed"] for record in kept(ledger, "call").values()] == [True]


@pytest.mark.parametrize("awaited", [False, True])
def test_a_call_that_is_executed_elsewhere_can_be_claimed(awaited: bool) -> None:
    """Which it is unless the caller says otherwise."""
    ledger = make_ledger({})
    assert ask_ledger(ledger, None, call(), awaited=awaited).effect is Effect.ALLOW
    assert ledger.claim(BANK, "transfer", {}, TOOLS, USER).call.id == "c1"


class Contested(MemoryStore):
    """A store in which the call ends just as it is claimed."""

    def swap(self, key: Key, old: Record | None, new: Record | None) -> bool:
        if key[0] == "call" and old is not None and new is not None and new["claimed"]:
            super().swap(key, old, {**old, "state": "completed", "final": True})
        return super().swap(key, old, new)


def test_a_call_that_ends_while_it_is_claimed_is_not_claimed() -> None:
    """The execution is a call of its own."""
    ledger = CallLedger(PolicyEngine(), Contested())
    handed_out(ledger, call())
    assert ledger.claim(BANK, "transfer", {}, TOOLS, USER).call.id is None
    assert ledger.state("main", "c1") is CallState.COMPLETED


def test_claims_are_matched_in_the_order_of_the_calls() -> None:
    """Of equal calls the oldest that waits is claimed first; 256 of them can wait."""
    ledger = make_ledger({})
    for place in range(258):
        handed_out(ledger, call(str(place)))
    ledger.completed("main", "3")
    found = [ledger.claim(BANK, "transfer", {}, TOOLS, USER).call.id for _ in range(256)]
    assert found == [str(place) for place in range(2, 258) if place != 3] + [None]


# --------------------------------------------------------------------------------------------
# Arguments that the host changed
# --------------------------------------------------------------------------------------------


class BySum:
    """Asks about sums from 10, denies from 100."""

    name = "by-sum"

    @hookimpl
    def on_tool_call(self, call: ToolCall) -> Verdict | None:
        amount = call.arguments.get("sum", 0)
        if amount >= 100:
            return deny("too much", code="approval_unavailable")
        return ask(f"{amount} is a lot") if amount >= 10 else None


@pytest.mark.parametrize(
    ("produced", "final", "scope", "expected"),
    [
        (1, 1, USER, "allow"),
        (50, 1, USER, "ask"),
        (1, 50, USER, "ask"),
        (50, 60, USER, "ask"),
        (500, 1, USER, "deny"),
        (500, 50, USER, "deny"),
        (1, 500, USER, "deny"),
        (50, 500, USER, "deny"),
        (50, 1, ALONE, "deny"),
        (1, 50, ALONE, "deny"),
        (50, 60, ALONE, "deny"),
    ],
)
def test_the_stricter_answer_on_both_forms_counts(
    produced: int, final: int, scope: Any, expected: str
) -> None:
    """What the model produced and what will run are both asked about; the record is of the last."""
    ledger = CallLedger(PolicyEngine([BySum()]))
    last, first = call(arguments={"sum": final}), call(arguments={"sum": produced})
    decision = ledger.on_tool_call(last, TOOLS, scope, produced=first)
    assert decision.effect == expected
    assert decision.call is last
    if expected == "ask":
        ledger.answer(answer_to(decision, allow=True))
        assert ledger.on_tool_call(last, TOOLS, scope, produced=first).effect is Effect.ALLOW
    assert effect(ledger, last) is Effect.DENY


@pytest.mark.parametrize(
    ("produced", "expected"),
    [
        (call(arguments="{"), "arguments_invalid"),
        (call(name="gone"), "tool_unknown"),
        (call(name="wipe"), "tool_denied"),
    ],
)
def test_a_form_that_could_not_be_called_is_denied(produced: ToolCall, expected: str) -> None:
    """What the model produced is denied without a verdict, so the rewritten call is as well."""
    ledger = make_ledger({"wipe": "deny"})
    for first, last in [(produced, call("a")), (call("b"), attrs.evolve(produced, id="b"))]:
        decision = ledger.on_tool_call(last, TOOLS, USER, produced=first)
        assert (code(decision), decision.provider) == (expected, None)
        assert decision.call is last


def test_a_grant_that_answers_either_form_is_spent() -> None:
    """Two forms with one ask each: both one-time grants go, and permit no second call."""
    ledger = CallLedger(PolicyEngine([BySum()]))
    last, first = call(arguments={"sum": 60}), call(arguments={"sum": 50})
    asks = ledger.on_tool_call(last, TOOLS, USER, produced=first)
    assert len(asks.verdicts) == 2
    for place, verdict in enumerate(asks.verdicts):
        grant = grant_for(PAY, chat="main", reach=Reach.ONCE, arguments={"sum": 60}, at=place)
        ledger.grant(attrs.evolve(grant, answers=frozenset({verdict.key})))
    assert ledger.on_tool_call(last, TOOLS, USER, produced=first).effect is Effect.ALLOW
    for form in (first, None):
        second = call("c2", arguments={"sum": 60})
        assert ledger.on_tool_call(second, TOOLS, USER, produced=form).effect is Effect.ASK


# --------------------------------------------------------------------------------------------
# Counting
# --------------------------------------------------------------------------------------------


def test_denials_are_counted_and_their_texts_grow_firmer() -> None:
    """Per chat, tool and cause; from the third on the model is told to stop, and so is the host."""
    ledger = make_ledger({"wipe": "deny", "read": "deny"})
    texts = []
    for place in range(1, 5):
        decision = ledger.on_tool_call(
            call(f"c{place}", name="wipe", arguments={"n": place}), TOOLS, USER
        )
        assert decision.failure is not None
        assert decision.failure.attempts == place
        assert ledger.is_looping(decision) is (place >= 3)
        texts.append(decision.failure.message)
    opening = (
        "Policy denies this call of 'wipe': rules denies. The same call cannot succeed here; do "
        "not repeat it."
    )
    assert texts == [
        opening,
        f"{opening} This is denial number 2 of this tool for this cause.",
        f"{opening} This is denial number 3 of this tool for this cause: stop calling it.",
        f"{opening} This is denial number 4 of this tool for this cause: stop calling it.",
    ]
    for fresh in [call("d1", name="read"), call("d1", name="wipe", chat="side")]:
        assert message(ledger.on_tool_call(fresh, TOOLS, USER)).endswith("do not repeat it.")
    unavailable = ledger.on_tool_call(call("d2", name="wipe"), TOOLS, reader("read"))
    assert (code(unavailable), message(unavailable).count("denial number")) == (
        "tool_not_available", 0,
    )  # fmt: skip


def test_the_host_chooses_when_a_run_loops() -> None:
    """``stop_after`` denials; names that do not exist count too, an allow never does."""
    ledger = make_ledger(stop_after=2)
    assert not ledger.is_looping(ledger.on_tool_call(call(None, name="x"), TOOLS, USER))
    assert ledger.is_looping(ledger.on_tool_call(call(None, name="x"), TOOLS, USER))
    assert not ledger.is_looping(ledger.on_tool_call(call(name="read"), TOOLS, USER))
    assert not ledger.is_looping(ledger.on_tool_call(call("c2"), TOOLS, USER))


def test_refusals_are_counted_too() -> None:
    """A person who refuses the same tool again and again is a wall like any other."""
    ledger = make_ledger()
    for place in range(3):
        ledger.answer(answer_to(asked(ledger, call(f"c{place}")), allow=False))
    decision = ledger.on_tool_call(call("c2"), TOOLS, USER)
    assert (code(decision), ledger.is_looping(decision)) == ("approval_refused", True)
    assert "denial number 3 of this tool for this cause: stop calling it." in message(decision)


def test_a_name_of_any_length_takes_bounded_memory() -> None:
    """What is kept of a call is short; two long names are still two."""
    ledger = make_ledger()
    long = "x" * 1_000_000
    first = ledger.on_tool_call(call("a", name=long), TOOLS, USER)
    ledger.on_tool_call(call("b", name=f"{long}y"), TOOLS, USER)
    again = ledger.on_tool_call(call("a", name=long), TOOLS, USER)
    assert first.failure == again.failure
    assert code(ledger.on_tool_call(call("a", name=f"{long}y"), TOOLS, USER)) == "call_settled"
    assert message(ledger.on_tool_call(call("c", name=long), TOOLS, USER)).count("number 2") == 1
    assert len(json.dumps(ledger.save())) < 5_000


# --------------------------------------------------------------------------------------------
# Observers, memory and stores that fail
# --------------------------------------------------------------------------------------------


class Heard:
    """Keeps the decisions it is told of, and asks the ledger in turn where it is given one."""

    name = "heard"

    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self.ledger: CallLedger | None = None

    @hookimpl
    def on_decision(self, outcome: Decision | Listing) -> None:
        if isinstance(outcome, Decision):
            self.decisions.append(outcome)
            if self.ledger is not None:
                self.ledger.on_tool_call(outcome.call, TOOLS, USER)


def test_observers_hear_the_decision_that_counts_once(caplog: pytest.LogCaptureFixture) -> None:
    """The very decision the host gets: settled ones, firmer texts and the stricter of two forms."""
    heard = Heard()
    ledger = CallLedger(PolicyEngine([heard, BySum()]))
    given = [
        ledger.on_tool_call(call(name="read"), TOOLS, USER),
        ledger.on_tool_call(call(name="read"), TOOLS, USER),
        ledger.on_tool_call(call("c2"), TOOLS, USER, produced=call("c2", arguments={"sum": 50})),
        ledger.on_tool_call(call("c3", arguments={"sum": 100}), TOOLS, USER),
        ledger.on_tool_call(call("c4", arguments={"sum": 100}), TOOLS, USER),
    ]
    assert [id(one) for one in heard.decisions] == [id(one) for one in given]
    assert [str(one.effect) for one in given] == ["allow", "deny", "ask", "deny", "deny"]
    heard.ledger = ledger
    ledger.on_tool_call(call(name="read"), TOOLS, USER)
    assert len(heard.decisions) == 6
    assert "on_decision of plugin 'heard' failed" in caplog.text


@pytest.mark.parametrize("awaited", [False, True])
def test_both_forms_are_asked_about_alike(awaited: bool) -> None:
    """With the preference, without telling observers of either, and once the approvals count."""
    heard = Heard()
    ledger = CallLedger(PolicyEngine([heard, BySum()]))
    forms = [call("d", name="dial", provider=PHONE, arguments={"sum": part}) for part in (1, 2)]
    decision = ask_ledger(ledger, *forms, awaited=awaited, tools=SHARED, prefer="phone")
    assert (decision.effect, decision.provider, decision.scope) == (Effect.ALLOW, PHONE, USER)
    assert heard.decisions == [decision]
    grant = grant_for(PAY, chat="main", reach=Reach.CHAT, arguments=AnyArguments.ANY)
    ledger.grant(grant)
    first, last = (call("p", arguments={"sum": part}) for part in (1, 50))
    decision = ask_ledger(ledger, first, last, awaited=awaited)
    assert (decision.effect, decision.approvals, decision.scope) == (Effect.ALLOW, (grant,), USER)
    assert heard.decisions[-1] == decision


class Unreadable(MemoryStore):
    """A store whose grants cannot be read."""

    def items(self, kind: str) -> Iterator[tuple[Key, Record]]:
        if kind == "grant":
            raise LedgerError("the grants are damaged")
        return super().items(kind)


def test_invalid_arguments_are_denied_whatever_was_granted() -> None:
    """No grant is read for them."""
    ledger = CallLedger(PolicyEngine(), Unreadable())
    decision = ledger.on_tool_call(call(arguments="no json"), TOOLS, USER)
    assert code(decision) == "arguments_invalid"
    with pytest.raises(LedgerError, match="the grants are damaged"):
        ledger.on_tool_call(call("c2"), TOOLS, USER)


class Busy(MemoryStore):
    """A store in which somebody else always changes the calls first."""

    def swap(self, key: Key, old: Record | None, new: Record | None) -> bool:
        return key[0] != "call" and super().swap(key, old, new)


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("name", ["read", "pay", "wipe"])
def test_a_call_that_never_holds_still_is_denied(
    name: str, awaited: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """After a hundred tries nothing is handed out, spent or counted; it is told and logged."""
    heard, store = Heard(), Busy()
    rule = Rule(name="rules", called={"wipe": "deny", "read": "ask"})
    ledger = CallLedger(PolicyEngine([heard, rule]), store)
    grant = grant_for(READ, chat="main", reach=Reach.ONCE, arguments=AnyArguments.ANY)
    ledger.grant(grant)
    with caplog.at_level(logging.INFO, logger="toolscope.decisions"):
        decision = ask_ledger(ledger, None, call(name=name), awaited=awaited)
    assert decision.failure is not None
    assert (code(decision), decision.failure.final) == ("policy_error", False)
    (logged,) = caplog.records
    assert 0 <= json.loads(logged.getMessage())["seconds"] < 60
    assert decision.failure.message == (
        "The call was submitted many times at once, so it was not run."
    )
    assert heard.decisions == [decision]
    assert decision == Decision(
        effect=Effect.DENY,
        call=call(name=name),
        tool=None,
        scope=USER,
        failure=decision.failure,
    )
    assert list(store.items("spent")) == []
    assert [record["count"] for _, record in store.items("denials")] in ([], [0])
    assert [Reach(record["reach"]) for _, record in store.items("grant")] == [Reach.ONCE]


def test_memory_is_bounded_and_full_memory_hands_nothing_out() -> None:
    """Only final records are forgotten; with none of them, the call is refused with the cure."""
    ledger = make_ledger({"pay": "ask"}, store=MemoryStore(limit=3))
    for place in range(20):
        one = call(f"c{place}", name="read")
        assert effect(ledger, one) is Effect.ALLOW
        ledger.completed("main", f"c{place}")
    assert len(ledger.save()["records"]) <= 7
    for place in range(3):
        assert effect(ledger, call(f"d{place}", name="read")) is Effect.ALLOW
    ledger.grant(grant_for(PAY, chat="main", reach=Reach.ONCE, arguments=AnyArguments.ANY))
    with pytest.raises(LedgerError, match="the ledger holds 3 open records and none that may be"):
        ledger.on_tool_call(call("e"), TOOLS, USER)
    ledger.completed("main", "d0")
    assert effect(ledger, call("e")) is Effect.ALLOW, "the grant was not lost"


def test_denied_calls_are_forgotten_before_those_that_ran() -> None:
    """A model that provokes denials cannot make the ledger forget what has run."""
    ledger = make_ledger(store=MemoryStore(limit=10))
    assert effect(ledger, call("ran", name="read")) is Effect.ALLOW
    ledger.completed("main", "ran")
    for place in range(100):
        ledger.on_tool_call(call(f"c{place}", name="wipe"), TOOLS, USER)
    assert effect(ledger, call("ran", name="read")) is Effect.DENY


def test_a_toolset_may_change_between_ask_and_answer() -> None:
    """The tool that is gone when the answer comes is unknown, and the call settled."""
    ledger = make_ledger()
    answered(ledger, call())
    decision = ledger.on_tool_call(call(), Toolset([Tool(name="read")]), USER)
    assert code(decision) == "tool_unknown"
    assert ledger.state("main", "c1") is CallState.DENIED


# --------------------------------------------------------------------------------------------
# Whole records
# --------------------------------------------------------------------------------------------


def kept(ledger: CallLedger, kind: str) -> dict[tuple[Any, ...], Any]:
    """The records of this kind, by key."""
    return {tuple(key): record for key, record in ledger.save()["records"] if key[0] == kind}


def test_what_is_kept_of_a_call_on_its_way() -> None:
    """Asked, answered, handed out, claimed, ended: each state whole."""
    ledger = make_ledger()
    key = ("call", "main", "c1")
    record = {
        "state": "asked",
        "name": "pay",
        "tool": "mcp:bank/transfer",
        "provider": "mcp:bank",
        "claimed": False,
    }
    decision = asked(ledger, call())
    assert kept(ledger, "call") == {key: record}
    answer = answer_to(decision, allow=True)
    ledger.answer(answer)
    assert kept(ledger, "call") == {key: {**record, "answers": [answer.to_json()]}}
    ledger.answer(answer)
    assert kept(ledger, "call") == {key: {**record, "answers": [answer.to_json()]}}
    second = answer_to(decision, allow=True, by="ann")
    ledger.answer(second)
    answers = [answer.to_json(), second.to_json()]
    assert kept(ledger, "call") == {key: {**record, "answers": answers}}
    assert asked(ledger, call(arguments={"x": 1})).effect is Effect.ASK
    assert kept(ledger, "call") == {key: {**record, "answers": answers}}
    handed_out(ledger, call())
    assert kept(ledger, "call") == {key: {**record, "state": "handed_out"}}
    index = ("claim", "mcp:bank/transfer", decision.call.arguments_digest)
    assert kept(ledger, "claim") == {index: {"calls": [["main", "c1"]], "final": True}}
    assert ledger.claim(BANK, "transfer", {}, TOOLS, USER).call.id == "c1"
    assert kept(ledger, "call") == {key: {**record, "state": "handed_out", "claimed": True}}
    ledger.completed("main", "c1")
    assert kept(ledger, "call") == {
        key: {**record, "state": "completed", "claimed": True, "final": True}
    }


def test_an_end_forgets_the_answers() -> None:
    """They could not count any more."""
    ledger = make_ledger()
    answered(ledger, call())
    ledger.cancelled("main", "c1")
    (record,) = kept(ledger, "call").values()
    assert "answers" not in record
    assert (record["state"], record["final"]) == ("cancelled", True)


def test_what_is_kept_of_a_denied_call() -> None:
    """Its failure in the words of its count, and the verdicts with all their parts."""

    class Refusing:
        name = "refusing"

        @hookimpl
        def on_tool_call(self, tool: Tool) -> Verdict | None:
            if tool.name == "read":
                raise OSError("gone")
            return deny("no", code="quota", detail="7 of 7", rule="r1")

    ledger = CallLedger(PolicyEngine([Refusing()]))
    decision = ledger.on_tool_call(call(), TOOLS, USER)
    assert decision.failure is not None
    assert kept(ledger, "call") == {
        ("call", "main", "c1"): {
            "state": "denied",
            "name": "pay",
            "tool": "mcp:bank/transfer",
            "failure": attrs.asdict(decision.failure),
            "verdicts": [
                {
                    "plugin": "refusing",
                    "effect": "deny",
                    "reason": "no",
                    "code": "quota",
                    "detail": "7 of 7",
                    "rule": "r1",
                }
            ],
            "final": True,
        }
    }
    assert kept(ledger, "denials") == {
        ("denials", "main", "mcp:bank/transfer", "quota"): {"count": 1, "final": True}
    }
    fault = ledger.on_tool_call(call("c2", name="read"), TOOLS, USER)
    (verdict,) = kept(ledger, "call")["call", "main", "c2"]["verdicts"]
    assert verdict["error"] == "OSError: gone"
    for one, first in ((call(), decision), (call("c2", name="read"), fault)):
        assert ledger.on_tool_call(one, TOOLS, USER) == first


def test_what_is_kept_of_a_spent_grant() -> None:
    """Which call spent it; the grant itself is gone."""
    ledger = make_ledger()
    grant = grant_for(PAY, chat="main", reach=Reach.ONCE, arguments=AnyArguments.ANY)
    ledger.grant(grant)
    assert kept(ledger, "grant") == {("grant", grant.digest): grant.to_json()}
    handed_out(ledger, call())
    assert kept(ledger, "grant") == {}
    assert kept(ledger, "spent") == {
        ("spent", grant.digest): {"chat": "main", "call": "c1", "final": True}
    }


def test_what_is_kept_of_a_provider_that_left() -> None:
    """When its grace ends, and after that nothing: calls that it takes later are not failed."""
    ledger = make_ledger({})
    ledger.provider_left(BANK, now=5, grace=2.5)
    assert kept(ledger, "left") == {("left", "mcp:bank"): {"until": 7.5}}
    assert ledger.time_passed(7.5) == ()
    assert kept(ledger, "left") == {}
    handed_out(ledger, call())
    assert ledger.time_passed(100) == ()
    assert ledger.state("main", "c1") is CallState.HANDED_OUT


def test_an_unknown_name_is_counted_by_itself() -> None:
    """A call without a tool is kept under its name."""
    ledger = make_ledger()
    ledger.on_tool_call(call(name="none"), TOOLS, USER)
    (record,) = kept(ledger, "call").values()
    assert (record["name"], record["tool"]) == ("none", "none")
    assert list(kept(ledger, "denials")) == [("denials", "main", "none", "tool_unknown")]


@pytest.mark.parametrize(
    ("length", "cut"), [(200, False), (201, True)], ids=["as it is", "with a digest"]
)
def test_a_long_name_is_kept_short(length: int, cut: bool) -> None:
    """200 characters of it, and the digest of the whole; surrogates are no obstacle."""
    name = "\ud800" + "x" * (length - 1)
    ledger = make_ledger()
    ledger.on_tool_call(call(name=name), TOOLS, USER)
    (record,) = kept(ledger, "call").values()
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    assert record["name"] == (f"{name[:200]} {digest}" if cut else name)


# --------------------------------------------------------------------------------------------
# The same questions, awaited
# --------------------------------------------------------------------------------------------

DESK = Provider.client("desk")
PHONE = Provider.client("phone")
SHARED = Toolset([Tool(name="dial", provider=DESK), Tool(name="dial", provider=PHONE)])


class Later:
    """Asks about tools of this name, after a while."""

    name = "later"

    @hookimpl
    async def on_tool_call(self, tool: Tool) -> Verdict | None:
        await asyncio.sleep(0)
        return ask("it costs money") if tool.name == "pay" else None


def test_an_awaited_decision_is_told_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """With the scope, the preference and the approvals that it was asked with."""
    heard = Heard()
    ledger = CallLedger(PolicyEngine([heard, Later()]))

    async def main() -> None:
        first = await ledger.on_tool_call_async(call("a", name="dial"), SHARED, USER, "phone")
        assert (first.effect, first.provider, first.scope) == (Effect.ALLOW, PHONE, USER)
        asking = await ledger.on_tool_call_async(call("b"), TOOLS, USER)
        assert asking.effect is Effect.ASK
        grant = grant_for(PAY, chat="main", reach=Reach.CHAT, arguments=AnyArguments.ANY)
        granted = await ledger.on_tool_call_async(call("b"), TOOLS, USER, approvals=[grant])
        assert (granted.effect, granted.approvals) == (Effect.ALLOW, (grant,))
        settled = await ledger.on_tool_call_async(call("b"), TOOLS, ALONE)
        assert (code(settled), settled.scope) == ("call_settled", ALONE)
        assert heard.decisions == [first, asking, granted, settled]

    with caplog.at_level(logging.INFO, logger="toolscope.decisions"):
        asyncio.run(main())
    seconds = [json.loads(one.getMessage())["seconds"] for one in caplog.records]
    assert len(seconds) == 4
    assert all(0 <= one < 60 for one in seconds)


@pytest.mark.parametrize("parts", [(500, 1), (1, 500)])
def test_both_forms_are_asked_about_when_awaited(parts: tuple[int, int]) -> None:
    """As without waiting."""
    ledger = CallLedger(PolicyEngine([BySum()]))
    produced, final = (call(arguments={"sum": part}) for part in parts)
    decision = asyncio.run(ledger.on_tool_call_async(final, TOOLS, USER, produced=produced))
    assert (decision.effect, decision.call) == (Effect.DENY, final)


def claim_now(ledger: CallLedger, *parts: Any) -> Decision:
    return ledger.claim(*parts)


def claim_awaited(ledger: CallLedger, *parts: Any) -> Decision:
    return asyncio.run(ledger.claim_async(*parts))


@pytest.mark.parametrize("claim", [claim_now, claim_awaited])
def test_a_matched_claim_is_an_allow_that_names_the_call(claim: Any) -> None:
    """In the scope that it arrived in, once."""
    ledger = make_ledger({})
    handed_out(ledger, call(arguments={"a": 1}))
    assert claim(ledger, BANK, "transfer", {"a": 1}, TOOLS, ALONE) == Decision(
        effect=Effect.ALLOW,
        call=ToolCall(id="c1", chat="main", name="pay", provider=BANK, arguments={"a": 1}),
        tool=PAY,
        scope=ALONE,
        provider=BANK,
    )
    again = claim(ledger, BANK, "transfer", {"a": 1}, TOOLS, USER)
    assert again == Decision(
        effect=Effect.ALLOW,
        call=ToolCall(name="pay", provider=BANK, arguments={"a": 1}),
        tool=PAY,
        scope=attrs.evolve(USER, can_ask=False),
        provider=BANK,
    )


@pytest.mark.parametrize("claim", [claim_now, claim_awaited])
def test_a_claim_of_its_own_is_decided_with_the_preference(claim: Any) -> None:
    """A client's tool that is shadowed without it is there with it."""
    ledger = make_ledger({})
    assert code(claim(ledger, PHONE, "dial", {}, SHARED, USER)) == "tool_not_available"
    decision = claim(ledger, PHONE, "dial", {}, SHARED, USER, "phone")
    assert (decision.effect, decision.provider) == (Effect.ALLOW, PHONE)
    unknown = claim(ledger, PHONE, "hang up", {"a": 1}, SHARED, USER, "phone")
    assert code(unknown) == "tool_unknown"
    assert unknown.call == ToolCall(name="hang up", provider=PHONE, arguments={"a": 1})
    assert unknown.scope == attrs.evolve(USER, can_ask=False)


def test_an_open_ask_of_both_forms_is_lifted_where_nobody_can_be_asked() -> None:
    """A grant answers what would be denied only because it reaches no person."""
    ledger = CallLedger(PolicyEngine([BySum()]))
    last, first = call(arguments={"sum": 60}), call(arguments={"sum": 50})
    grant = grant_for(PAY, chat="main", reach=Reach.CHAT, arguments=AnyArguments.ANY)
    decision = ledger.on_tool_call(last, TOOLS, ALONE, approvals=[grant], produced=first)
    assert (decision.effect, decision.call, decision.approvals) == (Effect.ALLOW, last, (grant,))


def test_a_ledger_says_what_it_does_not_take() -> None:
    """Word for word, with what to do instead."""
    ledger = make_ledger()
    grant = grant_for(PAY, chat="main", reach=Reach.ONCE, arguments=AnyArguments.ANY)
    answer = answer_to(asked(ledger, call()), allow=True)
    condition = grant_for(
        PAY, chat="main", reach=Reach.CHAT, arguments=None, condition={"sum": {"at_most": 5}}
    )
    cases: list[tuple[Callable[[Approval], None], Approval, str]] = [
        (
            ledger.answer,
            grant,
            "an answer names the call it answers; give a grant to grant()",
        ),
        (
            ledger.answer,
            attrs.evolve(answer, call_id="c9"),
            "call 'c9' in chat 'main' waits for no answer; nothing was taken",
        ),
        (ledger.grant, answer, "a grant names no call; give an answer to answer()"),
        (
            ledger.grant,
            condition,
            (
                "this ledger evaluates no conditions, so the grant would never hold; give it "
                "'conditions', or grant the arguments"
            ),
        ),
    ]
    for take, given, why in cases:
        with pytest.raises(ApprovalError) as caught:
            take(given)
        assert str(caught.value) == why
    ledger.grant(grant)
    handed_out(ledger, call("c2"))
    with pytest.raises(ApprovalError) as caught:
        ledger.grant(grant)
    assert str(caught.value) == "this grant is spent; give a new one, told apart by its 'at'"


@pytest.mark.parametrize("record", [{}, {"state": "running"}])
def test_a_record_without_a_state_is_no_leave_to_run(record: Record) -> None:
    """The error says how to treat the call."""
    store = MemoryStore()
    store.swap(("call", "main", "c1"), None, record)
    with pytest.raises(LedgerError) as caught:
        make_ledger(store=store).state("main", "c1")
    assert str(caught.value) == "a call's record has no state; treat the call as settled"


def test_a_denied_call_whose_record_is_damaged_is_settled() -> None:
    """What it was denied with is lost, and that it is settled is not."""
    store = MemoryStore()
    store.swap(("call", "main", "c1"), None, {"state": "denied", "final": True})
    decision = make_ledger(store=store).on_tool_call(call(), TOOLS, USER)
    assert decision == decide_settled(call(), None, USER, "its record is damaged")


def test_a_settled_call_is_denied_in_its_own_scope() -> None:
    """About the tool of that name and record, and with what became of it."""
    ledger = make_ledger()
    handed_out(ledger, call(name="read"))
    decision = ledger.on_tool_call(call(name="read"), TOOLS, ALONE)
    became = "it was handed out to be executed"
    assert decision == decide_settled(call(name="read"), READ, ALONE, became)
