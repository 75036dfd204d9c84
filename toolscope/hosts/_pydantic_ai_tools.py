"""Reads Pydantic AI's tools: their definitions, the marks of their functions, native tools."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.toolsets import AbstractToolset, PrefixedToolset, RenamedToolset
from pydantic_ai.toolsets.abstract import ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from toolscope.hosts._marks import declared_availability
from toolscope.model import HOST, MODEL, Annotations, Provider, Tool, Toolset, freeze

__all__ = ["STAND_IN", "Snapshot", "add_stand_ins", "native_tool", "read_definition"]

_NO_METADATA: Final[Mapping[str, Any]] = {}


class _Row:
    """The parts of one definition that a rule can see, as they were when its `Tool` was made."""

    __slots__ = (
        "description", "function", "mcp", "metadata", "name", "owner", "schema", "toolset_id",
    )  # fmt: skip

    def __init__(self, tool: ToolsetTool[Any]) -> None:
        definition = tool.tool_def
        self.name = definition.name
        self.description = definition.description
        self.schema = definition.parameters_json_schema
        self.toolset_id = definition.toolset_id
        # A copy: whoever changes the host's mapping in place is found out.
        self.metadata = None if definition.metadata is None else dict(definition.metadata)
        self.mcp = _is_mcp(definition)
        self.function = None if self.mcp else _function_of(tool)
        self.owner = _owner_of(tool)


@attrs.frozen
class Snapshot:
    """A tool list as the host gave it, with its toolset: the same list again is not read again."""

    rows: tuple[_Row, ...]
    toolset: Toolset

    @classmethod
    def of(
        cls, tools: Sequence[ToolsetTool[Any]], toolset: Callable[[list[Tool]], Toolset]
    ) -> "Snapshot":
        """Reads the host's tools; ``toolset`` makes (or renews) the toolset of what was read."""
        rows = tuple(_Row(tool) for tool in tools)
        read: list[Tool] = []
        seen: dict[str, int] = {}
        for tool in tools:
            one = _read(tool)
            seen[one.identity] = seen.get(one.identity, 0) + 1
            if seen[one.identity] > 1:  # one MCP server, given to the agent under two prefixes
                one = attrs.evolve(one, own_name=f"{one.own_name}#{seen[one.identity]}")
            read.append(one)
        return cls(rows, toolset(read))

    def describes(self, tools: Sequence[ToolsetTool[Any]]) -> bool:
        """Whether no rule could tell these tools from those of the snapshot."""
        rows = self.rows
        if len(tools) != len(rows):
            return False
        for row, tool in zip(rows, tools, strict=True):
            definition = tool.tool_def
            schema = definition.parameters_json_schema
            # Function tools hand out one schema object; another one may be another function's, with
            # another mark. An MCP server's schemas are read anew for every list.
            if (
                definition.name != row.name
                or (schema is not row.schema and not (row.mcp and schema == row.schema))
                or definition.description != row.description
                or definition.metadata != row.metadata
                or definition.toolset_id != row.toolset_id
                or not (
                    row.mcp or _owner_of(tool) is row.owner or _function_of(tool) is row.function
                )
            ):
                return False
        return True


def _read(tool: Any) -> Tool:
    definition = tool.tool_def
    if not _is_mcp(definition):
        return read_definition(definition, _function_of(tool))
    server, own_name = _origin_of(tool)
    return read_definition(definition, server=server, own_name=own_name)


def _origin_of(tool: Any) -> tuple[str | None, str]:
    """The id of the toolset that a tool comes from, and the name it has there."""
    while (source := getattr(tool, "source_tool", None)) is not None:
        tool = source
    name, toolset = tool.tool_def.name, tool.toolset
    while (wrapped := getattr(toolset, "wrapped", None)) is not None:
        if isinstance(toolset, PrefixedToolset):
            name = name.removeprefix(f"{toolset.prefix}_")
        elif isinstance(toolset, RenamedToolset):
            name = toolset.name_map.get(name, name)
        toolset = wrapped
    return toolset.id, name


def read_definition(
    definition: ToolDefinition,
    function: object = None,
    *,
    server: str | None = None,
    own_name: str = "",
) -> Tool:
    """The tool of a definition; an MCP server's is that server's, named by its toolset's id."""
    metadata = definition.metadata or _NO_METADATA
    inner = metadata.get("meta")
    if not isinstance(inner, Mapping):
        inner = None
    provider, annotations, meta = HOST, Annotations(), metadata
    if _is_mcp(definition):
        provider = Provider.mcp(server or definition.toolset_id or "unnamed")
        annotations = _annotations(metadata["annotations"])
        meta = inner or _NO_METADATA
    return Tool(
        name=definition.name,
        own_name=own_name,
        provider=provider,
        description=definition.description,
        input_schema=definition.parameters_json_schema,
        annotations=annotations,
        title=annotations.title,
        availability=declared_availability(function, metadata, inner),
        meta=_json_only(meta),
    )


def native_tool(tool: AbstractNativeTool) -> Tool:
    """The tool that the model's vendor runs: of the provider ``model``, withheld or not at all."""
    return Tool(name=tool.kind, own_name=tool.unique_id, provider=MODEL, source=tool)


def _is_mcp(definition: ToolDefinition) -> bool:
    metadata = definition.metadata
    return metadata is not None and metadata.keys() >= {"meta", "annotations", "task"}


def _annotations(given: object) -> Annotations:
    if not isinstance(given, Mapping):
        return Annotations()
    hints = {
        ours: given[theirs]
        for ours, theirs in (
            ("read_only", "readOnlyHint"),
            ("destructive", "destructiveHint"),
            ("idempotent", "idempotentHint"),
            ("open_world", "openWorldHint"),
        )
        if isinstance(given.get(theirs), bool)
    }
    title = given.get("title")
    return Annotations(title=title if isinstance(title, str) else None, **hints)


def _json_only(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The members that are JSON: the host's metadata may hold any object, and rules see JSON."""
    kept = {}
    for key, value in metadata.items():
        try:
            kept[key] = freeze(value)
        except (TypeError, ValueError, RecursionError):
            continue
    return {key: value for key, value in kept.items() if isinstance(key, str)} or None


def _owner_of(tool: Any) -> object:
    """What a function tool's call belongs to: the same one has the same function."""
    return getattr(getattr(tool, "call_func", None), "__self__", tool)


def _function_of(tool: Any) -> object:
    """The Python function behind a tool of any combination of toolsets, or None."""
    while (source := getattr(tool, "source_tool", None)) is not None:
        tool = source
    call = getattr(tool, "call_func", None)
    return getattr(getattr(call, "__self__", None), "function", call)


STAND_IN: Final[dict[str, Any]] = {"toolscope": "stands in for a tool that is not offered"}
_ANY_ARGUMENTS: Final = SchemaValidator(core_schema.any_schema())


class _Nothing(AbstractToolset[Any]):
    """The toolset of the stand-ins, which never run."""

    @property
    def id(self) -> str:
        return "toolscope"

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        raise ToolFailed(f"'{name}' stands in for a tool and does not run.")


_NOTHING: Final = _Nothing()


def add_stand_ins(tools: dict[str, ToolsetTool[Any]], response: ModelResponse) -> None:
    """Adds a tool that never runs for every call of a name that is not in ``tools``."""
    for part in response.parts:
        if isinstance(part, ToolCallPart) and part.tool_name not in tools:
            tools[part.tool_name] = ToolsetTool(
                toolset=_NOTHING,
                tool_def=ToolDefinition(name=part.tool_name, metadata=STAND_IN),
                max_retries=1,
                args_validator=_ANY_ARGUMENTS,
            )
