"""What a Pydantic AI agent can reach: the agents its tools refer to, and what runs elsewhere."""

from collections.abc import Callable, Iterator
from typing import Any, get_args

from pydantic_ai.agent import Agent, WrapperAgent
from pydantic_ai.capabilities import (
    AbstractCapability,
    CombinedCapability,
    HandleDeferredToolCalls,
)
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from toolscope.hosts._referred import referred

__all__ = ["attach_to", "can_defer", "has_capability", "uncovered"]

Kind = type[AbstractCapability[Any]]


def attach_to(agent: object, kind: Kind, make: Callable[[bool], AbstractCapability[Any]]) -> None:
    """Puts a capability on the agent and on those it reaches; ``make`` is told of the first."""
    for found, _ in _reached(_unwrapped(agent)):
        root = found.root_capability
        if not has_capability(root, kind):
            root.capabilities = [*root.capabilities, make(found is _unwrapped(agent))]
            root.__post_init__()  # sorts them, as at construction


def uncovered(agent: object, kind: Kind) -> tuple[str, ...]:
    """A sentence for everything that is known to pass the capability by."""
    gaps: list[str] = []
    for found, through in _reached(_unwrapped(agent)):
        name = repr(found.name or "without a name")
        if not has_capability(found.root_capability, kind):
            where = f", which the tool {through!r} refers to," if through else ""
            gaps.append(f"agent {name}{where} has no Toolscope: attach it")
    return tuple(gaps)


def has_capability(root: AbstractCapability[Any] | None, kind: Kind) -> bool:
    """Whether one of the capabilities is of this kind."""
    return root is not None and any(isinstance(one, kind) for one in _leaves(root))


def can_defer(agent: Any, root: AbstractCapability[Any] | None) -> bool:
    """Whether a call that waits for a person has somewhere to go."""
    if agent is not None and _names_deferred(agent.output_type):
        return True
    roots = (root, None if agent is None else agent.root_capability)
    return any(
        isinstance(one, HandleDeferredToolCalls)
        for found in roots
        if isinstance(found, CombinedCapability)
        for one in found.capabilities
    )


def _names_deferred(output_type: Any) -> bool:
    if isinstance(output_type, (list, tuple)):
        return any(_names_deferred(one) for one in output_type)
    return output_type is DeferredToolRequests or DeferredToolRequests in get_args(output_type)


def _leaves(root: AbstractCapability[Any]) -> list[AbstractCapability[Any]]:
    leaves: list[AbstractCapability[Any]] = []
    root.apply(leaves.append)
    return leaves


def _unwrapped(agent: object) -> Agent[Any, Any]:
    while isinstance(agent, WrapperAgent):
        agent = agent.wrapped
    if not isinstance(agent, Agent):
        raise TypeError(f"agent is a {type(agent).__name__}; give a pydantic_ai.Agent")
    return agent


def _reached(agent: Agent[Any, Any]) -> Iterator[tuple[Agent[Any, Any], str | None]]:
    """The agent and all below it, each once, with the tool that refers to it."""
    waiting: list[tuple[Agent[Any, Any], str | None]] = [(agent, None)]
    seen: set[int] = set()
    while waiting:
        found, through = waiting.pop(0)
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found, through
        for name, function in _functions(found):
            agents = referred(function, Agent, WrapperAgent)
            waiting += [(_unwrapped(one), name) for one in agents]


def _functions(agent: Agent[Any, Any]) -> list[tuple[str, Any]]:
    functions: list[tuple[str, Any]] = []

    def visit(toolset: AbstractToolset[Any]) -> None:
        if isinstance(toolset, FunctionToolset):
            functions.extend((name, tool.function) for name, tool in toolset.tools.items())

    for toolset in agent.toolsets:
        toolset.apply(visit)
    return functions
