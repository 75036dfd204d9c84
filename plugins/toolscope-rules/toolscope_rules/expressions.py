"""Conditions in CEL, the Common Expression Language, bounded in time and memory.

An expression sees ``args`` (the arguments), ``scope`` (``origin``, ``agent``, ``subject``,
``attributes``, ``can_ask``) and ``tool`` (``name``, ``own_name``, ``provider``, ``tags``). CEL
always ends, but a macro inside a macro, or one that doubles a list, can take as long as it likes;
the limits here are checked before anything is evaluated, because nothing can stop it afterwards.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolscope.model import Scope, Tool

__all__ = ["Expression", "NotComputable"]

LONGEST: Final = 2_000
"""How many characters an expression may have."""
MOST_MACROS: Final = 3
"""How many of ``all``, ``exists``, ``exists_one``, ``map`` and ``filter`` it may use."""
MOST_VALUES: Final = 10_000
"""How many values the arguments of a call may hold for an expression to be evaluated."""
MOST_TEXT: Final = 1_000_000
"""How many characters their texts may hold together."""
MOST_TEXT_TO_MATCH: Final = 20_000
"""The same where a regular expression is matched."""
MOST_STEPS: Final = 100_000
"""How many steps the macros may take, by an estimate from above."""
LARGEST_REGEX: Final = 10_000
"""How large a regular expression may be, its repetitions and classes counted out."""

_STRINGS: Final = re.compile(
    r"[rRbB]{0,2}(?:\"\"\".*?\"\"\"|'''.*?'''|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')", re.DOTALL
)
_MACRO: Final = re.compile(r"\.\s*(all|exists_one|exists|map|filter)\s*\(")
_MATCHES: Final = re.compile(r"\bmatches\s*\(")
_REGEX: Final = re.compile(rf"\.\s*matches\s*\(\s*({_STRINGS.pattern})\s*\)", re.DOTALL)
_REPETITION: Final = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_CLASS: Final = re.compile(r"\\+[wWdDsSpPbB]|\.|\(\?[a-zA-Z-]*i|\[\^")
_CLASS_SIZE: Final = 50
_INT64: Final = 2**63


class NotComputable(Exception):  # noqa: N818  (an answer: it cannot be told)
    """The expression has no answer for these arguments; the text says why, without values."""


class Expression:
    """One expression, compiled.

    Raises:
        ValueError: It is no CEL, or could take too long.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > LONGEST:
            raise ValueError(
                f"an expression of {len(text)} characters; allowed are {LONGEST}: write several "
                "rules"
            )
        import cel  # it imports its whole command line, so only policies that need it pay

        try:
            self._program = cel.compile(text)
        except ValueError as error:
            raise ValueError(f"{text!r} is no CEL: {_first_line(error)}") from None
        bare = _STRINGS.sub('""', text)
        macros = len(_MACRO.findall(bare))
        if macros > MOST_MACROS:
            raise ValueError(
                f"the expression uses {macros} macros; allowed are {MOST_MACROS}, because each may "
                "run through all elements that another one yields"
            )
        self._regex = _size_of_regexes(text, bare)
        self._depth, looks_back = _depth(bare) if macros else (0, False)
        growing = sum(bare.count(sign) for sign in "+,") - macros
        self._cost = (max(growing, 0) / macros + 1) ** macros if macros else 1.0
        if self._regex:
            self._cost *= max(20, self._regex)
        if looks_back:  # each step may go through all arguments once more, though quickly
            self._depth += 1
            self._cost /= 10

    def holds(self, arguments: Mapping[str, Any], scope: Scope | None, tool: Tool | None) -> bool:
        """Whether the expression is true of a call.

        Raises:
            NotComputable: It has no answer, or finding it could take too long.
        """
        values = _measured(arguments, MOST_TEXT_TO_MATCH if self._regex else MOST_TEXT)
        steps = values**self._depth * self._cost
        if self._depth and steps > MOST_STEPS:
            raise NotComputable(
                f"the macros could take {steps:.0f} steps on these arguments; allowed are "
                f"{MOST_STEPS}"
            )
        variables: dict[str, Any] = {"args": arguments}
        if scope is not None:
            variables["scope"] = _scope(scope)
        if tool is not None:
            variables["tool"] = {
                "name": tool.name,
                "own_name": tool.own_name,
                "provider": str(tool.provider),
                "tags": sorted(tool.tags),
            }
        try:
            result = self._program.execute(variables)
        except KeyError as error:
            raise NotComputable(f"there is no {error}") from None
        except (
            TypeError, ValueError, RuntimeError, IndexError, ZeroDivisionError, OverflowError
        ) as error:  # fmt: skip
            raise NotComputable(type(error).__name__) from None
        if not isinstance(result, bool):
            raise NotComputable("it is neither true nor false")
        return result


def _first_line(error: Exception) -> str:
    text = str(error).partition("ERROR: ")[2] or str(error)
    return text.splitlines()[0][:200]


def _size_of_regexes(text: str, bare: str) -> int:
    """How large the regular expressions are together.

    Raises:
        ValueError: One is not written out, or could take too long to match.
    """
    regexes = [match[1] for match in _REGEX.finditer(text)]
    if len(regexes) < len(_MATCHES.findall(bare)):
        raise ValueError(
            "'matches' is used with a pattern that is not written out; write text.matches('...')"
        )
    total = 0
    for regex in regexes:
        size = len(regex) + _CLASS_SIZE * len(_CLASS.findall(regex))
        for repetition in _REPETITION.finditer(regex):
            size *= max(1, int((repetition[2] or repetition[1])[:9]))
        total += size
    if total > LARGEST_REGEX:
        raise ValueError(
            f"its regular expressions are of size {total}, repetitions counted out; allowed are "
            f"{LARGEST_REGEX}: match a shorter text, or say it without counting"
        )
    return total


def _depth(bare: str) -> tuple[int, bool]:
    """How deep macros nest, and whether a body looks at the arguments as a whole again."""
    deepest = 0
    looks_back = False
    open_brackets: list[bool] = []
    place = 0
    while place < len(bare):
        macro = _MACRO.match(bare, place)
        if macro:
            open_brackets.append(True)
            place = macro.end()
            deepest = max(deepest, sum(open_brackets))
            continue
        if bare[place] in "([{":
            open_brackets.append(False)
        elif bare[place] in ")]}" and open_brackets:
            open_brackets.pop()
        elif any(open_brackets) and bare.startswith("args", place):
            looks_back = True
        place += 1
    return deepest, looks_back


def _measured(arguments: Mapping[str, Any], most_text: int) -> int:
    """How many values the arguments hold; a text counts as one for every 1,000 characters.

    Raises:
        NotComputable: They are too large, or hold a whole number beyond 64 bits.
    """
    count = text = 0
    pending: list[Any] = [arguments]
    while pending:
        value = pending.pop()
        count += 1
        if isinstance(value, str):
            text += len(value)
        elif isinstance(value, Mapping):
            pending.extend(value.values())
            text += sum(map(len, value))
        elif isinstance(value, Sequence):
            pending.extend(value)
        elif isinstance(value, int) and not -_INT64 <= value < _INT64:
            raise NotComputable("a whole number has more than 64 bits")
        if count + len(pending) > MOST_VALUES or text > most_text:
            raise NotComputable(
                f"the arguments hold more than {MOST_VALUES} values or {most_text} characters"
            )
    return count + text // 1_000


def _scope(scope: Scope) -> dict[str, Any]:
    """What is known of the scope; what is absent is left out, so asking for it has no answer."""
    known: dict[str, Any] = {
        "can_ask": scope.can_ask,
        "attributes": {
            key: value if isinstance(value, str) else sorted(value)
            for key, value in scope.attributes.items()
        },
    }
    if scope.origin is not None:
        known["origin"] = str(scope.origin)
    if scope.agent is not None:
        known["agent"] = scope.agent.name
    if scope.subject is not None:
        known["subject"] = scope.subject
    return known
