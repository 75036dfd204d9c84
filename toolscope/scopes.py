"""The scope of the chat whose tool is executing in this context.

An adapter sets it around the execution of an allowed tool. A *run* that starts inside gets
`for_run`: the scope of a chat that a tool call spawned, whatever the inner agent declares. A *call*
that arrives inside without a new run is decided in `current` as it is.

The scope lives in a `contextvars.ContextVar`: tasks, ``to_thread`` and whatever else copies the
context inherit it. What does not copy it (plain executors, queues, other processes) sees none.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from toolscope.model import Scope

__all__ = ["current", "for_run", "inside"]

_current: ContextVar[Scope | None] = ContextVar("toolscope_scope", default=None)


def current() -> Scope | None:
    """The scope of the chat whose tool is executing here; None outside of any tool."""
    return _current.get()


@contextmanager
def inside(scope: Scope) -> Iterator[Scope]:
    """Makes ``scope`` the current one around the execution of an allowed tool of its chat.

    The scope before is restored by value, so it may be left in another context than it was
    entered in (as async generators are).
    """
    before = _current.get()
    _current.set(scope)
    try:
        yield scope
    finally:
        _current.set(before)


def for_run(declared: Scope | None = None) -> Scope:
    """The scope of a run that starts here: declared outside of any tool, else a child's.

    Inside a tool it is ``current().child(declared)``: origin ``tool`` whatever is declared.
    """
    outer = _current.get()
    if outer is None:
        return declared or Scope()
    return outer.child(declared)
