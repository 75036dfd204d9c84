"""Which names look alike: the keys by which denies and asks compare names generously.

The work is done by ``disarm``: it drops invisible characters and direction marks, normalises to
NFKC, folds look-alike letters by the Unicode confusables table (UTS #39), and folds case.
"""

from functools import lru_cache
from typing import Final

import disarm

__all__ = ["look_alike_keys"]

_LONGEST_KEPT: Final = 256


def look_alike_keys(text: str) -> tuple[str, ...]:
    """The one or two keys of a name. Two names look alike if they share a key.

    There are two because a capital I looks like a small l, which only shows before case is folded,
    and is an i once it is folded.
    """
    return _kept(text) if len(text) <= _LONGEST_KEPT else _keys(text)


def _keys(text: str) -> tuple[str, ...]:
    seen = disarm.skeleton_key(text, digit_policy="tr39")
    folded = disarm.skeleton_key(text.casefold(), digit_policy="tr39")
    return (seen,) if seen == folded else (seen, folded)


_kept = lru_cache(maxsize=4096)(_keys)
