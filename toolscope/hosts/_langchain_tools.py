"""LangChain's tools as `Tool` values, read once per object of the host."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from threading import Lock
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
class _Read:
    """One object of the host, what was in it when it was read, and the tool that it stands for."""

    host: HostTool
    parts: dict[str, Any]
    tool: Tool

    def is_current(self, host: HostTool) -> bool:
        """Whether this object (that one, or a copy) reads the same."""
        if isinstance(host, dict):
            return host == self.parts
        # LangChain adds what it computes of an object to it: more than was there is no change.
        return self.parts.items() <= host.__dict__.items()


@attrs.frozen(eq=False)
class Snapshot:
    """One list of the host, its toolset, and which tool stands for which of the host's objects."""

    reads: tuple[_Read, ...]
    """Each object once."""
    toolset: Toolset

    def is_current(self) -> bool:
        """Whether all objects say what they said: LangChain's may be changed where they are.

        Looked at is where a tool says how it may be used. What else was changed is found when the
        tool is called, or when the list changes.
        """
        for read in self.reads:
            host, parts = read.host, read.parts
            if isinstance(host, dict):
                if not read.is_current(host):
                    return False
            elif host.metadata != parts.get("metadata") or host.tags != parts.get("tags"):
                return False
        return True

    @cached_property
    def tools(self) -> Mapping[int, tuple[_Read, Tool]]:
        """By ``id`` of the host's object. Made on first use: most lists are sent as they are."""
        pairs = zip(self.reads, self.toolset, strict=True)
        return {id(read.host): (read, tool) for read, tool in pairs}

    def tool_of(self, host: HostTool) -> Tool | None:
        """The tool that stands for this object of the host.

        None where it is not in the list, or does not read any more as it did then.
        """
        found = self.tools.get(id(host))
        return found[1] if found is not None and found[0].is_current(host) else None


class Snapshots:
    """The last snapshots, by the identity of the host's objects, so that nothing is read twice."""

    def __init__(self, point: EnforcementPoint) -> None:
        self._point = point
        self._reads: dict[int, _Read] = {}
        self._alike: dict[tuple[object, ...], _Read] = {}
        self._toolsets: dict[tuple[Tool, ...], Toolset] = {}
        self._snapshots: dict[tuple[int, ...], Snapshot] = {}

    def of(self, hosts: Sequence[HostTool], *, anew: bool = False) -> Snapshot:
        """The snapshot of these objects, in this order; ``anew`` looks at all that they are.

        A second tool of one name gets an own name of its own, so both stay in the toolset.

        Raises:
            ToolsetError: One of them cannot be read.
        """
        key = tuple(map(id, hosts))
        known = self._snapshots.get(key)
        if known is None or anew or not known.is_current():
            once = {id(host): host for host in hosts}
            reads = tuple([self._read(host) for host in once.values()])
            known = Snapshot(reads, self._toolset(tuple([read.tool for read in reads])))
            keep(self._snapshots, key, known)
        return known

    def _toolset(self, tools: tuple[Tool, ...]) -> Toolset:
        known = self._toolsets.get(tools)
        if known is None:
            known = self._point.toolset(_told_apart(tools))
            keep(self._toolsets, tools, known)
        return known

    def _read(self, host: HostTool) -> _Read:
        read = self._reads.get(id(host))
        if read is not None and read.is_current(host):
            return read
        # Hosts copy tools at every step: what was read of the original holds for its copies.
        key = _origin(host)
        alike = self._alike.get(key)
        if alike is not None and alike.is_current(host):
            read = _Read(host, alike.parts, alike.tool)
        else:
            read = _Read(host, _copy(_parts(host)), read_tool(host))
            keep(self._alike, key, read)
        keep(self._reads, id(host), read)
        return read


def _parts(host: HostTool) -> dict[str, Any]:
    """All that an object of the host consists of."""
    return host if isinstance(host, dict) else host.__dict__


def _copy(value: Any, depth: int = 0) -> Any:
    """A copy to compare with: what is changed in place is found out, down to some depth."""
    if isinstance(value, dict) and depth < _DEEPEST:
        return {key: _copy(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list) and depth < _DEEPEST:
        return [_copy(item, depth + 1) for item in value]
    return value


_DEEPEST: Final = 20
"""How deep the parts of an object are copied: it may hold itself."""


def _told_apart(tools: Iterable[Tool]) -> Iterator[Tool]:
    """These tools, with an own name of its own for each that another one has taken."""
    taken: set[str] = set()
    for tool in tools:
        while tool.identity in taken:
            tool = attrs.evolve(tool, own_name=f"{tool.own_name}+")
        taken.add(tool.identity)
        yield tool


def _origin(host: HostTool) -> tuple[object, ...]:
    """What an object of the host shares with its copies, and with no other object."""
    if type(host) is not StructuredTool:
        return (id(host),)
    return (host.name, id(host.func), id(host.coroutine), id(host.args_schema))


_KEPT: Final = 512
_lock: Final = Lock()


def keep(kept: dict[Any, Any], key: object, value: object) -> None:
    """Remembers a value, and forgets the oldest where there are many."""
    with _lock:
        while len(kept) >= _KEPT:
            del kept[next(iter(kept))]
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
