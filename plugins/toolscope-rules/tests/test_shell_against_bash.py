"""What bash really runs, against what is read from the line.

Programs are names that do not exist, and bash is told to report each one it looks for. Lines are
made of the pieces that quoting, comments, substitutions and redirections are made of.
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from toolscope_rules.conditions import read_condition
from toolscope_rules.shell import all_runs, read_line

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="bash is not installed")

PIECES = [
    "p1", "p1 ", "p2", "zz", " ", " ", ";", "&&", "||", "|", "\n", "'", '"', "\\", "#", "$(", ")",
    "`", "(", "{ ", "}", "&", "<<E", "\nE\n", "<<'E'", "$((1+1))", "((", "))", "[[ ", " ]]", "!",
    "$", "${x}", "${x:-", "$'", "\\\n", "x=1 ", "a", "-c", "<(", ">f", "2>&1", "<f", "if ",
    " then ", " fi", "; do ", "; done", "for i in ", "case a in a)", " ;; esac", "f(){ ", "=", "~",
    "*", "[", "]", "?", "{p1,zz}", "\t", "\r", "<<<", "$#", "|&", "&>f", "\u00a0", "\x0c",
    "coproc ", "\\;", '\\"', "\\'", "\\#", "\\ ", "sh -c '",
]  # fmt: skip
LINES = st.lists(st.sampled_from(PIECES), min_size=2, max_size=12).map("".join)
REPORT = "command_not_found_handle(){ builtin printf '%s\\n' \"$1\" >&9; return 0; }\n"


def programs_run(line: str, folder: Path) -> list[str]:
    """The programs that bash looked for while it ran the line."""
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            [str(BASH), "--norc", "-c", f"exec 9>&{writing} {writing}>&-\n{REPORT}{line}"],
            env={"PATH": "/nonexistent", "HOME": str(folder), "LC_ALL": "C.UTF-8"},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[writing],
            start_new_session=True,
        )
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    finally:
        os.close(writing)
    with os.fdopen(reading, encoding="utf-8", errors="replace") as report:
        return report.read().split("\n")[:-1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where redirections of the lines write."""
    return tmp_path_factory.mktemp("bash")


def test_the_report_works(folder: Path) -> None:
    """The harness sees every program, in order."""
    assert programs_run("p1 a; p2 | zz\n'p'1", folder)[0] == "p1"
    assert sorted(programs_run("p1 a; p2 | zz\n'p'1", folder)) == ["p1", "p1", "p2", "zz"]


@given(line=LINES)
@example(line="p1 'a'#; zz")
@example(line="p1 ?$#\n\\' ")
@example(line='p1 ~\n\\\n\\ \\"for i in ')
@example(line="p1 [[\n\\ *")
@example(line="p1 &-c2>&1")
@example(line="p1 $((1<<2)); zz\n2")
@settings(deadline=None)
def test_nothing_runs_that_was_not_read(line: str, folder: Path) -> None:
    """Whatever bash runs was read, or the line is in doubt; what an allow covers is all of it.

    Where an allow of one program holds, nothing else runs and no file is written.
    """
    for file in folder.iterdir():
        file.unlink()
    ran = programs_run(line, folder)
    read = read_line(line)
    if read is not None:
        found = [words[0] if words else None for words in all_runs(read)]
        if None not in found:
            assert {one for one in ran if one in ("p1", "p2", "zz")} <= set(found)
    allow = read_condition({"line": {"shell_program": "p1"}})
    if allow.holds({"line": line}, generous=False):
        assert set(ran) <= {"p1"}
        assert list(folder.iterdir()) == []
