"""Reads the tools of the OpenAI Agents SDK: function tools, those of MCP servers, hosted tools."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
from agents import FunctionTool
from agents.tool import (
    CodeInterpreterTool,
    FileSearchTool,
    HostedMCPTool,
    ImageGenerationTool,
    ToolSearchTool,
    WebSearchTool,
)

from toolscope.hosts._marks import AVAILABILITY_KEY, declared_availability
from toolscope.model import HOST, MODEL, Annotations, Availability, Provider, Tool

__all__ = ["Snapshot", "read_tools", "runs_at_vendor"]

_VENDOR: Final = (
    CodeInterpreterTool,
    FileSearchTool,
    HostedMCPTool,
    ImageGenerationTool,
    ToolSearchTool,
    WebSearchTool,
)


def runs_at_vendor(tool: object) -> bool:
    """Whether the model's vendor executes the tool: it can be withheld, and no call decided."""
    return isinstance(tool, _VENDOR)


@attrs.frozen
class Snapshot:
    """A tool list as the host gave it: the same objects, unchanged, are not read again."""

    rows: tuple[tuple[Any, str, str | None, Any], ...]

    @classmethod
    def of(cls, tools: Sequence[Any]) -> "Snapshot":
        """Keeps the tools, and the parts of them that may be assigned anew."""
        return cls(tuple(_row(tool) for tool in tools))

    def describes(self, tools: Sequence[Any]) -> bool:
        """Whether these are the same tools."""
        rows = self.rows
        if len(tools) != len(rows):
            return False
        for tool, (known, name, description, schema) in zip(tools, rows, strict=True):
            if (
                tool is not known
                or tool.name != name
                or getattr(tool, "description", None) is not description
                or getattr(tool, "params_json_schema", None) is not schema
            ):
                return False
        return True


def _row(tool: Any) -> tuple[Any, str, str | None, Any]:
    description = getattr(tool, "description", None)
    return tool, tool.name, description, getattr(tool, "params_json_schema", None)


def read_tools(tools: Sequence[Any]) -> list[Tool]:
    """The tools in the host's order; what bears one name twice is told apart by its place."""
    read: list[Tool] = []
    seen: dict[tuple[Provider, str], int] = {}
    for tool in tools:
        one = _read(tool)
        key = (one.provider, one.own_name)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] > 1:
            one = attrs.evolve(one, own_name=f"{one.own_name}#{seen[key]}")
        read.append(one)
    return read


def _read(tool: Any) -> Tool:
    if not isinstance(tool, FunctionTool):
        provider = MODEL if runs_at_vendor(tool) else HOST
        return Tool(name=tool.name, provider=provider, source=tool)
    binding = tool._mcp_tool_binding  # noqa: SLF001  (the host offers no other way to the server)
    provider, own_name, meta = HOST, tool.qualified_name, None
    availability = declared_availability(function_of(tool))
    annotations = Annotations()
    if binding is not None:
        server, own_name, position = binding
        provider = Provider.mcp(server or f"server {position}")
        meta = _meta_of(tool)
        availability = declared_availability(None, meta)
        annotations = _annotations(tool.mcp_annotations)
    return Tool(
        name=tool.qualified_name,
        own_name=own_name,
        provider=provider,
        title=annotations.title,
        description=tool.description,
        input_schema=tool.params_json_schema,
        annotations=annotations,
        availability=availability,
        meta=meta,
        source=tool,
    )


def function_of(tool: FunctionTool) -> object:
    """The Python function of a tool that `function_tool` made, None where there is none."""
    found = getattr(tool.on_invoke_tool, "function", None)  # of a tool that is guarded already
    return found if found is not None else getattr(tool, "__wrapped__", None)


_UNREADABLE: Final[Mapping[str, Any]] = {AVAILABILITY_KEY: Availability.USER_CHATS}
"""Stands for a ``_meta`` that a version of the host keeps elsewhere: not readable, so narrow."""


def _meta_of(tool: FunctionTool) -> Mapping[str, Any] | None:
    """The ``_meta`` of an MCP server's tool, which the host keeps in the tool's invoker only."""
    invoker = getattr(tool.on_invoke_tool, "inner", tool.on_invoke_tool)
    impl = getattr(invoker, "_invoke_tool_impl", None)
    if isinstance(impl, functools.partial):
        for given in impl.args:
            if hasattr(given, "input_schema") or hasattr(given, "inputSchema"):
                meta = given.meta
                return meta if isinstance(meta, Mapping) else None
    return _UNREADABLE


def _annotations(given: Any) -> Annotations:
    if given is None:
        return Annotations()
    hints = {}
    for name in ("read_only", "destructive", "idempotent", "open_world"):
        head, *rest = f"{name}_hint".split("_")
        camel = head + "".join(part.title() for part in rest)
        value = getattr(given, f"{name}_hint", getattr(given, camel, None))
        if isinstance(value, bool):
            hints[name] = value
    return Annotations(title=given.title if isinstance(given.title, str) else None, **hints)
