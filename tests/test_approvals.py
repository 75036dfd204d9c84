"""Approvals: what they bind, how they are saved, and what they can do in one decision."""

import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledgers import BANK, PAY, TOOLS, USER, WORKER, call
from tests.strategies import Rule, calls, json_objects, plugins, scopes, toolsets
from toolscope.calls import answer_to, grant_for
from toolscope.engine import PolicyEngine
from toolscope.errors import ApprovalError
from toolscope.model import (
    HOST,
    UNKNOWN,
    Ancestor,
    Answered,
    AnyArguments,
    Approval,
    FrozenDict,
    InvalidArguments,
    Origin,
    Reach,
    Scope,
    Tool,
    ToolCall,
    Toolset,
    arguments_digest,
    freeze,
)
from toolscope.verdicts import Decision, Effect, PluginVerdict, ask, decide, deny

ANY = AnyArguments.ANY
ENGINE = PolicyEngine([Rule(name="rules", called={"pay": "ask"})])


def ask_of(one: ToolCall, scope: Scope = USER) -> Decision:
    return ENGINE.on_tool_call(one, TOOLS, scope)


def approved(one: ToolCall, *approvals: Approval, scope: Scope = USER) -> Decision:
    return ENGINE.on_tool_call(one, TOOLS, scope, approvals=approvals)


def grant(**parts: Any) -> Approval:
    return grant_for(PAY, **{"chat": "main", "reach": Reach.CHAT, "arguments": ANY, **parts})


# --------------------------------------------------------------------------------------------
# The digest of arguments
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"n": 2**53}, {"n": 2**53 + 1}),
        ({"n": 1}, {"n": 1.0}),
        ({"n": 1}, {"n": True}),
        ({"n": 0}, {"n": None}),
        ({"n": None}, {}),
        ({"t": "\u00e9"}, {"t": "e\u0301"}),
        ({"t": "a"}, {"t": "A"}),
        ({"t": "a"}, {"t": "a "}),
        ({"t": "\U0001f600"}, {"t": "\ud83d\ude00"}),
        ({"t": "\ud83d"}, {"t": "\\ud83d"}),
        ({"l": [1, 2]}, {"l": [2, 1]}),
        ({"a": {"b": 1}}, {"a": {}, "b": 1}),
    ],
)
def test_arguments_that_differ_have_other_digests(one: Any, other: Any) -> None:
    """Integers are exact, text is not normalised, and types do not run together."""
    assert arguments_digest(one) != arguments_digest(other)


@given(json_objects, st.randoms(use_true_random=False))
def test_key_order_is_free(arguments: dict[str, Any], random: Any) -> None:
    """The same members in another order have the same digest, and so has the frozen form."""
    items = list(arguments.items())
    random.shuffle(items)
    assert arguments_digest(dict(items)) == arguments_digest(arguments)
    assert arguments_digest(freeze(arguments)) == arguments_digest(arguments)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"n": float("nan")}, "NaN and infinities are not JSON"),
        ({"n": 10**4300}, "an integer has more than 4,300 digits"),
        ({1: "a"}, "a key is a int, not text"),
        (InvalidArguments("they are no JSON"), "have no digest: they are no JSON"),
    ],
)
def test_what_is_no_json_has_no_digest(arguments: Any, why: str) -> None:
    """Neither a digest nor an approval is made of arguments that are no JSON object."""
    with pytest.raises(ValueError, match=why):
        arguments_digest(arguments)
    with pytest.raises(ApprovalError, match=f"cannot bind these arguments: .*{why}"):
        grant(arguments=arguments)


def test_huge_integers_in_a_call_are_invalid_arguments() -> None:
    """A number that cannot be written as text denies the call; nothing is raised later."""
    decision = approved(call(arguments={"n": -(10**4300)}), grant())
    assert decision.failure is not None
    assert decision.failure.code == "arguments_invalid"
    assert "an integer has more than 4,300 digits" in decision.failure.message
    assert approved(call(arguments={"n": 10**4300 - 1}), grant()).effect is Effect.ALLOW


# --------------------------------------------------------------------------------------------
# What an answer binds
# --------------------------------------------------------------------------------------------


def test_an_answer_turns_its_ask_into_an_allow() -> None:
    """Handed back, the call is decided again, and the decision names the approval."""
    one = call(arguments={"sum": 1})
    answer = answer_to(ask_of(one), allow=True, by="ann", at=5, reason="fine")
    decision = approved(one, answer)
    assert (decision.effect, decision.provider) == (Effect.ALLOW, BANK)
    assert (decision.approvals, decision.unused_approvals) == ((answer,), ())


RENAMED = Toolset([attrs.evolve(PAY, description="now also refunds")])
OTHER_RULE = PolicyEngine([Rule(name="other", called={"pay": "ask"})])


@pytest.mark.parametrize(
    ("engine", "one", "tools", "why"),
    [
        (ENGINE, call("c2", arguments={"sum": 1}), TOOLS, "it answers another call"),
        (ENGINE, call(chat="side", arguments={"sum": 1}), TOOLS, "it was given in another chat"),
        (ENGINE, call(arguments={"sum": 2}), TOOLS, "it is for other arguments"),
        (ENGINE, call(arguments={}), TOOLS, "it is for other arguments"),
        (ENGINE, call(arguments={"sum": 1}), RENAMED, "the tool's definition has changed since"),
        (
            ENGINE,
            call(arguments={"sum": 1}),
            Toolset([Tool(name="pay")]),
            "it is about another tool",
        ),
        (
            OTHER_RULE,
            call(arguments={"sum": 1}),
            TOOLS,
            "it answers none of the asks on this call",
        ),
    ],
)
def test_an_answer_to_something_else_is_asked_again(
    engine: PolicyEngine, one: ToolCall, tools: Toolset, why: str
) -> None:
    """Another call, chat, tool, definition, arguments or ask: each is asked with its reason."""
    answer = answer_to(ask_of(call(arguments={"sum": 1})), allow=True)
    decision = engine.on_tool_call(one, tools, USER, approvals=[answer])
    assert decision.effect is Effect.ASK
    assert decision.unused_approvals == (f"an approval was not used: {why}",)
    assert decision.approvals == ()


def test_no_approval_fits_a_call_with_invalid_arguments() -> None:
    """Not even one of any arguments, or of none."""
    one = call(arguments="{")
    for approval in (grant(), grant(arguments={})):
        assert approval.mismatch(one, PAY, USER) == "the arguments of the call are invalid"
        assert approved(one, approval).effect is Effect.DENY


def test_edited_arguments_are_the_ones_that_run() -> None:
    """Where the person edited the arguments, the call comes back with those, and only those."""
    one = call(arguments={"sum": 100})
    answer = answer_to(ask_of(one), allow=True, arguments={"sum": 10})
    assert approved(one, answer).effect is Effect.ASK
    assert approved(call(arguments={"sum": 10}), answer).effect is Effect.ALLOW


def test_an_approval_lifts_no_deny() -> None:
    """Whatever is granted, a deny stays, and the decision says what the grant was worth."""
    verdicts = [
        PluginVerdict(plugin="a", verdict=ask("a asks")),
        PluginVerdict(plugin="b", verdict=deny("b denies")),
    ]
    decision = decide(call(), PAY, USER, verdicts, [grant()])
    assert (decision.effect, decision.provider) == (Effect.DENY, None)
    assert [one.plugin for one in decision.verdicts] == ["b"]
    assert decision.unused_approvals == ("an approval was not used: it lifts no deny",)


@given(plugins(), toolsets(), scopes(), calls, st.data())
def test_an_approval_never_permits_what_a_rule_denies(
    rules: list[Rule], tools: Toolset, scope: Scope, one: ToolCall, data: st.DataObject
) -> None:
    """Grants of any arguments for every tool, in any order: a deny stays word for word."""
    engine = PolicyEngine(rules)
    grants = [grant_for(tool, chat=None, reach=Reach.SUBTREE, arguments=ANY) for tool in tools]
    without = engine.on_tool_call(one, tools, attrs.evolve(scope, can_ask=True))
    granted = [
        engine.on_tool_call(one, tools, scope, approvals=order)
        for order in (grants, data.draw(st.permutations(grants)))
    ]
    for decision in granted:
        if without.effect is Effect.DENY:
            assert (decision.failure, decision.verdicts) == (without.failure, without.verdicts)
        else:
            assert (decision.effect, decision.tool) == (Effect.ALLOW, without.tool)
    assert granted[0].approvals == granted[1].approvals


def test_every_ask_needs_its_answer() -> None:
    """An answer to one of two asks leaves the other open."""
    first = PluginVerdict(plugin="a", verdict=ask("a asks"))
    second = PluginVerdict(plugin="b", verdict=ask("b asks", rule="r", code="c"))
    answer = answer_to(decide(call(), PAY, USER, [first]), allow=True)
    decision = decide(call(), PAY, USER, [second, first], [answer])
    assert (decision.effect, decision.verdicts) == (Effect.ASK, (second,))
    other = answer_to(decision, allow=True)
    assert other.answers == frozenset({Answered(plugin="b", rule="r", code="c", reason="b asks")})
    assert decide(call(), PAY, USER, [second, first], [answer, other]).effect is Effect.ALLOW


def test_without_a_person_open_asks_are_denied_after_approvals_were_tried() -> None:
    """``approval_unavailable`` is for the asks that nothing answered."""
    alone = Scope(origin=Origin.USER)
    decision = ENGINE.on_tool_call(call(), TOOLS, alone)
    assert decision.failure is not None
    assert decision.failure.code == "approval_unavailable"
    assert decision.failure.message == (
        "This call of 'pay' needs a person's approval, and nobody can be asked in this chat: "
        "rules asks. The same call cannot succeed here; do not repeat it."
    )
    assert approved(call(), grant(), scope=alone).effect is Effect.ALLOW
    assert approved(call(), answer_to(ask_of(call()), allow=True), scope=alone).effect is (
        Effect.ALLOW
    )


def test_a_refusal_is_a_deny_with_what_the_person_said() -> None:
    """It denies the call it names, also where its arguments or the policy changed meanwhile."""
    refusal = answer_to(ask_of(call()), allow=False, reason="not today.")
    for engine, arguments in [
        (ENGINE, "{}"),
        (ENGINE, '{"x": 1}'),
        (PolicyEngine([]), "{}"),
    ]:
        decision = engine.on_tool_call(
            call(arguments=arguments), TOOLS, USER, approvals=[grant(), refusal]
        )
        assert decision.failure is not None
        assert (decision.failure.code, decision.failure.final) == ("approval_refused", True)
        assert decision.failure.message == (
            "A person refused this call of 'pay': not today. The same call cannot succeed here; "
            "do not repeat it."
        )
        assert decision.approvals == (refusal,)
    assert approved(call("c2"), refusal).effect is Effect.ASK


def test_only_approvals_that_are_needed_count() -> None:
    """The answer to the call comes first, then standing grants, then the one that ends first."""
    answer = answer_to(ask_of(call()), allow=True)
    standing = grant()
    late = grant(reach=Reach.ONCE, at=1)
    soon = grant(reach=Reach.ONCE, expires=9)
    for given_, used in [
        ([late, soon, standing, answer], answer),
        ([late, standing, soon], standing),
        ([late, soon], soon),
        ([late, late], late),
    ]:
        for order in (given_, given_[::-1]):
            decision = approved(call(), *order)
            assert (decision.effect, decision.approvals) == (Effect.ALLOW, (used,))
            spared = len(set(given_)) - 1
            why = "an approval was not used: another one answers the same asks"
            assert decision.unused_approvals == (why,) * spared


# --------------------------------------------------------------------------------------------
# How far a grant goes
# --------------------------------------------------------------------------------------------

FORK = Scope(origin=Origin.FORK, can_ask=True, ancestry=WORKER.ancestry)
SIDE = Scope(origin=Origin.SIDE_CHAT, can_ask=True, ancestry=WORKER.ancestry)
GRANDCHILD = WORKER.child(Scope(can_ask=True))
UNDER_SIDE = SIDE.child(Scope(can_ask=True))
LOST = Scope(origin=Origin.TOOL, can_ask=True, ancestry=[UNKNOWN])
LOST_HIGHER = Scope(origin=Origin.TOOL, can_ask=True, ancestry=[Ancestor(origin="tool"), UNKNOWN])
LATER_KIND = Scope(origin="later", can_ask=True, ancestry=WORKER.ancestry)


@pytest.mark.parametrize(
    ("scope", "chat", "ancestors", "reached_by"),
    [
        (USER, "main", (), {"once", "chat", "subtree"}),
        (USER, "else", (), set()),
        (WORKER, "w", ("main",), {"subtree"}),
        (GRANDCHILD, "g", ("w", "main"), {"subtree"}),
        (GRANDCHILD, "g", ("w", "else"), set()),
        (GRANDCHILD, "g", (None, "main"), set()),
        (GRANDCHILD, "g", ("w",), set()),
        (WORKER, "w", (), set()),
        (FORK, "f", ("main",), set()),
        (SIDE, "s", ("main",), set()),
        (UNDER_SIDE, "u", ("s", "main"), set()),
        (LATER_KIND, "l", ("main",), set()),
        (LOST, "w", ("main",), set()),
        (LOST_HIGHER, "w", ("p", "main"), set()),
    ],
)
def test_a_grant_goes_down_tool_origins_only(
    scope: Scope, chat: str, ancestors: tuple[str | None, ...], reached_by: set[str]
) -> None:
    """Never into a fork or a side chat, never past an ancestor that nobody knows."""
    one = call(chat=chat, ancestors=ancestors)
    for reach in Reach:
        decision = approved(one, grant(reach=reach), scope=scope)
        assert (decision.effect is Effect.ALLOW) is (reach in reached_by), reach
        if reach not in reached_by:
            assert decision.unused_approvals == (
                "an approval was not used: it does not reach this chat",
            )


def test_a_grant_never_goes_up() -> None:
    """What was granted in a worker does not count in the chat above it."""
    for reach in Reach:
        up = approved(call(chat="main"), grant(chat="w", reach=reach))
        assert up.effect is Effect.ASK


def test_no_arguments_are_not_any_arguments() -> None:
    """A grant of the call without arguments is for that call alone."""
    nothing = grant(arguments={})
    assert approved(call(arguments={}), nothing).effect is Effect.ALLOW
    assert approved(call(arguments={"sum": 1}), nothing).effect is Effect.ASK
    assert approved(call(arguments={"sum": 1}), grant(arguments=ANY)).effect is Effect.ALLOW


def test_a_condition_counts_only_where_somebody_evaluated_it() -> None:
    """The engine evaluates none, so a condition by itself permits nothing."""
    decision = approved(call(), grant(arguments=None, condition={"sum": {"at_most": 5}}))
    assert decision.effect is Effect.ASK
    assert decision.unused_approvals == (
        "an approval was not used: its condition on the arguments was not evaluated",
    )


# --------------------------------------------------------------------------------------------
# What is no approval
# --------------------------------------------------------------------------------------------

PARTS = {"allow": True, "provider": HOST, "own_name": "t", "definition": "d", "arguments": ANY}


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"allow": 1}, "allow of an approval is 1; allowed are True and False"),
        ({"allow": False}, "a refusal is of one call, which it names; what is never allowed"),
        (
            {"allow": False, "call_id": "c", "reach": Reach.CHAT},
            "a refusal is of one call, which it names; what is never allowed is a rule",
        ),
        ({"call_id": "c"}, "an answer to one call binds exactly its arguments"),
        ({"chat": 5}, "chat of an approval is a int; allowed is text"),
        ({"definition": None}, "definition of an approval is a NoneType; allowed is text"),
        ({"reach": "world"}, "reach of an approval is 'world'; allowed are 'once', 'chat' and"),
        ({"at": float("nan")}, "at of an approval is no finite number of seconds"),
        ({"expires": float("nan")}, "expires of an approval is no finite number of seconds"),
        ({"expires": float("inf")}, "expires of an approval is no finite number of seconds"),
        ({"expires": True}, "expires of an approval is no finite number of seconds"),
        ({"expires": "soon"}, "expires of an approval is no finite number of seconds"),
        ({"expires": 10**400}, "expires of an approval is no finite number of seconds"),
        (
            {"call_id": "c", "arguments": {"sum": {"at_most": 5}}},
            "an answer to one call binds exactly its arguments",
        ),
        ({"arguments": "any"}, "the arguments of an approval are a str; allowed are AnyArguments"),
        ({"arguments": "short"}, "the arguments of an approval are a str; allowed are AnyArg"),
        ({"arguments": {"x": float("nan")}}, "the condition of an approval is not JSON: NaN"),
    ],
)
def test_an_approval_that_is_not_well_formed_is_refused(parts: dict[str, Any], why: str) -> None:
    """What could be read in two ways is an error when it is made."""
    with pytest.raises(ApprovalError, match=why):
        Approval(**{**PARTS, **parts})


def test_there_is_nothing_to_answer_where_nothing_is_asked() -> None:
    """Only an ask about a call with an id can be answered."""
    allowed = PolicyEngine([]).on_tool_call(call(), TOOLS, USER)
    with pytest.raises(ApprovalError, match="the decision is allow, so there is nothing to answer"):
        answer_to(allowed, allow=True)
    with pytest.raises(ApprovalError, match="the call has no id, so an answer could not be told"):
        answer_to(ask_of(call(None)), allow=True)


def test_an_answer_binds_all_that_was_asked() -> None:
    """Whole: the call, the tool, the arguments, the asks, and what was said by whom and when."""
    asking = ask_of(call(arguments={"sum": 1}))
    plain: dict[str, Any] = {
        "chat": "main",
        "call_id": "c1",
        "provider": BANK,
        "own_name": "transfer",
        "definition": PAY.digest,
        "answers": frozenset({asking.verdicts[0].key}),
    }
    assert answer_to(asking, allow=True) == Approval(
        **plain, allow=True, arguments=arguments_digest({"sum": 1}), reach=Reach.ONCE
    )
    assert answer_to(
        asking, allow=False, by="ann", at=7, expires=9, reason="no", arguments={"sum": 2}
    ) == Approval(
        **plain,
        allow=False,
        arguments=arguments_digest({"sum": 2}),
        reach=Reach.ONCE,
        by="ann",
        at=7,
        expires=9,
        reason="no",
    )
    assert answer_to(asking, allow=True, reach=Reach.SUBTREE, bind=ANY) == Approval(
        **plain, allow=True, arguments=ANY, reach=Reach.SUBTREE
    )


def test_a_grant_binds_what_it_is_given() -> None:
    """Whole: it names no call, and answers every ask about the tool."""
    plain: dict[str, Any] = {
        "allow": True,
        "chat": "main",
        "provider": BANK,
        "own_name": "transfer",
        "definition": PAY.digest,
    }
    assert grant_for(
        PAY, chat="main", reach=Reach.ONCE, arguments={"sum": 1}, by="ann", at=7, expires=9
    ) == Approval(
        **plain,
        arguments=arguments_digest({"sum": 1}),
        reach=Reach.ONCE,
        by="ann",
        at=7,
        expires=9,
    )
    condition = {"sum": {"at_most": 5}}
    assert grant_for(
        PAY, chat="main", reach=Reach.SUBTREE, arguments=None, condition=condition
    ) == Approval(**plain, arguments=freeze(condition), reach=Reach.SUBTREE)
    assert grant_for(PAY, chat="main", reach=Reach.CHAT, arguments=ANY) == Approval(
        **plain, arguments=ANY, reach=Reach.CHAT
    )


def test_what_cannot_be_answered_or_granted_is_said_in_full() -> None:
    """With what to do instead."""
    allowed = PolicyEngine([]).on_tool_call(call(), TOOLS, USER)
    asking, without_id = ask_of(call()), ask_of(call(None))
    cases: list[tuple[Callable[[], Approval], str]] = [
        (
            lambda: answer_to(allowed, allow=True),
            "the decision is allow, so there is nothing to answer",
        ),
        (
            lambda: answer_to(without_id, allow=True),
            "the call has no id, so an answer could not be told apart; give it one",
        ),
        (
            lambda: grant(arguments=None),
            "a grant binds arguments or a condition on them: give one of the two",
        ),
        (
            lambda: answer_to(asking, allow=True, arguments={"x": float("nan")}),
            "an approval cannot bind these arguments: NaN and infinities are not JSON",
        ),
        (
            lambda: grant(arguments={"x": {1}}),
            "an approval cannot bind these arguments: a value is a set, which is not JSON",
        ),
    ]
    for make, why in cases:
        with pytest.raises(ApprovalError) as caught:
            make()
        assert str(caught.value) == why


@pytest.mark.parametrize(
    ("arguments", "condition"), [(None, None), ({}, {"sum": {"at_most": 5}}), (ANY, {})]
)
def test_a_grant_binds_one_thing(arguments: Any, condition: Any) -> None:
    """Arguments or a condition on them; neither means nothing, both would contradict."""
    with pytest.raises(ApprovalError, match="binds arguments or a condition on them: give one"):
        grant(arguments=arguments, condition=condition)


# --------------------------------------------------------------------------------------------
# Saved and read back
# --------------------------------------------------------------------------------------------

times = st.none() | st.integers(0, 2**40) | st.floats(0, 2**40)
texts = st.none() | st.text(max_size=5)
approvals = st.builds(
    Approval,
    allow=st.just(True),
    chat=texts,
    provider=st.sampled_from((HOST, BANK)),
    own_name=st.text(min_size=1, max_size=5),
    definition=st.text(max_size=5),
    arguments=st.just(ANY) | json_objects.map(arguments_digest) | json_objects.map(freeze),
    answers=st.none()
    | st.frozensets(
        st.builds(
            Answered,
            plugin=st.text(max_size=3),
            rule=texts,
            code=texts,
            reason=st.text(max_size=5),
        ),
        max_size=3,
    ),
    reach=st.sampled_from(Reach),
    by=texts,
    at=times,
    expires=times,
    reason=texts,
)


@given(approvals)
def test_a_saved_approval_is_the_same_again(approval: Approval) -> None:
    """Through JSON text, in whatever order, nothing of it is lost; None and empty stay apart."""
    text = json.dumps(approval.to_json())
    read = Approval.from_json(json.loads(text))
    assert read == approval
    assert read.digest == approval.digest
    assert attrs.evolve(approval, by="somebody else").digest != approval.digest


SAVED: dict[str, Any] = answer_to(ask_of(call()), allow=True, by="ann").to_json()


@pytest.mark.parametrize(
    ("saved", "why"),
    [
        (None, "a saved approval is a NoneType, not a JSON object"),
        ([], "a saved approval is a list, not a JSON object"),
        ({**SAVED, "schema": 2}, "has schema 2; this version reads 1; ask again"),
        ({k: v for k, v in SAVED.items() if k != "schema"}, "has schema None; this version"),
        ({**SAVED, "widened": True}, r"has unknown members \['widened'\]; ask again"),
        ({**SAVED, "allow": "yes"}, "allow of an approval is 'yes'"),
        ({**SAVED, "provider": "moon"}, r"cannot be read \('moon' is no provider"),
        ({**SAVED, "own_name": None}, r"\(its own_name is a NoneType\); ask again"),
        ({**SAVED, "chat": None}, r"\(its chat is a NoneType\); ask again"),
        ({**SAVED, "at": True}, r"\(its at is a bool\); ask again"),
        ({**SAVED, "expires": float("nan")}, "expires of an approval is no finite number"),
        ({**SAVED, "reach": "world"}, "reach of an approval is 'world'"),
        ({**SAVED, "arguments": {}}, r"\(its arguments are none of any, digest and condition\)"),
        ({**SAVED, "arguments": {"any": 1}}, "its arguments are none of any, digest"),
        ({**SAVED, "arguments": {"digest": "x"}}, "its arguments are none of any, digest"),
        (
            {**SAVED, "arguments": {"any": True, "condition": {}}},
            "its arguments are none of any, digest",
        ),
        ({**SAVED, "answers": {}}, r"\(its answers are no array\)"),
        ({**SAVED, "answers": ["rules"]}, r"\(one of its answers is no object of texts\)"),
        ({**SAVED, "answers": [{"plugin": "rules"}]}, "a saved approval cannot be read"),
        ({k: v for k, v in SAVED.items() if k != "allow"}, r"cannot be read \('allow'\)"),
    ],
)
def test_a_saved_approval_that_cannot_be_read_counts_in_no_part(saved: Any, why: str) -> None:
    """Another schema, unknown members and wrong types are errors that say to ask again."""
    with pytest.raises(ApprovalError, match=why):
        Approval.from_json(saved)


def test_a_condition_is_read_back_as_data() -> None:
    """It is frozen JSON, so an approval with one can be compared, hashed and saved."""
    one = grant(arguments=None, condition={"sum": {"at_most": [1, 2]}})
    read = Approval.from_json(json.loads(json.dumps(one.to_json())))
    assert (read, hash(read)) == (one, hash(one))
    assert type(read.arguments) is FrozenDict
