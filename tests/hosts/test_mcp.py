"""The MCP SDK, both sides: the traps of this host, each with a real server and a real client."""

from collections.abc import Mapping
from typing import Any

import pytest
from mcp import Client
from mcp.client import advertise
from mcp.server import MCPServer, Server
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension
from mcp_types import (
    CallToolResult,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    TextContent,
    ToolAnnotations,
)
from mcp_types import (
    Tool as WireTool,
)

from tests.hosts.mcp_support import ERAS, Asks, Person, client_of, fails, names, served
from toolscope import (
    Agent,
    Annotations,
    Decision,
    PolicyEngine,
    Provider,
    Scope,
    Tool,
    Toolset,
    Verdict,
    hookimpl,
)
from toolscope.hosts import AVAILABILITY_KEY, ORIGIN_KEY, available_in
from toolscope.hosts.mcp import ScopedClient, attach, coverage
from toolscope.scopes import for_run, inside

pytestmark = pytest.mark.anyio
USER_CHATS = {AVAILABILITY_KEY: "userChats"}
SCHEMA: dict[str, Any] = {"type": "object"}


def desk(**settings: Any) -> tuple[MCPServer[Any], list[str]]:
    """A server with one tool for the chats of users and one for all, and what ran."""
    server: MCPServer[Any] = MCPServer("desk", **settings)
    ran: list[str] = []

    @server.tool(meta=USER_CHATS)
    def pick_file() -> str:
        ran.append("pick_file")
        return "picked"

    @server.tool()
    def read_doc(page: int = 1) -> str:
        ran.append(f"read_doc {page}")
        return "read"

    return server, ran


def paged(**settings: Any) -> tuple[Server[Any], list[str]]:
    """A low-level server, which has no registry of tools, and lists them one to a page."""
    ran: list[str] = []
    tools = [
        WireTool(name="read_doc", input_schema=SCHEMA),
        WireTool(name="pick_file", input_schema=SCHEMA, _meta=USER_CHATS),
        WireTool(name="wipe", input_schema=SCHEMA, _meta=USER_CHATS),
    ]

    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
        place = int(params.cursor or 0)
        more = str(place + 1) if place + 1 < len(tools) else None
        return ListToolsResult(tools=[tools[place]], next_cursor=more)

    async def call_tool(ctx: Any, params: Any) -> CallToolResult:
        ran.append(params.name)
        return CallToolResult(content=[TextContent(type="text", text="ran")])

    server: Server[Any] = Server(
        "paged", on_list_tools=list_tools, on_call_tool=call_tool, **settings
    )
    return server, ran


async def all_names(client: Client) -> list[str]:
    found: list[str] = []
    cursor = None
    for _ in range(10):
        page = await client.list_tools(cursor=cursor)
        found += [tool.name for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return found
    raise AssertionError("the pages do not end")


# --------------------------------------------------------------------------------------------
# The side of a server
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("trusts", [True, False])
async def test_a_claim_narrows_always_and_widens_only_where_trusted(era: str, trusts: bool) -> None:
    """The claim comes with the connection or with the request, in both protocol eras."""
    server, ran = desk()
    attach(server, PolicyEngine(), scope=Scope(origin="tool"), trust_declared_origin=trusts)
    async with client_of(server, mode=era) as client:
        assert await names(client) == ("read_doc",)
    async with client_of(server, mode=era, origin="user") as client:
        assert ("pick_file" in await names(client)) is trusts
        assert "pick_file" not in await names(client, claim="tool")
    attach(server, PolicyEngine(), scope=Scope(origin="user"), trust_declared_origin=trusts)
    async with client_of(server, mode=era) as client:
        assert "pick_file" in await names(client)
        assert "pick_file" not in await names(client, claim="tool")
        meta: Any = {ORIGIN_KEY: "tool"}
        assert (await client.call_tool("pick_file", meta=meta)).is_error
    assert ran == []


async def test_a_server_never_reads_the_current_scope() -> None:
    """A server's task keeps the context it was started in, which says nothing of its callers."""
    server, ran = desk()
    attach(server, PolicyEngine())
    with inside(Scope(origin="tool")):
        async with client_of(server) as client:
            assert "pick_file" in await names(client)
            assert not (await client.call_tool("pick_file")).is_error
    assert ran == ["pick_file"]


async def test_an_agent_that_a_tool_runs_is_tool_spawned() -> None:
    """The tool's chat is the current scope while it runs: a run that starts inside is a child."""
    server, _ = desk()
    seen: list[Scope] = []

    @server.tool()
    async def delegate() -> str:
        seen.append(for_run(Scope(origin="user")))
        return "done"

    attach(server, PolicyEngine())
    async with client_of(server) as client:
        await client.call_tool("delegate")
    assert [one.origin for one in seen] == ["tool"]


@pytest.mark.parametrize("era", ERAS)
async def test_pages_are_filtered_and_a_called_tool_is_looked_for_on_all(era: str) -> None:
    """A page may come out empty; a tool of the last page is judged by what its page says."""
    server, ran = paged()
    attach(server, PolicyEngine())
    async with client_of(server, mode=era) as client:
        assert await all_names(client) == ["read_doc", "pick_file", "wipe"]
    async with client_of(server, mode=era, origin="tool") as client:
        assert await all_names(client) == ["read_doc"]
        assert "only available in chats" in await fails(client, "wipe")
        assert "read_doc" not in await fails(client, "made_up")
        assert not (await client.call_tool("read_doc")).is_error
    assert ran == ["read_doc"]


async def test_the_decorator_is_read_under_the_servers_own() -> None:
    """MCPServer lists copies without the function; the mark still counts."""
    server: MCPServer[Any] = MCPServer("desk")

    @server.tool()
    @available_in("userChats")
    def wipe() -> str:
        return "wiped"

    attach(server, PolicyEngine())
    async with client_of(server, origin="tool") as client:
        assert await names(client) == ()
        await fails(client, "wipe")
    async with scoped(server, scope=Scope(origin="tool")) as worker:
        assert await names(worker) == ()  # the server's list tells a host of the mark
    async with client_of(server) as client:
        assert not (await client.call_tool("wipe")).is_error


async def test_a_filtered_list_does_not_poison_the_clients_cache() -> None:
    """The client keys its cache by method alone: the list of one scope must not be kept."""
    server, _ = desk(cache_hints={"tools/list": CacheHint(ttl_ms=60_000, scope="public")})
    attach(server, PolicyEngine())
    async with client_of(server) as client:
        result = await client.list_tools()
        assert (result.ttl_ms, result.cache_scope) == (0, "private")
        assert await names(client, claim="tool") == ("read_doc",)
        assert await names(client) == ("pick_file", "read_doc")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("low_level", [True, False])
@pytest.mark.parametrize("allow", [True, False])
async def test_a_person_is_asked_by_elicitation(era: str, low_level: bool, allow: bool) -> None:
    """The question travels as a request or as a result; the call runs once, or is refused."""
    server, ran = paged() if low_level else desk()
    attach(server, PolicyEngine([Asks()]))
    person = Person(allow)
    async with client_of(server, mode=era, person=person) as client:
        result = await client.call_tool("read_doc")
    assert len(person.questions) == 1
    assert len(ran) == int(allow)
    if not allow:
        assert (result.meta or {})["dev.toolscope/code"] == "approval_refused"


@pytest.mark.parametrize("change", ["arguments", "state", "no answer"])
async def test_a_low_level_server_takes_an_answer_for_what_was_asked_only(change: str) -> None:
    """It seals no state by itself: an answer to other arguments, or to nothing, is no answer."""
    server, ran = paged()
    attach(server, PolicyEngine([Asks()]))
    async with client_of(server, person=Person(True)) as client:
        asked = await client.session.call_tool("read_doc", {"page": 1}, allow_input_required=True)
        assert isinstance(asked, InputRequiredResult)
        yes = ElicitResult(action="accept", content={"approve": True})
        answers: Any = dict.fromkeys(asked.input_requests or {}, yes)
        state = asked.request_state or ""
        result = await client.session.call_tool(
            "read_doc",
            {"page": 2 if change == "arguments" else 1},
            input_responses={} if change == "no answer" else answers,
            request_state="[" if change == "state" else state,
            allow_input_required=True,
        )
        assert isinstance(result, CallToolResult)
        assert (result.meta or {})["dev.toolscope/code"] == "approval_unavailable"
        result = await client.session.call_tool(
            "read_doc", {"page": 1}, input_responses=answers, request_state=state
        )
        assert not result.is_error
    assert ran == ["read_doc"]


async def test_an_answer_to_a_call_that_the_ledger_does_not_know_asks_anew() -> None:
    """After a restart, or at another replica, nobody was asked: the person is asked here."""
    server, ran = paged()
    attach(server, PolicyEngine([Asks()]))
    async with client_of(server, person=Person(True)) as client:
        asked = await client.session.call_tool("read_doc", {}, allow_input_required=True)
        assert isinstance(asked, InputRequiredResult)
        attach(server, PolicyEngine([Asks()]))
        yes = ElicitResult(action="accept", content={"approve": True})
        again = await client.session.call_tool(
            "read_doc",
            {},
            input_responses=dict.fromkeys(asked.input_requests or {}, yes),
            request_state=asked.request_state,
            allow_input_required=True,
        )
        assert isinstance(again, InputRequiredResult)
    assert ran == []


async def test_the_answer_to_toolscope_is_not_shown_to_the_tool() -> None:
    """A tool that asks itself would take it for an answer to a question of its own."""
    seen: list[Any] = []
    server, _ = paged()

    async def call_tool(ctx: Any, params: Any) -> CallToolResult:
        seen.append((params.request_state, params.input_responses, sorted(ctx.params)))
        return CallToolResult(content=[])

    entry = server.get_request_handler("tools/call")
    assert entry is not None
    server.add_request_handler("tools/call", entry.params_type, call_tool)
    attach(server, PolicyEngine([Asks()]))
    async with client_of(server, person=Person(True)) as client:
        assert not (await client.call_tool("read_doc", {"page": 1})).is_error
    assert seen == [(None, None, ["_meta", "arguments", "name"])]


async def test_annotations_reach_the_rules() -> None:
    """The server's hints are the tool's annotations; absent ones are the worst case."""
    seen: list[Annotations] = []

    class Looks:
        name = "looks"

        @hookimpl
        def filter_tools(self, tools: Toolset) -> Mapping[Tool, Verdict]:
            seen.extend(tool.annotations for tool in tools)
            return {}

    server: MCPServer[Any] = MCPServer("desk")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True, title="Read"))
    def read_doc() -> str:
        return "read"

    attach(server, PolicyEngine([Looks()]))
    async with client_of(server) as client:
        await names(client)
    assert seen == [Annotations(title="Read", read_only=True)]


async def test_nothing_is_computed_twice() -> None:
    """One toolset for all lists, and one for all calls of a tool, until a tool changes."""
    seen: list[tuple[str, ...]] = []

    class Counts:
        name = "counts"

        @hookimpl
        def filter_tools(self, tools: Toolset) -> Mapping[Tool, Verdict]:
            seen.append(tuple(tool.name for tool in tools))
            return {}

    server, _ = desk()
    attach(server, PolicyEngine([Counts()]))
    async with client_of(server) as client:
        for _ in range(3):
            await names(client)
            await client.call_tool("read_doc")
    assert seen == [("pick_file", "read_doc"), ("read_doc",)]


async def test_an_extension_that_intercepts_calls_comes_after_toolscope() -> None:
    """A call that is denied reaches no interceptor."""
    intercepted: list[str] = []

    class Sees(Extension):
        identifier = "test.example/sees"

        async def intercept_tool_call(self, params: Any, ctx: Any, call_next: Any) -> Any:
            intercepted.append(params.name)
            return await call_next(ctx)

    server, _ = desk(extensions=[Sees()])
    attach(server, PolicyEngine())
    async with client_of(server, origin="tool") as client:
        await fails(client, "pick_file")
        await client.call_tool("read_doc")
    assert intercepted == ["read_doc"]


async def test_a_policy_that_cannot_be_had_shows_nothing_and_runs_nothing() -> None:
    """An error of our own ends as an empty list and a failed result, not as a protocol error."""
    server, ran = desk()

    def broken() -> PolicyEngine:
        raise RuntimeError("a secret cause")

    attach(server, broken)
    async with client_of(server) as client:
        assert await names(client) == ()
        assert "secret" not in await fails(client, "read_doc")
    assert ran == []


async def test_a_server_without_tools_cannot_be_attached() -> None:
    """Handlers that are registered afterwards would not be protected, so it is said at once."""
    with pytest.raises(ValueError, match="has no handler for 'tools/list'; register its tools"):
        attach(Server("empty"), PolicyEngine())


async def test_coverage_of_a_server() -> None:
    """What is not attached, was replaced since, or runs before toolscope is named."""
    server, _ = desk()
    assert len(coverage(server)) == 2
    attach(server, PolicyEngine())
    attach(server, PolicyEngine())
    assert coverage(server) == ()

    async def caches(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        return await call_next(ctx)

    server.middleware.append(caches)
    (text,) = coverage(server)
    assert "caches runs before toolscope" in text
    low_level, _ = paged()
    attach(low_level, PolicyEngine())
    entry = low_level.get_request_handler("tools/call")
    assert entry is not None
    low_level.add_request_handler("tools/call", entry.params_type, entry.handler.inner)  # type: ignore[attr-defined]
    (text,) = coverage(low_level)
    assert "the handler of 'tools/call' is not toolscope's" in text


async def test_over_http(anyio_backend: str) -> None:
    """The same over streamable HTTP, with the claim in the client's settings."""
    server, ran = desk()
    attach(server, PolicyEngine())
    async with served(server.streamable_http_app()) as url:
        for era in ("legacy", "auto"):
            async with Client(url, mode=era) as client:
                assert await names(client) == ("pick_file", "read_doc")
            claim = [advertise(ORIGIN_KEY, {"origin": "tool"})]
            async with Client(url, mode=era, extensions=claim) as client:
                assert await names(client) == ("read_doc",)
                await fails(client, "pick_file")
    assert ran == []


# --------------------------------------------------------------------------------------------
# The side of a host
# --------------------------------------------------------------------------------------------


def scoped(server: Any, *rules: object, **settings: Any) -> ScopedClient:
    return ScopedClient(server, policy=PolicyEngine(list(rules)), server_id="desk", **settings)


@pytest.mark.parametrize("era", ERAS)
async def test_a_scoped_client_decides_before_the_request_leaves(era: str) -> None:
    """A server that knows nothing of toolscope never hears of a denied call."""
    server, ran = desk()
    async with scoped(server, mode=era, scope=Scope(origin="user")) as client:
        assert await names(client) == ("pick_file", "read_doc")
        assert not (await client.call_tool("pick_file")).is_error
    async with scoped(server, mode=era, scope=Scope(origin="tool")) as client:
        assert await names(client) == ("read_doc",)
        assert "only available in chats" in await fails(client, "pick_file")
        assert "read_doc" not in await fails(client, "made_up")
        assert not (await client.call_tool("read_doc", {"page": 2})).is_error
    assert ran == ["pick_file", "read_doc 2"]


async def test_a_scoped_client_finds_a_tool_that_was_never_listed() -> None:
    """A call before any list is judged by what the server says of the tool, on whatever page."""
    server, ran = paged()
    async with scoped(server, scope=Scope(origin="tool")) as client:
        await fails(client, "wipe")
        assert not (await client.call_tool("read_doc")).is_error
        assert await all_names(client) == ["read_doc"]
    assert ran == ["read_doc"]


async def test_a_scoped_client_names_the_server() -> None:
    """An agent's allowlist can tell the servers of its host apart."""
    server, ran = desk()
    scope = Scope(origin="user", agent=Agent(name="reader", tools=["mcp:desk/read_doc"]))
    async with scoped(server, scope=scope) as client:
        assert await names(client) == ("read_doc",)
        await fails(client, "pick_file")
    assert ran == []


async def test_a_client_that_a_tool_opens_is_a_workers() -> None:
    """Whatever scope it declares: it was opened inside a tool of another chat."""
    server, ran = desk()
    with inside(Scope(origin="user")):
        async with scoped(server, scope=Scope(origin="user")) as client:
            assert await names(client) == ("read_doc",)
            await fails(client, "pick_file")
    assert ran == []


async def test_a_client_that_a_worker_shares_is_the_workers_while_it_uses_it() -> None:
    """One connection serves the boss and, inside its tool, a worker's own tools."""
    server, ran = desk()
    async with scoped(server, scope=Scope(origin="user")) as client:
        with inside(Scope(origin="user")):
            assert "pick_file" in await names(client)
        with inside(Scope(origin="user").child()):
            assert await names(client) == ("read_doc",)
            await fails(client, "pick_file")
        assert "pick_file" in await names(client)
    assert ran == []


@pytest.mark.parametrize("answer", [True, False, None])
async def test_a_scoped_client_asks_through_its_host(answer: bool | None) -> None:
    """The host puts the question; without a way to ask the call fails at once."""
    server, ran = desk()
    asked: list[str] = []

    async def on_ask(decision: Decision) -> bool:
        asked.append(decision.call.name)
        return answer is True

    async with scoped(server, Asks(), on_ask=None if answer is None else on_ask) as client:
        result = await client.call_tool("read_doc")
    assert asked == ([] if answer is None else ["read_doc"])
    assert ran == (["read_doc 1"] if answer else [])
    if not answer:
        code = (result.meta or {})["dev.toolscope/code"]
        assert code == ("approval_unavailable" if answer is None else "approval_refused")


async def test_a_host_that_breaks_while_asking_denies() -> None:
    """An error in the host's question is no answer, and is not raised into the run."""
    server, ran = desk()

    async def breaks(decision: Decision) -> bool:
        raise RuntimeError("a secret cause")

    async with scoped(server, Asks(), on_ask=breaks) as client:
        assert "secret" not in await fails(client, "read_doc")
    assert ran == []


async def test_the_clients_cache_is_filtered_for_each_use() -> None:
    """What the client keeps of the server is the whole list; the filter comes after it."""
    server, _ = desk(cache_hints={"tools/list": CacheHint(ttl_ms=60_000)})
    lists: list[str] = []

    async def counts(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/list":
            lists.append(ctx.method)
        return await call_next(ctx)

    server.middleware.append(counts)
    async with scoped(server, scope=Scope(origin="user")) as client:
        assert "pick_file" in await names(client)
        with inside(Scope(origin="tool")):
            assert await names(client) == ("read_doc",)
        assert "pick_file" in await names(client)
    assert len(lists) == 1


async def test_calls_past_the_client_are_not_decided_and_coverage_says_so() -> None:
    """The session under the client is the SDK's own."""
    server, ran = desk()
    async with scoped(server, scope=Scope(origin="tool")) as client:
        await client.session.call_tool("pick_file", {})
        (text,) = coverage(client)
    assert "client.session" in text
    assert ran == ["pick_file"]


async def test_a_clients_own_error_is_no_exception() -> None:
    """A policy that cannot be had shows nothing and sends nothing."""
    server, ran = desk()

    def broken() -> PolicyEngine:
        raise RuntimeError("a secret cause")

    async with ScopedClient(server, policy=broken, server_id="desk") as client:
        assert await names(client) == ()
        assert "secret" not in await fails(client, "read_doc")
    assert ran == []


async def test_a_tool_of_the_client_keeps_what_the_server_sent() -> None:
    """Rules see the provider, the server's own metadata, and the mapping as it came."""
    seen: list[Tool] = []

    class Looks:
        name = "looks"

        @hookimpl
        def filter_tools(self, tools: Toolset) -> Mapping[Tool, Verdict]:
            seen.extend(tools)
            return {}

    server, _ = desk()
    async with scoped(server, Looks()) as client:
        await names(client)
    pick, read = seen
    assert pick.provider == Provider.mcp("desk")
    assert pick.identity == "mcp:desk/pick_file"
    assert pick.meta == USER_CHATS
    assert read.raw is not None
    assert read.raw["inputSchema"]["properties"]["page"]["type"] == "integer"
