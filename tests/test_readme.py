"""README.md is true: every block runs where the wheel is installed, and prints what is shown."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environments import ROOT, run, uv

pytestmark = pytest.mark.slow

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
KINDS = {"sh", "console", "python", "text", "toml"}


def blocks(kind: str) -> list[str]:
    """The blocks of one kind, in order."""
    return [block for found, block in BLOCKS if found == kind]


def commands() -> list[str]:
    """Each line of the ``sh`` blocks without its remark."""
    lines = "".join(blocks("sh")).splitlines()
    return [line.split(" #")[0].strip() for line in lines]


def sessions() -> Iterator[tuple[str, str]]:
    """Each command of the ``console`` blocks with the output below it."""
    for block in blocks("console"):
        for part in block.split("$ ")[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    """A block of a new kind needs a test here."""
    assert TEXT.count("```") == 2 * len(BLOCKS)
    assert {kind for kind, _ in BLOCKS} == KINDS


def test_the_first_screen_has_the_sentence_and_the_two_commands() -> None:
    """Who opens the page can try it without scrolling."""
    lines = TEXT.splitlines()
    assert lines[2].endswith(".")
    assert lines[4] == "```sh"
    assert commands() == [
        "pip install uv && uv run --no-dev --extra cli toolscope tools --sample",
        "pip install uv && uv run pytest",
        "pip install toolscope-policy",
    ]


@pytest.mark.parametrize(("command", "output"), list(sessions()))
def test_a_shown_command_prints_what_is_shown(
    command: str, output: str, installed: Path, tmp_path: Path
) -> None:
    """The command, run in an environment that holds the wheel and no plugin, says exactly this."""
    name, *arguments = command.split()
    assert run([installed / name, *arguments], cwd=tmp_path).stdout.rstrip() == output.rstrip()


@pytest.mark.parametrize("position", range(len(blocks("python"))))
def test_a_shown_program_prints_what_is_shown(
    position: int, installed: Path, tmp_path: Path
) -> None:
    """Each program runs as it stands; the text block below it is its output."""
    (tmp_path / "program.py").write_text(blocks("python")[position], encoding="utf-8")
    done = run([installed / "python", "-W", "error", "program.py"], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == blocks("text")[position]


def test_each_program_is_followed_by_its_output() -> None:
    """Programs and outputs alternate, so that positions fit."""
    kinds = [kind for kind, _ in BLOCKS if kind in ("python", "text")]
    assert kinds == ["python", "text"] * len(blocks("python"))


def test_the_shown_configuration_is_accepted(installed: Path, tmp_path: Path) -> None:
    """The settings are valid, and their effect is the one that the remark claims."""
    (block,) = blocks("toml")
    (tmp_path / "toolscope.toml").write_text(block, encoding="utf-8")
    assert run([installed / "toolscope", "check"], cwd=tmp_path).returncode == 0
    session = (
        '{"activeClients": [], "chats": [{"resource": "c:1"}],'
        ' "serverTools": [{"name": "pick", "availability": "userChats"}]}'
    )
    (tmp_path / "session.json").write_text(session, encoding="utf-8")
    done = run([installed / "toolscope", "tools", "session.json"], cwd=tmp_path)
    assert "all 1 tools are withheld" in done.stdout


def test_the_first_command_runs_in_a_fresh_clone(tmp_path: Path) -> None:
    """In a copy of the tree without an environment, it lists the sample session, with no plugin."""
    clone = tmp_path / "clone"
    left_out = shutil.ignore_patterns(".*", "__pycache__", "tests", "docs", "dist")
    shutil.copytree(ROOT, clone, ignore=left_out)
    words = commands()[0].split(" && ")[1].split()
    assert words[0] == "uv"
    done = run([uv(), *words[1:]], cwd=clone)
    assert done.returncode == 0, done.stderr
    assert "configuration: none" in done.stderr
    (_, shown), *_ = sessions()
    assert shown.rstrip() in done.stdout


def test_continuous_integration_runs_the_second_command() -> None:
    """``.ci/run`` installs uv as the page says, and runs what the page says."""
    install, tests = commands()[1].split(" && ")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert f"command -v uv >/dev/null || {install} </dev/null\n{tests} </dev/null\n" in script
    syntax = subprocess.run(["bash", "-n", str(ROOT / ".ci" / "run")], check=False)
    assert syntax.returncode == 0
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_links_lead_to_files() -> None:
    """Every link into the tree has a target."""
    links = [link for link in re.findall(r"\]\(([^)]+)\)", TEXT) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
