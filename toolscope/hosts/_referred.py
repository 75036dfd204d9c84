"""What a tool's Python function refers to: how an adapter finds the agents that a tool runs."""

import functools
from collections.abc import Iterator
from types import CodeType
from typing import Any, Final, TypeVar

__all__ = ["referred"]

T = TypeVar("T")

_LONGEST_CHAIN: Final = 20


def referred(function: Any, *kinds: type[T]) -> list[T]:
    """The objects of these kinds that a function names: in its module, closure or own object."""
    owner = getattr(function, "__self__", None)
    values: list[object] = list(getattr(owner, "__dict__", {}).values())
    plain = _plain(function)
    code = getattr(plain, "__code__", None)
    if isinstance(code, CodeType):
        names = sorted(set(_names(code)))
        values += [plain.__globals__[name] for name in names if name in plain.__globals__]
        for cell in plain.__closure__ or ():
            try:
                values.append(cell.cell_contents)
            except ValueError:  # not assigned yet
                continue
    return [value for value in values if isinstance(value, kinds)]


def _plain(function: Any) -> Any:
    for _ in range(_LONGEST_CHAIN):
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            break
    return getattr(function, "__func__", function)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
