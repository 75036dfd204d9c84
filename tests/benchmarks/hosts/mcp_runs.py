"""How the benchmarks of MCP hosts measure: a list and a call in turn, the servers in turn."""

import time
from contextlib import AsyncExitStack
from typing import Any

from mcp import Client

from tests.benchmarks.hosts.turns import Share, Turns

ROUNDS = 500


async def measure(host: str, servers: dict[str, Any], rounds: int) -> list[Share]:
    """The shares of a list and of a call. The last server is toolscope's, before it the empty hook.

    The client is in the process and its cache is off.
    """
    *_, nothing, ours = servers
    lists, calls = Turns(list(servers), rounds), Turns(list(servers), rounds)
    async with AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(Client(server, cache=None))
            if not isinstance(server, Client)
            else await stack.enter_async_context(server)
            for name, server in servers.items()
        }
        for name in lists:
            started = time.process_time()
            await clients[name].list_tools()
            lists.note(name, time.process_time() - started)
        for name in calls:
            started = time.process_time()
            await clients[name].call_tool("tool_3", {"text": "a"})
            calls.note(name, time.process_time() - started)
    return [
        lists.share(f"{host}, list", ours, nothing),
        calls.share(f"{host}, call", ours, nothing),
    ]
