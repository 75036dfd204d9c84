"""FastMCP servers: the traps of this host, each with a real server and a real client."""

from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from fastmcp import Client as HostClient
from fastmcp import Context, FastMCP, FastMCPApp
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.server import create_proxy
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.server.middleware.caching import ResponseCachingMiddleware
from fastmcp.server.middleware.tool_injection import ToolInjectionMiddleware
from fastmcp.server.providers.addressing import hashed_backend_name
from fastmcp.server.transforms.search import BM25SearchTransform
from fastmcp.tools import Tool as HostTool
from mcp import Client, MCPError
from mcp.client import advertise
from mcp_types import ElicitResult, InputRequiredResult

from tests.hosts.mcp_support import ERAS, Asks, Person, client_of, fails, names, served, text_of
from toolscope import PolicyEngine, Scope, Tool, ToolCall, Toolset, Verdict, ask, deny, hookimpl
from toolscope.calls import CallLedger
from toolscope.hosts import AVAILABILITY_KEY, ORIGIN_KEY, _mcp_requests, available_in
from toolscope.hosts.fastmcp import ToolscopeMiddleware, attach, coverage
from toolscope.scopes import current, for_run, inside

pytestmark = pytest.mark.anyio
USER_CHATS = {AVAILABILITY_KEY: "userChats"}


def desk(**settings: Any) -> tuple[FastMCP[Any], list[str]]:
    """A server with one tool for the chats of users and one for all, and what ran."""
    server: FastMCP[Any] = FastMCP("desk", **settings)
    ran: list[str] = []

    @server.tool(meta=USER_CHATS)
    def pick_file() -> str:
        ran.append("pick_file")
        return "picked"

    @server.tool
    def read_doc(page: int = 1) -> str:
        ran.append(f"read_doc {page}")
        return "read"

    return server, ran


def connect(server: FastMCP[Any], **settings: Any) -> Client:
    return client_of(server._mcp_server, **settings)


# --------------------------------------------------------------------------------------------
# Who calls
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_the_client_claims_its_origin_for_the_whole_connection(era: str) -> None:
    """Extension settings reach the server with the handshake, and with every later request."""
    server, ran = desk()
    attach(server, PolicyEngine())
    async with connect(server, mode=era) as client:
        assert await names(client) == ("pick_file", "read_doc")
    async with connect(server, mode=era, origin="tool") as client:
        assert await names(client) == ("read_doc",)
        assert "only available in chats that the user drives" in await fails(client, "pick_file")
    assert ran == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_request_claims_its_origin(era: str) -> None:
    """The claim in the request's ``_meta`` counts, though FastMCP's message does not show it."""
    server, ran = desk()
    attach(server, PolicyEngine())
    async with connect(server, mode=era) as client:
        assert await names(client, claim="tool") == ("read_doc",)
        meta: Any = {ORIGIN_KEY: "tool"}
        assert (await client.call_tool("pick_file", meta=meta)).is_error
        assert await names(client) == ("pick_file", "read_doc")
    assert ran == []


@pytest.mark.parametrize(
    ("configured", "trusts", "claims", "shown"),
    [
        (None, False, [], True),
        (None, False, ["user"], True),
        (None, False, ["tool"], False),
        ("tool", False, ["user"], False),
        ("tool", True, ["user"], True),
        ("tool", True, ["sideChat"], True),
        ("tool", True, [], False),
        ("user", True, ["tool"], False),
        ("user", False, ["teleport"], False),
        ("user", True, ["user", "tool"], False),
        ("user", True, ["tool", "user"], False),
        ("user", True, [7], False),
    ],
)
async def test_only_a_claim_that_narrows_always_counts(
    configured: str | None, trusts: bool, claims: list[Any], shown: bool
) -> None:
    """``tool`` always counts, a wider origin only where it is trusted; the narrowest claim wins."""
    server, _ = desk()
    scope = Scope(origin=configured)
    attach(server, PolicyEngine(), scope=scope, trust_declared_origin=trusts)
    advertised, in_request = [*claims, None, None][:2]
    extensions = None
    if advertised is not None:
        extensions = [advertise(ORIGIN_KEY, {"origin": advertised})]
    async with Client(server._mcp_server, extensions=extensions) as client:
        listed = await names(client, in_request)
    assert ("pick_file" in listed) is shown


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_header_claims_an_origin(era: str) -> None:
    """Over HTTP the claim may come as a header, and the narrowest of several counts."""
    server, _ = desk()
    attach(server, PolicyEngine(), scope=Scope(origin="user"), trust_declared_origin=True)
    async with served(server.http_app()) as url:
        for claim, shown in ((None, 2), ("user", 2), ("tool", 1), ("user, tool", 1)):
            headers = None if claim is None else {"Toolscope-Origin": claim}
            transport = StreamableHttpTransport(url, headers=headers)
            async with HostClient(transport, mode=era) as client:
                assert len(await client.list_tools()) == shown


async def test_a_server_never_reads_the_current_scope() -> None:
    """A server's task keeps the context it was started in, which says nothing of its callers."""
    server, ran = desk()
    attach(server, PolicyEngine())
    with inside(Scope(origin="tool")):
        async with connect(server) as client:
            assert "pick_file" in await names(client)
            assert not (await client.call_tool("pick_file")).is_error
    assert ran == ["pick_file"]


async def test_an_agent_that_a_tool_runs_is_tool_spawned() -> None:
    """The tool's chat is the current scope while it runs: a run that starts inside is a child."""
    server, _ = desk()
    seen: list[Any] = []

    @server.tool
    def delegate() -> str:
        seen.append(for_run(Scope(origin="user")))
        return "done"

    attach(server, PolicyEngine(), scope=Scope(origin="user"))
    async with connect(server) as client:
        await client.call_tool("delegate")
    assert [one.origin for one in seen] == ["tool"]
    assert [one.origin for one in seen[0].ancestry] == ["user"]
    assert current() is None


# --------------------------------------------------------------------------------------------
# How tools come to a server
# --------------------------------------------------------------------------------------------


def marked(name: str = "inner") -> tuple[FastMCP[Any], list[str]]:
    """A server whose one tool is marked by the decorator, which a mount does not carry along."""
    server: FastMCP[Any] = FastMCP(name)
    ran: list[str] = []

    @server.tool
    @available_in("userChats")
    def wipe() -> str:
        ran.append("wipe")
        return "wiped"

    return server, ran


@pytest.mark.parametrize("how", ["namespace", "renamed", "nested", "transformed", "as it is"])
async def test_a_mark_is_found_through_mounts_and_transforms(how: str) -> None:
    """A mounted or transformed tool has another function, or none; the mark still counts."""
    server, ran = marked()
    front: FastMCP[Any] = FastMCP("front")
    name = {"namespace": "ns_wipe", "renamed": "scrub", "nested": "a_b_wipe"}.get(how, "wipe")
    if how == "namespace":
        front.mount(server, namespace="ns")
    elif how == "renamed":
        front.mount(server, tool_names={"wipe": "scrub"})
    elif how == "nested":
        middle: FastMCP[Any] = FastMCP("middle")
        middle.mount(server, namespace="b")
        front.mount(middle, namespace="a")
    elif how == "transformed":
        tool = await server.get_tool("wipe")
        assert tool is not None
        front.add_tool(HostTool.from_tool(tool, description="wipes"))
    else:
        front = server
    attach(front, PolicyEngine())
    async with connect(front) as client:
        assert await names(client) == (name,)
    async with connect(front, origin="tool") as client:
        assert await names(client) == ()
        await fails(client, name)
    assert ran == []
    async with connect(front) as client:
        assert not (await client.call_tool(name)).is_error
    assert ran == ["wipe"]


async def test_an_attached_server_tells_others_of_its_marks() -> None:
    """A mark is on a function, and a function is not sent: the list says it in ``_meta``."""
    backend, ran = marked()
    attach(backend, PolicyEngine())
    front = create_proxy(backend)
    attach(front, PolicyEngine())
    async with connect(backend) as client:
        (tool,) = (await client.list_tools()).tools
        assert (tool.meta or {})[AVAILABILITY_KEY] == "userChats"
    async with connect(front, origin="tool") as client:
        assert await names(client) == ()
        await fails(client, "wipe")
    async with connect(front) as client:
        assert not (await client.call_tool("wipe")).is_error
    assert ran == ["wipe"]


async def test_of_a_mark_and_metadata_the_narrower_is_told() -> None:
    """Two declarations that disagree: what others are told is what counts here."""
    server: FastMCP[Any] = FastMCP("desk")

    @server.tool(meta={AVAILABILITY_KEY: "session", "kept": 1})
    @available_in("userChats")
    def wipe() -> str:
        return "wiped"

    attach(server, PolicyEngine())
    async with connect(server) as client:
        (tool,) = (await client.list_tools()).tools
        assert (tool.meta or {})[AVAILABILITY_KEY] == "userChats"
        assert (tool.meta or {})["kept"] == 1
        assert await names(client, claim="tool") == ()


async def test_a_front_proxy_protects_a_backend_that_knows_nothing_of_toolscope() -> None:
    """A proxied tool keeps its ``_meta``, so the outermost server can judge it."""
    backend, ran = desk()
    front = create_proxy(backend)
    attach(front, PolicyEngine())
    assert coverage(front) == ()
    async with connect(front, origin="tool") as client:
        assert await names(client) == ("read_doc",)
        await fails(client, "pick_file")
        assert not (await client.call_tool("read_doc", {"page": 3})).is_error
    assert ran == ["read_doc 3"]


async def test_a_backend_behind_a_proxy_does_not_hear_the_clients_claim() -> None:
    """Why toolscope belongs on the outermost server: a proxy does not hand on what a client is."""
    backend, _ = desk()
    attach(backend, PolicyEngine())
    async with connect(create_proxy(backend), origin="tool") as client:
        assert "pick_file" in await names(client)


async def test_parent_and_mounted_child_may_both_be_attached() -> None:
    """The middleware of both runs; a call passes both and runs once."""
    child, ran = desk()
    attach(child, PolicyEngine())
    front: FastMCP[Any] = FastMCP("front")
    front.mount(child, namespace="ns")
    attach(front, PolicyEngine())
    async with connect(front) as client:
        assert not (await client.call_tool("ns_pick_file")).is_error
    assert ran == ["pick_file"]


async def test_a_tool_that_calls_a_tool_is_decided_again() -> None:
    """A call from inside a tool runs through the chain with the scope of the request."""
    server, ran = desk()

    @server.tool
    async def helper(ctx: Context) -> str:
        result = await ctx.fastmcp.call_tool("pick_file")
        return f"failed: {result.is_error}"

    attach(server, PolicyEngine())
    async with connect(server, origin="tool") as client:
        assert text_of(await client.call_tool("helper")) == "failed: True"
    assert ran == []


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("allow", [True, False])
async def test_an_ask_inside_a_tool(era: str, allow: bool) -> None:
    """Over a connection the person is asked; as a result no question could come out: it fails."""
    server, ran = desk()

    class AsksAboutReading:
        name = "asks"

        @hookimpl
        def on_tool_call(self, call: ToolCall) -> Verdict | None:
            return ask("reading costs money") if call.name == "read_doc" else None

    @server.tool
    async def helper(ctx: Context) -> str:
        result = await ctx.fastmcp.call_tool("read_doc")
        return f"failed: {result.is_error}"

    attach(server, PolicyEngine([AsksAboutReading()]))
    person = Person(allow)
    async with connect(server, mode=era, person=person) as client:
        text = text_of(await client.call_tool("helper"))
    runs = allow and era == "legacy"
    assert text == f"failed: {not runs}"
    assert ran == (["read_doc 1"] if runs else [])


async def test_a_search_transform_neither_finds_nor_calls_a_withheld_tool() -> None:
    """Its ``search_tools`` and ``call_tool`` are tools themselves; what they reach is decided."""
    server, ran = desk()
    server.add_transform(BM25SearchTransform())
    attach(server, PolicyEngine())
    async with connect(server) as client:
        found = text_of(await client.call_tool("search_tools", {"query": "pick file"}))
        assert "pick_file" in found
    async with connect(server, origin="tool") as client:
        found = text_of(await client.call_tool("search_tools", {"query": "pick file"}))
        assert "pick_file" not in found
        arguments = {"name": "pick_file", "arguments": {}}
        await fails(client, "call_tool", arguments)
    assert ran == []


async def test_the_backend_tools_of_an_app_are_decided_by_their_address() -> None:
    """A page calls them as ``__<hash>_<name>``, a name that is in no list."""
    app = FastMCPApp("contacts")
    ran: list[str] = []

    @app.tool
    @available_in("userChats")
    def save() -> str:
        ran.append("save")
        return "saved"

    server: FastMCP[Any] = FastMCP("desk", providers=[app])
    attach(server, PolicyEngine())
    address = hashed_backend_name("contacts", "save")
    async with connect(server, origin="tool") as client:
        assert "only available in chats" in await fails(client, address)
    assert ran == []
    async with connect(server) as client:
        assert not (await client.call_tool(address)).is_error
    assert ran == ["save"]


async def test_the_first_of_two_mounts_speaks_for_a_shared_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """FastMCP runs the first one's tool. Where that is withheld, the second's is not shown."""
    front: FastMCP[Any] = FastMCP("front")
    ran: list[str] = []
    for name, meta in (("first", USER_CHATS), ("second", None)):
        child: FastMCP[Any] = FastMCP(name)

        def send(name: str = name) -> str:
            ran.append(name)
            return "sent"

        child.tool(send, meta=meta)
        front.mount(child)
    attach(front, PolicyEngine())
    async with connect(front) as client:
        assert await names(client) == ("send",)
        assert not (await client.call_tool("send")).is_error
    async with connect(front, origin="tool") as client:
        assert await names(client) == ()
        await fails(client, "send")
    assert ran == ["first"]
    (told,) = [one.getMessage() for one in caplog.records if one.name == "toolscope"]
    assert told.startswith("two providers of this server offer a tool 'send'; the first one's is")


async def test_an_injected_tool_is_judged_like_any_other() -> None:
    """A middleware can inject tools that no provider has."""
    server, ran = desk()

    def late() -> str:
        ran.append("late")
        return "ran"

    server.tool(late)  # it gives way to the injected tool of its name
    tool = HostTool.from_function(late, meta=USER_CHATS)
    server.add_middleware(ToolInjectionMiddleware([tool]))
    attach(server, PolicyEngine())
    async with connect(server) as client:
        assert "late" in await names(client)
    async with connect(server, origin="tool") as client:
        assert "late" not in await names(client)
        await fails(client, "late")
    assert ran == []


async def test_a_disabled_tool_fails_like_an_unknown_one() -> None:
    """What the server itself hides is unknown to toolscope."""
    server, ran = desk()
    server.disable(names={"read_doc"})
    attach(server, PolicyEngine())
    async with connect(server) as client:
        hidden = await fails(client, "read_doc")
        assert hidden.replace("read_doc", "X") == (await fails(client, "made_up")).replace(
            "made_up", "X"
        )
    assert ran == []


async def test_the_highest_version_speaks_for_its_name() -> None:
    """A lower version is not shown in the place of a withheld one, but may be asked for."""
    server: FastMCP[Any] = FastMCP("desk")
    ran: list[str] = []

    @server.tool(name="send", version="1")
    def send_1() -> str:
        ran.append("1")
        return "sent"

    @server.tool(name="send", version="2", meta=USER_CHATS)
    def send_2() -> str:
        ran.append("2")
        return "sent"

    attach(server, PolicyEngine())
    async with connect(server) as client:
        assert await names(client) == ("send",)
        await client.call_tool("send")
    async with connect(server, origin="tool") as client:
        assert await names(client) == ()
        await fails(client, "send")
        meta: Any = {"fastmcp": {"version": "2"}}
        assert (await client.call_tool("send", meta=meta)).is_error
        meta = {"fastmcp": {"version": "1"}}
        assert not (await client.call_tool("send", meta=meta)).is_error
    assert ran == ["2", "1"]


async def test_the_version_that_the_host_falls_back_to_is_judged() -> None:
    """Where the caller may not have the highest version, the server runs a lower one."""
    server: FastMCP[Any] = FastMCP("desk")
    ran: list[str] = []

    @server.tool(name="send", version="1", meta=USER_CHATS)
    def send_1() -> str:
        ran.append("1")
        return "sent"

    @server.tool(name="send", version="2", auth=lambda _: False)
    def send_2() -> str:
        ran.append("2")
        return "sent"

    attach(server, PolicyEngine())
    async with connect(server, origin="tool") as client:
        await fails(client, "send")
    assert ran == []
    async with connect(server) as client:
        assert not (await client.call_tool("send")).is_error
    assert ran == ["1"]


# --------------------------------------------------------------------------------------------
# Caches
# --------------------------------------------------------------------------------------------


async def test_a_cache_behind_toolscope_is_harmless() -> None:
    """``attach`` comes first, so what a cache keeps is filtered and decided for each caller."""
    server, ran = desk()
    server.add_middleware(ResponseCachingMiddleware())
    attach(server, PolicyEngine())
    assert coverage(server) == ()
    for _ in range(2):
        async with connect(server) as client:
            assert await names(client) == ("pick_file", "read_doc")
            assert not (await client.call_tool("pick_file")).is_error
        async with connect(server, origin="tool") as client:
            assert await names(client) == ("read_doc",)
            await fails(client, "pick_file")
    assert ran == ["pick_file"]


async def test_a_cache_before_toolscope_is_reported() -> None:
    """It would hand the list and the results of one scope to another."""
    server, _ = desk()
    attach(server, PolicyEngine())
    server.middleware.insert(0, ResponseCachingMiddleware())
    (text,) = coverage(server)
    assert "ResponseCachingMiddleware runs before toolscope" in text
    async with connect(server) as client:
        await names(client)
    async with connect(server, origin="tool") as client:
        assert "pick_file" in await names(client)  # what is reported is true


async def test_coverage_reports_what_may_answer_before_toolscope() -> None:
    """A middleware of one's own that comes first can answer by itself; one that cannot is fine."""

    class Answers(Middleware):
        async def on_call_tool(
            self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]
        ) -> Any:
            return await call_next(context)

    class Greets(Middleware):
        async def on_initialize(
            self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]
        ) -> Any:
            return await call_next(context)

    server, _ = desk()
    assert "not attached" in coverage(server)[0]
    server.middleware[:] = [Answers(), Greets(), ToolscopeMiddleware(PolicyEngine())]
    (text,) = coverage(server)
    assert "Answers runs before toolscope" in text
    attach(server, PolicyEngine())
    assert coverage(server) == ()
    assert [type(one) for one in server.middleware] == [ToolscopeMiddleware, Answers, Greets]


async def test_a_filtered_list_is_not_cached_by_the_client() -> None:
    """The client's cache does not tell callers apart, so the server's hint must not reach it."""
    server, _ = desk(cache_ttl=60)
    server.add_middleware(ToolscopeMiddleware(PolicyEngine()))
    assert any("cache_ttl" in text for text in coverage(server))
    attach(server, PolicyEngine())
    assert coverage(server) == ()
    async with connect(server) as client:
        result = await client.list_tools()
        assert (result.ttl_ms, result.cache_scope) == (0, "private")
        assert await names(client, claim="tool") == ("read_doc",)
        assert await names(client) == ("pick_file", "read_doc")
        assert await names(client, claim="tool") == ("read_doc",)


# --------------------------------------------------------------------------------------------
# Asking
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("allow", [True, False])
async def test_a_person_is_asked_by_elicitation(era: str, allow: bool) -> None:
    """The person reads tool, arguments and reason; the call runs once, or fails as refused."""
    server, ran = desk()
    attach(server, PolicyEngine([Asks()]))
    person = Person(allow)
    async with connect(server, mode=era, person=person) as client:
        result = await client.call_tool("read_doc", {"page": 12})
    (question,) = person.questions
    assert '"read_doc"' in question
    assert '{"page":12}' in question
    assert "reading costs money" in question
    assert ran == (["read_doc 12"] if allow else [])
    assert bool(result.is_error) is not allow
    if not allow:
        assert (result.meta or {})["dev.toolscope/code"] == "approval_refused"


@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_person_is_asked_over_http(era: str, stateless: bool) -> None:
    """The question finds its way back. Without a session the server cannot send one: it fails."""
    server, ran = desk()
    attach(server, PolicyEngine([Asks()]))
    person = Person(True)
    async with (
        served(server.http_app(stateless_http=stateless)) as url,
        Client(url, mode=era, elicitation_callback=person) as client,
    ):
        result = await client.call_tool("read_doc")
    asked = era == "auto" or not stateless
    assert len(person.questions) == int(asked)
    assert ran == (["read_doc 1"] if asked else [])
    if not asked:
        assert (result.meta or {})["dev.toolscope/code"] == "approval_unavailable"


@pytest.mark.parametrize("era", ERAS)
async def test_with_nobody_to_ask_the_call_fails(era: str) -> None:
    """A client without elicitation has nobody there: the call fails at once and says so."""
    server, ran = desk()
    attach(server, PolicyEngine([Asks()]))
    async with connect(server, mode=era) as client:
        result = await client.call_tool("read_doc")
    assert (result.meta or {})["dev.toolscope/code"] == "approval_unavailable"
    assert ran == []


@pytest.mark.parametrize("content", [None, {}, {"approve": False}, {"approve": "yes"}])
@pytest.mark.parametrize("era", ERAS)
async def test_only_an_explicit_yes_allows(era: str, content: Any) -> None:
    """A form sent without the box ticked is no."""
    server, ran = desk()
    attach(server, PolicyEngine([Asks()]))

    async def answers(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content=content)

    async with Client(server._mcp_server, mode=era, elicitation_callback=answers) as client:
        assert (await client.call_tool("read_doc")).is_error
    assert ran == []


async def test_a_client_that_breaks_while_asking_denies() -> None:
    """Whatever fails between the question and the answer is no answer."""
    server, ran = desk()
    attach(server, PolicyEngine([Asks()]))

    async def breaks(context: Any, params: Any) -> ElicitResult:
        raise RuntimeError("the window was closed")

    client = Client(server._mcp_server, mode="legacy", elicitation_callback=breaks)
    async with client:
        result = await client.call_tool("read_doc")
    assert (result.meta or {})["dev.toolscope/code"] == "approval_unavailable"
    assert ran == []


async def test_an_answer_is_for_the_arguments_that_were_asked_about() -> None:
    """A client that comes back with other arguments is refused by the state's own seal."""
    server, ran = desk()
    attach(server, PolicyEngine([Asks()]))
    async with connect(server, person=Person(True)) as client:
        asked = await client.session.call_tool("read_doc", {"page": 1}, allow_input_required=True)
        assert isinstance(asked, InputRequiredResult)
        answer = ElicitResult(action="accept", content={"approve": True})
        answers: Any = dict.fromkeys(asked.input_requests or {}, answer)
        with pytest.raises(MCPError):
            await client.session.call_tool(
                "read_doc",
                {"page": 2},
                input_responses=answers,
                request_state=asked.request_state,
            )
        for runs in (True, False):
            result = await client.session.call_tool(
                "read_doc",
                {"page": 1},
                input_responses=answers,
                request_state=asked.request_state,
            )
            assert bool(result.is_error) is not runs
    assert ran == ["read_doc 1"]


async def test_a_tool_that_asks_itself_begins_with_its_first_round() -> None:
    """It must not take the answer to toolscope's question for one to its own. And what it asks next
    cannot be put behind a rule that asks each time: the state of a call has one owner.
    """
    server: FastMCP[Any] = FastMCP("desk")
    states: list[Any] = []

    @server.tool
    async def guarded(ctx: Context) -> str | InputRequiredResult:
        states.append((ctx.request_state, ctx.input_responses))
        return InputRequiredResult(request_state="mine")

    attach(server, PolicyEngine([Asks()]))
    async with connect(server, person=Person(True)) as client:
        assert "approval" in await fails(client, "guarded")
    assert states == [(None, None)]


async def test_a_forged_state_asks_again() -> None:
    """Nobody was asked about a call that the ledger does not know."""
    server, ran = desk()
    attach(server, PolicyEngine([Asks()]))
    yes = ElicitResult(action="accept", content={"approve": True})
    async with connect(server, person=Person(True)) as client:
        answers: Any = {"dev.toolscope/approval": yes}
        result = await client.session.call_tool(
            "read_doc", {"page": 1}, input_responses=answers, allow_input_required=True
        )
        assert isinstance(result, InputRequiredResult)
    assert ran == []


async def test_calls_that_wait_for_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is asked and never comes back cannot fill the ledger with open calls."""
    monkeypatch.setattr(_mcp_requests, "_WAITING_KEPT", 2)
    server, ran = desk()
    ledger = CallLedger(PolicyEngine([Asks()]))
    attach(server, ledger)
    async with connect(server, person=Person(True)) as client:
        for page in range(5):
            asked = await client.session.call_tool(
                "read_doc", {"page": page}, allow_input_required=True
            )
            assert isinstance(asked, InputRequiredResult)
    assert states(ledger) == ["cancelled"] * 3 + ["asked"] * 2
    assert ran == []


async def test_a_call_that_is_cancelled_while_a_person_thinks_is_closed() -> None:
    """Nothing stays open for an answer that cannot come any more."""
    server, ran = desk()
    ledger = CallLedger(PolicyEngine([Asks()]))
    attach(server, ledger)

    async def thinks(context: Any, params: Any) -> ElicitResult:
        await anyio.sleep_forever()
        raise AssertionError("slept enough")

    async with Client(server._mcp_server, mode="legacy", elicitation_callback=thinks) as client:
        with anyio.move_on_after(0.2):
            await client.call_tool("read_doc")
        with anyio.fail_after(5):
            while states(ledger) != ["cancelled"]:
                await anyio.sleep(0.01)
    assert ran == []


async def test_what_ran_is_completed_and_what_broke_has_failed() -> None:
    """The ledger learns how the calls that it remembers ended."""
    server, _ = desk()

    @server.tool
    def breaks() -> str:
        raise ValueError("no such file")

    ledger = CallLedger(PolicyEngine())
    attach(server, ledger)
    async with connect(server, person=Person(True)) as client:
        await client.call_tool("read_doc")
        await client.call_tool("breaks")
    assert states(ledger) == ["completed", "failed"]


def states(ledger: CallLedger) -> list[str]:
    records = ledger.save()["records"]
    return [record["state"] for key, record in records if key[0] == "call"]


async def test_a_denial_is_counted_for_each_connection() -> None:
    """A model is told that it repeats itself; another client's denials are not its own."""
    server, _ = desk()
    attach(server, PolicyEngine(), scope=Scope(origin="tool"))
    for _ in range(2):
        async with connect(server, mode="legacy") as client:
            assert "number 2" not in await fails(client, "pick_file")
            assert "denial number 2" in await fails(client, "pick_file")


async def test_pages_are_cut_from_the_filtered_list() -> None:
    """A page is never left empty by what is withheld."""
    server, _ = desk(list_page_size=1)
    attach(server, PolicyEngine())
    async with connect(server, origin="tool") as client:
        page = await client.list_tools()
    assert [tool.name for tool in page.tools] == ["read_doc"]
    assert page.next_cursor is None


# --------------------------------------------------------------------------------------------
# Failing closed, and doing nothing twice
# --------------------------------------------------------------------------------------------


async def test_a_policy_that_cannot_be_had_shows_nothing_and_runs_nothing() -> None:
    """An error of our own ends as an empty list and a failed result, not as a protocol error."""
    server, ran = desk()

    def broken() -> PolicyEngine:
        raise RuntimeError("a secret cause")

    attach(server, broken)
    async with connect(server) as client:
        assert await names(client) == ()
        assert "secret" not in await fails(client, "read_doc")
    assert ran == []


async def test_a_tool_that_cannot_be_read_shows_nothing() -> None:
    """A tool whose metadata is no JSON cannot be judged."""
    server, ran = desk()

    @server.tool(meta={AVAILABILITY_KEY: "session", "odd": object()})
    def odd() -> str:
        ran.append("odd")
        return "ran"

    attach(server, PolicyEngine())
    async with connect(server) as client:
        assert await names(client) == ()
        await fails(client, "odd")
        assert not (await client.call_tool("read_doc")).is_error
    assert ran == ["read_doc 1"]


async def test_an_error_of_the_tool_stays_the_hosts() -> None:
    """What the tool raises reaches the client as FastMCP has it."""
    server, _ = desk()

    @server.tool
    def breaks() -> str:
        raise ValueError("no such file")

    attach(server, PolicyEngine())
    async with connect(server) as client:
        assert "no such file" in await fails(client, "breaks")


async def test_the_arguments_that_were_decided_are_those_that_run() -> None:
    """What the caller changes while an async rule is thinking is not run."""
    server: FastMCP[Any] = FastMCP("desk")
    ran: list[list[int]] = []
    pages = [1]

    @server.tool
    def read_docs(pages: list[int]) -> str:
        ran.append(pages)
        return "read"

    class Slow:
        name = "slow"

        @hookimpl
        async def on_tool_call(self, call: ToolCall) -> Verdict | None:
            await anyio.sleep(0)
            pages.append(99)
            return None if call.arguments["pages"] == [1] else deny("the first page only")

    attach(server, PolicyEngine([Slow()]))
    await server.call_tool("read_docs", {"pages": pages})
    assert ran == [[1]]


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
    async with connect(server) as client:
        for _ in range(3):
            await names(client)
            await client.call_tool("read_doc")
        assert seen == [("pick_file", "read_doc"), ("read_doc",)]
        tool = await server.get_tool("read_doc")
        assert tool is not None
        tool.meta = dict(USER_CHATS)
        assert await names(client, claim="tool") == ()
        assert len(seen) == 3
        tool.meta[AVAILABILITY_KEY] = "session"
        assert await names(client, claim="tool") == ("read_doc",)


async def test_a_call_outside_of_any_request_is_decided_in_the_configured_scope() -> None:
    """A program may call its own server; it claims nothing."""
    server, ran = desk()
    attach(server, PolicyEngine(), scope=Scope(origin="tool"))
    assert [tool.name for tool in await server.list_tools()] == ["read_doc"]
    assert (await server.call_tool("pick_file")).is_error
    assert ran == []
