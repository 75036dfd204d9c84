"""What toolscope costs a server and a client of the MCP SDK, over wrappers that do nothing.

python -m tests.benchmarks.hosts.mcp
"""

import asyncio
from typing import Any

from mcp import Client
from mcp.server import MCPServer

from tests.benchmarks.hosts.mcp_runs import ROUNDS, measure
from tests.benchmarks.hosts.turns import Share, report
from toolscope import PolicyEngine, Scope
from toolscope.hosts import AVAILABILITY_KEY
from toolscope.hosts.mcp import ScopedClient, attach

TOOLS = 12


class Nothing(Client):
    """The two methods of a scoped client, each of them handed on."""

    async def list_tools(self, **settings: Any) -> Any:
        return await super().list_tools(**settings)

    async def call_tool(self, *arguments: Any, **settings: Any) -> Any:
        return await super().call_tool(*arguments, **settings)


def make_server() -> MCPServer[Any]:
    # At INFO the server prints the decision log, which takes longer than all the rest.
    server: MCPServer[Any] = MCPServer("desk", log_level="WARNING")

    async def run(text: str, number: int = 1) -> str:
        """Does something with a text."""
        return "ok"

    for n in range(TOOLS):
        meta = {AVAILABILITY_KEY: "userChats"} if n % 4 == 0 else None
        server.add_tool(run, name=f"tool_{n}", meta=meta)
    return server


def wrap_with_nothing(server: MCPServer[Any]) -> MCPServer[Any]:
    low_level = server._lowlevel_server
    for method in ("tools/list", "tools/call"):
        entry = low_level.get_request_handler(method)
        assert entry is not None

        async def handler(request: Any, params: Any, inner: Any = entry.handler) -> Any:
            return await inner(request, params)

        low_level.add_request_handler(method, entry.params_type, handler)
    return server


async def both(rounds: int) -> list[Share]:
    scope = Scope(origin="user")
    attached = make_server()
    attach(attached, PolicyEngine(), scope=scope)
    servers = {
        "bare handlers": make_server(),
        "empty hook": wrap_with_nothing(make_server()),
        "toolscope": attached,
    }
    scoped = ScopedClient(
        make_server(), policy=PolicyEngine(), server_id="desk", scope=scope, cache=None
    )
    clients = {
        "Client": Client(make_server(), cache=None),
        "empty hook": Nothing(make_server(), cache=None),
        "toolscope": scoped,
    }
    return [
        *await measure("MCP server", servers, rounds),
        *await measure("MCP client", clients, rounds),
    ]


def shares(rounds: int = ROUNDS) -> list[Share]:
    """The shares of the hook calls of a server, and of a client."""
    return asyncio.run(both(rounds))


if __name__ == "__main__":
    report(shares())
