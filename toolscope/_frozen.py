"""JSON that cannot be changed: read-only dicts and lists, and the one canonical text."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Never, Self, TypeAlias

__all__ = [
    "EMPTY",
    "MAX_ARGUMENT_VALUES",
    "MAX_DEPTH",
    "MAX_VALUES",
    "FrozenDict",
    "FrozenList",
    "Json",
    "canonical_json",
    "digest",
    "freeze",
    "thaw",
]

Json: TypeAlias = bool | int | float | str | Sequence[Any] | Mapping[str, Any] | None
"""A JSON value: what ``json.loads`` gives, or the frozen form of it."""


def _refuse(self: object, *_: object, **__: object) -> Never:
    raise TypeError(f"{type(self).__name__} cannot be changed; thaw() gives a copy that can")


class FrozenDict(dict[str, Any]):
    """A read-only JSON object. It is a ``dict``, so ``json.dumps``, ``==`` and pickle work.

    Made by `freeze`, which looks at every value; the constructor takes values as they are.
    """

    __slots__ = ()

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


class FrozenList(list[Any]):
    """A read-only JSON array. It is a ``list``, so ``json.dumps``, ``==`` and pickle work.

    Made by `freeze`, which looks at every value; the constructor takes values as they are.
    """

    __slots__ = ()

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self),)


MAX_DEPTH: Final = 100
"""How many levels of arrays and objects a JSON value may nest."""
MAX_VALUES: Final = 1_000_000
"""How many values one JSON document may hold, counted with repetition."""
MAX_ARGUMENT_VALUES: Final = 100_000
"""How many of them the arguments of one call, or a condition on them, may hold."""
_HUGE: Final = 10**4_300
"""The first integer that Python, as it comes, refuses to write as text."""

_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_OBJECT: Final = (dict, Mapping)
"""What is a JSON object: asked of a ``dict``, `Mapping` alone answers ten times slower."""
_FLAT: Final = frozenset({str, bool, type(None)})
_TEXT: Final = frozenset({str})
EMPTY: Final = FrozenDict()


def freeze(value: object, most: int = MAX_VALUES) -> Any:
    """A deeply read-only copy of a JSON value: objects as `FrozenDict`, arrays as `FrozenList`.

    Raises:
        ValueError: The value is not JSON (another type, a key that is no text, NaN or an infinity),
            nests deeper than `MAX_DEPTH`, or holds more than ``most`` values or an integer of
            more than 4,300 digits. The message never shows the value.
    """
    if type(value) is FrozenDict or type(value) is FrozenList:
        return value
    if type(value) is dict and len(value) < most:
        # Most arguments are a few texts: looking at their types takes a third of what the way
        # below takes. The copy is looked at, since the original may change meanwhile.
        flat = FrozenDict(value)
        if (
            _FLAT.issuperset(map(type, flat.values()))
            and _TEXT.issuperset(map(type, flat))
            and len(flat) < most
        ):
            return flat
    root: list[Any] = []
    count = 0
    # Children are filled in after their parent was made, so depth costs no Python stack.
    pending: list[tuple[Any, Any, int]] = [(root, (value,), 0)]
    while pending:
        target, source, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        count += len(source)
        if count > most:
            raise ValueError(f"more than {most:,} values")
        is_object = isinstance(source, _OBJECT)
        items: Iterable[tuple[Any, Any]] = source.items() if is_object else enumerate(source)
        for key, item in items:
            child = item
            kind = type(item)
            if kind in _SCALARS:
                if kind is float and not math.isfinite(item):
                    raise ValueError("NaN and infinities are not JSON")
                if kind is int and not -_HUGE < item < _HUGE:
                    raise ValueError("an integer has more than 4,300 digits")
            elif kind is FrozenDict or kind is FrozenList:
                pass
            elif isinstance(item, _OBJECT):
                child = FrozenDict()
                pending.append((child, item, depth + 1))
            elif isinstance(item, (list, tuple)):
                child = FrozenList()
                pending.append((child, item, depth + 1))
            else:
                child = _plain_scalar(item)
            if not is_object:
                list.append(target, child)
            elif type(key) is str:
                dict.__setitem__(target, key, child)
            elif isinstance(key, str):
                dict.__setitem__(target, str.__str__(key), child)
            else:
                raise ValueError(f"a key is a {type(key).__name__}, not text")
    return root[0]


def _plain_scalar(value: object) -> str | int | float:
    """A subclass of a JSON scalar as the plain scalar (an enum member, a numeric subclass)."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and -_HUGE < value < _HUGE:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    raise ValueError(f"a value is a {type(value).__name__}, which is not JSON")


def thaw(value: object) -> Any:
    """A deep copy of a JSON value in plain, changeable ``dict`` and ``list`` objects."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is FrozenDict or kind is dict:
        plain = dict(value)  # type: ignore[call-overload]
        if _FLAT.issuperset(map(type, plain.values())):
            return plain
    if isinstance(value, _OBJECT):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in value]
    return value


def canonical_json(value: object) -> str:
    """The one text of a JSON value, whatever the order of its keys.

    Integers are exact and text is not normalised: values that differ in either differ here.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def digest(value: object) -> str:
    """SHA-256 (hex) of the canonical text. Two lone surrogates are not the character they make."""
    import hashlib  # (needed late, if at all)

    text = _ENCODE(value)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_ENCODE: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
).encode
"""Made once: ``json.dumps`` makes an encoder a call, a third of what a small digest costs."""
