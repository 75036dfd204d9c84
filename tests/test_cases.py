"""The cases from the field, and the project's own, through the data-driven runner."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.case_runner import main, run_case
from tests.environments import ROOT

SHARED = ROOT.parent / "shared" / "cases" / "cases.json"
OWN = sorted((ROOT / "tests" / "cases").glob("*.json"))


def rows(file: Path) -> Iterator[Any]:
    """The cases of a file, each with its id."""
    for case in json.loads(file.read_text(encoding="utf-8")):
        yield pytest.param(case, id=case["id"])


@pytest.mark.parametrize("case", [row for file in OWN for row in rows(file)])
def test_own_cases(case: dict[str, Any]) -> None:
    """Each general kind of fault holds in situations of the project's own."""
    assert run_case(case) == []


@pytest.mark.parametrize("case", list(rows(SHARED)) if SHARED.exists() else [])
def test_cases_from_the_field(case: dict[str, Any]) -> None:
    """What people reported of real hosts comes out as expected."""
    assert run_case(case) == []


def test_the_cases_from_the_field_are_there() -> None:
    """All 25 run where their file is; a checkout without it says so."""
    if not SHARED.exists():
        pytest.skip(f"{SHARED.name} is not beside this checkout")
    assert len(list(rows(SHARED))) == 25


def _case(**parts: Any) -> dict[str, Any]:
    case: dict[str, Any] = {
        "tools": [{"name": "a", "from": "host"}],
        "context": {"chats": {"m": {"origin": "user"}}},
        "policy": {"default": "allow", "rules": []},
        "events": [{"id": "e1", "do": "list", "chat": "m"}],
        "expected": [{"event": "e1", "listed": ["a"]}],
    }
    return {"id": "X", "case": case | parts}


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ({"tools": [{"name": "a", "colour": "red"}]}, "colour"),
        ({"tools": [{"name": "a", "from": "moon:1"}]}, "moon"),
        ({"tools": [{"name": "a", "role": "wizard"}]}, "wizard"),
        ({"weather": {}}, "weather"),
        ({"context": {"chats": {"m": {"origin": "user", "mood": 1}}}}, "mood"),
        ({"context": {"chats": {"m": {}}, "planets": []}}, "planets"),
        ({"policy": {"rules": [{"id": "r", "effect": "allow", "smell": 1}]}}, "smell"),
        ({"policy": {"rules": [{"id": "r", "effect": "shout:x", "tool": "a"}]}}, "shout"),
        (
            {"policy": {"rules": [{"effect": "deny", "tool": "a", "args": {"x": {"like": "y"}}}]}},
            "like",
        ),
        ({"events": [{"id": "e1", "do": "dance"}]}, "dance"),
        ({"events": [{"id": "e1", "do": "list", "chat": "m", "loud": True}]}, "loud"),
        ({"expected": [{"event": "e1", "sparkles": True}]}, "sparkles"),
        ({"expected": [{"event": "e1", "listed": [], "acceptable": [{"magic": 1}]}]}, "magic"),
    ],
)
def test_an_unknown_word_fails_the_case_and_is_named(parts: dict[str, Any], word: str) -> None:
    """A word that the runner does not know is never skipped."""
    problems = [str(problem) for problem in run_case(_case(**parts))]
    assert len(problems) == 1
    assert "unknown word" in problems[0]
    assert word in problems[0]


def test_a_wrong_expectation_fails_and_says_what_came() -> None:
    """The runner can fail: what was found stands beside what was expected."""
    case = _case(expected=[{"event": "e1", "listed": ["b"]}])
    assert [str(one) for one in run_case(case)] == ["e1: listed: expected ['b'], got ['a']"]


def test_every_alternative_is_as_right_as_the_first_answer() -> None:
    """One ``acceptable`` answer that holds is enough; one that does not is not."""
    expected = {"event": "e1", "listed": ["b"], "acceptable": [{"listed": ["c"]}]}
    assert run_case(_case(expected=[expected])) != []
    expected["acceptable"] = [{"listed": ["c"]}, {"listed": ["a"]}]
    assert run_case(_case(expected=[expected])) == []


def test_the_command_counts_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line a case, the counts last, and a status that says whether all passed."""
    file = tmp_path / "cases.json"
    good, bad = _case(), _case(expected=[{"event": "e1", "listed": []}])
    file.write_text(json.dumps([good, {**bad, "id": "Y"}]), encoding="utf-8")
    assert main([str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ok   X"
    assert lines[1] == "FAIL Y"
    assert lines[-1] == "1 passed, 1 failed"
    file.write_text(json.dumps([good]), encoding="utf-8")
    assert main([str(file)]) == 0
    assert main([]) == 2
    assert main([str(tmp_path / "missing.json")]) == 2
