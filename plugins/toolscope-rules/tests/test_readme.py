"""README.md is true: its policy loads, its tests pass as shown, its tables list what there is."""

import re
import runpy
import threading
from pathlib import Path

import pytest
from toolscope_rules import read_condition
from toolscope_rules.matchers import MATCHERS
from toolscope_rules.patterns import Pattern
from toolscope_rules.reading import _RULE_KEYS, _TOP_KEYS

from toolscope.cli import main

TEXT = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def block(kind: str) -> str:
    """The one block of a kind."""
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    return str(found)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the README shows; it is the current one."""
    (tmp_path / "toolscope.toml").write_text(block("toml configuration"), encoding="utf-8")
    (tmp_path / "policy.toml").write_text(block("toml policy"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_prints_what_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The policy's own tests pass, with the coverage that is shown."""
    command, _, output = block("console").partition("\n")
    assert main(command.split()[2:]) == 0
    assert capsys.readouterr().out == output


def test_the_program_runs(folder: Path) -> None:
    """The watcher starts as shown, on the configuration that is shown."""
    found = runpy.run_path(_write(folder, block("python")))
    stop = found["stop"]
    assert isinstance(stop, threading.Event)
    stop.set()
    assert found["engines"].failure is None
    assert found["ledger"].engine is found["engines"]()


def _write(folder: Path, text: str) -> str:
    file = folder / "program.py"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_every_shown_condition_is_one() -> None:
    """Each line of the example reads."""
    import tomllib

    for line in block("toml").splitlines():
        read_condition(tomllib.loads(line)["when"])


def test_the_tables_name_all_keys_and_matchers() -> None:
    """What can be written is documented."""
    for key in (*_RULE_KEYS, *_TOP_KEYS, *MATCHERS, "present"):
        assert f"`{key}`" in TEXT or f"[[{key}]]" in TEXT, key


def test_the_table_of_patterns_is_true() -> None:
    """Each example matches, or does not, as the table says."""
    table = TEXT.split("| pattern | matches | does not match |\n|---|---|---|\n")[1].split("\n\n")[
        0
    ]
    rows = [[re.findall("`(.*?)`", cell) for cell in row.split("|")[1:4]]
            for row in table.splitlines()]  # fmt: skip
    assert len(rows) == 6
    for (pattern,), matching, others in rows:
        for text in matching:
            assert Pattern(pattern).matches(text, generous=False)
        for text in others:
            assert not Pattern(pattern).matches(text, generous=False)
