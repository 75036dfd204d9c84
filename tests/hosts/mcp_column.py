"""The column of the MCP SDK: a real server, a real client in the place of the model."""

from collections.abc import Callable
from typing import Any

from mcp.server import MCPServer

from tests.hosts.matrix import Outcome, ToolSpec, Turns, Unsupported
from tests.hosts.mcp_support import ServerColumn, function_of, meta_of
from toolscope import PolicyEngine
from toolscope.hosts.mcp import attach


class MCPColumn(ServerColumn):
    name = "mcp"

    def server(self, engine: PolicyEngine) -> tuple[Any, Callable[[ToolSpec, list[str]], None]]:
        server: MCPServer[Any] = MCPServer("kb")
        attach(server, engine, trust_declared_origin=True)

        def add(spec: ToolSpec, executed: list[str]) -> None:
            server.add_tool(function_of(spec, executed), name=spec.name, meta=meta_of(spec))

        return server, add

    async def same_name_twice(self, engine: PolicyEngine, turns: Turns) -> Outcome:
        raise Unsupported("an MCPServer has one tool of a name; it composes no other servers")


COLUMN = MCPColumn()
