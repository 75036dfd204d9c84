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
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import attrs

from toolscope_rules.names import look_alike_keys

__all__ = ["Pattern", "PatternIndex"]

LONGEST: Final = 256
MOST_WILDCARDS: Final = 16

Token: TypeAlias = str
"""Literal text, ``*`` or ``**``; a row of tokens has no two wildcards side by side."""

_WILDCARDS: Final = re.compile(r"(\*+)")
_STARS: Final = ("*", "**")
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
        if sum(token in _STARS for token in tokens) > MOST_WILDCARDS:
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
        step, state = self._steps.get, self._start
        stay = self._stay | self._stay_in_segment
        if self._stay_in_segment and (separator := self._separator) in text:
            for character in text:
                stays = state & (self._stay if character == separator else stay)
                state = ((state & step(character, 0)) << 1) | stays
        else:
            for character in text:
                state = ((state & step(character, 0)) << 1) | (state & stay)
        state &= self._end_mask
        found = 0
        while state:
            place = state.bit_length() - 1
            found |= self._ends[place]
            state ^= 1 << place
        return found


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
        self._loose = _Automaton(separator)
        self._grams: set[tuple[str, ...]] | None = set()
        self._wild: list[tuple[tuple[Token, ...], int]] = []
        self._segmented: _Automaton | None = None
        for pattern, owner in entries:
            for tokens in self._variants(pattern):
                if len(tokens) == 1 and tokens[0] not in _STARS:
                    literal = tokens[0]
                    self._exact[literal] = self._exact.get(literal, 0) | owner
                    continue
                self._wild.append((tokens, owner))
                if len(tokens) == 1:
                    self._everything |= owner
                elif len(tokens) == 2 and tokens[1] in _STARS:
                    self._prefixes[tokens[0]] = self._prefixes.get(tokens[0], 0) | owner
                elif len(tokens) == 2:
                    self._suffixes[tokens[1]] = self._suffixes.get(tokens[1], 0) | owner
                else:
                    self._loose.add(tokens, owner)
                    self._expect(tokens)
        self._prefix_lengths = sorted({len(prefix) for prefix in self._prefixes})
        self._suffix_lengths = sorted({-len(suffix) for suffix in self._suffixes}, reverse=True)

    def __bool__(self) -> bool:
        return bool(self._exact or self._wild)

    def owners(self, text: str) -> int:
        """The owners of all patterns that the whole of ``text`` matches, as bits."""
        if not self._generous:
            return self._owners(text)
        keys = look_alike_keys(text)
        found = self._owners(keys[0])
        return found if len(keys) == 1 else found | self._owners(keys[1])

    def _owners(self, text: str) -> int:
        found = self._exact.get(text, 0)
        if not self._wild:
            return found
        if not self._generous and self._separator in text:
            return found | self._by_segments().owners(text)
        found |= self._everything
        # A text that is shorter than the length is taken whole, and matches only what it equals.
        if prefixes := self._prefixes:
            for length in self._prefix_lengths:
                if (prefix := text[:length]) in prefixes:
                    found |= prefixes[prefix]
        if suffixes := self._suffixes:
            for length in self._suffix_lengths:
                if (suffix := text[length:]) in suffixes:
                    found |= suffixes[suffix]
        if self._loose and not (
            self._grams and self._grams.isdisjoint(zip(text, text[1:], text[2:], strict=False))
        ):
            found |= self._loose.owners(text)
        return found

    def _expect(self, tokens: tuple[Token, ...]) -> None:
        """Notes three characters without which a text cannot match; most texts lack them all."""
        longest = max((token for token in tokens if token not in _STARS), key=len)
        if len(longest) < 3:
            self._grams = None
        elif self._grams is not None:
            self._grams.add(tuple(longest[-3:]))

    def _by_segments(self) -> _Automaton:
        """All wildcards in one automaton, for texts of several segments; most have one."""
        if self._segmented is None:
            segmented = _Automaton(self._separator)
            for tokens, owner in self._wild:
                segmented.add(tokens, owner)
            self._segmented = segmented
        return self._segmented

    def _variants(self, pattern: Pattern) -> tuple[tuple[Token, ...], ...]:
        """The tokens to compare with: as they are, or each literal by its one or two keys."""
        if not self._generous:
            return (pattern.tokens,)
        keys = [("**",) if token in _STARS else look_alike_keys(token) for token in pattern.tokens]
        if all(len(one) == 1 for one in keys):
            return (_joined([one[0] for one in keys]),)
        return tuple(_joined([one[place] for one in keys]) for place in (0, -1))


def _joined(tokens: Sequence[Token]) -> tuple[Token, ...]:
    """Without literals that had only invisible characters, and the wildcards that then meet."""
    if "" not in tokens:
        return tuple(tokens)
    left = [token for token in tokens if token]
    return tuple(
        one for place, one in enumerate(left) if not (place and one == left[place - 1] == "**")
    )
