"""Verdicts and how they combine: deny overrides ask, ask overrides no opinion."""

from itertools import permutations
from typing import Any

import pytest

from toolscope.model import Agent, Provider, Scope, ToolCall
from toolscope.testing import tool
from toolscope.verdicts import (
    Code,
    Effect,
    Failure,
    PluginVerdict,
    Verdict,
    ask,
    decide,
    deny,
    why_unlisted,
)

CALL = ToolCall(name="read")
TOOL = tool("read", "client:desk")


def test_a_verdict_is_an_ask_or_a_deny() -> None:
    """Made by the two functions; equal verdicts are equal."""
    assert ask("may it?") == Verdict(effect=Effect.ASK, reason="may it?")
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
