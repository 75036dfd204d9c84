"""Masks what looks like a secret before it is written to a record.

A net, not a proof: the record leaves argument values out unless the host asks for them, and this
catches what reasons, errors and the values it asked for would give away.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

__all__ = ["MASKED", "masked", "text"]

MASKED: Final = "[masked]"

_KEY: Final = re.compile(
    r"pass(word|wd|phrase)|secret|token|api[-_ ]?key|access[-_ ]?key|private[-_ ]?key|credential"
    r"|authori[sz]ation|cookie|session[-_ ]?id|signature",
    re.IGNORECASE,
)
_TEXT: Final = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)"
    r"|\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\bA(?:KI|SI)A[0-9A-Z]{16}\b"
    r"|(?<![\w-])eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"
    r"|(?i:\b(?:bearer|basic)\s+)[A-Za-z0-9+/._~=-]{8,}"
    r"|(?<=://)[^\s/:@]{1,200}:[^\s/@]{1,200}(?=@)"
    r"|(?i:\b(?:password|passwd|secret|token|api[-_]?key))[\"']?\s*[=:]\s*[\"']?[^\s\"',;&]+",
    re.DOTALL,
)
_LONGEST: Final = 100_000


def text(value: str) -> str:
    """The text with what has the form of a secret replaced; cut beyond 100,000 characters."""
    return _short(value) if len(value) <= _SHORT else _TEXT.sub(MASKED, value[:_LONGEST])


_SHORT: Final = 1_000


@lru_cache(4_096)
def _short(value: str) -> str:
    """Reasons, names and messages come back again and again; looking through one takes long."""
    return _TEXT.sub(MASKED, value)


def masked(value: object) -> Any:
    """A copy of a JSON value with every secret replaced, at every depth.

    A value under a key that names a secret is replaced whole; in texts, what has the form of a key,
    token or password is. Text beyond 100,000 characters is cut.
    """
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping):
        return {
            masked(key): MASKED if _KEY.search(str(key)[:200]) else masked(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [masked(item) for item in value]
    return value
