"""What changes at an MCP server between a list, an ask and a call: what is there then counts."""

from collections.abc import Callable
from typing import Any

import pytest
from fastmcp import Client as FastMCPClient
from fastmcp import FastMCP
from fastmcp.server import create_proxy
from fastmcp.tools.base import Tool as FastMCPTool
from mcp import MCPError
from mcp.server import MCPServer, Server
from mcp_types import (
    HEADER_MISMATCH,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    ListToolsResult,
    TextContent,
    ToolAnnotations,
)
from mcp_types import (
    Tool as WireTool,
)

from tests.hosts.mcp_support import ERAS, Person, client_of, names, text_of
from toolscope import PolicyEngine, Scope, Tool, Verdict, ask, deny, hookimpl
from toolscope.hosts import AVAILABILITY_KEY, fastmcp, mcp

pytestmark = pytest.mark.anyio
USER_CHATS = {AVAILABILITY_KEY: "userChats"}
SCHEMA: dict[str, Any] = {"type": "object"}
WORKER = Scope(origin="tool")


class Says:
    """Asks about every call, in these words."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason

    @hookimpl
    def on_tool_call(self) -> Verdict | None:
        return ask(self.reason)


CENT, WIPE = Says("cent", "reading costs a cent"), Says("wipe", "it wipes the disk")


class Desk:
    """A server of either kind with one tool, which can be replaced."""

    def __init__(self, kind: str) -> None:
        self.engine = PolicyEngine([CENT])
        self.ran: list[str] = []
        self._server: Any = (
            MCPServer("desk", log_level="CRITICAL") if kind == "mcp" else FastMCP("desk")
        )
        self._kind = kind
        self.add()
        module: Any = mcp if kind == "mcp" else fastmcp
        module.attach(self._server, lambda: self.engine)

    @property
    def server(self) -> Any:
        return self._server if self._kind == "mcp" else self._server._mcp_server

    def add(self, description: str = "Reads.", **parts: Any) -> None:
        def read() -> str:
            self.ran.append(description)
            return "ran"

        if self._kind == "mcp":
            self._server.add_tool(read, name="read", description=description, **parts)
        else:
            made = FastMCPTool.from_function(read, name="read", description=description, **parts)
            self._server.add_tool(made)

    def replace(self, description: str = "Reads.", **parts: Any) -> None:
        if self._kind == "mcp":
            self._server.remove_tool("read")
        else:
            self._server.local_provider.remove_tool("read")
        self.add(description, **parts)

    async def tool(self) -> Any:
        if self._kind == "mcp":
            return self._server._tool_manager.get_tool("read")
        return await self._server.get_tool("read")


class Thinking(Person):
    """Says yes; while they think about the first question, something happens."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__(allow=True)
        self._happens = happens

    async def __call__(self, context: Any, params: ElicitRequestParams) -> ElicitResult:
        answer = await super().__call__(context, params)
        if len(self.questions) == 1:
            self._happens()
        return answer

    @property
    def reasons(self) -> list[str]:
        return [text.partition("needed: ")[2] for text in self.questions]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("kind", ["mcp", "fastmcp"])
@pytest.mark.parametrize("change", ["another ask", "one ask more", "definition"])
async def test_a_yes_is_to_what_was_shown(kind: str, era: str, change: str) -> None:
    """To other asks, and about another definition, the person is asked anew, or the call fails."""
    desk = Desk(kind)

    def happens() -> None:
        if change == "definition":
            desk.replace("Deletes everything.")
        else:
            desk.engine = PolicyEngine([WIPE] if change == "another ask" else [CENT, WIPE])

    person = Thinking(happens)
    async with client_of(desk.server, mode=era, person=person) as client:
        result = await client.call_tool("read", {})
    if era == "legacy":
        assert (result.is_error, desk.ran) == (True, [])
    else:
        asked = {
            "another ask": WIPE.reason,
            "one ask more": f"{CENT.reason}; {WIPE.reason}",
            "definition": CENT.reason,
        }[change]
        assert person.reasons == [CENT.reason, asked]
        assert not result.is_error
        assert desk.ran == ["Deletes everything." if change == "definition" else "Reads."]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("kind", ["mcp", "fastmcp"])
async def test_a_tool_that_is_withheld_while_a_person_thinks_does_not_run(
    kind: str, era: str
) -> None:
    """It is looked up again when the answer is there."""
    desk = Desk(kind)
    person = Thinking(lambda: desk.replace(meta=USER_CHATS))
    async with client_of(desk.server, origin="tool", mode=era, person=person) as client:
        result = await client.call_tool("read", {})
    assert (result.is_error, desk.ran) == (True, [])
    assert "'read' is not available in this chat" in text_of(result)


class NothingDestructive:
    """Denies calls of destructive tools."""

    name = "nothing-destructive"

    @hookimpl
    def on_tool_call(self, tool: Tool) -> Verdict | None:
        return deny("nothing is destroyed here") if tool.annotations.destructive else None


@pytest.mark.parametrize("kind", ["mcp", "fastmcp"])
async def test_hints_that_are_changed_in_place_are_read_again(kind: str) -> None:
    """As the availability in a tool's metadata is."""
    desk = Desk(kind)
    desk.engine = PolicyEngine([NothingDestructive()])
    desk.replace(annotations=ToolAnnotations(destructive_hint=False))
    async with client_of(desk.server) as client:
        assert not (await client.call_tool("read", {})).is_error
        (await desk.tool()).annotations.destructive_hint = True
        assert (await client.call_tool("read", {})).is_error
    assert desk.ran == ["Reads."]


async def test_what_a_server_adds_when_it_lists_counts_for_calls() -> None:
    """An MCPServer may say more of a tool in its list than the tool says itself."""
    ran: list[str] = []

    class Marking(MCPServer[Any]):
        async def list_tools(self) -> list[WireTool]:
            listed = await super().list_tools()
            return [tool.model_copy(update={"meta": USER_CHATS}) for tool in listed]

    server = Marking("desk", log_level="CRITICAL")
    server.add_tool(lambda: ran.append("pick"), name="pick")
    mcp.attach(server, PolicyEngine(), scope=WORKER)
    async with client_of(server) as client:
        assert await names(client) == ()
        assert (await client.call_tool("pick", {})).is_error
    assert ran == []


async def test_a_server_keeps_its_own_type_of_parameters() -> None:
    """A low-level server may read more of a request than the SDK does."""

    class Wide(CallToolRequestParams):
        extra: str = "more"

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[WireTool(name="read", input_schema=SCHEMA)])

    async def call_tool(context: Any, params: Wide) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text=params.extra)])

    server: Server[Any] = Server("desk", on_list_tools=list_tools)
    server.add_request_handler("tools/call", Wide, call_tool)
    mcp.attach(server, PolicyEngine())
    async with client_of(server) as client:
        assert text_of(await client.call_tool("read", {})) == "more"


@pytest.mark.parametrize("kind", ["mcp", "fastmcp"])
async def test_a_default_that_json_does_not_have(kind: str) -> None:
    """The client is sent null in its place, so that is what rules see; the siblings stay."""
    server: Any = MCPServer("desk") if kind == "mcp" else FastMCP("desk")

    def far(distance: float = float("inf")) -> str:
        return "far"

    server.tool()(far)
    server.tool()(lambda_named("near"))
    module: Any = mcp if kind == "mcp" else fastmcp
    module.attach(server, PolicyEngine())
    async with client_of(server if kind == "mcp" else server._mcp_server) as client:
        assert await names(client) == ("far", "near")
        assert text_of(await client.call_tool("far", {})) == "far"


def lambda_named(name: str) -> Callable[[], str]:
    def run() -> str:
        return name

    run.__name__ = name
    return run


@pytest.mark.parametrize("era", ERAS)
async def test_a_proxy_runs_no_version_that_it_does_not_list(era: str) -> None:
    """It would hand the caller's choice on, and its backend run what toolscope never saw."""
    ran: list[str] = []
    backend: FastMCP[Any] = FastMCP("backend")
    for version, meta in (("1", USER_CHATS), ("2", {})):

        @backend.tool(name="files", version=version, meta=meta)
        def files(version: str = version) -> str:
            ran.append(version)
            return version

    front = create_proxy(FastMCPClient(backend))
    fastmcp.attach(front, PolicyEngine(), scope=WORKER)
    picked: Any = {"fastmcp": {"version": "1"}}
    async with client_of(front._mcp_server, mode=era) as client:
        assert await names(client) == ("files",)
        assert not (await client.call_tool("files", {})).is_error
        denied = await client.call_tool("files", {}, meta=picked)
    assert (denied.is_error, ran) == (True, ["2"])
    scoped = mcp.ScopedClient(
        backend._mcp_server, policy=PolicyEngine(), server_id="b", scope=WORKER, mode=era
    )
    async with scoped:
        assert (await scoped.call_tool("files", {}, meta=picked)).is_error
        assert not (await scoped.call_tool("files", {})).is_error
    assert ran == ["2", "2"]


async def test_a_scoped_client_judges_by_the_page_it_saw_last() -> None:
    """A tool may have moved to another page, and be another's by then."""
    ran: list[str] = []
    pages: dict[str | None, ListToolsResult] = {
        None: ListToolsResult(tools=[wire("read")], next_cursor="2"),
        "2": ListToolsResult(tools=[wire("write")]),
    }

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return pages[params.cursor if params else None]

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        ran.append(params.name)
        return CallToolResult(content=[])

    server: Server[Any] = Server("desk", on_list_tools=list_tools, on_call_tool=call_tool)
    scoped = mcp.ScopedClient(server, policy=PolicyEngine(), server_id="d", scope=WORKER)
    async with scoped:
        await scoped.list_tools()
        pages["2"] = ListToolsResult(tools=[wire("read", USER_CHATS)])
        assert (await scoped.list_tools(cursor="2")).tools == []
        assert (await scoped.call_tool("read", {})).is_error
    assert ran == []


def wire(name: str, meta: dict[str, Any] | None = None) -> WireTool:
    return WireTool(name=name, input_schema=SCHEMA, _meta=meta)


@pytest.mark.parametrize("meta", [None, USER_CHATS])
async def test_a_call_that_the_sdk_sends_again_is_decided_again(meta: Any) -> None:
    """Where its headers did not fit, the SDK lists the tool again: what it is by now counts."""
    ran: list[str] = []
    listed = wire("read")

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[listed])

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        nonlocal listed
        if listed.description is None:
            listed = wire("read", meta).model_copy(update={"description": "Reads."})
            raise MCPError(code=HEADER_MISMATCH, message="the headers do not fit")
        ran.append(params.name)
        return CallToolResult(content=[])

    server: Server[Any] = Server("desk", on_list_tools=list_tools, on_call_tool=call_tool)
    scoped = mcp.ScopedClient(
        server, policy=PolicyEngine(), server_id="d", scope=WORKER, mode="2026-07-28"
    )
    async with scoped:
        await scoped.list_tools()
        if meta is None:
            assert not (await scoped.call_tool("read", {})).is_error
        else:
            with pytest.raises(MCPError, match="the headers do not fit"):
                await scoped.call_tool("read", {})
    assert ran == ([] if meta else ["read"])
