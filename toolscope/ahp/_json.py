"""JSON documents from outside, read strictly and in bounded time.

`own` gives plain JSON that nobody else holds, or one error that lists every fault with its path:
the same key twice in an object, NaN and infinities, text that is no Unicode (lone surrogates),
values that are not JSON, too deep, too large.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

from toolscope._frozen import MAX_DEPTH, MAX_VALUES, freeze, thaw
from toolscope.errors import Fault, WireError

__all__ = ["MAX_CHARACTERS", "json_kind", "own", "step"]

MAX_CHARACTERS: Final = 64 * 1024 * 1024
"""How many characters (or bytes) one document may have."""

_MOST_FAULTS: Final = 100


def own(document: object, title: str) -> Any:
    """The JSON value of a text, of UTF-8 bytes or of a mapping, owned by the caller alone.

    Raises:
        WireError: It is not JSON, or not within the limits. ``title`` opens the message.
    """
    if isinstance(document, (str, bytes, bytearray)):
        return _parsed(document, title)
    try:
        value = thaw(freeze(document))
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError as error:
        raise WireError(
            title, _located(document) or [Fault(path="$", problem=str(error))]
        ) from error
    return value


class _Twice(dict[str, Any]):
    """A JSON object in which a key occurred more than once."""

    keys_twice: tuple[str, ...] = ()


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    twice = _Twice(members)
    counts = Counter(name for name, _ in pairs)
    twice.keys_twice = tuple(name for name, count in counts.items() if count > 1)
    return twice


def _parsed(document: str | bytes | bytearray, title: str) -> Any:
    def refused(problem: str, cure: str | None = None) -> WireError:
        return WireError(title, [Fault(path="$", problem=problem, cure=cure)])

    if len(document) > MAX_CHARACTERS:
        problem = f"the document has {len(document):,} characters"
        raise refused(problem, f"allowed are {MAX_CHARACTERS:,}")
    odd_numbers: list[str] = []

    def number(literal: str) -> float:
        value = float(literal)
        if not math.isfinite(value):
            odd_numbers.append(literal)
        return value

    try:
        text = document if isinstance(document, str) else document.decode()
        text = text.removeprefix("\ufeff")
        value = json.loads(text, parse_float=number, parse_constant=number)
    except UnicodeDecodeError as error:
        raise refused(f"it is not UTF-8: {error.reason}") from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise refused(f"it is not JSON: {error.msg} ({place})") from error
    except RecursionError as error:
        raise refused(_TOO_DEEP) from error
    except ValueError as error:  # an integer beyond Python's limit for reading one
        raise refused(_TOO_MANY_DIGITS) from error
    strings, beyond = _measured(value)
    if beyond is not None:
        raise refused(beyond)
    if odd_numbers or strings != _string_literals(text) or not _is_unicode(text, value):
        raise WireError(title, _located(json.loads(text, object_pairs_hook=_members)))
    return value


def _measured(value: object) -> tuple[int, str | None]:
    """How many strings (keys included) a value holds, and whether it is beyond the limits.

    It goes level by level, so that depth costs no stack and each value is looked at once.
    """
    level: list[Any] = [value]
    strings = count = 0
    for _ in range(MAX_DEPTH + 1):
        count += len(level)
        if count > MAX_VALUES:
            return strings, f"it holds more than {MAX_VALUES:,} values"
        others = [one for one in level if type(one) is not str]
        objects = [one for one in others if type(one) is dict]
        arrays = [one for one in others if type(one) is list]
        strings += len(level) - len(others) + sum(map(len, objects))
        if not objects and not arrays:
            return strings, None
        members = chain.from_iterable(map(dict.values, objects))
        level = [*members, *chain.from_iterable(arrays)]
    return strings, _TOO_DEEP


_TOO_MANY_DIGITS: Final = "an integer of more digits than Python reads or writes"
_TOO_DEEP: Final = f"it is nested deeper than {MAX_DEPTH} levels"


def _string_literals(text: str) -> int:
    """How many string literals a JSON text has.

    They are more than the strings of its value where an object bears the same key twice. (To parse
    with a hook for each object costs as much as all the rest.)
    """
    quotes = text.count('"')
    if "\\" in text:
        quotes -= text.replace("\\\\", "").count('\\"')
    return quotes // 2


def _is_unicode(text: str, value: object) -> bool:
    """Whether no lone surrogate is in the text, nor in a value by way of an escape."""
    try:
        text.encode()
        if "\\" in text and "\\u" in text:  # to look for one character first is much faster
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _located(document: object) -> list[Fault]:
    """Every fault of a document with its path, the first hundred; only walked when there is one."""
    faults: list[Fault] = []
    pending: list[tuple[Any, str, int]] = [(document, "$", 0)]
    looked_at = 0
    while pending and len(faults) < _MOST_FAULTS and looked_at <= MAX_VALUES:
        value, path, depth = pending.pop()
        looked_at += 1
        faults.extend(Fault(path=path, problem=problem) for problem in _problems(value))
        if depth <= MAX_DEPTH:
            pending.extend(reversed([(one, path + at, depth + 1) for at, one in _children(value)]))
    return faults[:_MOST_FAULTS]


def _problems(value: object) -> Iterator[str]:
    if isinstance(value, str):
        if not _encodes(value):
            yield "text with a lone surrogate, which is no Unicode"
    elif isinstance(value, Mapping):
        if isinstance(value, _Twice):
            yield from (f"the key {key!r} is there twice" for key in value.keys_twice)
        for key in value:
            if not isinstance(key, str):
                yield f"a key is of type {type(key).__name__}, not text"
            elif not _encodes(key):
                yield "a key with a lone surrogate, which is no Unicode"
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield "NaN and infinities are not JSON"
    elif isinstance(value, int):
        try:
            str(value)
        except ValueError:
            yield _TOO_MANY_DIGITS
    elif value is not None and not isinstance(value, (list, tuple)):
        yield f"a value is of type {type(value).__name__}, which is not JSON"


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _children(value: object) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield step(key), one
    elif isinstance(value, (list, tuple)):
        for index, one in enumerate(value):
            yield f"[{index}]", one


def step(key: object) -> str:
    """The part of a JSON path that leads to one member."""
    if isinstance(key, str) and key.isidentifier():
        return f".{key}"
    return f"[{json.dumps(str(key))}]"


def json_kind(value: object) -> str:
    """What a JSON value is called in a message: ``text``, ``a number``, ``an object``."""
    return _KINDS[type(value)]


_KINDS: Final[Mapping[type, str]] = {
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    dict: "an object",
    list: "an array",
    type(None): "null",
}
