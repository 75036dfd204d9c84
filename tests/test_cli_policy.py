"""The subcommands about policies: ``explain``, ``test``, and what ``check`` finds in them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.environments import ROOT
from toolscope.cli import main

WORKER = ["--sample", "--chat", "ahp-chat:/worker"]
POLICY = """\
default = "allow"

[[rules]]
id = "no-edits"
effect = "deny"
tools = ["edit_file"]
origins = ["tool"]
when.path.under = "/srv"
reason = "workers do not edit what is served; report the change"

[[rules]]
id = "notify"
effect = "ask"
tools = ["notify"]
"""
TESTS = """
[[tests]]
name = "workers do not edit"
tool = "edit_file"
scope = { origin = "tool" }
arguments = { path = "/srv/a" }
expect = "deny"
rule = "no-edits"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration that enables the rules; the command runs in it."""
    (tmp_path / "toolscope.toml").write_text(
        'enable = ["rules"]\n[plugins.rules]\nfile = "policy.toml"\n', encoding="utf-8"
    )
    (tmp_path / "policy.toml").write_text(POLICY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOOLSCOPE_CONFIG", raising=False)
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> Any:
    """What the command answers as JSON; it must end with this status."""
    capsys.readouterr()
    assert main([*arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def error(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Why the command has no answer; it must end with status 2."""
    capsys.readouterr()
    assert main(list(arguments)) == 2
    return capsys.readouterr().err


def said(explained: Any, plugin: str) -> Any:
    """What one plugin says of the one tool that is explained."""
    (tool,) = explained["tools"]
    return next(one for one in tool["plugins"] if one["plugin"] == plugin)


def test_explain_asks_every_plugin_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also plugins whose verdict another one's made superfluous say theirs."""
    arguments = ["--tool", "pick_file", "--arguments", "{}"]
    explained = answer(capsys, "explain", *WORKER, *arguments)
    assert explained["effect"] == "deny"
    names = [one["plugin"] for one in explained["tools"][0]["plugins"]]
    assert names == sorted({*names, "allowlist", "availability", "readonly", "rules"})
    assert said(explained, "readonly")["explanation"] == [
        "it does not run: the configuration does not enable it"
    ]
    (verdict,) = said(explained, "availability")["listing"]
    assert (verdict["plugin"], verdict["rule"]) == ("availability", "userChats")
    assert said(explained, "allowlist")["listing"] == []
    assert said(explained, "rules")["call"] == []


@pytest.mark.parametrize(
    ("arguments", "calls", "lines"),
    [
        (
            '{"path": "/srv/a"}',
            ["deny"],
            [
                "policy.toml:3 (no-edits) deny: applies, [path under '/srv'] holds",
                "so it is denied by no-edits",
                "to pass: [path under '/srv'] of no-edits must certainly not hold",
            ],
        ),
        (
            '{"path": "/tmp/a"}',
            [],
            [
                "policy.toml:3 (no-edits) deny: does not apply, [path under '/srv'] does not hold",
                "so the default counts: allow",
            ],
        ),
        (
            "{}",
            ["deny"],
            [
                (
                    "policy.toml:3 (no-edits) deny: applies, [path under '/srv'] cannot be told, "
                    "the argument 'path' is missing"
                ),
            ],
        ),
        ("[", [], []),
    ],
)
def test_explain_says_which_rules_apply_and_what_would_change_it(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    calls: list[str],
    lines: list[str],
) -> None:
    """Each rule with its place and its tests; the outcome; and what would have to change."""
    rules = said(
        answer(capsys, "explain", *WORKER, "--tool", "edit_file", "--arguments", arguments),
        "rules",
    )
    assert [one["effect"] for one in rules["call"]] == calls
    for line in lines:
        assert line in rules["explanation"]
    assert bool(rules["explanation"]) is bool(lines)


def test_explain_reads_well(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For people: the outcome, and a block for each tool of the name."""
    assert main(["explain", "--sample", "--chat", "ahp-chat:/main", "--tool", "notify"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("ask       notify\n")
    assert "\nnotify of client:desk-1\n" in out
    assert "\nnotify of client:phone-2\n" in out
    assert "rules           says ask (policy.toml:11 (notify)): a rule of the policy" in out
    assert "allowlist       has no opinion" in out


def test_explain_names_the_nearest_tool(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that is not there is bad input."""
    message = error(capsys, "explain", *WORKER, "--tool", "edit_fil")
    assert "no tool 'edit_fil' in this session; the nearest are 'edit_file'" in message


def test_explain_of_a_policy_that_is_broken(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The faults of the file, with their lines."""
    (folder / "policy.toml").write_text("defualt = 1", encoding="utf-8")
    message = error(capsys, "explain", *WORKER, "--tool", "edit_file")
    assert "policy.toml:1: defualt: unknown key; did you mean 'default'?" in message


def test_check_shows_what_plugins_find(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a session only what the policy itself tells; with one, also what matches nothing."""
    assert answer(capsys, "check")["findings"] == []
    file = folder / "policy.toml"
    file.write_text(POLICY.replace('"notify"]', '"notfy"]'), encoding="utf-8")
    (finding,) = answer(capsys, "check", "--sample", status=1)["findings"]
    assert finding == {
        "plugin": "rules",
        "finding": "policy.toml:11: rule (notify): its selector 'notfy' matches no known tool; "
        "did you mean 'notify'?",
    }
    assert main(["check", "--sample"]) == 1
    assert "suspicious     rules: policy.toml:11: rule (notify)" in capsys.readouterr().out


def test_test_passes_and_names_what_no_test_covers(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file of the configuration, with its coverage of rules."""
    (folder / "policy.toml").write_text(POLICY + TESTS, encoding="utf-8")
    assert answer(capsys, "test") == {
        "passed": 1, "failed": [], "covered": 1, "uncovered": ["policy.toml:11 (notify)"],
    }  # fmt: skip
    assert main(["test"]) == 0
    out = capsys.readouterr().out
    assert "tests     1 passed, 0 failed\n" in out
    assert "rules     1 of 2 decided a test\n" in out
    assert "untested: policy.toml:11 (notify)" in out


def test_test_shows_what_came_instead(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A failure has the row, both outcomes, and the policy's own explanation."""
    tests = folder / "policy_tests.toml"
    tests.write_text('policy = "policy.toml"\n' + TESTS.replace("/srv", "/tmp"), encoding="utf-8")
    found = answer(capsys, "test", "policy_tests.toml", status=1)
    (failed,) = found["failed"]
    assert failed["place"] == "policy_tests.toml:3"
    assert (failed["expected"], failed["outcome"]) == ("deny", "allow")
    assert failed["rules"] == ["the default"]
    assert main(["test", "policy_tests.toml"]) == 1
    out = capsys.readouterr().out
    assert "expected  deny by no-edits\n" in out
    assert "got       allow by the default\n" in out
    assert "so the default counts: allow" in out


def test_test_says_why_there_is_nothing_to_run(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tests, no file, no plugin: each has its own message."""
    assert "'policy.toml' holds no tests; write each as [[tests]]" in error(
        capsys, "test", "policy.toml"
    )
    (folder / "toolscope.toml").write_text("enable = []", encoding="utf-8")
    assert "no file is given, and the configuration names none in plugins.rules" in error(
        capsys, "test"
    )
    monkeypatch.setitem(sys.modules, "toolscope_rules", None)
    monkeypatch.delitem(sys.modules, "toolscope_rules.policy_tests", raising=False)
    assert "needs the plugin rules; install it: pip install toolscope-rules" in error(
        capsys, "test", "policy.toml"
    )


def test_the_manual_shows_the_shapes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The examples of ``docs/command.md`` have the keys that the command answers with."""
    text = (ROOT / "docs" / "command.md").read_text(encoding="utf-8")
    shown = {
        name: json.loads(text.split(f"### {name}\n\n```json\n")[1].split("```")[0])
        for name in ("explain", "test")
    }
    found = answer(capsys, "explain", *WORKER, "--tool", "pick_file")
    assert list(shown["explain"]) == list(found)
    (tool,), (same,) = shown["explain"]["tools"], found["tools"]
    assert list(tool) == list(same)
    (one,), other = tool["plugins"], said(found, "availability")
    assert list(one) == list(other)
    assert list(one["listing"][0]) == list(other["listing"][0])
    (folder / "policy.toml").write_text(
        POLICY + TESTS.replace('"deny"', '"allow"'), encoding="utf-8"
    )
    found = answer(capsys, "test", status=1)
    assert list(shown["test"]) == list(found)
    assert list(shown["test"]["failed"][0]) == list(found["failed"][0])
