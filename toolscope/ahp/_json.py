"""JSON documents from outside, read strictly and in bounded time.

`own` gives plain JSON that nobody else holds, or one error that lists every fault with its path:
the same key twice in an object, NaN and infinities, text that is no Unicode (lone surrogates),
values that are not JSON, too deep, too large.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
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


_CONTAINERS: Final = frozenset({dict, list, _Twice})


def _parsed(text: str | bytes | bytearray, title: str) -> Any:
    if len(text) > MAX_CHARACTERS:
        problem = f"the document has {len(text):,} characters"
        raise WireError(
            title, [Fault(path="$", problem=problem, cure=f"allowed are {MAX_CHARACTERS:,}")]
        )
    found: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) == len(pairs):
            return made
        twice = _Twice(made)
        counts = Counter(name for name, _ in pairs)
        twice.keys_twice = tuple(name for name, count in counts.items() if count > 1)
        found.append("a key twice")
        return twice

    def number(literal: str) -> float:
        value = float(literal)
        if not math.isfinite(value):
            found.append("not finite")
        return value

    try:
        if not isinstance(text, str):
            text = text.decode("utf-8-sig")
        value = json.loads(
            text.removeprefix("\ufeff"),
            object_pairs_hook=members,
            parse_float=number,
            parse_constant=number,
        )
    except UnicodeDecodeError as error:
        raise WireError(
            title, [Fault(path="$", problem=f"it is not UTF-8: {error.reason}")]
        ) from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise WireError(
            title, [Fault(path="$", problem=f"it is not JSON: {error.msg} ({place})")]
        ) from error
    except RecursionError as error:
        raise WireError(title, [_too_deep()]) from error
    except ValueError as error:  # an integer beyond Python's limit for reading one
        raise WireError(
            title, [Fault(path="$", problem="it holds an integer of too many digits")]
        ) from error
    if fault := _beyond_limits(value):
        raise WireError(title, [fault])
    if not found and _is_unicode(text, value):
        return value
    raise WireError(title, list(_located(value)))


def _is_unicode(text: str, value: object) -> bool:
    """Whether no lone surrogate is in the text, nor in a value by way of an escape."""
    try:
        text.encode()
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _too_deep() -> Fault:
    return Fault(path="$", problem=f"it is nested deeper than {MAX_DEPTH} levels")


def _beyond_limits(value: object) -> Fault | None:
    """Level by level, so that depth costs no stack and each value is looked at once."""
    level: list[Any] = [value]
    count = 0
    for _ in range(MAX_DEPTH + 1):
        level = [
            one for one in level if type(one) is dict or type(one) is list or type(one) is _Twice
        ]
        if not level:
            return None
        count += sum(map(len, level))
        if count > MAX_VALUES:
            return Fault(path="$", problem=f"it holds more than {MAX_VALUES:,} values")
        level = [one for part in level for one in (part if type(part) is list else part.values())]
    return _too_deep()


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
                yield f"a key is a {type(key).__name__}, not text"
            elif not _encodes(key):
                yield "a key with a lone surrogate, which is no Unicode"
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield "NaN and infinities are not JSON"
    elif value is not None and not isinstance(value, (bool, int, list, tuple)):
        yield f"a value is a {type(value).__name__}, which is not JSON"


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
