"""Verdicts and how they combine: deny overrides ask, ask overrides no opinion."""

from itertools import permutations
from typing import Any

import pytest

from toolscope.calls import answer_to, grant_for
from toolscope.model import (
    Agent,
    Answered,
    AnyArguments,
    InvalidArguments,
    Provider,
    Reach,
    Scope,
    ToolCall,
)
from toolscope.testing import tool
from toolscope.verdicts import (
    Code,
    Decision,
    Effect,
    Failure,
    PluginVerdict,
    Unlisted,
    Verdict,
    ask,
    decide,
    decide_invalid,
    decide_settled,
    decide_unlisted,
    deny,
    refusal,
    why_unlisted,
)

CALL = ToolCall(name="read")
TOOL = tool("read", "client:desk")


def test_a_verdict_is_an_ask_or_a_deny() -> None:
    """Made by the two functions; equal verdicts are equal."""
    assert ask("may it?") == Verdict(effect=Effect.ASK, reason="may it?")
    assert ask("may it?", code="cost", detail="7 of 7", rule="rules.toml:3") == Verdict(
        effect=Effect.ASK, reason="may it?", code="cost", detail="7 of 7", rule="rules.toml:3"
    )
    full = deny("no", code="quota", detail="7 of 7", rule="rules.toml:3")
    assert (full.effect, full.reason, full.code, full.detail, full.rule) == (
        Effect.DENY,
        "no",
        "quota",
        "7 of 7",
        "rules.toml:3",
    )
    assert hash(full) == hash(deny("no", code="quota", detail="7 of 7", rule="rules.toml:3"))


def test_no_verdict_allows() -> None:
    """It would change nothing."""
    with pytest.raises(ValueError) as caught:
        Verdict(effect=Effect.ALLOW, reason="sure")
    assert str(caught.value) == "no verdict allows: a rule without objection answers None"


@pytest.mark.parametrize("reason", ["", "  ", None, 7])
def test_a_verdict_gives_its_reason(reason: Any) -> None:
    """A text that is not blank."""
    for make in (ask, deny):
        with pytest.raises(ValueError) as caught:
            make(reason)
        assert str(caught.value) == (
            f"the reason of a verdict is {reason!r}; allowed is a text that says the true cause "
            "and what to do instead"
        )


@pytest.mark.parametrize("code", ["denied", "cancelled"])
def test_codes_that_hosts_read_as_a_cancel_are_taken(code: str) -> None:
    """A policy's deny is no person's cancel."""
    with pytest.raises(ValueError) as caught:
        deny("no", code=code)
    assert str(caught.value) == f"the code {code!r} is taken: hosts read it as a cancel by a person"


@pytest.mark.parametrize("code", ["", 7])
def test_a_code_is_a_text(code: Any) -> None:
    """Or None."""
    with pytest.raises(ValueError) as caught:
        deny("no", code=code)
    assert str(caught.value) == f"the code of a verdict is {code!r}; allowed is a text, or None"
    number: Any = 7
    with pytest.raises(TypeError, match="'detail' must be <class 'str'>"):
        deny("no", detail=number)


def test_a_verdict_has_no_subclasses() -> None:
    """One could change what it says after it was checked."""
    with pytest.raises(TypeError) as caught:
        type("Sly", (Verdict,), {})
    assert str(caught.value) == "Verdict has no subclasses: the engine takes the exact type only"


A_DENY = PluginVerdict(plugin="d", verdict=deny("it is late"))
AN_ASK = PluginVerdict(plugin="c", verdict=ask("it costs money"))
B_ASK = PluginVerdict(plugin="b", verdict=ask("it is public"))
AN_ERROR = PluginVerdict(
    plugin="a", verdict=deny("no decision", code="policy_error"), error="OSError: gone"
)


@pytest.mark.parametrize(
    ("verdicts", "can_ask", "effect", "code", "plugins"),
    [
        ([], True, "allow", None, ""),
        ([], False, "allow", None, ""),
        ([AN_ASK], True, "ask", None, "c"),
        ([AN_ASK], False, "deny", "approval_unavailable", "c"),
        ([AN_ASK, B_ASK], True, "ask", None, "bc"),
        ([AN_ASK, B_ASK], False, "deny", "approval_unavailable", "bc"),
        ([A_DENY], True, "deny", "tool_denied", "d"),
        ([A_DENY, AN_ASK], True, "deny", "tool_denied", "d"),
        ([A_DENY, AN_ASK], False, "deny", "tool_denied", "d"),
        ([AN_ERROR], True, "deny", "policy_error", "a"),
        ([AN_ERROR, AN_ASK], True, "deny", "policy_error", "a"),
        ([AN_ERROR, AN_ASK], False, "deny", "policy_error", "a"),
        ([AN_ERROR, A_DENY], True, "deny", "tool_denied", "ad"),
        ([AN_ERROR, A_DENY, AN_ASK, B_ASK], True, "deny", "tool_denied", "ad"),
    ],
)
def test_deny_overrides_ask_overrides_no_opinion(
    verdicts: list[PluginVerdict], can_ask: bool, effect: str, code: str | None, plugins: str
) -> None:
    """In any order; the determining verdicts come in the order of plugin names."""
    scope = Scope(can_ask=can_ask)
    decisions = [decide(CALL, TOOL, scope, order) for order in permutations(verdicts)]
    for decision in decisions:
        assert decision == decisions[0]
        assert decision.effect == effect
        assert (decision.failure and decision.failure.code) == code
        assert "".join(one.plugin for one in decision.verdicts) == plugins
        assert decision.provider == (None if effect == "deny" else Provider.client("desk"))
        assert (decision.call, decision.tool, decision.scope) == (CALL, TOOL, scope)


def test_only_an_error_may_pass() -> None:
    """``final`` says that the same call cannot succeed in this chat."""

    def failed(*verdicts: PluginVerdict, can_ask: bool = True) -> Failure:
        failure = decide(CALL, TOOL, Scope(can_ask=can_ask), verdicts).failure
        assert failure is not None
        return failure

    assert failed(A_DENY).final is True
    assert failed(AN_ERROR).final is False
    assert failed(AN_ERROR, A_DENY).final is True
    assert failed(AN_ASK, can_ask=False).final is True
    limit = PluginVerdict(plugin="l", verdict=deny("wait a minute", code=Code.LIMIT_EXCEEDED))
    assert failed(limit) == Failure(
        code="limit_exceeded",
        message="Policy denies this call of 'read': wait a minute. The same "
        "call cannot succeed here; do not repeat it.",
        final=False,
    )


def test_a_failure_says_its_errors_only_where_there_is_nothing_else() -> None:
    """And never the error itself."""
    both = decide(CALL, TOOL, Scope(), [AN_ERROR, A_DENY])
    assert both.failure is not None
    assert both.failure.message == (
        "Policy denies this call of 'read': it is late. The same call cannot succeed here; do not "
        "repeat it."
    )
    alone = decide(CALL, TOOL, Scope(), [AN_ERROR])
    assert alone.failure is not None
    assert alone.failure.message == (
        "The policy failed to decide about 'read', so the call was not run: no decision."
    )
    assert alone.errors == (AN_ERROR,)
    assert both.errors == (AN_ERROR,)


def test_several_tools_of_one_name_fail_for_each_different_reason() -> None:
    """Of one plugin, too; in an order that does not depend on the tools'."""
    other = tool("read", "client:phone")
    denies = [
        PluginVerdict(plugin="p", verdict=deny("z")),
        PluginVerdict(plugin="p", verdict=deny("a", detail="x")),
        PluginVerdict(plugin="p", verdict=deny("z")),
    ]
    found = [why_unlisted("read", [TOOL, other], [], order) for order in permutations(denies)]
    assert len({(one.tool, one.verdicts, one.failure) for one in found}) == 1
    assert found[0].tool is None
    assert [one.verdict.reason for one in found[0].verdicts] == ["a", "z"]
    assert "this chat: a; z. The same" in found[0].failure.message


def test_a_record_names_the_agent_without_its_allowlist() -> None:
    """Which may be long; a scope without an agent has none in its record."""
    worker = Scope(origin="tool", agent=Agent(name="worker", tools=["read", "write"]))
    assert decide(CALL, TOOL, worker, []).record()["scope"] == {
        "schema": 1,
        "origin": "tool",
        "agent": "worker",
        "ancestry": [],
        "can_ask": False,
        "attributes": {},
    }
    assert "agent" not in decide(CALL, TOOL, Scope(), []).record()["scope"]


# --------------------------------------------------------------------------------------------
# Whole outcomes
# --------------------------------------------------------------------------------------------

AGAIN = "The same call cannot succeed here; do not repeat it."


def test_a_repeated_failure_says_how_often() -> None:
    """The first is left as it is, the second counted, and from the third the model is to stop."""
    first = Failure(code="quota", message="No.", final=False)
    assert first.repeated(0) is first
    assert first.repeated(1) is first
    opening = "No. This is denial number"
    assert first.repeated(2) == Failure(
        code="quota",
        message=f"{opening} 2 of this tool for this cause.",
        attempts=2,
        final=False,
    )
    assert first.repeated(3) == Failure(
        code="quota",
        message=f"{opening} 3 of this tool for this cause: stop calling it.",
        attempts=3,
        final=False,
    )
    assert Failure(code="quota", message="No.").repeated(2).final is True


@pytest.mark.parametrize(
    ("reason", "said"), [(None, ""), ("it has completed", ": it has completed")]
)
def test_a_settled_call_says_what_became_of_it(reason: str | None, said: str) -> None:
    """Where that is known; the tool may be gone meanwhile."""
    message = f"This call of 'read' is settled, and no call runs twice{said}. {AGAIN}"
    for one in (TOOL, None):
        assert decide_settled(CALL, one, Scope(), reason) == Decision(
            effect=Effect.DENY,
            call=CALL,
            tool=one,
            scope=Scope(),
            failure=Failure(code="call_settled", message=message, attempts=1, final=True),
        )


def test_a_call_with_invalid_arguments_says_why() -> None:
    """No rule has said a thing about it."""
    scope = Scope(origin="tool")
    assert decide_invalid(CALL, TOOL, scope, InvalidArguments("they are no object")) == Decision(
        effect=Effect.DENY,
        call=CALL,
        tool=TOOL,
        scope=scope,
        failure=Failure(
            code="arguments_invalid",
            message=f"The arguments of this call of 'read' are invalid: they are no object. "
            f"{AGAIN}",
        ),
    )


def test_a_call_of_an_unlisted_tool_has_the_verdicts_that_withhold_it() -> None:
    """And nobody is named."""
    unlisted = Unlisted(tool=TOOL, verdicts=(A_DENY,), failure=Failure(code="c", message="m"))
    assert decide_unlisted(CALL, unlisted, Scope()) == Decision(
        effect=Effect.DENY,
        call=CALL,
        tool=TOOL,
        scope=Scope(),
        verdicts=(A_DENY,),
        failure=Failure(code="c", message="m"),
    )


def test_why_a_name_is_not_listed() -> None:
    """It is unknown, shadowed, withheld, or borne by several."""
    other = tool("read", "mcp:files")
    for candidates, listed, verdicts, expected in [
        (
            [],
            [],
            [],
            Unlisted(
                tool=None,
                verdicts=(),
                failure=Failure(
                    code="tool_unknown",
                    message=f"There is no tool named 'read' in this chat. {AGAIN}",
                ),
            ),
        ),
        (
            [TOOL],
            [],
            [],
            Unlisted(
                tool=TOOL,
                verdicts=(),
                failure=Failure(
                    code="tool_not_available",
                    message="The tool 'read' is not available in this chat: another provider's "
                    f"tool has this name here; call that one. {AGAIN}",
                ),
            ),
        ),
        (
            [TOOL],
            [],
            [A_DENY],
            Unlisted(
                tool=TOOL,
                verdicts=(A_DENY,),
                failure=Failure(
                    code="tool_not_available",
                    message=f"The tool 'read' is not available in this chat: it is late. {AGAIN}",
                ),
            ),
        ),
        (
            [TOOL, other],
            [TOOL, other],
            [A_DENY],
            Unlisted(
                tool=None,
                verdicts=(),
                failure=Failure(
                    code="tool_ambiguous",
                    message="More than one tool is named 'read', and the call does not say whose. "
                    f"{AGAIN}",
                ),
            ),
        ),
    ]:
        assert why_unlisted("read", candidates, listed, verdicts) == expected


def test_a_refusal_says_what_was_said() -> None:
    """Each text once its closing signs are gone, or nothing."""
    assert refusal("read", ["not on X.", "never; "]) == Failure(
        code="approval_refused",
        message=f"A person refused this call of 'read': not on X; never. {AGAIN}",
    )
    assert refusal("read", []).message == f"A person refused this call of 'read'. {AGAIN}"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("x" * 100, f"'{'x' * 100}'"),
        ("x" * 101, f"'{'x' * 100}...'"),
        ("é", "'é'"),
        ("a\nb", "'a\\nb'"),
    ],
)
def test_a_name_is_shown_in_a_line_of_its_own_length(name: str, shown: str) -> None:
    """100 characters of it, and those that cannot be printed as escapes."""
    assert refusal(name, []).message == f"A person refused this call of {shown}. {AGAIN}"


def test_verdicts_of_one_plugin_have_an_order_of_their_own() -> None:
    """By reason, then code, then detail, then rule; each may be absent."""
    in_order = [
        PluginVerdict(plugin=plugin, verdict=deny(reason, code=code, detail=detail, rule=rule))
        for plugin, reason, code, detail, rule in [
            ("a", "z", "z", "z", "z"),
            ("b", "a", "z", "z", "z"),
            ("b", "b", None, "z", "z"),
            ("b", "b", "A", None, "z"),
            ("b", "b", "A", "A", None),
            ("b", "b", "A", "A", "A"),
            ("b", "b", "A", "B", None),
            ("b", "b", "B", None, None),
        ]
    ]
    for given in (in_order, in_order[::-1], in_order[1::2] + in_order[::2]):
        assert decide(CALL, TOOL, Scope(), given).verdicts == tuple(in_order)
        assert why_unlisted("read", [TOOL], [], given).verdicts == tuple(in_order)


def test_what_no_rule_objects_to_is_allowed_whole() -> None:
    """The provider is the tool's; what was not asked is empty."""
    decision = decide(CALL, TOOL, Scope(), [])
    assert decision == Decision(
        effect=Effect.ALLOW,
        call=CALL,
        tool=TOOL,
        scope=Scope(),
        verdicts=(),
        provider=Provider.client("desk"),
        failure=None,
        approvals=(),
        unused_approvals=(),
    )


def test_an_ask_that_reaches_nobody_says_what_it_asked() -> None:
    """All of the reasons, in the order of plugin names."""
    assert decide(CALL, TOOL, Scope(), [AN_ASK, B_ASK]) == Decision(
        effect=Effect.DENY,
        call=CALL,
        tool=TOOL,
        scope=Scope(),
        verdicts=(B_ASK, AN_ASK),
        failure=Failure(
            code="approval_unavailable",
            message="This call of 'read' needs a person's approval, and nobody can be asked in "
            f"this chat: it is public; it costs money. {AGAIN}",
        ),
    )


def test_of_one_time_grants_the_first_to_expire_counts() -> None:
    """One that never expires comes last of all."""
    one = ToolCall(name="read", chat="main", id="c1")
    grants = [
        grant_for(
            TOOL, chat="main", reach=Reach.ONCE, arguments=AnyArguments.ANY, expires=expires, at=at
        )
        for at, expires in enumerate([1.0, 2.0, 3.0, 4.0, 5.0, None])
    ]
    for first in range(len(grants)):
        for given in (grants[first:], grants[first:][::-1]):
            decision = decide(one, TOOL, Scope(can_ask=True), [AN_ASK], given)
            assert decision.approvals == (grants[first],)


def test_the_answer_to_this_very_call_counts_before_one_that_reaches_further() -> None:
    """Whatever else they say."""
    one = ToolCall(name="read", chat="main", id="c1")
    scope = Scope(can_ask=True)
    asking = decide(one, TOOL, scope, [AN_ASK])
    for by in "abcdefgh":
        near = answer_to(asking, allow=True, by=by)
        wide = answer_to(asking, allow=True, by=by, reach=Reach.CHAT)
        for given in ([near, wide], [wide, near]):
            assert decide(one, TOOL, scope, [AN_ASK], given).approvals == (near,)


def test_a_deny_and_a_refusal_are_whole_decisions() -> None:
    """With the approvals that counted, which for a deny are none."""
    one = ToolCall(name="read", chat="main", id="c1")
    scope = Scope(can_ask=True)
    asking = decide(one, TOOL, scope, [AN_ASK])
    yes = answer_to(asking, allow=True)
    no = answer_to(asking, allow=False, reason="not now")
    assert decide(one, TOOL, scope, [AN_ASK, A_DENY], [yes, no]) == Decision(
        effect=Effect.DENY,
        call=one,
        tool=TOOL,
        scope=scope,
        verdicts=(A_DENY,),
        failure=Failure(
            code="tool_denied", message=f"Policy denies this call of 'read': it is late. {AGAIN}"
        ),
        unused_approvals=("an approval was not used: it lifts no deny",) * 2,
    )
    assert decide(one, TOOL, scope, [AN_ASK], [yes, no]) == Decision(
        effect=Effect.DENY,
        call=one,
        tool=TOOL,
        scope=scope,
        verdicts=(AN_ASK,),
        failure=Failure(
            code="approval_refused",
            message=f"A person refused this call of 'read': not now. {AGAIN}",
        ),
        approvals=(no,),
        unused_approvals=("an approval was not used: another one answers the same asks",),
    )
    assert decide(one, TOOL, scope, [AN_ASK], [yes]) == Decision(
        effect=Effect.ALLOW,
        call=one,
        tool=TOOL,
        scope=scope,
        provider=Provider.client("desk"),
        approvals=(yes,),
    )
    elsewhere = grant_for(TOOL, chat="side", reach=Reach.CHAT, arguments=AnyArguments.ANY)
    assert decide(one, TOOL, scope, [AN_ASK], [elsewhere]) == Decision(
        effect=Effect.ASK,
        call=one,
        tool=TOOL,
        scope=scope,
        verdicts=(AN_ASK,),
        provider=Provider.client("desk"),
        unused_approvals=("an approval was not used: it does not reach this chat",),
    )


def test_asks_that_reach_nobody_keep_the_approvals_that_counted() -> None:
    """And why the others did not."""
    one = ToolCall(name="read", chat="main", id="c1")
    yes = answer_to(decide(one, TOOL, Scope(can_ask=True), [AN_ASK]), allow=True)
    elsewhere = grant_for(TOOL, chat="side", reach=Reach.CHAT, arguments=AnyArguments.ANY)
    assert decide(one, TOOL, Scope(), [AN_ASK, B_ASK], [yes, elsewhere]) == Decision(
        effect=Effect.DENY,
        call=one,
        tool=TOOL,
        scope=Scope(),
        verdicts=(B_ASK,),
        failure=Failure(
            code="approval_unavailable",
            message="This call of 'read' needs a person's approval, and nobody can be asked in "
            f"this chat: it is public. {AGAIN}",
        ),
        approvals=(yes,),
        unused_approvals=("an approval was not used: it does not reach this chat",),
    )


def test_an_ask_is_known_by_plugin_rule_code_and_reason() -> None:
    """Which is what an approval names."""
    asking = PluginVerdict(plugin="p", verdict=ask("may it?", code="c", rule="r", detail="d"))
    assert asking.key == Answered(plugin="p", rule="r", code="c", reason="may it?")
    assert AN_ASK.key == Answered(plugin="c", rule=None, code=None, reason="it costs money")


def test_the_record_of_a_verdict_leaves_out_what_it_does_not_say() -> None:
    """Code, rule, detail and error."""
    record = decide(CALL, TOOL, Scope(can_ask=True), [AN_ASK]).record()
    assert record["verdicts"] == [{"plugin": "c", "effect": "ask", "reason": "it costs money"}]
