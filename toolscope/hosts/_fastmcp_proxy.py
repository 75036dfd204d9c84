"""A policy in front of an MCP server that cannot be changed; what ``toolscope proxy`` runs."""

import os
from collections.abc import Sequence
from typing import Any

from fastmcp import FastMCP
from fastmcp.client.transports import ClientTransport, StdioTransport, StreamableHttpTransport
from fastmcp.server.dependencies import get_context
from fastmcp.server.providers.proxy import FastMCPProxy, StatefulProxyClient
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolscope.hosts._point import Policy
from toolscope.hosts.fastmcp import attach
from toolscope.model import Scope

__all__ = ["make_proxy", "transport_to"]


def transport_to(command: Sequence[str], url: str | None) -> ClientTransport:
    """The way to the server: a command that speaks MCP on its standard streams, or a URL."""
    if url is not None:
        return StreamableHttpTransport(url)
    # A client hands on a few variables only; a proxy must not take any from the server.
    return StdioTransport(command[0], list(command[1:]), env=dict(os.environ))


def make_proxy(
    transport: ClientTransport,
    policy: Policy,
    *,
    scope: Scope | None = None,
    trust_declared_origin: bool = False,
) -> FastMCP[Any]:
    """A server that offers what the one behind ``transport`` offers, under a policy.

    Each client has one connection of its own behind it, in the client's own era of the protocol, so
    that the server's state and its questions to the client survive.
    """
    clients: StatefulProxyClient[Any] = StatefulProxyClient(transport)

    def client() -> Any:
        behind = clients.new_stateful()
        request = get_context().request_context
        if request is not None and not behind.is_connected():
            version = request.protocol_version
            behind.mode = version if version in MODERN_PROTOCOL_VERSIONS else "legacy"
        return behind

    server: FastMCP[Any] = FastMCPProxy(
        client_factory=client,
        name="toolscope",
        identity="upstream",
        provider_error_strategy="raise",
    )
    attach(server, policy, scope=scope, trust_declared_origin=trust_declared_origin)
    return server
