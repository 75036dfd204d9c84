"""The calls that models produce, and their arguments."""

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Never

import attrs

from toolscope._frozen import EMPTY, MAX_ARGUMENT_VALUES, MAX_DEPTH, FrozenDict, digest, freeze
from toolscope.model._scopes import optional_text, text
from toolscope.model._tools import Provider


class InvalidArguments(FrozenDict):
    """Stands, empty, for arguments that are no JSON object; ``why`` says what is wrong with them.

    A call with such arguments is denied before any rule is asked (``arguments_invalid``).
    """

    __slots__ = ("why",)
    why: str

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.why,)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("the same key twice in one object")
    return members


def _no_constant(text: str) -> Never:
    raise ValueError("NaN and infinities are not JSON")


def read_arguments(value: object) -> FrozenDict:
    """The arguments of a call, of a mapping or a JSON text; else `InvalidArguments`."""
    if type(value) is FrozenDict or type(value) is InvalidArguments:
        return value
    try:
        if isinstance(value, (str, bytes)):
            value = json.loads(value, object_pairs_hook=_unique, parse_constant=_no_constant)
        if not isinstance(value, (dict, Mapping)):
            return InvalidArguments("they are no JSON object")
        frozen: FrozenDict = freeze(value, MAX_ARGUMENT_VALUES)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return InvalidArguments("they are no JSON")
    except RecursionError:
        return InvalidArguments(f"nested deeper than {MAX_DEPTH} levels")
    except ValueError as error:
        return InvalidArguments(str(error))
    return frozen


def _chat_ids(value: Iterable[str | None]) -> tuple[str | None, ...]:
    if isinstance(value, str):
        raise TypeError("ancestors is one text where a row of chat ids is expected")
    return tuple(value)


@attrs.frozen(kw_only=True)
class ToolCall:
    """One call that a model produced.

    ``arguments`` takes a mapping or the JSON text of one; anything else becomes
    `InvalidArguments`. ``provider`` is that of the tool that was picked, None where the model gave
    a name only. ``ancestors`` are the chat ids beside ``scope.ancestry`` (None = unknown), ``via``
    is the id of the outer call that this one came through; it has no effect on the decision.
    """

    id: str | None = attrs.field(default=None, validator=optional_text)
    name: str = attrs.field(validator=text)
    provider: Provider | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.instance_of(Provider))
    )
    arguments: FrozenDict = attrs.field(default=EMPTY, converter=read_arguments, repr=False)
    chat: str | None = attrs.field(default=None, validator=optional_text)
    ancestors: tuple[str | None, ...] = attrs.field(default=(), converter=_chat_ids)
    via: str | None = attrs.field(default=None, validator=optional_text)

    @cached_property
    def arguments_digest(self) -> str:
        """SHA-256 (hex) of the arguments, made on first use; see `arguments_digest`."""
        return digest(self.arguments)
