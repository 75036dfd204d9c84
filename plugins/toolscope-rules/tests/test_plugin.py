"""The plugin as a host gets it: found by its entry point, set up by a configuration file."""

import ast
import time
from pathlib import Path

import pytest
import toolscope_rules
from toolscope_rules import Policy, RulesPlugin, read_policy

from toolscope import (
    ConfigurationError,
    Effect,
    PolicyEngine,
    Scope,
    Tool,
    ToolCall,
    Toolset,
)
from toolscope.testing import assert_pure

TOOLS = Toolset([Tool(name="read"), Tool(name="shell"), Tool(name="wipe")])
USER = Scope(origin="user", can_ask=True)
POLICY = """\
default = "ask"
[[rules]]
id = "read"
effect = "allow"
tools = ["read"]
[[rules]]
id = "git"
effect = "allow"
tools = ["shell"]
when.line.shell_program = "git"
[[rules]]
id = "never"
effect = "deny"
tools = ["wipe"]
reason = "nothing is wiped here; move it aside"
"""


def load(folder: Path, policy: str | None = POLICY, settings: str = "") -> PolicyEngine:
    """The engine of a configuration file that enables this plugin alone."""
    named = ""
    if policy is not None:
        (folder / "policy.toml").write_text(policy, encoding="utf-8")
        named = 'file = "policy.toml"'
    file = folder / "toolscope.toml"
    file.write_text(f'enable = ["rules"]\n[plugins.rules]\n{named}\n{settings}', encoding="utf-8")
    return PolicyEngine.load(file)


def test_the_entry_point_loads_it(tmp_path: Path) -> None:
    """An installed plugin is found by its entry point, with its distribution."""
    record = next(one for one in load(tmp_path).plugins if one.name == "rules")
    assert (record.distribution, record.hooks, record.active) == (
        "toolscope-rules",
        ("filter_tools", "on_tool_call"),
        True,
    )


def test_without_a_file_it_has_no_opinion(tmp_path: Path) -> None:
    """Being installed changes nothing."""
    engine = load(tmp_path, None)
    assert list(engine.filter_tools(TOOLS, USER)) == list(TOOLS)
    for tool in TOOLS:
        decision = engine.on_tool_call(ToolCall(name=tool.name), TOOLS, USER)
        assert (decision.effect, decision.verdicts) == (Effect.ALLOW, ())


def test_the_policy_decides(tmp_path: Path) -> None:
    """From the file to the decision: the list, the calls, the texts."""
    engine = load(tmp_path)
    assert [tool.name for tool in engine.filter_tools(TOOLS, USER)] == ["read", "shell"]

    def decide(name: str, **arguments: str) -> Effect:
        call = ToolCall(name=name, arguments=arguments)
        return engine.on_tool_call(call, TOOLS, USER).effect

    assert decide("read") is Effect.ALLOW
    assert decide("shell", line="git log") is Effect.ALLOW
    assert decide("shell", line="git log; ls") is Effect.ASK
    wiped = engine.on_tool_call(ToolCall(name="wipe"), TOOLS, USER)
    assert wiped.failure is not None
    assert wiped.failure.message == (
        "The tool 'wipe' is not available in this chat: the policy says: nothing is wiped here; "
        "move it aside. The same call cannot succeed here; do not repeat it."
    )
    assert [one.verdict.rule for one in wiped.verdicts] == ["policy.toml:11 (never)"]


def test_it_is_pure_tool_by_tool() -> None:
    """The law of ``filter_tools``, by the public check."""
    policy, _ = read_policy({"default": "deny", "rules": [{"effect": "allow", "tools": ["r*"]}]})
    assert policy is not None
    assert_pure(RulesPlugin(policy=policy), TOOLS, USER)


@pytest.mark.parametrize(
    ("policy", "settings", "message"),
    [
        (None, 'fil = "x"', "plugins.rules.fil: unknown key; did you mean 'file'?"),
        (None, 'mode = "strikt"', "'strikt' is not allowed; allowed is 'strict' or 'lenient'"),
        (None, 'file = "gone.toml"', "No such file or directory; its path is relative to the"),
        ('default = "dney"', "", "policy.toml:1: default: 'dney' is not allowed"),
        ('known_tools = ["mcp:/x"]', "", "policy.toml: known_tools: 'mcp:' is no provider"),
    ],
)
def test_what_is_wrong_is_said_when_the_engine_is_made(
    tmp_path: Path, policy: str | None, settings: str, message: str
) -> None:
    """Settings and policy files that cannot be used give no engine."""
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, policy, settings)
    assert message in str(caught.value)


def test_the_file_is_found_beside_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never in the current folder, where agents write."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (here / "policy.toml").write_text('default = "allow"', encoding="utf-8")
    monkeypatch.chdir(here)
    engine = load(there, 'default = "deny"')
    assert list(engine.filter_tools(TOOLS, USER)) == []


def test_strict_refuses_and_lenient_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A deny of a tool that is not known may be a typo: strict refuses, lenient keeps it armed."""
    policy = (
        'known_tools = ["read", "wipe"]\n[[rules]]\nid = "w"\neffect = "deny"\ntools = ["wype"]'
    )
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, policy)
    message = str(caught.value)
    assert "policy.toml:2: rule (w): its selector 'wype' matches no known tool; did you" in message
    assert "mean 'wipe'?" in message
    engine = load(tmp_path, policy, 'mode = "lenient"')
    assert "its selector 'wype' matches no known tool" in caplog.text
    later = Toolset([Tool(name="wype")])
    assert list(engine.filter_tools(later, USER)) == []


def test_what_only_narrows_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A dead allow does not keep a strict policy from loading."""
    load(tmp_path, 'default = "allow"\n[[rules]]\nid = "a"\neffect = "allow"\ntools = ["x"]')
    assert "policy.toml:2: rule (a): it allows what the default allows already" in caplog.text


def test_reading_again_gives_another_engine(tmp_path: Path) -> None:
    """The plugin never reloads itself; the engine is made anew."""
    engine = load(tmp_path)
    (tmp_path / "policy.toml").write_text('default = "deny"', encoding="utf-8")
    assert len(engine.filter_tools(TOOLS, USER)) == 2
    assert len(engine.reload().filter_tools(TOOLS, USER)) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        {"line": "a;" * 500_000},
        {"line": "(" * 1_000_000},
        {"line": {"a": ["x"] * 10_000}},
        {"line": ["x"] * 50_000},
    ],
)
def test_hostile_arguments_end_soon_and_are_no_yes(
    tmp_path: Path, arguments: dict[str, object]
) -> None:
    """What cannot be taken apart is unknown: an allow does not hold, a deny counts."""
    policy = POLICY + '[[rules]]\nid = "rm"\neffect = "deny"\nwhen.line.shell_program = "rm"\n'
    engine = load(tmp_path, policy)
    started = time.perf_counter()
    call = ToolCall(name="shell", arguments=arguments)
    decision = engine.on_tool_call(call, TOOLS, USER)
    assert time.perf_counter() - started < 10
    assert decision.effect is Effect.DENY
    assert decision.failure is not None
    assert "the arguments could not be read with certainty" in decision.failure.message


def test_many_rules_are_bounded(tmp_path: Path) -> None:
    """More rules than anybody writes are refused before they are compiled."""
    with pytest.raises(ConfigurationError, match="rules: 10001 rules; allowed are 10000"):
        load(tmp_path, '[[rules]]\neffect="deny"\n' * 10_001)


def test_it_imports_public_names_only() -> None:
    """A stranger could have written it: errors, hookspecs, model and verdicts."""
    allowed = {"toolscope.errors", "toolscope.hookspecs", "toolscope.model", "toolscope.verdicts"}
    folder = Path(str(toolscope_rules.__file__)).parent
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("toolscope."):
                assert node.module in allowed, file.name


def test_an_empty_policy_is_the_plugins_default() -> None:
    """``Policy()`` says nothing of anything."""
    assert RulesPlugin().policy == Policy()
