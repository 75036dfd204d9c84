"""The scope of a Pydantic AI run: the narrowest of what is declared and what is seen."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

import attrs
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability

from toolscope import scopes
from toolscope.hosts._marks import ORIGIN_KEY
from toolscope.hosts._pydantic_ai_reach import can_defer, has_capability
from toolscope.model import UNKNOWN, Agent, Origin, Scope, narrower_origin

try:  # not promised by the host; without it a worker below an unprotected agent is not seen as one
    from pydantic_ai._run_context import get_current_run_context
except ImportError:  # pragma: no cover
    get_current_run_context = None  # type: ignore[assignment]

__all__ = ["DeclaredScope", "scope_of_run"]

DeclaredScope: TypeAlias = Scope | Callable[[RunContext[Any]], Scope]
"""The scope of the chats of an agent, or what makes it from the context of a run."""


def scope_of_run(
    ctx: RunContext[Any], declared: DeclaredScope | None, kind: type[AbstractCapability[Any]]
) -> Scope:
    """The scope of the run that starts here: the narrowest of what is declared and what is seen."""
    scope = declared if isinstance(declared, Scope) else declared(ctx) if declared else _NOTHING
    claimed = None if ctx.metadata is None else ctx.metadata.get(ORIGIN_KEY)
    if claimed is not None and not isinstance(claimed, str):
        claimed = Origin.TOOL
    outer = scopes.current()
    unprotected = outer is None and _inside_unprotected_run(kind)
    name = None if ctx.agent is None else ctx.agent.name
    can_ask = scope.can_ask or can_defer(ctx.agent, ctx.root_capability)
    return _narrowest(scope, claimed, name, can_ask, outer, unprotected)


_NOTHING: Final = Scope()


@lru_cache(maxsize=256)
def _narrowest(
    scope: Scope,
    claimed: str | None,
    name: str | None,
    can_ask: bool,
    outer: Scope | None,
    unprotected: bool,
) -> Scope:
    """The scope of all that is known of a run; runs that are alike share it, and its memos."""
    agent = Agent(name=name) if scope.agent is None and name is not None else scope.agent
    origin = narrower_origin(scope.origin, claimed)
    scope = attrs.evolve(scope, origin=origin, agent=agent, can_ask=can_ask)
    if unprotected:
        return attrs.evolve(scope, origin=Origin.TOOL, ancestry=(UNKNOWN,), can_ask=False)
    return scope if outer is None else outer.child(scope)


def _inside_unprotected_run(kind: type[AbstractCapability[Any]]) -> bool:
    """Whether this run starts within a run of an agent that has no such capability.

    Most likely in one of its tools; it counts as that. An agent with the capability says so itself.
    """
    outer = None if get_current_run_context is None else get_current_run_context()
    return outer is not None and not has_capability(outer.root_capability, kind)
