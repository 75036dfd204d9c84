"""``toolscope proxy``: a real server behind it, a real client before it, over both transports."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Context, FastMCP
from fastmcp.client.transports import FastMCPTransport
from mcp import Client, StdioServerParameters
from mcp.client import advertise

from tests.environments import ROOT, run
from tests.hosts.mcp_support import ERAS, Person, client_of, names, served, text_of
from toolscope import PolicyEngine, Scope, ToolCall, Verdict, ask, hookimpl
from toolscope.cli import main
from toolscope.hosts import AVAILABILITY_KEY, ORIGIN_KEY
from toolscope.hosts._fastmcp_proxy import make_proxy
from toolscope.hosts.fastmcp import coverage

pytestmark = pytest.mark.anyio

SERVER = """
import os, sys
from mcp.server import MCPServer

server = MCPServer("desk")
ran = 0

@server.tool(meta={"dev.toolscope/availability": "userChats"})
def pick_file() -> str:
    open(os.environ["RAN"], "a").write("pick_file\\n")
    return "picked"

@server.tool()
def read_doc(page: int) -> str:
    global ran
    ran += 1
    return f"page {page}, call {ran}, {sys.argv[1:]}"

server.run()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A server that knows nothing of toolscope, and a policy of the built-ins alone."""
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    (tmp_path / "policy.toml").write_text("enable = []\n", encoding="utf-8")
    return tmp_path


def behind(folder: Path, *options: str, command: bool = True, **variables: str) -> Any:
    """What a host starts in the place of the server."""
    server = ["--", sys.executable, str(folder / "server.py"), "--verbose"] if command else []
    config = ["--config", str(folder / "policy.toml")]
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "toolscope.cli", "proxy", *config, *options, *server],
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAN": str(folder / "ran"), **variables},
        cwd=folder,
    )


@asynccontextmanager
async def connected(server: Any, mode: str, origin: str | None = None) -> AsyncIterator[Client]:
    claim = None if origin is None else [advertise(ORIGIN_KEY, {"origin": origin})]
    async with Client(server, mode=mode, extensions=claim) as client:
        yield client


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_command_behind_the_proxy(folder: Path, era: str) -> None:
    """A worker is given the narrow view of a server that was not touched."""
    async with connected(behind(folder, "--origin", "tool"), era) as client:
        assert client.server_info is not None
        assert client.server_info.name == "desk"
        assert await names(client) == ("read_doc",)
        denied = await client.call_tool("pick_file")
        assert denied.is_error
        assert "only available in chats that the user drives" in text_of(denied)
        # One server lives behind one connection, with the arguments it was started with.
        for call in (1, 2):
            result = await client.call_tool("read_doc", {"page": 7})
            assert text_of(result) == f"page 7, call {call}, ['--verbose']"
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("options", "claim", "shown"),
    [
        (("--origin", "user"), "tool", False),
        (("--origin", "tool"), "user", False),
        (("--origin", "tool", "--trust-declared-origin"), "user", True),
    ],
)
async def test_what_a_client_claims(
    folder: Path, options: tuple[str, ...], claim: str | None, shown: bool
) -> None:
    """``--origin`` holds, but for a claim that narrows, and for wider ones that are trusted."""
    async with connected(behind(folder, *options), "auto", claim) as client:
        assert ("pick_file" in await names(client)) is shown
        assert bool((await client.call_tool("pick_file")).is_error) is not shown
    assert (folder / "ran").exists() is shown


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_url_behind_the_proxy(folder: Path, era: str) -> None:
    """The same for a server that is reached over HTTP."""
    server: FastMCP[Any] = FastMCP("desk")
    ran: list[str] = []

    @server.tool(meta={AVAILABILITY_KEY: "userChats"})
    def pick_file() -> str:
        ran.append("pick_file")
        return "picked"

    @server.tool
    def read_doc(page: int) -> str:
        ran.append(f"read_doc {page}")
        return "read"

    async with served(server.http_app()) as url:
        proxy = behind(folder, "--url", url, "--origin", "tool", command=False)
        async with connected(proxy, era) as client:
            assert await names(client) == ("read_doc",)
            assert (await client.call_tool("pick_file")).is_error
            assert not (await client.call_tool("read_doc", {"page": 7})).is_error
    assert ran == ["read_doc 7"]


async def test_the_current_folder_is_not_searched(folder: Path) -> None:
    """An agent that can write where the proxy starts cannot change its policy."""
    (folder / "toolscope.toml").write_text("this is no policy\n", encoding="utf-8")
    done = run(
        [sys.executable, "-m", "toolscope.cli", "proxy", "--", sys.executable, "server.py"],
        cwd=folder,
        given=b"",
        environment={"PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "configuration: none" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name one server: its command after '--', or its --url"),
        (["--url", "http://127.0.0.1:1/mcp", "--", "python"], "name one server"),
        (["--url", "desk.example"], "'desk.example' is no URL; it begins with 'http://'"),
        (["--", "no-such-command"], "there is no command 'no-such-command'; give its path"),
        (["--config", "no-such.toml", "--", sys.executable], "no-such.toml"),
        (["--origin", "robot", "--", sys.executable], "robot"),
    ],
)
def test_bad_usage_starts_nothing(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output is the protocol's: what is wrong goes to standard error, with status 2."""
    assert main(["proxy", *arguments]) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert said in written.err


def test_the_extra_is_named_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without FastMCP the subcommand says what to install."""
    monkeypatch.setattr("toolscope.cli._proxy.find_spec", lambda name: None)
    assert main(["proxy", "--url", "http://127.0.0.1:1/mcp"]) == 2
    assert "pip install 'toolscope-policy[proxy]'" in capsys.readouterr().err


class Asks:
    """Asks a person about every call."""

    name = "asks"

    @hookimpl
    def on_tool_call(self, call: ToolCall) -> Verdict:
        return ask("reading costs money")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("allow", [True, False])
async def test_questions_reach_the_client(era: str, allow: bool) -> None:
    """Those of a rule in both eras; those of the server itself where the protocol has them."""
    server: FastMCP[Any] = FastMCP("desk")
    ran: list[str] = []

    @server.tool
    async def read_doc(ctx: Context) -> str:
        ran.append("read_doc")
        if era == "legacy":
            answer = await ctx.elicit("Really?", bool)
            ran.append(answer.action)
        return "read"

    proxy = make_proxy(FastMCPTransport(server), PolicyEngine([Asks()]), scope=Scope(origin="user"))
    assert coverage(proxy) == ()
    person = Person(allow)
    async with client_of(proxy._mcp_server, mode=era, person=person) as client:
        await names(client)
        result = await client.call_tool("read_doc")
    assert "reading costs money" in person.questions[0]
    if not allow:
        assert result.is_error
        assert ran == []
    elif era == "legacy":
        assert person.questions[1:] == ["Really?"]
        assert ran[0] == "read_doc"
    else:
        assert ran == ["read_doc"]
