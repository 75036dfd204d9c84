"""What toolscope costs a FastMCP server, over a middleware that does nothing.

python -m tests.benchmarks.hosts.fastmcp
"""

import asyncio
from typing import Any

from fastmcp import FastMCP
from fastmcp.server.middleware import Middleware

from tests.benchmarks.hosts.mcp_runs import ROUNDS, measure
from tests.benchmarks.hosts.turns import Share, report
from toolscope import PolicyEngine, Scope
from toolscope.hosts import AVAILABILITY_KEY
from toolscope.hosts.fastmcp import attach

TOOLS = 12


class Nothing(Middleware):
    """The two hooks of toolscope's middleware, each of them empty."""

    async def on_list_tools(self, context: Any, call_next: Any) -> Any:
        return await call_next(context)

    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        return await call_next(context)


def make_server(middleware: Middleware | None = None) -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("desk", middleware=[middleware] if middleware else None)

    async def run(text: str, number: int = 1) -> str:
        """Does something with a text."""
        return "ok"

    for n in range(TOOLS):
        meta = {AVAILABILITY_KEY: "userChats"} if n % 4 == 0 else None
        server.tool(run, name=f"tool_{n}", meta=meta)
    return server


def shares(rounds: int = ROUNDS) -> list[Share]:
    """The shares of a list and of a call."""
    attached = make_server()
    attach(attached, PolicyEngine(), scope=Scope(origin="user"))
    servers = {
        "no middleware": make_server(),
        "empty hook": make_server(Nothing()),
        "toolscope": attached,
    }
    low_level = {name: server._mcp_server for name, server in servers.items()}
    return asyncio.run(measure("FastMCP", low_level, rounds))


if __name__ == "__main__":
    report(shares())
