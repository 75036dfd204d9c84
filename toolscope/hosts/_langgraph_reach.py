"""What a compiled LangGraph graph reaches, and what of it no middleware of ours is on.

Compiled graphs keep their middlewares in closures. The walk here follows functions, closures and
the names that functions look up; it only reads. Where a release of the host keeps them elsewhere,
the walk finds nothing and reports the agent as unprotected.
"""

from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

import attrs
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.runnables import Runnable, RunnableBinding
from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from langgraph.pregel.remote import RemoteGraph

__all__ = ["Agent", "agents", "uncovered"]

_MOST_OBJECTS: Final = 50_000


@attrs.frozen(eq=False)
class Agent:
    """A graph that was found, with the way to it, and the middlewares on it in order."""

    path: str
    graph: Any
    chain: tuple[AgentMiddleware[Any, Any, Any], ...]
    calls: tuple[AgentMiddleware[Any, Any, Any], ...]
    """Those of them that see its tool calls, in order."""
    dictionaries: tuple[Mapping[str, Any], ...]
    """Tools that go to the model's provider as they are."""
    unwrapped: tuple[str, ...]
    """Nodes that run tools, or call the model with tools, without a middleware of ours."""


def uncovered(agent: Any, kind: type[AgentMiddleware[Any, Any, Any]]) -> tuple[str, ...]:
    """What ``agent`` reaches without a middleware of this kind, one sentence each."""
    lines: dict[str, None] = {}
    for found in agents(agent, kind):
        if isinstance(found.graph, RemoteGraph):
            lines[f"{found.path} runs in another process; protect it where it is served"] = None
            continue
        if found.unwrapped:
            nodes = " and ".join(map(repr, found.unwrapped))
            lines[
                f"{found.path} runs its {nodes} without {kind.__name__}; make it with an attached "
                "create function, or put the middleware on it"
            ] = None
        for line in (*_order(found, kind), *_below(found, kind)):
            lines[line] = None
        for tool in found.dictionaries:
            if tool.get("type") not in (None, "function", "custom"):
                lines[
                    f"{found.path}: tool {tool.get('name') or tool['type']!r} runs at the model's "
                    "provider; it can be withheld, but its calls cannot be decided"
                ] = None
    return tuple(lines)


_HOSTS_OWN: Final = ("langchain.", "langchain_", "deepagents.")


def _after(
    chain: tuple[AgentMiddleware[Any, Any, Any], ...], kind: type[AgentMiddleware[Any, Any, Any]]
) -> tuple[AgentMiddleware[Any, Any, Any], ...]:
    """The middlewares that come after the last one of this kind; none where there is none."""
    ours = [place for place, one in enumerate(chain) if isinstance(one, kind)]
    return chain[max(ours) + 1 :] if ours else ()


def _below(found: Agent, kind: type[AgentMiddleware[Any, Any, Any]]) -> Iterator[str]:
    """What may change a call after it was decided."""
    for one in _after(found.calls, kind):
        reviews = isinstance(one, HumanInTheLoopMiddleware)
        edits = reviews and getattr(one, "interrupt_mode", None) == "per_call"
        if edits or not type(one).__module__.startswith(_HOSTS_OWN):
            yield (
                f"{found.path}: middleware {one.name!r} comes after {kind.__name__}; what it makes "
                "of a call is not decided"
            )


def _order(found: Agent, kind: type[AgentMiddleware[Any, Any, Any]]) -> Iterator[str]:
    for one in _after(found.chain, kind):
        changes_tools = type(one).wrap_model_call is not AgentMiddleware.wrap_model_call
        own = type(one).__module__.startswith(_HOSTS_OWN) and not _discloses_tools(one)
        if changes_tools and not own:
            yield (
                f"{found.path}: middleware {one.name!r} comes after {kind.__name__}; tools that it "
                "adds are not filtered, and their calls are denied as unknown"
            )


def _discloses_tools(one: AgentMiddleware[Any, Any, Any]) -> bool:
    """Whether it is Deep Agents' middleware for skills, and was given tools for them."""
    resolver = getattr(one, "_skill_tool_resolver", None)
    return resolver is not None and _cells(resolver).get("by_name") != {}


def agents(agent: Any, kind: type[AgentMiddleware[Any, Any, Any]]) -> list[Agent]:
    """The graphs that ``agent`` reaches, itself first."""
    found: list[Agent] = []
    pending: list[tuple[str, Any]] = [(_title(agent, "the agent"), agent)]
    seen: set[int] = set()
    while pending:
        path, one = pending.pop(0)
        graph = _unbound(one)
        if id(graph) in seen:
            continue
        seen.add(id(graph))
        if isinstance(graph, RemoteGraph):
            found.append(Agent(path, graph, (), (), (), ()))
        elif isinstance(graph, Pregel):
            described, below = _read(path, graph, kind)
            found.append(described)
            pending += below
        else:
            pending += [(path, other) for other in _referred(one) if _is_graph(other)]
    return found


def _read(
    path: str, graph: Pregel[Any, Any, Any, Any], kind: type[AgentMiddleware[Any, Any, Any]]
) -> tuple[Agent, list[tuple[str, Any]]]:
    chain: tuple[AgentMiddleware[Any, Any, Any], ...] = ()
    calls: tuple[AgentMiddleware[Any, Any, Any], ...] = ()
    dictionaries: list[Mapping[str, Any]] = []
    unwrapped: list[str] = []
    below: list[tuple[str, Any]] = []
    for name, node in graph.nodes.items():
        bound = _unbound(node.bound)
        if isinstance(bound, ToolNode):
            wrapper = bound._wrap_tool_call  # noqa: SLF001  (read only; see the module)
            wrapped = tuple(_chain(wrapper))
            calls += wrapped
            if not any(isinstance(one, kind) for one in wrapped):
                unwrapped.append(name)
            for tool in bound.tools_by_name.values():
                below += [(f"{path} > tool {tool.name!r}", o) for o in _referred(tool)]
            continue
        if _is_graph(bound):
            below.append((f"{path} > node {name!r}", bound))
            continue
        function = getattr(bound, "func", None)
        if name == "model" and isinstance(function, FunctionType):
            cells = _cells(function)
            if "wrap_model_call_handler" in cells and "default_tools" in cells:
                chain = tuple(_chain(cells["wrap_model_call_handler"]))
                dictionaries = [one for one in cells["default_tools"] if isinstance(one, dict)]
                if not any(isinstance(one, kind) for one in chain) and cells["default_tools"]:
                    unwrapped.append(name)
                continue
        below += [(f"{path} > node {name!r}", other) for other in _referred(bound)]
    titled = [(_title(one, way), one) for way, one in below if _is_graph(one)]
    return Agent(path, graph, chain, calls, tuple(dictionaries), tuple(unwrapped)), titled


def _title(one: Any, way: str) -> str:
    name = getattr(_unbound(one), "name", None)
    return way if name in (None, "LangGraph") else f"{way} ({name!r})"


def _unbound(one: Any) -> Any:
    while isinstance(one, RunnableBinding):
        one = one.bound
    return one


def _is_graph(one: Any) -> bool:
    return isinstance(_unbound(one), (Pregel, RemoteGraph))


def _chain(wrapper: Any) -> Iterator[AgentMiddleware[Any, Any, Any]]:
    """The middlewares of a composed wrapper, outermost first."""
    cells = _cells(wrapper)
    if "outer" in cells and "inner" in cells:
        yield from _chain(cells["outer"])
        yield from _chain(cells["inner"])
    elif "single_handler" in cells:
        yield from _chain(cells["single_handler"])
    else:
        method = getattr(wrapper, "__wrapped__", wrapper)
        owner = getattr(method, "__self__", None)
        if isinstance(owner, AgentMiddleware):
            yield owner


def _cells(function: Any) -> dict[str, Any]:
    code, closure = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is None or closure is None:
        return {}
    cells = {}
    for name, cell in zip(code.co_freevars, closure, strict=True):
        try:
            cells[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return cells


def _referred(start: Any) -> list[Any]:
    """The graphs that an object refers to, without looking into them."""
    found: list[Any] = []
    pending, seen = [start], {id(start)}
    while pending and len(seen) < _MOST_OBJECTS:
        one = pending.pop()
        if one is not start and _is_graph(one):
            found.append(one)
            continue
        for other in _references(one):
            if id(other) not in seen:
                seen.add(id(other))
                pending.append(other)
    return found


def _references(one: Any) -> Iterator[Any]:
    match one:
        case FunctionType():
            yield from _cells(one).values()
            yield getattr(one, "__wrapped__", None)
            for name in _names(one.__code__):
                value = one.__globals__.get(name)
                if isinstance(value, (Runnable, AgentMiddleware, MethodType)) or (
                    isinstance(value, FunctionType) and value.__module__ == one.__module__
                ):
                    yield value
        case MethodType():
            yield one.__self__
            yield one.__func__
        case Mapping():
            yield from one.values()
        case list() | tuple() | set() | frozenset():
            yield from one
        case BaseTool() | Runnable():
            for slot in ("func", "coroutine", "afunc", "bound", "steps", "runnable"):
                yield getattr(one, slot, None)
            if isinstance(one, BaseTool):
                yield type(one)._run  # noqa: SLF001  (a tool written as a class)
                yield from vars(one).values()
        case _ if type(one).__module__ not in ("builtins", "types"):
            # An object of the user's: what its attributes hold, as far as it is not a library's.
            if hasattr(one, "__dict__") and not isinstance(one, type):
                yield from (v for v in vars(one).values() if isinstance(v, (Runnable, Mapping)))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
