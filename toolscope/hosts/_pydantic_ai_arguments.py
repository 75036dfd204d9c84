"""The validated arguments of a Pydantic AI call: whether a hook changed them, and what they say."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic_core import to_jsonable_python

__all__ = ["Form", "json_of"]

_PLAIN: Final = frozenset({str, bytes, int, float, bool, type(None)})
_DEEPEST: Final = 50


class Form:
    """What arguments are made of, to find out whether they were changed, in place as well.

    Plain values and containers are told by what they hold, all else by being the same object:
    nothing is serialised, since that may hide a value, and uses up an iterator.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._kept: list[object] = []
        """Keeps what is told by identity from being freed, and its id from being used again."""
        given = dict(arguments)
        if _PLAIN.issuperset(map(type, given.values())):  # as most are
            self._parts: object = given, list(map(type, given.values()))
        else:
            self._parts = self._read(given, 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Form) and self._parts == other._parts

    __hash__ = None  # type: ignore[assignment]

    def _read(self, value: object, depth: int) -> object:
        kind = type(value)
        if kind in _PLAIN:
            return kind, value
        if depth < _DEEPEST:
            if isinstance(value, dict):
                items = value.items()
                return kind, [
                    (self._read(k, depth + 1), self._read(v, depth + 1)) for k, v in items
                ]
            if isinstance(value, (list, tuple)):
                return kind, [self._read(item, depth + 1) for item in value]
            if isinstance(value, (set, frozenset)):
                return kind, frozenset(value)
            members = _members(value)
            if members is not None:
                return kind, self._read(members, depth + 1)
        self._kept.append(value)
        return kind, id(value)


def _members(value: object) -> dict[str, Any] | None:
    """The fields of a model or dataclass, those that it does not show as well."""
    if isinstance(value, BaseModel):
        return {**vars(value), **(value.model_extra or {})}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def json_of(value: Any, depth: int = 0) -> Any:
    """The arguments as JSON for the rules: with every field and every secret in clear.

    Raises:
        ValueError: A part has no JSON form that would show all of it.
    """
    if depth > _DEEPEST:
        raise ValueError("the arguments are nested too deep")
    if type(value) in _PLAIN and type(value) is not bytes:
        return value
    if isinstance(value, (SecretStr, SecretBytes)):
        return json_of(value.get_secret_value(), depth + 1)
    if isinstance(value, Mapping):
        return {str(key): json_of(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [json_of(item, depth + 1) for item in value]
    members = _members(value)
    if members is not None:
        return json_of(members, depth + 1)
    if hasattr(value, "__next__"):
        raise ValueError("an iterator cannot be looked at without being used up")
    return to_jsonable_python(value)
