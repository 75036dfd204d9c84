"""The one pattern language: exact text, ``*`` inside a segment, ``**`` across segments.

==============  ==========================  =========================
pattern         matches                     does not match
==============  ==========================  =========================
``read``        ``read``                    ``read_file``
``read_*``      ``read_file``, ``read_``    ``read``, ``read_a/b``
``*_file``      ``read_file``               ``read_files``
``a/*/c``       ``a/b/c``                   ``a/b/b/c``
``a/**``        ``a/b``, ``a/b/c``          ``a``
``**``          everything
==============  ==========================  =========================

Segments end at ``/`` (in names of hosts, at ``.``). Nothing else is special. Generous matching,
which is for denies and asks, compares look-alike keys and lets ``*`` cross segments too.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import attrs

from toolscope_rules.names import look_alike_keys

__all__ = ["Pattern", "PatternIndex"]

LONGEST: Final = 256
MOST_WILDCARDS: Final = 16

Token: TypeAlias = str
"""Literal text, ``*`` or ``**``; a row of tokens has no two wildcards side by side."""

_WILDCARDS: Final = re.compile(r"(\*+)")
_SPECIAL_ELSEWHERE: Final = frozenset("?[]{}")


@attrs.frozen
class Pattern:
    """One pattern, read.

    Raises:
        ValueError: It is empty, too long, has too many wildcards, or uses signs that are special
            in other pattern languages and would match only themselves here.
    """

    text: str
    tokens: tuple[Token, ...] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        text = self.text
        if not text:
            raise ValueError("an empty pattern matches nothing; remove it")
        if len(text) > LONGEST:
            raise ValueError(f"a pattern of {len(text)} characters; allowed are {LONGEST}")
        if found := _SPECIAL_ELSEWHERE.intersection(text):
            raise ValueError(
                f"{min(found)!r} in the pattern {text!r} is not special here; write several "
                "patterns, with '*' inside one segment and '**' across segments"
            )
        parts = [part for part in _WILDCARDS.split(text) if part]
        tokens = tuple("**" if part.startswith("**") else part for part in parts)
        if sum(token in ("*", "**") for token in tokens) > MOST_WILDCARDS:
            raise ValueError(
                f"the pattern {text!r} has more than {MOST_WILDCARDS} wildcards; write several"
            )
        if not any(look_alike_keys(token)[0] for token in tokens):
            raise ValueError(f"the pattern {text!a} has only invisible characters; remove it")
        object.__setattr__(self, "tokens", tokens)

    def matches(self, text: str, *, generous: bool, separator: str = "/") -> bool:
        """Whether the whole of ``text`` matches."""
        index = PatternIndex([(self, 1)], generous=generous, separator=separator)
        return bool(index.owners(text))


class PatternIndex:
    """Many patterns, compiled once, each with the owners it belongs to (one bit an owner).

    Exact patterns cost one look-up together, ``text*`` and ``*text`` one for each length that
    occurs, and all others run side by side as bits of one number, a step for each character. No
    pattern backtracks, so the time grows with the text's length alone.
    """

    def __init__(
        self, entries: Iterable[tuple[Pattern, int]], *, generous: bool, separator: str = "/"
    ) -> None:
        self._generous = generous
        self._separator = separator
        self._exact: dict[str, int] = {}
        self._prefixes: dict[str, int] = {}
        self._suffixes: dict[str, int] = {}
        self._everything = 0
        loose, segmented = _Automaton(separator), _Automaton(separator)
        for pattern, owner in entries:
            for tokens in dict.fromkeys(self._variants(pattern)):
                match [token for token in tokens if token]:
                    case [("*" | "**")]:
                        self._everything |= owner
                    case [literal]:
                        self._exact[literal] = self._exact.get(literal, 0) | owner
                        continue
                    case [literal, ("*" | "**")]:
                        self._prefixes[literal] = self._prefixes.get(literal, 0) | owner
                    case [("*" | "**"), literal]:
                        self._suffixes[literal] = self._suffixes.get(literal, 0) | owner
                    case rest:
                        loose.add(rest, owner)
                segmented.add(tokens, owner)
        self._prefix_lengths = sorted({len(prefix) for prefix in self._prefixes})
        self._suffix_lengths = sorted({len(suffix) for suffix in self._suffixes})
        self._loose = loose
        self._segmented = segmented

    def __bool__(self) -> bool:
        return bool(self._exact or self._segmented)

    def owners(self, text: str) -> int:
        """The owners of all patterns that the whole of ``text`` matches, as bits."""
        if not self._generous:
            return self._owners(text)
        found = 0
        for key in look_alike_keys(text):
            found |= self._owners(key)
        return found

    def _owners(self, text: str) -> int:
        found = self._exact.get(text, 0)
        if not self._generous and self._separator in text:
            return found | self._segmented.owners(text)
        found |= self._everything
        size = len(text)
        prefixes, suffixes = self._prefixes, self._suffixes
        for length in self._prefix_lengths:
            if length > size:
                break
            prefix = text[:length]
            if prefix in prefixes:
                found |= prefixes[prefix]
        for length in self._suffix_lengths:
            if length > size:
                break
            suffix = text[size - length :]
            if suffix in suffixes:
                found |= suffixes[suffix]
        return found | self._loose.owners(text) if self._loose else found

    def _variants(self, pattern: Pattern) -> Iterator[tuple[Token, ...]]:
        if not self._generous:
            yield pattern.tokens
            return
        for which in (0, -1):
            yield tuple(
                "**" if token in ("*", "**") else look_alike_keys(token)[which]
                for token in pattern.tokens
            )


class _Automaton:
    """All patterns side by side: bit *i* is set while the text so far fits up to place *i*."""

    def __init__(self, separator: str) -> None:
        self._separator = separator
        self._size = 0
        self._start = 0
        self._steps: dict[str, int] = {}
        self._stay_in_segment = 0
        self._stay = 0
        self._ends: dict[int, int] = {}
        self._end_mask = 0

    def __bool__(self) -> bool:
        return bool(self._size)

    def add(self, tokens: Iterable[Token], owner: int) -> None:
        """Adds one pattern."""
        place = self._size
        self._start |= 1 << place
        for token in tokens:
            if token == "**":  # noqa: S105  (a token of a pattern)
                self._stay |= 1 << place
            elif token == "*":  # noqa: S105
                self._stay_in_segment |= 1 << place
            else:
                for character in token:
                    self._steps[character] = self._steps.get(character, 0) | 1 << place
                    place += 1
        self._ends[place] = owner
        self._end_mask |= 1 << place
        self._size = place + 1

    def owners(self, text: str) -> int:
        """The owners of the patterns that the whole text fits."""
        steps, separator = self._steps, self._separator
        stay = self._stay
        stay_in_segment = stay | self._stay_in_segment
        state = self._start
        for character in text:
            stays = state & (stay if character == separator else stay_in_segment)
            state = ((state & steps.get(character, 0)) << 1) | stays
            if not state:
                return 0
        state &= self._end_mask
        found = 0
        while state:
            place = state.bit_length() - 1
            found |= self._ends[place]
            state ^= 1 << place
        return found
