"""The side of a host that owns the connection to an MCP server: decide before a request leaves."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, Final, Self

import attrs
import mcp_types
from mcp import Client, MCPError
from mcp_types import (
    INTERNAL_ERROR,
    CallToolResult,
    InputResponses,
    ListToolsResult,
    RequestParamsMeta,
)
from pydantic_core import to_json

from toolscope.hosts._marks import declared_availability
from toolscope.hosts._mcp_requests import annotations_of, failed_result
from toolscope.hosts._point import EnforcementPoint, Policy, failed_decision
from toolscope.model import Provider, Scope, Tool, ToolCall, Toolset, narrower_origin, thaw
from toolscope.scopes import current, for_run, inside
from toolscope.verdicts import Decision, Effect

__all__ = ["ScopedClient"]

_sending: ContextVar[Decision | None] = ContextVar("toolscope_mcp_sending", default=None)
"""The decision on the call that is being sent in this context."""

_log = logging.getLogger("toolscope")
_MOST_PAGES: Final = 1_000
_NO_TOOLS: Final = Toolset()


@dataclass
class ScopedClient(Client):
    """An ``mcp.Client`` for one chat: its lists are filtered, and its calls are decided.

    A client that is opened inside a tool of another chat belongs to a worker: its origin is
    ``tool`` whatever ``scope`` declares.

    Attributes:
        policy: The engine, a ledger over one, or a callable that returns the engine.
        server_id: The server's id: its tools are of the provider ``mcp:ID``.
        scope: Where the tools are used.
        on_ask: Puts an ask to a person and says whether they allow it; None: nobody can be asked.
    """

    policy: Policy = field(kw_only=True)
    server_id: str = field(kw_only=True)
    scope: Scope = field(default_factory=Scope, kw_only=True)
    on_ask: Callable[[Decision], Awaitable[bool]] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._point = EnforcementPoint(self.policy)
        self._provider = Provider.mcp(self.server_id)
        self._chat = token_hex(16)
        self._outer: Scope | None = None
        self._run = self.scope
        self._pages: dict[str | None, tuple[bytes, Toolset]] = {}

    async def __aenter__(self) -> Self:
        """Connects. The scope of the run is settled here."""
        self._outer = current()
        self._run = for_run(attrs.evolve(self.scope, can_ask=self.on_ask is not None))
        await super().__aenter__()
        return self

    def _scope(self) -> Scope:
        """The scope of the run, narrowed where a tool of another chat is using the client."""
        here = current()
        if here is None or here is self._outer or here == self._run:
            return self._run
        return attrs.evolve(
            self._run,
            origin=narrower_origin(self._run.origin, here.origin),
            ancestry=self._run.ancestry or here.ancestry,
            can_ask=self._run.can_ask and here.can_ask,
        )

    async def list_tools(
        self,
        *,
        cursor: str | None = None,
        meta: RequestParamsMeta | None = None,
        cache_mode: Any = "use",
    ) -> ListToolsResult:
        """One page of the tools that may be shown, in the server's order."""
        result = await super().list_tools(cursor=cursor, meta=meta, cache_mode=cache_mode)
        try:
            toolset = self._page(cursor, result.tools)
            listing = self._point.filter_tools(toolset, self._scope())
            places = toolset.positions
            shown = [result.tools[places[tool]] for tool in listing]
        except Exception:  # noqa: BLE001  (the edge to the host: an error of ours shows nothing)
            _log.exception("toolscope failed to filter a tool list; it is empty")
            shown = []
        return result.model_copy(update={"tools": shown})

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        read_timeout_seconds: float | None = None,
        progress_callback: Any = None,
        *,
        input_responses: InputResponses | None = None,
        request_state: str | None = None,
        meta: RequestParamsMeta | None = None,
    ) -> CallToolResult:
        """Sends an allowed call; a denied one ends here, with a failed result."""
        call = ToolCall(
            id=None if self.on_ask is None else token_hex(16),  # only asks are waited for
            name=name,
            provider=self._provider,
            arguments=arguments or {},
            chat=self._chat,
        )
        try:
            tools = _NO_TOOLS if _picks_version(meta) else await self._all(call.name)
            decision = await self._decided(call, tools)
        except Exception:  # noqa: BLE001  (as above: nothing was permitted)
            _log.exception("toolscope failed to decide a call; it is denied")
            decision = failed_decision(call, self._run)
        if decision.effect is not Effect.ALLOW:
            return failed_result(decision)
        failed = True
        sending = _sending.set(decision)
        try:
            with inside(decision.scope):
                result = await super().call_tool(
                    name,
                    thaw(decision.call.arguments),
                    read_timeout_seconds,
                    progress_callback,
                    input_responses=input_responses,
                    request_state=request_state,
                    meta=meta,
                )
            failed = bool(result.is_error)
        finally:
            _sending.reset(sending)
            self._point.completed(call, failed=failed)
        return result

    async def _relist_tool(self, name: str) -> None:
        """The SDK lists a tool again, and sends its call again, where its headers did not fit.

        What the tool is by now is decided anew; an ask is a denial, since it was answered before.

        Raises:
            MCPError: The call may not be sent again. The SDK then hands on the server's error.
        """
        await super()._relist_tool(name)
        decided = _sending.get()
        if decided is None:
            return
        unasked = attrs.evolve(decided.scope, can_ask=False)
        call = attrs.evolve(decided.call, id=None)
        decision = await self._point.on_tool_call_async(call, await self._all(name), unasked)
        if decision.failure is not None:
            raise MCPError(INTERNAL_ERROR, decision.failure.message)

    async def _decided(self, call: ToolCall, tools: Toolset) -> Decision:
        scope = self._scope()
        decision = await self._point.on_tool_call_async(call, tools, scope)
        if decision.effect is Effect.ASK and self.on_ask is not None:
            allowed = await self.on_ask(decision)
            self._point.answered(decision, allow=allowed is True)
            tools = await self._all(call.name)  # it may have changed while the person was thinking
            decision = await self._point.on_tool_call_async(call, tools, scope)
        if decision.effect is Effect.ASK:
            unasked = attrs.evolve(scope, can_ask=False)
            decision = await self._point.on_tool_call_async(call, tools, unasked)
        return decision

    async def _all(self, name: str) -> Toolset:
        """The toolset of the page that holds the tool as it was last listed; listed if need be."""
        for _, toolset in reversed(self._pages.values()):
            if toolset.by_name(name):
                return toolset
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            result = await super().list_tools(cursor=cursor)
            toolset = self._page(cursor, result.tools)
            if toolset.by_name(name):
                return toolset
            cursor = result.next_cursor
            if cursor is None:
                break
        return _NO_TOOLS

    def _page(self, cursor: str | None, tools: list[mcp_types.Tool]) -> Toolset:
        if cursor is None:
            first = self._pages.get(None)
            self._pages = {} if first is None else {None: first}  # the others may be gone
        # A server's answer is new objects each time: their text is the cheap way to compare them.
        text = to_json(tools)
        last, toolset = self._pages.get(cursor, (b"[]", _NO_TOOLS))
        if text != last:
            toolset = toolset.renewed([self._translated(tool) for tool in tools])
        self._pages.pop(cursor, None)
        self._pages[cursor] = (text, toolset)  # the last one: a tool may have moved to this page
        return toolset

    def _translated(self, tool: mcp_types.Tool) -> Tool:
        return Tool(
            name=tool.name,
            provider=self._provider,
            title=tool.title,
            description=tool.description,
            input_schema=tool.input_schema,
            output_schema=tool.output_schema,
            annotations=annotations_of(tool.annotations),
            availability=declared_availability(None, tool.meta),
            meta=tool.meta,
            raw=tool.model_dump(mode="json", by_alias=True, exclude_none=True),
            source=tool,
        )


def _picks_version(meta: RequestParamsMeta | None) -> bool:
    """Whether a FastMCP server would run another version than the one that it lists."""
    named = (meta or {}).get("fastmcp")
    return isinstance(named, Mapping) and named.get("version") is not None
