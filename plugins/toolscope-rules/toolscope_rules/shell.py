"""Takes a shell line apart into the single commands that it would run.

The grammar is that of bash, read by tree-sitter. Only what is certain counts as certain: a line
that the grammar cannot read gives no commands at all, and everything beyond plain commands joined
by ``;``, ``&&``, ``||``, ``|`` and newlines marks the line as one that no allow may cover.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, TypeAlias

import attrs
import tree_sitter
import tree_sitter_bash

__all__ = ["LONGEST_LINE", "Line", "Words", "all_runs", "base_name", "read_line"]

LONGEST_LINE: Final = 65_536
"""How many bytes a line may have; a longer one cannot be taken apart."""
_MOST_SHELLS: Final = 8
"""How deep ``sh -c`` may nest."""

_SHELLS: Final = frozenset(
    {"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish", "csh", "tcsh"}
)
_RUNNERS: Final = frozenset(
    {
        "sudo", "doas", "su", "env", "nice", "ionice", "chrt", "nohup", "setsid", "stdbuf",
        "time", "timeout", "xargs", "parallel", "command", "builtin", "exec", "eval", "watch",
        "strace", "ltrace", "unbuffer", "script", "flock", "chroot", "unshare", "nsenter",
        "busybox", "toybox", "runuser", "pkexec", "taskset", "gtimeout", "coproc", "ssh", "trap",
    }
)  # fmt: skip
"""Programs that run another one, which their words name. (``find`` does so behind ``-exec``.)"""
_LINE_READERS: Final = frozenset({"eval", "watch", "parallel", "ssh", "trap"})
"""Runners whose words are a shell line once more."""
_SOURCES: Final = frozenset({".", "source"})
"""Commands that run a file in this shell."""
_RUN_OTHERS: Final = _RUNNERS | _SHELLS | _SOURCES | {"find"}
_LINE_OPTION: Final = re.compile(r"(?:-S|--(?:split-string|command)=)(.+)", re.DOTALL)
"""An option that holds a shell line: ``env -S``, ``su --command=``."""
_FIND_RUNS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_MOST_WORDS: Final = 64
"""How many words of a runner are looked at; what a longer one runs is unknown."""
_UNKNOWN: Final = (None,)

Words: TypeAlias = tuple[str | None, ...]
"""The words of one command, the program first. None stands for a word that only the shell could
tell: a variable, a substitution, a glob."""


@attrs.frozen
class Line:
    """A line taken apart into its commands.

    ``plain`` says that the commands alone tell what the line does: it sets no variable, writes no
    file by redirection, and defines nothing. ``shells`` are the ``sh -c TEXT`` commands whose text
    was taken apart in their place.
    """

    commands: tuple[Words, ...]
    plain: bool
    shells: tuple[Words, ...] = ()


def all_runs(line: Line) -> Iterator[Words]:
    """Every command that the line might run, also through another one (``sudo rm``, ``find``)."""
    for words in (*line.commands, *line.shells):
        yield from _runs(words, 0)


def _runs(words: Words, depth: int) -> Iterator[Words]:
    yield words
    program = base_name(words[0]) if words else None
    if program not in _RUN_OTHERS:
        return
    if len(words) > _MOST_WORDS or depth > _MOST_SHELLS:
        yield _UNKNOWN
        return
    if _runs_what_is_not_here(program, words[1:]):
        yield _UNKNOWN
    reads = False
    for place, word in enumerate(words[1:], 1):
        before = words[place - 1]
        # Options may stand between ``-c`` and its line, or behind it in one word.
        reads = reads or (program in _SHELLS and _has_option(before, "c"))
        if (program in _RUNNERS) or (program == "find" and before in _FIND_RUNS):
            yield words[place:]
        held = _LINE_OPTION.fullmatch(word) if word and program in _RUNNERS else None
        if reads or held or program in _LINE_READERS or _gives_line(before):
            text = word if held is None else held[1]
            line = None if text is None else read_line(text)
            if line is None:
                yield _UNKNOWN
                continue
            for inner in line.commands:
                yield from _runs(inner, depth + 1)


def _runs_what_is_not_here(program: str | None, words: Words) -> bool:
    """Whether a shell reads its commands from a pipe, or from what only the shell can tell."""
    if program in _SOURCES:
        return any(word is None or word.startswith("/dev/") for word in words)
    return program in _SHELLS and (
        all(word and word.startswith("-") for word in words)
        or any(word is None or _has_option(word, "s") for word in words)
    )


def _has_option(word: str | None, letter: str) -> bool:
    """Whether this word is one of short options, and this is among them."""
    return word is not None and re.fullmatch(rf"-[a-zA-Z]*{letter}[a-zA-Z]*", word) is not None


def _gives_line(option: str | None) -> bool:
    """Whether the word after this one is a shell line: ``-c``, ``-lc``, ``-S``, ``--command``."""
    return option is not None and (
        option in ("-S", "--split-string", "--command")
        or re.fullmatch(r"-[a-zA-Z]*c", option) is not None
    )


def base_name(program: str | None) -> str | None:
    """The program without its folder, case folded; None stays None."""
    return None if program is None else program.rpartition("/")[2].casefold()


@lru_cache(maxsize=64)
def read_line(text: str) -> Line | None:
    """The commands of a shell line; None where it cannot be taken apart."""
    return _read(text, 0)


_LANGUAGE: Final = tree_sitter.Language(tree_sitter_bash.language())

_PLAIN_NODES: Final = frozenset(
    {
        "program", "list", "pipeline", "command", "command_name", "word", "string",
        "string_content", "raw_string", "number", "concatenation", "comment", "subshell",
        "compound_statement", "negated_command", "simple_expansion", "variable_name",
        "special_variable_name", "command_substitution", "redirected_statement", "file_redirect",
        "file_descriptor",
    }
)  # fmt: skip
_SPACE: Final = re.compile(rb"(?<!\\)\s")
_ASTRAY: Final = re.compile(r"(?<![ \t])\\\n|(?:^|(?<=\s))\\[ \t\v\f]")
"""A word joined across lines, or that begins with a quoted space: the grammar takes both for mere
space between words."""
_HARMLESS_TARGETS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})


def _read(text: str, depth: int) -> Line | None:
    if depth > _MOST_SHELLS:
        return None
    try:
        source = text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which no shell could be given
        return None
    if len(source) > LONGEST_LINE or b"\0" in source or _ASTRAY.search(text):
        return None
    root = tree_sitter.Parser(_LANGUAGE).parse(source).root_node
    if root.has_error:
        return None
    # What the grammar takes for a space and bash does not would part words in another way.
    plain = not any(ord(c) < 0x20 and c not in "\t\n" for c in text) and not any(
        c.isspace() and c not in " \t\n" for c in text
    )
    commands: list[Words] = []
    shells: list[Words] = []
    pending = [root]
    while pending:
        node = pending.pop()
        if node.is_missing or _is_astray(node) or _hides_commands(node):
            return None
        pending.extend(reversed(node.named_children))
        if node.type not in _PLAIN_NODES or (node.type == "file_redirect" and _writes(node)):
            plain = False
        if node.type == "command" and not _is_one_line(node, source):
            return None
        if node.type in ("command", "declaration_command", "unset_command", "test_command"):
            words = _words(node)
            inner = _inner_text(words)
            if inner is None:
                commands.append(words)
                continue
            within = _read(inner, depth + 1)
            if within is None:
                return None
            commands += within.commands
            shells += (words, *within.shells)
            plain = plain and within.plain
    return Line(tuple(commands), plain, tuple(shells))


def _is_astray(node: tree_sitter.Node) -> bool:
    """Whether this leaf holds what it cannot hold, so that the grammar has gone astray."""
    text = node.text or b""
    match node.type:
        case "word":
            return _SPACE.search(text) is not None  # nothing quotes it
        case "file_descriptor":
            return not text.isdigit()
    return False


def _hides_commands(node: tree_sitter.Node) -> bool:
    """Whether bash runs commands in this part that the grammar takes for words."""
    text = node.text or b""
    match node.type:
        case "command_substitution":  # backticks in backticks are quoted
            return text.startswith(b"`") and b"\\" in text
        case "heredoc_body":
            return b"`" in text
    return False


def _is_one_line(command: tree_sitter.Node, source: bytes) -> bool:
    """Whether nothing but space stands between the words, as the shell and the grammar see it."""
    end = command.start_byte
    for child in command.children:
        if not _GAP.fullmatch(source, end, child.start_byte):
            return False
        end = child.end_byte
    return True


_GAP: Final = re.compile(rb"(?:[ \t]|\\\n)*")


def _writes(redirect: tree_sitter.Node) -> bool:
    """Whether a redirection may write a file (``2>&1``, ``>/dev/null`` and ``<`` do not)."""
    operators = {child.type for child in redirect.children if not child.is_named}
    target = redirect.child_by_field_name("destination")
    if operators <= {"<", "<&"} or target is None:
        return False
    value = _value(target)
    if operators <= {">&"} and value is not None and value.isdigit():
        return False
    return value not in _HARMLESS_TARGETS


def _words(command: tree_sitter.Node) -> Words:
    if command.type != "command":
        first = command.children[0].text or b""
        rest = [_value(child) for child in command.named_children]
        return (first.decode(), *rest)
    words: list[str | None] = []
    for child in command.named_children:
        if child.type == "command_name":
            words.append(_value(child.named_children[0]) if child.named_children else None)
        elif child.type not in _NO_WORDS:
            words.append(_value(child))
    if words and words[0] is not None and not _PLAIN_PROGRAM.issuperset(words[0]):
        words[0] = None
    return tuple(words)


_GLOB: Final = re.compile(r"[*?\[{]|^~")
_NO_WORDS: Final = frozenset(
    {"variable_assignment", "file_redirect", "heredoc_redirect", "herestring_redirect", "comment"}
)
_PLAIN_PROGRAM: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+:@%,"
)
"""What the name of a program may hold to be certain: no glob, no tilde, no brace."""


def _inner_text(words: Words) -> str | None:
    """The line that ``sh -c`` is given, if it is given one that can be read here."""
    if len(words) < 3 or words[0] not in _SHELLS or words[1] != "-c":
        return None
    return words[2]


def _value(node: tree_sitter.Node) -> str | None:
    """What a word is once the shell has taken its quotes off; None where that is not certain."""
    text = (node.text or b"").decode()
    match node.type:
        case "word" | "number":
            return None if _GLOB.search(text) else _unescaped(text)
        case "raw_string":
            return text[1:-1]
        case "string":
            if any(child.type != "string_content" for child in node.named_children):
                return None
            return _unescaped(text[1:-1], only='$`"\\')
        case "concatenation":
            parts = [_value(child) for child in node.children]
            if any(part is None for part in parts):
                return None
            return "".join(part for part in parts if part is not None)
        case _:
            return None


def _unescaped(text: str, only: str | None = None) -> str:
    """Without the backslashes that the shell removes; in double quotes only before ``only``."""
    if "\\" not in text:
        return text
    result, characters = [], iter(text)
    for character in characters:
        if character != "\\":
            result.append(character)
            continue
        escaped = next(characters, "")
        if escaped == "\n":
            continue
        result.append(escaped if only is None or escaped in only else character + escaped)
    return "".join(result)
