"""Answers and standing grants in the call ledger."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from tests.ledgers import (
    ALONE,
    PAY,
    READ,
    TOOLS,
    USER,
    WORKER,
    answered,
    asked,
    call,
    code,
    effect,
    make_ledger,
    message,
)
from tests.strategies import Rule
from toolscope.calls import CallLedger, CallState, answer_to, grant_for
from toolscope.engine import PolicyEngine
from toolscope.errors import ApprovalError
from toolscope.model import AnyArguments, Approval, Reach, Tool, Toolset
from toolscope.stores import Key, MemoryStore, Record
from toolscope.verdicts import Decision, Effect

ANY = AnyArguments.ANY


def grant(**parts: Any) -> Approval:
    return grant_for(PAY, **{"chat": "main", "reach": Reach.CHAT, "arguments": ANY, **parts})


def unused(decision: Decision) -> list[str]:
    """Why approvals did not count."""
    opening = "an approval was not used: "
    assert all(one.startswith(opening) for one in decision.unused_approvals)
    return [one.removeprefix(opening) for one in decision.unused_approvals]


# --------------------------------------------------------------------------------------------
# Answers
# --------------------------------------------------------------------------------------------


def test_an_answered_call_runs_once_when_it_comes_back() -> None:
    """The answer is for this call; the next one needs its own."""
    ledger = make_ledger()
    answer = answered(ledger, call(arguments={"order": 1}))
    decision = ledger.on_tool_call(call(arguments={"order": 1}), TOOLS, USER)
    assert (decision.effect, decision.approvals) == (Effect.ALLOW, (answer,))
    assert effect(ledger, call(arguments={"order": 1})) is Effect.DENY
    assert effect(ledger, call("c2", arguments={"order": 1})) is Effect.ASK


def test_a_refused_call_is_denied_with_what_was_said() -> None:
    """The answer settles it, no rule is asked again, and it stays denied."""
    ledger = make_ledger()
    ledger.answer(answer_to(asked(ledger, call()), allow=False, reason="too expensive"))
    assert ledger.state("main", "c1") is CallState.DENIED
    decision = ledger.on_tool_call(call(), TOOLS, USER)
    assert (code(decision), decision.provider) == ("approval_refused", None)
    assert message(decision) == (
        "A person refused this call of 'pay': too expensive. The same call cannot succeed here; "
        "do not repeat it."
    )


@pytest.mark.parametrize("first", [True, False])
def test_allow_and_deny_for_one_call_are_a_deny(first: bool) -> None:
    """Handed in together in any order; both refusals' words are kept."""
    ledger = make_ledger()
    decision = asked(ledger, call())
    answers = [
        answer_to(decision, allow=True, reach=Reach.CHAT),
        answer_to(decision, allow=False, reason="no", by="ann"),
        answer_to(decision, allow=False, reason="never", by="bob"),
        answer_to(decision, allow=True),
    ]
    ledger.answer(*(answers if first else answers[::-1]))
    denied = ledger.on_tool_call(call(), TOOLS, USER)
    assert code(denied) == "approval_refused"
    assert ("no; never" if first else "never; no") in message(denied)
    assert effect(ledger, call("c2")) is Effect.ASK, "a grant came of a refused call"


@pytest.mark.parametrize("first", [True, False])
def test_a_deny_after_an_allow_is_a_deny(first: bool) -> None:
    """As long as the call was not handed out, a later refusal counts; a later allow does not."""
    ledger = make_ledger()
    decision = asked(ledger, call())
    for allow in (first, not first):
        ledger.answer(answer_to(decision, allow=allow))
    assert code(ledger.on_tool_call(call(), TOOLS, USER)) == "approval_refused"
    assert [one.what for one in ledger.ignored] == ([] if first else ["answer"])


def test_a_repeated_answer_counts_once() -> None:
    """Together or one after the other: one answer is kept, and a second refusal is recorded."""
    ledger = make_ledger()
    answer = answer_to(asked(ledger, call()), allow=True)
    ledger.answer(answer, answer)
    ledger.answer(answer)
    ((_, record),) = ledger.save()["records"]
    assert record["answers"] == [answer.to_json()]
    refusal = answer_to(asked(ledger, call("c2")), allow=False)
    ledger.answer(refusal)
    ledger.answer(refusal)
    assert [(one.what, one.call_id, one.state) for one in ledger.ignored] == [
        ("answer", "c2", CallState.DENIED)
    ]


def test_an_answer_to_a_call_that_waits_for_none_is_an_error_that_names_it() -> None:
    """Unknown, handed out, or no call at all: nothing of what came with it is taken."""
    ledger = make_ledger()
    good = answer_to(asked(ledger, call()), allow=False)
    unknown = attrs.evolve(good, call_id="nobody")
    with pytest.raises(ApprovalError, match="call 'nobody' in chat 'main' waits for no answer"):
        ledger.answer(good, unknown)
    with pytest.raises(ApprovalError, match="an answer names the call it answers; give a grant"):
        ledger.answer(good, grant())
    assert ledger.state("main", "c1") is CallState.ASKED
    assert effect(ledger, call("c2", name="read")) is Effect.ALLOW
    with pytest.raises(ApprovalError, match="call 'c2' in chat 'main' waits for no answer"):
        ledger.answer(attrs.evolve(good, call_id="c2"))


def test_an_answer_for_other_arguments_is_asked_again() -> None:
    """The reason is in the decision, and the answer waits until its arguments come."""
    ledger = make_ledger()
    answered(ledger, call(arguments={"sum": 1}))
    other = ledger.on_tool_call(call(arguments={"sum": 2}), TOOLS, USER)
    assert (other.effect, unused(other)) == (Effect.ASK, ["it is for other arguments"])
    assert effect(ledger, call(arguments={"sum": 1})) is Effect.ALLOW


def test_edited_arguments_are_the_only_ones_that_run() -> None:
    """The person changed them: the call as it was produced is asked about again."""
    ledger = make_ledger()
    answered(ledger, call(arguments={"sum": 100}), arguments={"sum": 10})
    assert effect(ledger, call(arguments={"sum": 100})) is Effect.ASK
    assert effect(ledger, call(arguments={"sum": 10})) is Effect.ALLOW


def test_an_answer_about_another_tool_or_definition_is_asked_again() -> None:
    """What the person saw has changed, so the person sees it again; with the reason."""
    for tool, why in [
        (attrs.evolve(PAY, description="also refunds"), "the tool's definition has changed since"),
        (Tool(name="pay"), "it is about another tool"),
    ]:
        ledger = make_ledger()
        answered(ledger, call())
        decision = ledger.on_tool_call(call(), Toolset([tool]), USER)
        assert (decision.effect, unused(decision)) == (Effect.ASK, [why])


def test_an_ask_whose_reason_changed_is_asked_again() -> None:
    """An answer is to the ask that was shown, not to what another rule asks later."""
    engines = [PolicyEngine([Rule(name=name, called={"pay": "ask"})]) for name in ("old", "new")]
    ledger = CallLedger(lambda: engines[0])
    answered(ledger, call())
    del engines[0]
    decision = ledger.on_tool_call(call(), TOOLS, USER)
    assert decision.effect is Effect.ASK
    assert unused(decision) == ["it answers none of the asks on this call"]
    ledger.answer(answer_to(decision, allow=True))
    assert effect(ledger, call()) is Effect.ALLOW


def test_an_answer_expires_by_the_clock_of_the_host() -> None:
    """From the stated moment on it does not count; a refusal never ends."""
    now = [0.0]
    ledger = make_ledger(clock=lambda: now[0])
    answered(ledger, call(), expires=10)
    now[0] = 10
    decision = ledger.on_tool_call(call(), TOOLS, USER)
    assert (decision.effect, unused(decision)) == (Effect.ASK, ["it has expired"])
    now[0] = 9.9
    assert effect(ledger, call()) is Effect.ALLOW
    late = answer_to(asked(ledger, call("c2")), allow=False, expires=1)
    decision = ledger.on_tool_call(call("c2"), TOOLS, USER, approvals=[late])
    assert code(decision) == "approval_refused"


def test_answers_survive_saving_in_another_ledger() -> None:
    """A run is paused, saved, restored and answered: the call runs, once."""
    first = make_ledger()
    answer = answer_to(asked(first, call(arguments={"order": 1})), allow=True)
    second = make_ledger()
    second.load(json.loads(json.dumps(first.save())))
    second.answer(Approval.from_json(json.loads(json.dumps(answer.to_json()))))
    third = make_ledger()
    third.load(json.loads(json.dumps(second.save())))
    assert effect(third, call(arguments={"order": 1})) is Effect.ALLOW
    assert effect(third, call(arguments={"order": 1})) is Effect.DENY


def test_an_ask_can_be_answered_where_it_was_raised_by_a_forwarding_host() -> None:
    """A worker whose asks reach an ancestor's person waits, and the answer is for the worker."""
    ledger = make_ledger()
    one = call(chat="w", ancestors=("main",))
    decision = ledger.on_tool_call(one, TOOLS, WORKER)
    assert decision.effect is Effect.ASK
    ledger.answer(answer_to(decision, allow=True, by="ann in main"))
    assert effect(ledger, call(chat="main"), USER) is Effect.ASK
    assert effect(ledger, one, WORKER) is Effect.ALLOW


class Meddler(MemoryStore):
    """A store where, once, somebody else acts between a look at a record and its change."""

    meanwhile: Callable[[], object] | None = None
    kind = "call"

    def swap(self, key: Key, old: Record | None, new: Record | None) -> bool:
        first = self.meanwhile
        if first is not None and key[0] == self.kind:
            self.meanwhile = None
            first()
        return super().swap(key, old, new)


@pytest.mark.parametrize("refused_first", [True, False])
def test_no_answer_is_lost_to_another_one_at_the_same_time(refused_first: bool) -> None:
    """An allow and a deny that cross are a deny, whichever comes first, and counted once."""
    store = Meddler()
    ledger = make_ledger(store=store)
    decision = asked(ledger, call())
    allow, refuse = (answer_to(decision, allow=one) for one in (True, False))
    inner, outer = (refuse, allow) if refused_first else (allow, refuse)
    store.meanwhile = lambda: ledger.answer(inner)
    ledger.answer(outer)
    denied = ledger.on_tool_call(call(), TOOLS, USER)
    assert code(denied) == "approval_refused"
    assert denied.failure is not None
    assert denied.failure.attempts == 1
    assert [one.what for one in ledger.ignored] == (["answer"] if refused_first else [])


def test_two_refusals_at_the_same_time_are_counted_once() -> None:
    """The one that comes second is ignored and takes its count back."""
    store = Meddler()
    ledger = make_ledger(store=store)
    decision = asked(ledger, call())
    store.meanwhile = lambda: ledger.answer(answer_to(decision, allow=False, by="ann"))
    ledger.answer(answer_to(decision, allow=False, by="bob"))
    ((_, count),) = store.items("denials")
    assert count["count"] == 1


@pytest.mark.parametrize("kind", ["call", "spent"])
def test_a_grant_that_is_spent_meanwhile_is_not_spent_twice(kind: str) -> None:
    """Two grants are needed; one goes elsewhere. The other comes back, and the call asks."""
    store = Meddler()
    rules = [Rule(name=name, called={"pay": "ask"}) for name in ("a", "b")]
    ledger = CallLedger(PolicyEngine(rules), store)
    verdicts = asked(ledger, call()).verdicts
    for place, verdict in enumerate(verdicts):
        ledger.grant(
            attrs.evolve(
                grant(reach=Reach.ONCE, at=place, expires=1e12 + place),
                answers=frozenset({verdict.key}),
            )
        )
    store.kind = kind
    store.meanwhile = lambda: ledger.on_tool_call(call("c2"), TOOLS, USER)
    if kind == "call":
        store.meanwhile = lambda: ledger.cancelled("main", "c1")
    decision = ledger.on_tool_call(call(), TOOLS, USER)
    left = [key[1] for key, _ in store.items("grant")]
    spent = [key[1] for key, _ in store.items("spent")]
    if kind == "call":
        assert (code(decision), len(left), spent) == ("call_settled", 2, [])
        assert effect(ledger, call("c3")) is Effect.ALLOW
    else:
        assert ledger.state("main", "c2") is CallState.HANDED_OUT
        assert (decision.effect, left, len(spent)) == (Effect.ASK, [], 2)


def test_only_the_grants_that_were_spent_here_come_back() -> None:
    """Of two that are needed the second is spent by another call: the first is whole again."""
    store = Meddler()
    rules = [Rule(name=name, called={"pay": "ask"}) for name in ("a", "b")]
    ledger = CallLedger(PolicyEngine(rules), store)
    first, second = (
        attrs.evolve(grant(reach=Reach.ONCE, expires=1e12 + place), answers=frozenset({one.key}))
        for place, one in enumerate(asked(ledger, call()).verdicts)
    )
    ledger.grant(first)
    ledger.grant(second)
    store.kind = "spent"
    store.meanwhile = lambda: MemoryStore.swap(
        store, ("spent", second.digest), None, {"final": True}
    )
    decision = ledger.on_tool_call(call(), TOOLS, USER)
    assert (decision.effect, decision.approvals) == (Effect.ASK, (first,))
    assert unused(decision) == ["it is spent"]
    assert [key[1] for key, _ in store.items("spent")] == [second.digest]


def test_a_call_that_is_claimed_while_it_completes_is_both() -> None:
    """What changes a call meanwhile and leaves it open does not lose the report."""
    store = Meddler()
    ledger = make_ledger({}, store=store)
    effect(ledger, call())
    claims: list[Decision] = []
    store.meanwhile = lambda: claims.append(ledger.claim(PAY.provider, "transfer", {}, TOOLS, USER))
    assert ledger.completed("main", "c1") is CallState.COMPLETED
    assert [one.call.id for one in claims] == ["c1"]
    assert ledger.ignored == ()


@pytest.mark.parametrize("kind", ["claim", "denials"])
def test_what_is_noted_beside_a_call_is_not_lost(kind: str) -> None:
    """Two calls at the same time are both counted, or both wait to be claimed."""
    store = Meddler()
    ledger = make_ledger({"wipe": "deny"}, store=store)
    name = {"claim": "pay", "denials": "wipe"}[kind]
    store.kind = kind
    store.meanwhile = lambda: effect(ledger, call("c2", name=name))
    decision = ledger.on_tool_call(call("c1", name=name), TOOLS, USER)
    if kind == "claim":
        ids = [ledger.claim(PAY.provider, "transfer", {}, TOOLS, USER).call.id for _ in range(3)]
        assert ids == ["c2", "c1", None]
    else:
        assert decision.failure is not None
        assert decision.failure.attempts == 2


# --------------------------------------------------------------------------------------------
# Standing grants
# --------------------------------------------------------------------------------------------


def test_an_answer_with_a_reach_is_a_grant_as_well() -> None:
    """It covers this call and later ones with exactly these arguments, in its reach."""
    ledger = make_ledger()
    answered(ledger, call(arguments={"x": 1}), reach=Reach.SUBTREE)
    for place in range(3):
        assert effect(ledger, call(f"c{place}", arguments={"x": 1})) is Effect.ALLOW
    assert effect(ledger, call("d", arguments={"x": 2})) is Effect.ASK
    down = call("e", chat="w", ancestors=("main",), arguments={"x": 1})
    assert effect(ledger, down, WORKER) is Effect.ALLOW
    assert effect(ledger, call("f", chat="side", arguments={"x": 1})) is Effect.ASK


def test_an_answer_with_a_reach_may_bind_any_arguments() -> None:
    """It still answers only the asks that the person saw."""
    engines = [PolicyEngine([Rule(name=name, called={"pay": "ask"})]) for name in ("old", "new")]
    ledger = CallLedger(lambda: engines[0])
    answered(ledger, call(arguments={"x": 1}), reach=Reach.CHAT, bind=ANY)
    assert effect(ledger, call("c2", arguments={"x": 2})) is Effect.ALLOW
    del engines[0]
    assert effect(ledger, call("c3", arguments={"x": 2})) is Effect.ASK


def test_a_one_time_grant_is_spent_by_the_first_call() -> None:
    """Held or handed in, it permits one call; the second is asked about, with the reason."""
    ledger = make_ledger()
    once = grant(reach=Reach.ONCE)
    ledger.grant(once)
    ledger.grant(once)
    assert effect(ledger, call("c1")) is Effect.ALLOW
    assert effect(ledger, call("c2")) is Effect.ASK
    again = ledger.on_tool_call(call("c3"), TOOLS, USER, approvals=[once])
    assert (again.effect, unused(again)) == (Effect.ASK, ["it is spent"])
    with pytest.raises(ApprovalError, match="this grant is spent; give a new one, told apart by"):
        ledger.grant(once)
    ledger.grant(attrs.evolve(once, at=1))
    assert effect(ledger, call(None)) is Effect.ALLOW, "calls without an id spend too"
    assert effect(ledger, call(None)) is Effect.ASK


def test_a_grant_that_was_not_needed_is_not_spent() -> None:
    """An allow without it, an ask that stays open and a deny leave it as it is."""
    ledger = make_ledger()
    ledger.grant(grant(reach=Reach.ONCE))
    ledger.grant(grant_for(READ, chat="main", reach=Reach.ONCE, arguments=ANY))
    assert effect(ledger, call("c1", name="read")) is Effect.ALLOW
    assert effect(ledger, call("c2", name="wipe")) is Effect.DENY
    answered(ledger, call("c3", chat="side"))
    assert effect(ledger, call("c3", chat="side")) is Effect.ALLOW
    assert len([key for key, _ in ledger.save()["records"] if key[0] == "grant"]) == 2
    assert effect(ledger, call("c4")) is Effect.ALLOW


def test_a_grant_counts_where_nobody_can_be_asked() -> None:
    """Grants are tried before ``approval_unavailable``; of other tools nothing is said."""
    ledger = make_ledger()
    ledger.grant(grant_for(READ, chat="main", reach=Reach.CHAT, arguments=ANY))
    ledger.grant(grant(chat="else"))
    decision = ledger.on_tool_call(call("c1"), TOOLS, ALONE)
    assert (code(decision), decision.unused_approvals) == ("approval_unavailable", ())
    ledger.grant(grant(arguments={"sum": 2}))
    decision = ledger.on_tool_call(call("c2"), TOOLS, ALONE)
    assert unused(decision) == ["it is for other arguments"]
    ledger.grant(grant())
    assert effect(ledger, call("c3"), ALONE) is Effect.ALLOW


def test_grants_for_other_chats_are_passed_over_in_silence() -> None:
    """Those of the chat above that do not come down, and those of a chat beside it."""
    ledger = make_ledger()
    for chat, reach in [("main", Reach.CHAT), ("main", Reach.ONCE), ("w2", Reach.SUBTREE)]:
        ledger.grant(grant(chat=chat, reach=reach))
    decision = ledger.on_tool_call(call(chat="w", ancestors=("main",)), TOOLS, WORKER)
    assert (decision.effect, decision.unused_approvals) == (Effect.ASK, ())
    ledger.grant(grant(reach=Reach.SUBTREE))
    assert effect(ledger, call(chat="w", ancestors=("main",)), WORKER) is Effect.ALLOW


def test_a_grant_lifts_no_deny_of_the_ledger_or_a_rule() -> None:
    """Neither a rule's deny nor a settled call."""
    ledger = make_ledger({"pay": "deny"})
    ledger.grant(grant())
    decision = ledger.on_tool_call(call(), TOOLS, USER)
    assert (code(decision), unused(decision)) == ("tool_denied", ["it lifts no deny"])


def test_grants_end_and_can_be_taken_back() -> None:
    """Expired ones are dropped, and a revoked one counts no more; both without error."""
    now = [0.0]
    ledger = make_ledger(clock=lambda: now[0])
    short, long = grant(expires=10), grant(expires=20)
    ledger.grant(short)
    ledger.grant(long)
    assert effect(ledger, call("c1")) is Effect.ALLOW
    now[0] = 15
    assert effect(ledger, call("c2")) is Effect.ALLOW
    assert [key[1] for key, _ in ledger.save()["records"] if key[0] == "grant"] == [long.digest]
    ledger.revoke(long)
    ledger.revoke(long)
    assert effect(ledger, call("c3")) is Effect.ASK
    answer = answered(ledger, call("c4"), reach=Reach.CHAT)
    assert effect(ledger, call("c5")) is Effect.ALLOW
    ledger.revoke(answer)
    assert effect(ledger, call("c6")) is Effect.ASK


def test_a_grant_is_no_answer() -> None:
    """It names no call."""
    ledger = make_ledger()
    with pytest.raises(ApprovalError, match="a grant names no call; give an answer to answer"):
        ledger.grant(answer_to(asked(ledger, call()), allow=True))


# --------------------------------------------------------------------------------------------
# Conditions
# --------------------------------------------------------------------------------------------

SMALL = {"sum": {"at_most": 5}}


def at_most(condition: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool | None:
    """Evaluates ``{"sum": {"at_most": N}}``; None where there is no sum."""
    if "sum" not in arguments:
        return None
    if arguments["sum"] == "odd":
        raise ZeroDivisionError
    return bool(arguments["sum"] <= condition["sum"]["at_most"])


@pytest.mark.parametrize("reach", [Reach.CHAT, Reach.ONCE])
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"sum": 6}, "its condition does not hold for these arguments"),
        ({}, "its condition does not hold for these arguments"),
        ({"sum": "odd"}, "its condition could not be evaluated (ZeroDivisionError)"),
    ],
)
def test_a_condition_holds_or_the_grant_does_not_count(
    arguments: Any, why: str, reach: Reach
) -> None:
    """False, unknown and a failing evaluation are no yes; the grant stays for the next call."""
    ledger = make_ledger(conditions=at_most)
    ledger.grant(grant(arguments=None, condition=SMALL, reach=reach))
    decision = ledger.on_tool_call(call("c1", arguments=arguments), TOOLS, USER)
    assert (decision.effect, unused(decision)) == (Effect.ASK, [why])
    assert effect(ledger, call("c2", arguments={"sum": 5})) is Effect.ALLOW
    spent = Effect.ASK if reach is Reach.ONCE else Effect.ALLOW
    assert effect(ledger, call("c3", arguments={"sum": 5})) is spent


def test_a_condition_is_evaluated_for_its_tool_and_chat_only() -> None:
    """Calls of other tools, in other chats and with broken arguments never meet it."""
    seen: list[Any] = []

    def note(condition: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
        seen.append((condition, arguments))
        return True

    ledger = make_ledger(conditions=note)
    ledger.grant(grant(arguments=None, condition=SMALL))
    effect(ledger, call("c1", name="read"))
    effect(ledger, call("c2", chat="else"))
    assert code(ledger.on_tool_call(call("c3", arguments="no"), TOOLS, USER)) == (
        "arguments_invalid"
    )
    assert seen == []
    given = grant_for(READ, chat="main", reach=Reach.CHAT, arguments=None, condition=SMALL)
    decision = ledger.on_tool_call(
        call("c4", chat="x", arguments={"sum": 1}), TOOLS, USER, approvals=[given]
    )
    assert unused(decision) == ["it does not reach this chat"]
    assert effect(ledger, call("c5", arguments={"sum": 1})) is Effect.ALLOW
    assert seen == [(SMALL, {"sum": 1})]


def test_an_answer_may_grant_on_a_condition() -> None:
    """The call that was answered has to meet it like any other."""
    ledger = make_ledger(conditions=at_most)
    answered(ledger, call(arguments={"sum": 1}), reach=Reach.CHAT, bind=SMALL)
    assert effect(ledger, call(arguments={"sum": 1})) is Effect.ALLOW
    assert effect(ledger, call("c2", arguments={"sum": 2})) is Effect.ALLOW
    assert effect(ledger, call("c3", arguments={"sum": 9})) is Effect.ASK


def test_a_condition_that_nobody_evaluates_is_refused() -> None:
    """A grant that could never hold is an error at once, and so is the answer that makes it."""
    ledger = make_ledger()
    match = "this ledger evaluates no conditions, so the grant would never hold; give it"
    with pytest.raises(ApprovalError, match=match):
        ledger.grant(grant(arguments=None, condition=SMALL))
    decision = asked(ledger, call())
    with pytest.raises(ApprovalError, match=match):
        ledger.answer(answer_to(decision, allow=True, reach=Reach.CHAT, bind=SMALL))
    assert ledger.state("main", "c1") is CallState.ASKED
    handed_in = grant(arguments=None, condition=SMALL)
    decision = ledger.on_tool_call(call("c2"), TOOLS, USER, approvals=[handed_in])
    assert unused(decision) == ["its condition on the arguments was not evaluated"]
