"""What is found suspicious in policies, and what of it may widen."""

import time
from typing import Any

import pytest
from toolscope_rules import diagnose, read_policy

from toolscope.model import Provider, Tool

TOOLS = (
    Tool(name="read_file", tags={"safe"}),
    Tool(name="delete", own_name="delete", provider=Provider.mcp("db")),
)


def found(
    *rules: dict[str, Any], tools: tuple[Tool, ...] | None = TOOLS, **top: Any
) -> list[tuple[bool, str]]:
    """The findings: whether each widens, and its text."""
    policy, faults = read_policy({"rules": list(rules), **top}, source="p.toml")
    assert faults == []
    assert policy is not None
    return [(one.widens, str(one)) for one in diagnose(policy, tools)]


@pytest.mark.parametrize(
    ("rule", "top", "widens", "text"),
    [
        (
            {"effect": "deny", "tools": ["read_fil"]},
            {},
            True,
            "p.toml: rule (rule-1): its selector 'read_fil' matches no known tool; did you mean",
        ),
        ({"effect": "ask", "tools": ["zzz"]}, {}, True, "no known tool has a name like it"),
        ({"effect": "deny", "tools": ["mcp:bd/delete"]}, {}, True, "mean 'mcp:db/delete'"),
        ({"effect": "deny", "tools": ["tag:saef"]}, {}, True, "did you mean 'tag:safe'?"),
        ({"effect": "deny", "tools": ["hint:read_only"]}, {}, True, "matches no known tool"),
        (
            {"effect": "allow", "tools": ["read_fil"]},
            {"default": "ask"},
            False,
            "its selector 'read_fil' matches no known tool",
        ),
        (
            {"effect": "deny", "tools": ["*"], "except": ["read_fil"]},
            {},
            False,
            "its exception 'read_fil' matches no known tool",
        ),
        (
            {"effect": "allow", "tools": ["*"], "except": ["delte"]},
            {"default": "ask"},
            True,
            "its exception 'delte' matches no known tool; did you mean 'delete'?",
        ),
        (
            {"effect": "deny", "tools": ["read_file"], "except": ["read_*"]},
            {},
            True,
            "its exceptions spare every known tool that it selects; remove one of them",
        ),
        ({"effect": "deny", "tools": []}, {}, True, "'tools' is empty, so the rule can never"),
        ({"effect": "deny", "origins": []}, {}, True, "'origins' is empty"),
        ({"effect": "deny", "attributes": {"a": []}}, {}, True, "'attributes.a' is empty"),
        (
            {"effect": "allow", "agents": []},
            {"default": "ask"},
            False,
            "'agents' is empty, so the rule can never apply",
        ),
        (
            {"effect": "deny", "origins": ["tol"]},
            {},
            True,
            "the origin 'tol' is not known, so it selects no chat of today; did you mean 'tool'?",
        ),
        (
            {"effect": "deny", "when": {"n": {"at_least": 5, "at_most": 3}}},
            {},
            True,
            "no arguments meet both [n at_least 5] and [n at_most 3], so the rule can never apply",
        ),
        (
            {"effect": "deny", "when": {"n": {"equals": 5, "one_of": [1, 2]}}},
            {},
            True,
            "no arguments meet both [n equals 5] and [n one_of",
        ),
        (
            {"effect": "allow", "when": {"n": {"present": False, "equals": 1}}},
            {"default": "ask"},
            False,
            "no arguments meet both [n present False] and [n equals 1]",
        ),
        ({"effect": "allow"}, {}, False, "it allows what the default allows already"),
        (
            {"effect": "deny", "tools": ["delete"], "reach": "subtree"},
            {},
            False,
            "its reach 'subtree' changes nothing",
        ),
    ],
)
def test_one_finding(rule: dict[str, Any], top: dict[str, Any], widens: bool, text: str) -> None:
    """Each suspicious thing is found once, says whether it may widen, and how to mend it."""
    (finding,) = found(rule, **top)
    assert finding[0] is widens
    assert text in finding[1]


def test_what_is_sound_has_no_findings() -> None:
    """A policy whose every rule can apply."""
    rules: list[dict[str, Any]] = [
        {"effect": "allow", "tools": ["read_*", "tag:safe"]},
        {"effect": "deny", "tools": ["DELETE"], "origins": ["tool"], "reach": "subtree"},
        {"effect": "ask", "tools": ["mcp:db/*"]},
        {"effect": "ask", "tools": ["read_*"], "when": {"n": {"at_least": 3, "at_most": 5}}},
        {"effect": "ask", "tools": ["read_*"], "when": {"n": {"one_of": [1, 9], "at_most": 5}}},
    ]
    assert found(*rules, default="ask") == []


@pytest.mark.parametrize(
    ("rules", "tools", "shadowed"),
    [
        ([{"effect": "deny", "tools": ["delete"]}], TOOLS, True),
        ([{"effect": "deny", "tools": ["mcp:db/*"]}], TOOLS, True),
        ([{"effect": "deny"}], None, True),
        ([{"effect": "deny", "tools": ["delete", "x"]}], None, True),
        ([{"effect": "deny", "tools": ["d*"]}], None, False),
        ([{"effect": "deny", "tools": ["delete"], "origins": ["tool"]}], TOOLS, False),
        ([{"effect": "deny", "tools": ["delete"], "when": "args.x == 1"}], TOOLS, False),
        ([{"effect": "deny", "tools": ["delete"], "except": ["delete"]}], None, False),
    ],
)
def test_rules_that_a_deny_covers(
    rules: list[dict[str, Any]], tools: tuple[Tool, ...] | None, shadowed: bool
) -> None:
    """An allow of which a deny leaves nothing can never apply; that only narrows."""
    texts = found(*rules, {"id": "a", "effect": "allow", "tools": ["delete"]}, default="ask",
                  tools=tools)  # fmt: skip
    dead = [(widens, text) for widens, text in texts if "it can never apply: the deny" in text]
    assert bool(dead) is shadowed
    assert all(not widens and "covers all its tools" in text for widens, text in dead)


def test_known_tools_stand_in_for_a_session() -> None:
    """Names alone tell of names, and nothing of tags and hints."""
    rules = [{"effect": "deny", "tools": ["wipe", "tag:x", "hint:destructive", "mcp:fs/red"]}]
    texts = [text for _, text in found(*rules, tools=None, known_tools=["wipe", "mcp:fs/read"])]
    assert len(texts) == 1
    assert "its selector 'mcp:fs/red' matches no known tool; did you mean 'mcp:fs/read'" in texts[0]
    assert found(*rules, tools=None) == []


def test_many_rules_are_diagnosed_soon() -> None:
    """As many rules as are allowed, none of which matches anything, beside many tools."""
    rules: list[dict[str, Any]] = [
        {"effect": ("allow", "ask", "deny")[i % 3], "tools": [f"wrong_{i}", "x*"], "except": ["y"]}
        for i in range(5000)
    ]
    tools = tuple(Tool(name=f"right_{i}") for i in range(300))
    started = time.perf_counter()
    assert len(found(*rules, tools=tools, default="ask")) == 15_000
    assert len(found(*rules, tools=None, default="ask")) == 0
    assert time.perf_counter() - started < 60
