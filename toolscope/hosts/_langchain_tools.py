"""LangChain's tools as `Tool` values, read once per object of the host."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

import attrs
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from toolscope.errors import ToolsetError
from toolscope.hosts._marks import declared_availability
from toolscope.hosts._point import EnforcementPoint
from toolscope.model import HOST, MODEL, Annotations, FrozenDict, Tool, Toolset, freeze

__all__ = ["HostTool", "Snapshot", "Snapshots", "keep", "read_tool"]

HostTool: TypeAlias = BaseTool | dict[str, Any]
"""What LangChain lists: a tool, or a dictionary that goes to the model's provider as it is."""


@attrs.frozen(eq=False)
class Snapshot:
    """One list of the host, its toolset, and which tool stands for which of the host's objects."""

    hosts: tuple[HostTool, ...]
    """Each object once."""
    toolset: Toolset

    @cached_property
    def tools(self) -> Mapping[int, Tool]:
        """By ``id`` of the host's object. Made on first use: most lists are sent as they are."""
        return dict(zip(map(id, self.hosts), self.toolset, strict=True))

    def tool_of(self, host: object) -> Tool | None:
        """The tool that stands for this object of the host; None where it is not in the list."""
        return self.tools.get(id(host))


class Snapshots:
    """The last snapshots, by the identity of the host's objects, so that nothing is read twice."""

    def __init__(self, point: EnforcementPoint) -> None:
        self._point = point
        self._seen: dict[int, tuple[HostTool, Tool]] = {}
        self._tools: dict[tuple[object, ...], tuple[HostTool, Tool]] = {}
        self._toolsets: dict[tuple[Tool, ...], Toolset] = {}
        self._snapshots: dict[tuple[int, ...], Snapshot] = {}

    def of(self, hosts: Sequence[HostTool]) -> Snapshot:
        """The snapshot of these objects, in this order.

        A second tool of one name gets an own name of its own, so both stay in the toolset.

        Raises:
            ToolsetError: One of them cannot be read.
        """
        key = tuple(map(id, hosts))
        known = self._snapshots.get(key)
        if known is None:
            once = {id(host): host for host in hosts}
            seen = self._seen
            tools = tuple(
                [
                    seen[place][1] if place in seen else self._tool(host)
                    for place, host in once.items()
                ]
            )
            toolset = self._toolset(tools)
            known = Snapshot(tuple(once.values()), toolset)
            keep(self._snapshots, key, known)
        return known

    def _toolset(self, tools: tuple[Tool, ...]) -> Toolset:
        known = self._toolsets.get(tools)
        if known is None:
            known = self._point.toolset(_told_apart(tools))
            keep(self._toolsets, tools, known)
        return known

    def _tool(self, host: HostTool) -> Tool:
        key = _parts(host)
        known = self._tools.get(key)
        if known is None:
            known = (host, read_tool(host))
            keep(self._tools, key, known)
        keep(self._seen, id(host), (host, known[1]))
        return known[1]


def _told_apart(tools: Iterable[Tool]) -> Iterator[Tool]:
    """These tools, with an own name of its own for each that another one has taken."""
    taken: set[str] = set()
    for tool in tools:
        while tool.identity in taken:
            tool = attrs.evolve(tool, own_name=f"{tool.own_name}+")
        taken.add(tool.identity)
        yield tool


def _parts(host: HostTool) -> tuple[object, ...]:
    """Equal for objects that read the same: hosts copy a tool at every step.

    Parts are told by identity; who keeps the key keeps the object, and so its parts.
    """
    if type(host) is not StructuredTool:
        return (id(host),)
    parts = (host.func, host.coroutine, host.args_schema, host.metadata, host.tags)
    return (host.name, host.description, *map(id, parts))


_KEPT: Final = 512


def keep(kept: dict[Any, Any], key: object, value: object) -> None:
    """Remembers a value, and forgets the oldest where there are many."""
    while len(kept) >= _KEPT:
        kept.pop(next(iter(kept)), None)
    kept[key] = value


def read_tool(host: HostTool) -> Tool:
    """The tool that an object of the host stands for.

    Raises:
        ToolsetError: It has no name, or is no tool at all.
    """
    if isinstance(host, dict):
        return _read_dictionary(host)
    metadata = host.metadata if isinstance(host.metadata, dict) else {}
    nested = metadata.get("_meta")
    function = getattr(host, "func", None) or getattr(host, "coroutine", None)
    if function is None:
        # A class of its own: the mark is on the method that runs.
        function = type(host)._run  # noqa: SLF001  (the host's protocol for tools as classes)
    return Tool(
        name=host.name,
        description=host.description,
        input_schema=_schema(host),
        annotations=_annotations(metadata),
        availability=declared_availability(
            function, metadata, nested if isinstance(nested, dict) else None
        ),
        tags=frozenset(host.tags or ()),
        meta=_json_part(metadata),
        source=host,
    )


def _read_dictionary(host: dict[str, Any]) -> Tool:
    """A dictionary in one of the providers' shapes; of an unknown shape, its type names it."""
    kind = host.get("type")
    function = host.get("function")
    inner = function if isinstance(function, dict) else host
    name = inner.get("name") or kind
    if not isinstance(name, str):
        raise ToolsetError("a dictionary among the tools has neither a name nor a type")
    declared = kind in (None, "function", "custom")
    own_name = name if declared else ":".join(
        str(part) for part in (kind, host.get("server_label"), host.get("name")) if part
    )  # fmt: skip
    metadata = host.get("metadata")
    schema = inner.get("parameters") or inner.get("input_schema")
    return Tool(
        name=name,
        own_name=own_name,
        provider=HOST if declared else MODEL,
        description=inner.get("description"),
        input_schema=_json_part(schema) if isinstance(schema, dict) else None,
        availability=declared_availability(
            None, host, metadata if isinstance(metadata, dict) else None
        ),
        source=host,
    )


def _schema(host: BaseTool) -> Mapping[str, Any] | None:
    schema = host.tool_call_schema
    if isinstance(schema, dict):
        return _json_part(schema)
    try:
        if issubclass(schema, BaseModel):
            return _json_part(schema.model_json_schema())
        return _json_part(schema.schema())
    except PydanticUserError:
        return None  # an argument's type has no JSON form: the host cannot send this tool either


_HINTS: Final[Mapping[str, str]] = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}


def _annotations(metadata: Mapping[str, Any]) -> Annotations:
    """The hints that adapters for MCP put beside other metadata."""
    hints: dict[str, Any] = {
        ours: metadata[theirs]
        for theirs, ours in _HINTS.items()
        if isinstance(metadata.get(theirs), bool)
    }
    return Annotations(**hints)


def _json_part(mapping: Mapping[str, Any]) -> FrozenDict:
    """What of a mapping is JSON; a host may keep any object in its metadata."""
    kept: dict[str, Any] = {}
    for key, value in mapping.items():
        try:
            freeze({key: value})
        except ValueError:
            continue
        kept[key] = value
    frozen: FrozenDict = freeze(kept)
    return frozen
