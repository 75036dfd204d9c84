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
    if text.isascii() and text.isprintable() and " " not in text:
        folded = text.lower().translate(_ASCII)
        if "I" not in text:
            return (folded,)
        seen = text.translate(_ASCII)
        return (seen,) if seen == folded else (seen, folded)
    return _kept(text) if len(text) <= _LONGEST_KEPT else _keys(text)


def _key(text: str) -> str:
    return disarm.skeleton_key(text, digit_policy="tr39")


def _keys(text: str) -> tuple[str, ...]:
    seen, folded = _key(text), _key(text.casefold())
    return (seen,) if seen == folded else (seen, folded)


_kept = lru_cache(maxsize=4096)(_keys)

_ASCII: Final = {code: _key(chr(code)) for code in range(0x21, 0x7F)}
"""The keys of single signs. Names of nothing but these, as most are, need no more than that."""
