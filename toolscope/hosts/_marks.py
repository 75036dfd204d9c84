"""How a tool says, in any host, where in a session it may be used."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from toolscope.model import Availability, narrower_availability

AVAILABILITY_KEY: Final = "dev.toolscope/availability"
"""The key of a tool's availability in MCP ``_meta`` and in hosts' metadata."""
ORIGIN_KEY: Final = "dev.toolscope/origin"
"""The key of a chat's claimed origin in a request. Never the tools' key: hosts echo that one."""

_MARK: Final = "__toolscope__"

F = TypeVar("F", bound=Callable[..., Any])


def available_in(availability: Availability | str) -> Callable[[F], F]:
    """Marks a tool's function; goes under the host's own decorator.

    ::

        @tool
        @available_in("userChats")
        def pick_file() -> str: ...

    The function itself is returned, with one attribute more.
    """
    if not isinstance(availability, str):
        raise TypeError(f"availability is a {type(availability).__name__}; allowed is text")
    value = Availability.read(availability)

    def mark(function: F) -> F:
        setattr(function, _MARK, {AVAILABILITY_KEY: value})
        return function

    return mark


def declared_availability(
    function: object = None, *metadata: Mapping[str, Any] | None
) -> Availability | str:
    """The narrowest availability that the function's mark and the metadata declare.

    ``function`` may be any wrapper of the marked function that keeps it as ``__wrapped__``. What is
    declared and is no text counts as ``userChats``: a broken mark must not widen.
    """
    found: Availability | str = Availability.SESSION
    for mapping in (_mark_of(function), *metadata):
        if isinstance(mapping, Mapping) and mapping.get(AVAILABILITY_KEY) is not None:
            value = mapping[AVAILABILITY_KEY]
            declared = Availability.read(value) if isinstance(value, str) else _BROKEN
            found = narrower_availability(found, declared)
    return found


_BROKEN: Final = Availability.USER_CHATS
_LONGEST_CHAIN: Final = 20


def _mark_of(function: object) -> Any:
    for _ in range(_LONGEST_CHAIN):
        mark = getattr(function, _MARK, None)
        if mark is not None:
            return mark
        function = getattr(function, "__wrapped__", None)
        if function is None:
            break
    return None
