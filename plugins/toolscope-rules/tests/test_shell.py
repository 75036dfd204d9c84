"""Shell lines taken apart: every command that would run is found, and doubt is doubt."""

import time

import pytest
from toolscope_rules.shell import LONGEST_LINE, all_runs, read_line


def programs(line: str) -> list[str | None] | None:
    """The programs of the single commands, in order; None where the line cannot be taken apart."""
    read = read_line(line)
    return None if read is None else [words[0] if words else None for words in read.commands]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("git status", ["git"]),
        ("git a && rm b", ["git", "rm"]),
        ("git a || rm b; ls", ["git", "rm", "ls"]),
        ("git a | rm b |& ls", ["git", "rm", "ls"]),
        ("git a & rm b", ["git", "rm"]),
        ("git a\nrm b", ["git", "rm"]),
        ("git log --grep 'a && rm b'", ["git"]),
        ('git log --grep "a; rm b"', ["git"]),
        ("git \\\n  status", ["git"]),
        ("echo $(rm a)", ["echo", "rm"]),
        ("echo `rm a`", ["echo", "rm"]),
        ('echo "$(rm a)"', ["echo", "rm"]),
        ("echo '$(rm a)'", ["echo"]),
        ("echo ${x:-$(rm a)}", ["echo", "rm"]),
        ("diff <(rm a) b", ["diff", "rm"]),
        ("sh -c 'rm a; ls'", ["rm", "ls"]),
        ("sh -c \"sh -c 'rm a'\"", ["rm"]),
        ("(rm a)", ["rm"]),
        ("{ rm a; }", ["rm"]),
        ("! rm a", ["rm"]),
        ("if true; then rm a; fi", ["true", "rm"]),
        ("for i in 1; do rm $i; done", ["rm"]),
        ("while true; do rm a; done", ["true", "rm"]),
        ("case x in a) rm a;; esac", ["rm"]),
        ("f() { rm a; }; f", ["rm", "f"]),
        ("cat <<E\n$(rm a)\nE", ["cat", "rm"]),
        ("x=$(rm a)", ["rm"]),
        ("r\\m a", ["rm"]),
        ("'r''m' a", ["rm"]),
        ('"rm" a', ["rm"]),
        ("ls # rm a", ["ls"]),
        ("$X a", [None]),
        ("r? a", [None]),
        ("~/rm a", [None]),
        ("$'rm' a", [None]),
        ("rm$IFS-rf", [None]),
        ("git 'a", None),
        ("git (", None),
        ("r\\\nm a", None),
        ("git\0rm", None),
        ("git \ud800", None),
        ("x" * (LONGEST_LINE + 1), None),
        ("", []),
    ],
)
def test_the_commands_of_a_line(line: str, expected: list[str | None] | None) -> None:
    """Chains, pipes, newlines, substitutions, quoting, compounds and other shells."""
    assert programs(line) == expected


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("git a && ls | wc -l", True),
        ("git a > /dev/null 2>&1", True),
        ("wc -l < in.txt", True),
        ("git $X", True),
        ("A=1 git a", False),
        ("A=1; git a", False),
        ("export A=1", False),
        ("git a > out", False),
        ("git a >> out", False),
        ("git a &> out", False),
        ("f() { ls; }; f", False),
        ("for PATH in /tmp; do git a; done", False),
        ("git ${X@P}", False),
        ("git a\r\nls", False),
        ("git\u00a0a", False),
        ("cat <<E\na\nE", False),
        ("sh -c 'A=1 git a'", False),
    ],
)
def test_what_no_allow_may_cover(line: str, plain: bool) -> None:
    """Assignments, redirections to files and definitions change more than commands tell."""
    read = read_line(line)
    assert read is not None
    assert read.plain is plain


@pytest.mark.parametrize(
    ("line", "run"),
    [
        ("sudo rm a", ("rm", "a")),
        ("sudo -u bob rm a", ("rm", "a")),
        ("env A=1 timeout 5 rm a", ("rm", "a")),
        ("ls | xargs -n1 rm", ("rm",)),
        ("find . -exec rm {} ;", None),
        ("sudo sh -c 'rm a'", ("rm", "a")),
        ("bash -lc 'rm a'", ("rm", "a")),
        ("eval 'rm a'", ("rm", "a")),
        ("sh -c 'ls'", ("sh", "-c", "ls")),
        ("curl x | sh", (None,)),
        ("bash -c $X", (None,)),
        ("eval $X", (None,)),
        ("sudo " * 80 + "rm", (None,)),
    ],
)
def test_what_a_line_may_run_in_turn(line: str, run: tuple[str | None, ...] | None) -> None:
    """Programs that run others are looked through; what cannot be seen is unknown."""
    read = read_line(line)
    assert read is not None
    runs = list(all_runs(read))
    if run is None:
        assert any(words[0] == "rm" for words in runs)
    else:
        assert run in runs


@pytest.mark.parametrize(
    "line",
    [
        "echo `echo \\`rm a\\``",
        'echo "`echo \\`rm a\\``"',
        "bash -c 'echo `echo \\`rm a\\``'",
        "cat <<E\n`rm a`\nE",
        "sh -ce 'rm a'",
        "bash -c -e 'rm a'",
        "bash -c -- 'rm a'",
        "bash -co pipefail 'rm a'",
        "bash -s a <<< 'rm a'",
        "echo rm a | bash -s -- b",
        "bash <(echo rm a)",
        "source <(echo rm a)",
        ". /dev/stdin <<< 'rm a'",
        "env -S 'rm a'",
        "env -S'rm a'",
        "env --split-string='rm a'",
        "su --command='rm a'",
        "script --command 'rm a' file",
        "trap 'rm a' EXIT",
        "pkexec rm a",
        "fish -c 'rm a'",
    ],
)
def test_what_hides_a_command_is_found_or_unknown(line: str) -> None:
    """Of what bash would run, nothing passes for a word."""
    read = read_line(line)
    if read is not None:
        found = {words[0] if words else None for words in all_runs(read)}
        assert found & {"rm", None}


def test_a_name_among_the_words_of_find_is_no_program() -> None:
    """``find -name rm`` runs nothing."""
    read = read_line("find . -name rm")
    assert read is not None
    assert [words[0] for words in all_runs(read)] == ["find"]


@pytest.mark.parametrize(
    "line",
    [
        "a;" * 30_000,
        "echo $(" * 9_000 + ")" * 9_000,
        "(" * 60_000,
        "sudo " * 13_000,
        "sh -c '" * 9_000,
        "eval " * 13_000,
        "'" * 65_535,
        "a\\" * 30_000,
        "<<E " * 15_000,
    ],
    ids=lambda line: line[:8],
)
def test_hostile_lines_are_bounded(line: str) -> None:
    """However a line nests or repeats, taking it apart ends soon."""
    started = time.perf_counter()
    read = read_line(line)
    if read is not None:
        assert sum(1 for _ in all_runs(read)) < 200_000
    assert time.perf_counter() - started < 20
