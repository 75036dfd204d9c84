"""The adapter for the MCP SDK (extra ``mcp``); ``docs/hosts/mcp.md``.

On the side of a server, `attach` wraps the two handlers of tools. On the side of a host,
`ScopedClient` is an ``mcp.Client`` that decides before a request leaves.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

import mcp_types
from mcp.server import MCPServer, Server
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver.tools import Tool as FunctionTool
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
)

from toolscope.hosts._marks import AVAILABILITY_KEY, declared_availability
from toolscope.hosts._mcp_client import ScopedClient
from toolscope.hosts._mcp_requests import (
    ORIGIN_HEADER,
    ServerPoint,
    annotations_of,
    as_sent,
    failed_result,
    hint_values,
    open_round,
    same_objects,
)
from toolscope.hosts._point import Policy, failed_decision
from toolscope.model import Availability, Scope, Tool, ToolCall, Toolset, thaw
from toolscope.scopes import inside
from toolscope.verdicts import Decision, Effect

__all__ = ["ORIGIN_HEADER", "ScopedClient", "attach", "coverage"]

_log = logging.getLogger("toolscope")

Request: TypeAlias = ServerRequestContext[Any, Any]
Handler: TypeAlias = Callable[[Request, Any], Awaitable[Any]]


def attach(
    server: "Server[Any] | MCPServer[Any]",
    policy: Policy,
    *,
    scope: Scope | None = None,
    trust_declared_origin: bool = False,
) -> None:
    """Protects all tools of a server. Call it when the server's tool handlers are registered.

    A server that was attached before gets the new policy.

    Args:
        server: An ``MCPServer``, or a low-level ``Server``.
        policy: The engine, a ledger over one, or a callable that returns the engine.
        scope: The scope of callers that claim nothing; an absent origin by default.
        trust_declared_origin: Whether a caller may claim a wider origin than that. ``tool`` always
            counts.

    Raises:
        ValueError: The server has no handlers for tools.
    """
    low_level = _low_level(server)
    handlers: dict[str, Handler] = {}
    parameters: dict[str, type[Any]] = {}
    for method in ("tools/list", "tools/call"):
        entry = low_level.get_request_handler(method)
        if entry is None:
            raise ValueError(
                f"the server {low_level.name!r} has no handler for '{method}'; register its tools "
                "first, then attach"
            )
        handler: Any = entry.handler
        attached = isinstance(handler, (_ListTools, _CallTool))
        handlers[method] = handler.inner if attached else handler
        parameters[method] = entry.params_type
    point = ServerPoint(policy, scope, trust_declared_origin=trust_declared_origin)
    tools = _ServerTools(server, handlers["tools/list"])
    low_level.add_request_handler(
        "tools/list",
        parameters["tools/list"],
        _ListTools(point, tools, handlers["tools/list"]),
    )
    low_level.add_request_handler(
        "tools/call",
        parameters["tools/call"],
        _CallTool(point, tools, handlers["tools/call"]),
    )


def coverage(server: "Server[Any] | MCPServer[Any] | ScopedClient") -> tuple[str, ...]:
    """What stays unprotected, one sentence each; empty where nothing does."""
    if isinstance(server, ScopedClient):
        return (_PAST_THE_CLIENT,)
    low_level = _low_level(server)
    found = []
    for method, wrapper in (("tools/list", _ListTools), ("tools/call", _CallTool)):
        entry = low_level.get_request_handler(method)
        if entry is None or not isinstance(entry.handler, wrapper):
            found.append(
                f"server {low_level.name!r}: the handler of '{method}' is not toolscope's; call "
                "attach(server, policy) after the tools are registered"
            )
    for one in low_level.middleware:
        kind = one if hasattr(one, "__qualname__") else type(one)
        if not kind.__module__.startswith("mcp."):
            found.append(
                f"server {low_level.name!r}: the middleware {kind.__qualname__} runs before "
                "toolscope: if it caches or answers by itself, it does so for all scopes"
            )
    return tuple(found)


_PAST_THE_CLIENT: Final = (
    "client: calls through client.session, and those of a ClientSessionGroup, are not decided; "
    "use the client's own methods"
)


def _low_level(server: "Server[Any] | MCPServer[Any]") -> Server[Any]:
    # MCPServer has no public name for the server whose handlers it registers.
    return server._lowlevel_server if isinstance(server, MCPServer) else server  # noqa: SLF001


# --------------------------------------------------------------------------------------------
# The host's tools
# --------------------------------------------------------------------------------------------

_Seen: TypeAlias = tuple[object, ...]
_NO_TOOLS: Final = Toolset()
_KEPT: Final = 1_024
_MOST_PAGES: Final = 1_000


class _ServerTools:
    """What is known of a server's tools: the toolset of each page, and of each tool alone."""

    def __init__(self, server: "Server[Any] | MCPServer[Any]", handler: Handler) -> None:
        self._handler = handler
        # MCPServer lists copies; its own objects, which hold the functions, have no public name.
        self._manager = server._tool_manager if isinstance(server, MCPServer) else None  # noqa: SLF001
        # A server's own `list_tools` may say more of a tool than the tool itself.
        self._lists_itself = (
            isinstance(server, MCPServer) and type(server).list_tools is not MCPServer.list_tools
        )
        self._toolsets: dict[tuple[str, str | None], tuple[list[_Seen], Toolset]] = {}

    def page(self, cursor: str | None, tools: list[mcp_types.Tool]) -> Toolset:
        """The toolset of one page, the last one where it is still the same."""
        return self._toolset(("page", cursor), [(self._own(tool), tool.meta) for tool in tools])

    async def alone(self, name: str, request: Request) -> Toolset:
        """The toolset of the one tool of this name; empty where there is none."""
        own: FunctionTool | mcp_types.Tool | None = None
        if self._manager is not None:
            own = self._manager.get_tool(name)
        if self._manager is not None and not self._lists_itself:
            listed = None if own is None else own.meta
        else:
            found = await self._listed(name, request)
            own, listed = own or found, None if found is None else found.meta
        return _NO_TOOLS if own is None else self._toolset(("tool", name), [(own, listed)])

    async def _listed(self, name: str, request: Request) -> mcp_types.Tool | None:
        """A low-level server knows its tools only by listing them, page by page."""
        request = replace(request, method="tools/list")
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            params = PaginatedRequestParams(cursor=cursor, _meta=request.meta)
            page = _result(await self._handler(request, params))
            for tool in page.tools:
                if tool.name == name:
                    return tool
            cursor = page.next_cursor
            if cursor is None:
                break
        return None

    def _own(self, tool: mcp_types.Tool) -> FunctionTool | mcp_types.Tool:
        own = None if self._manager is None else self._manager.get_tool(tool.name)
        return tool if own is None else own

    def _toolset(
        self,
        key: tuple[str, str | None],
        tools: list[tuple[FunctionTool | mcp_types.Tool, Mapping[str, Any] | None]],
    ) -> Toolset:
        seen = [_seen(tool, meta) for tool, meta in tools]
        last, toolset = self._toolsets.get(key, ([], _NO_TOOLS))
        if len(seen) != len(last) or not all(map(same_objects, seen, last)):
            toolset = toolset.renewed([_translated(tool, meta) for tool, meta in tools])
            if len(self._toolsets) >= _KEPT:
                self._toolsets.clear()
            self._toolsets[key] = (seen, toolset)
        return toolset


def _seen(tool: FunctionTool | mcp_types.Tool, listed: Mapping[str, Any] | None) -> _Seen:
    """What of a tool decides whether it is still the same: the objects it is made of."""
    meta, hints = tool.meta, tool.annotations
    schema = tool.parameters if isinstance(tool, FunctionTool) else tool.input_schema
    return (
        tool, tool.name, tool.title, tool.description, schema, tool.output_schema,
        hints, meta, meta and meta.get(AVAILABILITY_KEY),
        listed and listed.get(AVAILABILITY_KEY), *hint_values(hints),
    )  # fmt: skip


def _translated(tool: FunctionTool | mcp_types.Tool, listed: Mapping[str, Any] | None) -> Tool:
    schema = tool.parameters if isinstance(tool, FunctionTool) else tool.input_schema
    return Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=as_sent(schema),
        output_schema=as_sent(tool.output_schema),
        annotations=annotations_of(tool.annotations),
        availability=declared_availability(getattr(tool, "fn", None), tool.meta, listed),
        meta=tool.meta,
        source=tool,
    )


def _published(tool: mcp_types.Tool, availability: Availability | str) -> mcp_types.Tool:
    """The tool with its availability in its ``_meta``: a mark on its function stays in here."""
    if (
        availability == Availability.SESSION
        or (tool.meta or {}).get(AVAILABILITY_KEY) == availability
    ):
        return tool
    return tool.model_copy(update={"meta": {**(tool.meta or {}), AVAILABILITY_KEY: availability}})


def _result(result: Any) -> ListToolsResult:
    """A handler may answer with the wire's dict."""
    if isinstance(result, ListToolsResult):
        return result
    return ListToolsResult.model_validate(result)


# --------------------------------------------------------------------------------------------
# The two handlers
# --------------------------------------------------------------------------------------------


class _ListTools:
    """``tools/list``: the tools that may be shown, never to be served to another scope."""

    def __init__(self, point: ServerPoint, tools: _ServerTools, inner: Handler) -> None:
        self._point = point
        self._tools = tools
        self.inner = inner

    async def __call__(self, request: Request, params: Any) -> ListToolsResult:
        result = _result(await self.inner(request, params))
        try:
            scope = self._point.scope_of(request.meta, request.session, request.request)
            toolset = self._tools.page(params and params.cursor, result.tools)
            listing = self._point.filter_tools(toolset, scope)
            places = toolset.positions
            shown = [_published(result.tools[places[tool]], tool.availability) for tool in listing]
        except Exception:  # noqa: BLE001  (the edge to the host: an error of ours shows nothing)
            _log.exception("toolscope failed to filter a tool list; it is sent empty")
            shown = []
        # What is set explicitly wins over the server's cache hints.
        update = {"tools": shown, "ttl_ms": 0, "cache_scope": "private"}
        return result.model_copy(update=update)


class _CallTool:
    """``tools/call``: runs an allowed call with the arguments that were decided."""

    def __init__(self, point: ServerPoint, tools: _ServerTools, inner: Handler) -> None:
        self._point = point
        self._tools = tools
        self.inner = inner

    async def __call__(self, request: Request, params: CallToolRequestParams) -> Any:
        answered = False
        update: dict[str, Any] = {}
        try:
            decision, answered = await self._decided(request, params)
            if isinstance(decision, InputRequiredResult):
                return decision
            update["arguments"] = thaw(decision.call.arguments)
        except Exception:  # noqa: BLE001  (the edge to the host: nothing was permitted)
            _log.exception("toolscope failed to decide a call; it is denied")
            decision = failed_decision(ToolCall(name=params.name), Scope())
        if decision.effect is not Effect.ALLOW:
            return failed_result(decision)
        if answered:  # a tool that asks itself must not take it for an answer to its own question
            update |= {"request_state": None, "input_responses": None}
            ours = ("requestState", "inputResponses")
            raw = {key: value for key, value in (request.params or {}).items() if key not in ours}
            request = replace(request, params=raw)
        params = params.model_copy(update=update)
        failed = True
        try:
            with inside(decision.scope):
                result = await self.inner(request, params)
            failed = isinstance(result, CallToolResult) and bool(result.is_error)
        finally:
            self._point.completed(decision.call, failed=failed)
        return result

    async def _decided(
        self, request: Request, params: CallToolRequestParams
    ) -> tuple[Decision | InputRequiredResult, bool]:
        """The decision, and whether the request is the answer to a question of toolscope's own."""
        session = request.session
        scope = self._point.scope_of(request.meta, session, request.request)
        this = open_round(
            params.name,
            params.arguments,
            session,
            params.request_state,
            params.input_responses,
            scope.can_ask,
        )

        async def again() -> Toolset:
            return await self._tools.alone(params.name, request)

        decision = await self._point.decide(
            this, await again(), again, scope, session, request.request_id
        )
        return decision, this.answer is not None
