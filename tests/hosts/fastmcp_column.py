"""The column of FastMCP: a real server, a real client in the place of the model."""

from collections.abc import Callable
from typing import Any

from fastmcp import FastMCP

from tests.hosts.matrix import Outcome, ToolSpec, Turns
from tests.hosts.mcp_support import ServerColumn, client_of, function_of, meta_of, play
from toolscope import PolicyEngine
from toolscope.hosts.fastmcp import attach


class FastMCPColumn(ServerColumn):
    name = "fastmcp"

    def server(self, engine: PolicyEngine) -> tuple[Any, Callable[[ToolSpec, list[str]], None]]:
        server: FastMCP[Any] = FastMCP("kb")
        attach(server, engine, trust_declared_origin=True)

        def add(spec: ToolSpec, executed: list[str]) -> None:
            server.tool(name=spec.name, meta=meta_of(spec))(function_of(spec, executed))

        return server._mcp_server, add

    async def same_name_twice(self, engine: PolicyEngine, turns: Turns) -> Outcome:
        """Two mounted servers, told apart in the host's way: by namespaces."""
        executed: list[str] = []
        server: FastMCP[Any] = FastMCP("front")
        for name in ("desk", "phone"):
            child: FastMCP[Any] = FastMCP(name)
            child.tool(function_of(ToolSpec(name="send_mail"), executed))
            server.mount(child, namespace=name)
        attach(server, engine)
        async with client_of(server._mcp_server) as client:
            return await play(client, turns, executed)


COLUMN = FastMCPColumn()
