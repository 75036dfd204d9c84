"""The adapter for servers written with FastMCP (extra ``fastmcp``); ``docs/hosts/fastmcp.md``.

::

    mcp = FastMCP("kb")
    attach(mcp, PolicyEngine.load())

One middleware filters the list and decides each call. Every tool of the server, mounted and proxied
ones too, is the host's own here: provider ``host``, named as the server lists it.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final, TypeAlias

import mcp_types
from fastmcp import FastMCP
from fastmcp.server.dependencies import (
    FastMCPRequestContext,
    bind_request_context,
    fastmcp_request_ctx,
)
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.server.middleware.caching import ResponseCachingMiddleware
from fastmcp.server.middleware.tool_injection import ToolInjectionMiddleware
from fastmcp.server.providers.addressing import parse_hashed_backend_name
from fastmcp.server.providers.fastmcp_provider import FastMCPProviderTool
from fastmcp.server.providers.proxy import ProxyTool
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from fastmcp.tools.base import Tool as HostTool
from fastmcp.utilities.versions import VersionSpec, version_sort_key
from mcp_types import InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolscope.hosts._marks import AVAILABILITY_KEY, declared_availability
from toolscope.hosts._mcp_requests import (
    CODE_KEY,
    ORIGIN_HEADER,
    ServerPoint,
    annotations_of,
    as_sent,
    failure_of,
    hint_values,
    open_round,
    same_objects,
    uncached,
)
from toolscope.hosts._point import Policy, failed_decision
from toolscope.model import (
    Availability,
    Scope,
    Tool,
    ToolCall,
    Toolset,
    narrower_availability,
    thaw,
)
from toolscope.scopes import inside
from toolscope.verdicts import Decision, Effect

__all__ = ["ORIGIN_HEADER", "ToolscopeMiddleware", "attach", "coverage"]

_log = logging.getLogger("toolscope")

Server: TypeAlias = FastMCP[Any]


def attach(
    server: Server,
    policy: Policy,
    *,
    scope: Scope | None = None,
    trust_declared_origin: bool = False,
) -> None:
    """Protects all tools of a server, those of mounted and proxied servers too.

    The middleware comes first, and tool lists are marked as not to be cached. A server that was
    attached before gets the new policy.

    Args:
        server: The outermost server, the one that clients connect to.
        policy: The engine, a ledger over one, or a callable that returns the engine.
        scope: The scope of callers that claim nothing; an absent origin by default.
        trust_declared_origin: Whether a caller may claim a wider origin than that. ``tool`` always
            counts.
    """
    middleware = ToolscopeMiddleware(
        policy, scope=scope, trust_declared_origin=trust_declared_origin
    )
    others = [one for one in server.middleware if not isinstance(one, ToolscopeMiddleware)]
    server.middleware[:] = [middleware, *others]
    # The low-level server has no public name; only its list handler can say "do not cache".
    uncached(server._mcp_server)  # noqa: SLF001


def coverage(server: Server) -> tuple[str, ...]:
    """What stays unprotected on this server, one sentence each; empty where nothing does."""
    places = [i for i, one in enumerate(server.middleware) if isinstance(one, ToolscopeMiddleware)]
    if not places:
        return (f"server {server.name!r}: toolscope is not attached; call attach(server, policy)",)
    found = []
    for one in server.middleware[: places[0]]:
        name = type(one).__name__
        if isinstance(one, ResponseCachingMiddleware):
            found.append(
                f"server {server.name!r}: {name} runs before toolscope and hands lists and results "
                "of one scope to another; put toolscope first"
            )
        elif _answers_for_tools(type(one)):
            found.append(
                f"server {server.name!r}: {name} runs before toolscope and may answer in its "
                "place; put toolscope first"
            )
    low_level = server._mcp_server  # noqa: SLF001  (as in attach)
    if "tools/list" in low_level.cache_hints and not uncached(low_level, only_look=True):
        found.append(
            f"server {server.name!r}: cache_ttl lets clients show one scope's tool list in another "
            "scope; use attach(), or leave cache_ttl out"
        )
    return tuple(found)


def _answers_for_tools(middleware: type[Middleware]) -> bool:
    hooks = ("__call__", "on_message", "on_request", "on_list_tools", "on_call_tool")
    own = not middleware.__module__.startswith("fastmcp.")
    return own and any(getattr(middleware, hook) is not getattr(Middleware, hook) for hook in hooks)


_Seen: TypeAlias = tuple[object, ...]
_running: ContextVar[tuple["ToolscopeMiddleware", ...]] = ContextVar(
    "toolscope_fastmcp_running", default=()
)
"""The middlewares inside whose allowed calls this code runs: a tool may call the server again."""


class ToolscopeMiddleware(Middleware):
    """Filters ``tools/list`` and decides ``tools/call``. Put it first; `attach` does.

    The arguments are those of `attach`.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        scope: Scope | None = None,
        trust_declared_origin: bool = False,
    ) -> None:
        self.point = ServerPoint(policy, scope, trust_declared_origin=trust_declared_origin)
        self._listed: tuple[list[_Seen], Toolset] = ([], Toolset())
        self._single: dict[str, tuple[_Seen, Toolset]] = {}
        self._told: set[str] = set()

    async def on_list_tools(
        self,
        context: MiddlewareContext[mcp_types.ListToolsRequest],
        call_next: CallNext[mcp_types.ListToolsRequest, Sequence[HostTool]],
    ) -> Sequence[HostTool]:
        """The tools that may be shown in the caller's scope, in the server's order."""
        tools = await call_next(context)
        try:
            host = context.fastmcp_context
            request = None if host is None else host.request_context
            return await self._shown(tools, self._scope(request))
        except Exception:  # noqa: BLE001  (the edge to the host: an error of ours shows nothing)
            _log.exception("toolscope failed to filter a tool list; it is sent empty")
            return []

    async def on_call_tool(
        self,
        context: MiddlewareContext[mcp_types.CallToolRequestParams],
        call_next: CallNext[mcp_types.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        """Runs an allowed call with exactly the arguments that were decided; fails a denied one."""
        answered, arguments = False, {}
        try:
            decision, answered = await self._decided(context)
            if isinstance(decision, InputRequiredResult):
                return InputRequiredToolResult(decision)
            arguments = thaw(decision.call.arguments)
        except Exception:  # noqa: BLE001  (as above: nothing was permitted)
            _log.exception("toolscope failed to decide a call; it is denied")
            decision = failed_decision(ToolCall(name=context.message.name), Scope())
        if decision.effect is not Effect.ALLOW:
            failure = failure_of(decision)
            meta = {CODE_KEY: str(failure.code)}
            return ToolResult(content=failure.message, is_error=True, meta=meta)
        message = context.message  # made for this one call, and cheaper to fill than to copy
        message.arguments = arguments
        if answered:
            message.request_state = message.input_responses = None
        before, failed = _running.get(), True
        _running.set((*before, self))
        try:
            with inside(decision.scope):
                if answered:
                    with _first_round():
                        result = await call_next(context)
                else:
                    result = await call_next(context)
            failed = getattr(result, "is_error", False)
        finally:
            _running.set(before)
            self.point.completed(decision.call, failed=failed)
        return result

    def _scope(self, request: FastMCPRequestContext | None) -> Scope:
        if request is None:
            return self.point.scope_of(None, None, None)
        return self.point.scope_of(request.meta, request.session, request.request)

    async def _shown(self, tools: Sequence[HostTool], scope: Scope) -> Sequence[HostTool]:
        """The tools of the names that may be shown.

        Of each name one tool is asked about, the one that the server lists and runs (its highest
        version). Where that is withheld, its other versions are not shown in its place.
        """
        by_name = {tool.name: tool for tool in tools}
        if len(by_name) != len(tools):
            by_name = {}
            for tool in tools:
                other = by_name.get(tool.name)
                if other is not None and tool.version == other.version:
                    self._tell_of_shared(tool.name)
                if other is None or version_sort_key(tool) > version_sort_key(other):
                    by_name[tool.name] = tool
        asked = list(by_name.values())
        seen = [_seen(tool) for tool in asked]
        last, toolset = self._listed
        if len(seen) != len(last) or not all(map(same_objects, seen, last)):
            toolset = toolset.renewed([await _translated(tool) for tool in asked])
            self._listed = (seen, toolset)
        listing = self.point.filter_tools(toolset, scope)
        shown = {tool.name: tool.availability for tool in listing}
        return [_published(tool, shown[tool.name]) for tool in tools if tool.name in shown]

    def _tell_of_shared(self, name: str) -> None:
        """Says once that two providers share a name, which the host settles in silence."""
        if name not in self._told and len(self._told) < _TOLD_KEPT:
            self._told.add(name)
            _log.warning(
                "two providers of this server offer a tool %r; the first one's is listed and run, "
                "so mount them with namespaces",
                name,
            )

    async def _decided(
        self, context: MiddlewareContext[mcp_types.CallToolRequestParams]
    ) -> tuple[Decision | InputRequiredResult, bool]:
        """The decision, and whether the request is the answer to a question of toolscope's own."""
        message, host = context.message, context.fastmcp_context
        if host is None:
            raise RuntimeError("the call has no FastMCP context, so its tool cannot be looked up")
        request = host.request_context
        session = None if request is None else request.session
        scope = self._scope(request)
        version = _version(message.meta)

        async def look_up() -> tuple[str, Toolset]:
            found = await _find(host.fastmcp, message.name, version)
            if found is None or (version is not None and _is_picked_elsewhere(found)):
                return message.name, _NO_TOOLS
            return found.name, await self._alone(found)

        name, toolset = await look_up()
        this = open_round(
            name,
            message.arguments,
            session,
            message.request_state,
            message.input_responses,
            scope.can_ask,
        )
        if request is not None and request.protocol_version in MODERN_PROTOCOL_VERSIONS:
            # Questions are results there, and a tool that calls the server cannot hand one on.
            this = this.within() if self in _running.get() else this
        request_id = None if request is None else request.request_id

        async def again() -> Toolset:
            return (await look_up())[1]

        decision = await self.point.decide(this, toolset, again, scope, session, request_id)
        return decision, this.answer is not None

    async def _alone(self, tool: HostTool) -> Toolset:
        """A toolset of this one tool, the last one where it is still the same."""
        seen = _seen(tool)
        last, toolset = self._single.get(tool.name, ((), _NO_TOOLS))
        if not same_objects(last, seen):
            toolset = toolset.renewed([await _translated(tool)])
            if len(self._single) >= _SINGLE_KEPT:
                self._single.clear()
            self._single[tool.name] = (seen, toolset)
        return toolset


_NO_TOOLS: Final = Toolset()
_SINGLE_KEPT: Final = 1_024
_TOLD_KEPT: Final = 1_024
_DEEPEST_MOUNT: Final = 20

# --------------------------------------------------------------------------------------------
# The host's tools
# --------------------------------------------------------------------------------------------


def _seen(tool: HostTool) -> _Seen:
    """What of a tool decides whether it is still the same: the objects it is made of."""
    meta, hints = tool.meta, tool.annotations
    return (
        tool, tool.name, tool.title, tool.description, tool.parameters, tool.output_schema,
        hints, tool.tags, meta, meta and meta.get(AVAILABILITY_KEY), *hint_values(hints),
    )  # fmt: skip


async def _translated(tool: HostTool) -> Tool:
    return Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=as_sent(tool.parameters),
        output_schema=as_sent(tool.output_schema),
        annotations=annotations_of(tool.annotations),
        availability=await _availability(tool),
        tags=tool.tags,
        meta=tool.meta,
        source=tool,
    )


def _published(tool: HostTool, availability: Availability | str) -> HostTool:
    """The tool with its availability in its ``_meta``: a mark on its function stays in here."""
    if (
        availability == Availability.SESSION
        or (tool.meta or {}).get(AVAILABILITY_KEY) == availability
    ):
        return tool
    return tool.model_copy(update={"meta": {**(tool.meta or {}), AVAILABILITY_KEY: availability}})


async def _availability(tool: HostTool | None) -> Availability | str:
    """The narrowest declared on the tool, on those it was made from, and on the mounted one."""
    found: Availability | str = Availability.SESSION
    for _ in range(_DEEPEST_MOUNT):
        if tool is None:
            return found
        declared = declared_availability(getattr(tool, "fn", None), tool.meta)
        found = narrower_availability(found, declared)
        if isinstance(tool, FastMCPProviderTool):
            # A mount keeps a tool's meta but not its function, where its mark may be.
            mounted, name = tool._server, tool._original_name  # noqa: SLF001  (no public name)
            version = VersionSpec(eq=tool.version) if tool.version else None
            tool = await _find(mounted, name or tool.name, version)
        else:
            tool = getattr(tool, "parent_tool", None)
    return Availability.USER_CHATS


async def _find(server: Server, name: str, version: VersionSpec | None) -> HostTool | None:
    """The tool that the server would run for this name; None where there is none."""
    local = server.local_provider
    if version is None and server.providers == [local] and not server.transforms:
        # The server's own look-up, without what a server of plain functions does not need.
        tool = await local.get_tool(name)
        if tool is not None and tool.version is None and not _injects(server):
            return tool
    tool = await server.get_tool(name, version)
    if tool is None and (hashed := parse_hashed_backend_name(name)) is not None:
        tool = await server.get_tool_by_hash(*hashed)
    return tool


def _is_picked_elsewhere(found: HostTool) -> bool:
    """Whether another server picks among this tool's versions.

    A proxy hands the version that a caller names on, and its own tools have none: what would run is
    not the tool that it lists.
    """
    if found.version is None:
        return True
    tool: HostTool | None = found
    for _ in range(_DEEPEST_MOUNT):
        if tool is None:
            return False
        if isinstance(tool, ProxyTool):
            return True
        tool = getattr(tool, "parent_tool", None)
    return True


def _injects(server: Server) -> bool:
    for one in server.middleware:  # noqa: SIM110  (a generator takes longer, on every call's way)
        if isinstance(one, ToolInjectionMiddleware):
            return True
    return False


@contextmanager
def _first_round() -> Iterator[None]:
    """Hides the answer to toolscope's question: a tool that asks itself, and the server behind a
    proxy, take what a request answers for an answer to them.
    """  # noqa: D205
    request = fastmcp_request_ctx.get()
    if request is None:
        yield
        return
    host = request._srctx  # noqa: SLF001  (what FastMCP itself reads the answers from)
    ours = ("requestState", "inputResponses")
    params = {key: value for key, value in (host.params or {}).items() if key not in ours}
    with bind_request_context(replace(host, params=params)):
        yield


def _version(meta: Any) -> VersionSpec | None:
    """The version that a call asks for; FastMCP puts it into the message as it understood it."""
    version = (meta or {}).get("fastmcp", {}).get("version")
    if isinstance(version, str):
        return VersionSpec(eq=version)
    if isinstance(version, dict):
        return VersionSpec(**version)
    return None
