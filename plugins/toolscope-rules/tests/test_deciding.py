"""What policies decide: tables of examples, and the laws as properties."""

import itertools
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolscope_rules import Policy, read_policy
from toolscope_rules.deciding import Decider
from toolscope_rules.writing import policy_to_data

from toolscope.model import (
    UNKNOWN,
    Agent,
    Ancestor,
    Annotations,
    Provider,
    Scope,
    Tool,
    freeze,
)
from toolscope.verdicts import Effect, Verdict

FS = Provider.mcp("fs")
USER = Scope(origin="user")
RANK = {"nothing": 0, "ask": 1, "deny": 2, "withheld": 3}


def policy_of(*rules: dict[str, Any], **top: Any) -> Policy:
    """A policy of rules as a file writes them."""
    numbered = [{"id": f"r{i}", **rule} for i, rule in enumerate(rules)]
    policy, faults = read_policy({**top, "rules": numbered}, source="p.toml")
    assert faults == []
    assert policy is not None
    return policy


def said(
    policy: Policy, tool: Tool, scope: Scope = USER, arguments: dict[str, Any] | None = None
) -> str:
    """``withheld``, ``deny``, ``ask`` or ``nothing``."""
    decider = Decider(policy)
    if tool in decider.withheld([tool], scope):
        return "withheld"
    verdict = decider.on_call(freeze(arguments or {}), tool, scope)
    return "nothing" if verdict is None else str(verdict.effect)


def deny(*tools: str, **more: Any) -> dict[str, Any]:
    """A deny rule."""
    return {"effect": "deny", "tools": list(tools), **more}


def ask(*tools: str, **more: Any) -> dict[str, Any]:
    """An ask rule."""
    return {"effect": "ask", "tools": list(tools), **more}


def allow(*tools: str, **more: Any) -> dict[str, Any]:
    """An allow rule."""
    return {"effect": "allow", "tools": list(tools), **more}


A = Tool(name="a")
ONE = {"x": {"equals": 1}}


@pytest.mark.parametrize(
    ("default", "rules", "arguments", "expected"),
    [
        ("allow", [], {}, "nothing"),
        ("ask", [], {}, "ask"),
        ("deny", [], {}, "withheld"),
        ("deny", [allow("a")], {}, "nothing"),
        ("deny", [ask("a")], {}, "ask"),
        ("deny", [allow("b")], {}, "withheld"),
        ("allow", [deny("a")], {}, "withheld"),
        ("allow", [deny("a"), allow("a")], {}, "withheld"),
        ("allow", [ask("a"), allow("a")], {}, "ask"),
        ("allow", [deny("a", listed=True)], {}, "deny"),
        ("deny", [deny("a", listed=True)], {}, "deny"),
        ("allow", [deny("a", listed=True), deny("a")], {}, "withheld"),
        ("allow", [deny("a", when=ONE)], {"x": 1}, "deny"),
        ("allow", [deny("a", when=ONE)], {"x": 2}, "nothing"),
        ("allow", [deny("a", when=ONE)], {}, "deny"),
        ("allow", [ask("a", when=ONE)], {}, "ask"),
        ("deny", [allow("a", when=ONE)], {"x": 1}, "nothing"),
        ("deny", [allow("a", when=ONE)], {"x": 2}, "deny"),
        ("deny", [allow("a", when=ONE)], {}, "deny"),
        ("ask", [allow("a", when=ONE)], {}, "ask"),
        ("ask", [allow("a", when=ONE), allow("a")], {}, "nothing"),
        ("allow", [deny("*", **{"except": ["a"]})], {}, "nothing"),
        ("deny", [allow("*", **{"except": ["A"]})], {}, "withheld"),
        ("allow", [deny("*", **{"except": ["A"]})], {}, "withheld"),
        ("allow", [{"effect": "deny"}], {}, "withheld"),
        ("allow", [deny()], {}, "nothing"),
    ],
)
def test_how_rules_combine(
    default: str, rules: list[dict[str, Any]], arguments: dict[str, Any], expected: str
) -> None:
    """Deny over ask over allow over the default, in every order of the rules."""
    for order in itertools.permutations(rules):
        assert said(policy_of(*order, default=default), A, USER, arguments) == expected


TAGGED = Tool(name="t", tags={"danger", "net"})
SERVED = Tool(name="fs__read", own_name="read", provider=FS, former_names=("cat",))


@pytest.mark.parametrize(
    ("tool", "selector", "by_deny", "by_allow"),
    [
        (SERVED, "fs__read", True, True),
        (SERVED, "mcp:fs/read", True, True),
        (SERVED, "mcp:fs/*", True, True),
        (SERVED, "mcp:fs", True, True),
        (SERVED, "mcp:*", True, True),
        (SERVED, "mcp:*/read", True, True),
        (SERVED, "client:*", False, False),
        (SERVED, "mcp:f/read", False, False),
        (SERVED, "read", True, False),
        (SERVED, "cat", True, False),
        (SERVED, "mcp:fs/cat", True, False),
        (SERVED, "MCP:FS/READ", False, False),
        (SERVED, "mcp:FS/READ", True, False),
        (SERVED, "name:fs__*", True, True),
        (TAGGED, "tag:danger", True, True),
        (TAGGED, "tag:dan", False, False),
        (TAGGED, "tag:n*", True, True),
        (TAGGED, "host/t", True, True),
        (TAGGED, "host/*", True, True),
        (TAGGED, "name:tag:danger", False, False),
        (Tool(name="tag:x"), "name:tag:x", True, True),
        (Tool(name="a/b", provider=FS), "mcp:fs/*", True, True),
    ],
)
def test_selectors(tool: Tool, selector: str, by_deny: bool, by_allow: bool) -> None:
    """What a selector selects for a deny, which is generous, and for an allow, which is exact."""
    assert (said(policy_of(deny(selector)), tool) == "withheld") is by_deny
    assert (said(policy_of(allow(selector), default="deny"), tool) == "nothing") is by_allow


@pytest.mark.parametrize(
    ("trusted", "selector", "selected"),
    [
        ([], "hint:read_only", False),
        (["mcp:fs"], "hint:read_only", True),
        (["mcp:*"], "hint:read_only", True),
        (["host"], "hint:read_only", False),
        ([], "hint:read_only=false", True),
        (["mcp:fs"], "hint:read_only=false", False),
        ([], "hint:destructive", True),
        (["mcp:fs"], "hint:destructive", False),
        (["mcp:fs"], "hint:destructive=false", True),
    ],
)
def test_hints_count_from_trusted_providers(
    trusted: list[str], selector: str, selected: bool
) -> None:
    """A hint of anybody else is the worst case."""
    hints = Annotations(read_only=True, destructive=False)
    tool = Tool(name="look", provider=FS, annotations=hints)
    assert (said(policy_of(deny(selector), trusted=trusted), tool) == "withheld") is selected


LEAD = Ancestor(origin="user", agent="lead", attributes={"chat": "main"})
CHILD = Scope(origin="tool", agent=Agent(name="worker"), ancestry=[LEAD])
GRANDCHILD = Scope(origin="tool", ancestry=[Ancestor(origin="tool", agent="worker"), LEAD])
LOST = Scope(origin="tool", ancestry=[Ancestor(origin="tool"), UNKNOWN])
MANY = Scope(origin="fork", subject="ann", attributes={"team": {"red", "blue"}, "env": "prod"})


@pytest.mark.parametrize(
    ("scope", "selectors", "by_deny", "by_allow"),
    [
        (USER, {"origins": ["user"]}, True, True),
        (USER, {"origins": ["tool"]}, False, False),
        (Scope(), {"origins": ["user"]}, True, True),
        (Scope(origin="cron"), {"origins": ["tool"]}, True, False),
        (Scope(origin="cron"), {"origins": ["cron"]}, True, True),
        (CHILD, {"agents": ["worker"]}, True, True),
        (CHILD, {"agents": ["Worker"]}, True, False),
        (CHILD, {"agents": ["lead"]}, False, False),
        (CHILD, {"agents": ["lead"], "reach": "subtree"}, True, True),
        (GRANDCHILD, {"agents": ["lead"], "reach": "subtree"}, True, True),
        (GRANDCHILD, {"origins": ["user"], "reach": "subtree"}, True, True),
        (GRANDCHILD, {"agents": ["lead"], "origins": ["tool"], "reach": "subtree"}, False, False),
        (GRANDCHILD, {"attributes": {"chat": "main"}, "reach": "subtree"}, True, True),
        (LOST, {"agents": ["lead"]}, False, False),
        (LOST, {"agents": ["lead"], "reach": "subtree"}, True, False),
        (LOST, {"origins": ["tool"], "reach": "subtree"}, True, True),
        (USER, {"agents": ["*"]}, False, False),
        (MANY, {"subjects": ["ann"]}, True, True),
        (MANY, {"subjects": ["bob"]}, False, False),
        (USER, {"subjects": ["*"]}, False, False),
        (MANY, {"attributes": {"team": "red"}}, True, True),
        (MANY, {"attributes": {"team": ["green", "blue"]}}, True, True),
        (MANY, {"attributes": {"team": "red", "env": "test"}}, False, False),
        (MANY, {"attributes": {"place": "*"}}, False, False),
        (MANY, {"origins": []}, False, False),
    ],
)
def test_scopes(scope: Scope, selectors: dict[str, Any], by_deny: bool, by_allow: bool) -> None:
    """What selects a scope, over any number of generations; unknown above meets every deny."""
    assert (said(policy_of(deny("a", **selectors)), A, scope) == "withheld") is by_deny
    allowed = said(policy_of(allow("a", **selectors), default="deny"), A, scope)
    assert (allowed == "nothing") is by_allow


def test_how_a_chat_without_an_origin_counts_is_a_setting() -> None:
    """The policy says so for its own rules."""
    rule = deny("a", origins=["tool"])
    assert said(policy_of(rule), A, Scope()) == "nothing"
    assert said(policy_of(rule, absent_origin="tool"), A, Scope()) == "withheld"


def test_a_verdict_names_its_rules_and_says_what_to_do() -> None:
    """Rule and line for the operator, cause and cure for the model."""
    policy = policy_of(
        deny("a", reason="no a here; use b.", code="no_a"), deny("a", code="no_a"), deny("b")
    )
    decider = Decider(policy)
    verdict = decider.withheld([A], USER)[A]
    assert verdict.code == "no_a"
    assert verdict.reason.startswith("the policy says: a rule of the policy denies it; do the task")
    assert verdict.reason.endswith("; no a here; use b")
    assert verdict.rule == "p.toml (r1), p.toml (r0)"
    b = Tool(name="b")
    assert decider.withheld([b], USER)[b].reason.startswith("a rule of the policy denies it; do")


@pytest.mark.parametrize(
    ("default", "rules", "arguments", "reason"),
    [
        ("allow", [deny("a", when=ONE)], {"x": 1}, "with these arguments; change them"),
        ("allow", [deny("a", when=ONE, reason="no 1")], {"x": 1}, "no 1"),
        ("allow", [deny("a", when=ONE, reason="no 1")], {}, "no 1 (the arguments could not be"),
        ("allow", [ask("a")], {}, "a rule of the policy wants a person to approve it first"),
        ("ask", [], {}, "no rule of the policy allows it by itself, so a person has to"),
        ("deny", [allow("a", when=ONE)], {"x": 2}, "no rule of the policy allows it with these"),
        ("deny", [deny("b"), allow("a", when=ONE)], {"x": 2}, "with these arguments; change them"),
    ],
)
def test_reasons(
    default: str, rules: list[dict[str, Any]], arguments: dict[str, Any], reason: str
) -> None:
    """Each cause has its own sentence; no argument's value is in it."""
    verdict = Decider(policy_of(*rules, default=default)).on_call(freeze(arguments), A, USER)
    assert isinstance(verdict, Verdict)
    assert reason in verdict.reason


# --------------------------------------------------------------------------------------------
# Laws
# --------------------------------------------------------------------------------------------

CONDITIONS: list[Any] = [
    None, ONE, {"x": {"at_least": 2}}, {"c": {"shell_program": "git"}}, "args.x == 1",
    {"p": {"under": "/d"}}, {"y": {"present": True}},
]  # fmt: skip
RULES = st.fixed_dictionaries(
    {
        "effect": st.sampled_from(["allow", "ask", "deny"]),
        "tools": st.sampled_from([["a"], ["A"], ["*"], ["mcp:fs/*"], ["tag:danger"], []]),
        "reach": st.sampled_from(["self", "subtree"]),
    },
    optional={
        "except": st.sampled_from([["a"], ["fs*"], ["tag:net"]]),
        "origins": st.sampled_from([["user"], ["tool"], []]),
        "agents": st.sampled_from([["lead"], ["w*"]]),
        "attributes": st.just({"chat": "main"}),
        "when": st.sampled_from([one for one in CONDITIONS if one is not None]),
        "reason": st.sampled_from(["because; do b", "so it is"]),
    },
)
POLICIES = st.tuples(st.sampled_from(["allow", "ask", "deny"]), st.lists(RULES, max_size=5))
TOOLS = [A, Tool(name="A"), SERVED, TAGGED]
SCOPES = [USER, CHILD, GRANDCHILD, LOST, Scope(), Scope(origin="cron")]
ARGUMENTS: list[dict[str, Any]] = [
    {}, {"x": 1}, {"x": 3, "c": "git a", "p": "/d/e"}, {"c": "git a; rm b", "y": None},
    {"c": "git '", "p": "relative"},
]  # fmt: skip


def outcomes(policy: Policy) -> list[str]:
    """What the policy says of every tool in every scope with every set of arguments."""
    decider = Decider(policy)
    found = []
    for scope in SCOPES:
        withheld = decider.withheld(TOOLS, scope)
        for tool, arguments in itertools.product(TOOLS, ARGUMENTS):
            if tool in withheld:
                found.append("withheld")
                continue
            verdict = decider.on_call(freeze(arguments), tool, scope)
            found.append("nothing" if verdict is None else str(verdict.effect))
    return found


def spread(policy: Policy) -> list[int]:
    """The same as ranks: larger is stricter."""
    return [RANK[outcome] for outcome in outcomes(policy)]


def no_wider(narrow: Sequence[int], wide: Sequence[int]) -> bool:
    """Whether nothing passes in the first that does not in the second."""
    return all(one >= other for one, other in zip(narrow, wide, strict=True))


@given(policy=POLICIES, extra=RULES)
def test_adding_a_deny_never_widens(
    policy: tuple[str, list[dict[str, Any]]], extra: dict[str, Any]
) -> None:
    """Whatever the deny is, no tool and no call passes that did not pass before."""
    default, rules = policy
    before = policy_of(*rules, default=default)
    after = policy_of(*rules, {**extra, "effect": "deny"}, default=default)
    assert no_wider(spread(after), spread(before))


@given(policy=POLICIES, extra=RULES)
def test_removing_an_allow_never_widens(
    policy: tuple[str, list[dict[str, Any]]], extra: dict[str, Any]
) -> None:
    """An allow only ever spares."""
    default, rules = policy
    before = policy_of(*rules, {**extra, "effect": "allow"}, default=default)
    after = policy_of(*rules, default=default)
    assert no_wider(spread(after), spread(before))


@given(policy=POLICIES, data=st.data())
def test_order_and_names_of_rules_change_nothing(
    policy: tuple[str, list[dict[str, Any]]], data: st.DataObject
) -> None:
    """The same rules in another order, by other names, decide alike, texts included."""
    default, rules = policy
    named = [{"id": f"n{i}", **rule} for i, rule in enumerate(rules)]
    shuffled = data.draw(st.permutations(named))
    renamed = [{**rule, "id": f"z{99 - int(rule['id'][1:])}"} for rule in shuffled]
    first, second, third = (
        Decider(policy_of(*some, default=default)) for some in (named, shuffled, renamed)
    )
    for tool, scope in itertools.product(TOOLS, SCOPES):
        listings = [one.withheld([tool], scope).get(tool) for one in (first, second, third)]
        _agree(listings)
        for arguments in ARGUMENTS:
            calls = [one.on_call(freeze(arguments), tool, scope) for one in (first, second, third)]
            _agree(calls)


def _agree(verdicts: list[Verdict | None]) -> None:
    first, second, third = verdicts
    assert first == second
    if first is None or third is None:
        assert first is third
    else:
        assert attrs.evolve(first, rule=None) == attrs.evolve(third, rule=None)


@given(policy=POLICIES)
def test_a_policy_and_its_written_form_decide_alike(
    policy: tuple[str, list[dict[str, Any]]],
) -> None:
    """What is written out and read again says the same of everything."""
    default, rules = policy
    before = policy_of(*rules, default=default)
    after, faults = read_policy(policy_to_data(before), source="p.toml")
    assert faults == []
    assert after is not None
    assert outcomes(after) == outcomes(before)


@given(policy=POLICIES)
def test_a_tool_is_withheld_only_if_no_arguments_could_pass(
    policy: tuple[str, list[dict[str, Any]]],
) -> None:
    """What is withheld would be denied with any arguments, were it called."""
    default, rules = policy
    decider = Decider(policy_of(*rules, default=default))
    for tool, scope in itertools.product(TOOLS, SCOPES):
        if tool in decider.withheld([tool], scope):
            for arguments in ARGUMENTS:
                verdict = decider.on_call(freeze(arguments), tool, scope)
                assert verdict is not None
                assert verdict.effect is Effect.DENY


@given(policy=POLICIES)
def test_a_listing_is_pure_tool_by_tool(policy: tuple[str, list[dict[str, Any]]]) -> None:
    """Whether a tool is withheld does not depend on its neighbours."""
    default, rules = policy
    decider = Decider(policy_of(*rules, default=default))
    for scope in SCOPES:
        together = decider.withheld(TOOLS, scope)
        alone = [decider.withheld([tool], scope) for tool in TOOLS]
        assert together == {tool: one[tool] for one in alone for tool in one}
