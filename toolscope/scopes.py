"""The scope of the chat whose tool is executing in this context.

An adapter sets it around the execution of an allowed tool. A *run* that starts inside gets
`for_run`: the scope of a chat that a tool call spawned, whatever the inner agent declares. A *call*
that arrives inside without a new run is decided in `current` as it is.

A tool that yields its result in parts runs between the steps of its consumer, in the consumer's
context: `iterate` and `aiterate` enter the scope for each step alone.

The scope lives in a `contextvars.ContextVar`: tasks, ``to_thread`` and whatever else copies the
context inherit it. What does not copy it (plain executors, queues, other processes) sees none.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from typing import Any, Generic, TypeVar

from toolscope.model import Scope

__all__ = ["aiterate", "current", "for_run", "inside", "iterate"]

S = TypeVar("S", Scope, Scope | None)
T = TypeVar("T")

_current: ContextVar[Scope | None] = ContextVar("toolscope_scope", default=None)


def current() -> Scope | None:
    """The scope of the chat whose tool is executing here; None outside of any tool."""
    return _current.get()


def inside(scope: Scope) -> AbstractContextManager[Scope]:
    """Makes ``scope`` the current one around the execution of an allowed tool of its chat.

    Left in another context than it was entered in (as async generators are that a loop closes, and
    generators that are forgotten), it changes nothing there: what is current there is another's.
    """
    return _Holding(scope)


class _Holding(Generic[S]):
    """Holds the scope (None: no tool's) while it is entered. A class: it is on every call's way."""

    __slots__ = ("_scope", "_token")
    _scope: S
    _token: Token[Scope | None]

    def __init__(self, scope: S) -> None:
        self._scope = scope

    def __enter__(self) -> S:
        self._token = _current.set(self._scope)
        return self._scope

    def __exit__(self, *_: object) -> None:
        try:  # noqa: SIM105  (as above)
            _current.reset(self._token)
        except ValueError:  # another context: the scope that was entered is not current here
            pass


def for_run(declared: Scope | None = None) -> Scope:
    """The scope of a run that starts here: declared outside of any tool, else a child's.

    Inside a tool it is ``current().child(declared)``: origin ``tool`` whatever is declared.
    """
    outer = _current.get()
    if outer is None:
        return declared or Scope()
    return outer.child(declared)


def iterate(scope: Scope, steps: Iterable[T]) -> Generator[T, None, None]:
    """The items of ``steps``, each made inside ``scope``; between them the consumer is outside.

    For tools that are generators. A scope that ``steps`` entered itself is kept for its next step.
    Closing this closes ``steps``, inside the scope.
    """
    held: Scope | None = scope
    with _Holding(held):
        iterator = iter(steps)
    try:
        while True:
            with _Holding(held):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
                held = _current.get()
            yield item
    finally:
        close: Any = getattr(iterator, "close", None)
        if close is not None:
            with _Holding(held):
                close()


async def aiterate(scope: Scope, steps: AsyncIterable[T]) -> AsyncGenerator[T, None]:
    """As `iterate`, for tools that are asynchronous generators.

    Consume it within ``contextlib.aclosing`` where the consumer may stop early.
    """
    held: Scope | None = scope
    with _Holding(held):
        iterator = aiter(steps)
    try:
        while True:
            with _Holding(held):
                try:
                    item = await anext(iterator)
                except StopAsyncIteration:
                    return
                held = _current.get()
            yield item
    finally:
        close: Any = getattr(iterator, "aclose", None)
        if close is not None:
            with _Holding(held):
                await close()
