"""How the benchmarks of MCP hosts measure: a list and a call in turn, the servers in turn."""

import gc
import statistics
import time
from contextlib import AsyncExitStack
from typing import Any

from mcp import Client

ROUNDS, WARM = 1_500, 50
Times = dict[str, list[float]]


async def measure(servers: dict[str, Any]) -> None:
    """Prints the medians of each server, the ratios to the first, and the last one's share.

    The last is toolscope's, the one before the host's own hook that does nothing. The client is in
    the process and its cache is off.
    """
    lists: Times = {name: [] for name in servers}
    calls: Times = {name: [] for name in servers}
    async with AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(Client(server, cache=None))
            if not isinstance(server, Client)
            else await stack.enter_async_context(server)
            for name, server in servers.items()
        }
        gc.collect()
        gc.disable()
        for round_ in range(ROUNDS + WARM):
            for name, client in clients.items():
                started = time.process_time()
                await client.list_tools()
                listed = time.process_time()
                await client.call_tool("tool_3", {"text": "a"})
                ended = time.process_time()
                if round_ >= WARM:
                    lists[name].append(listed - started)
                    calls[name].append(ended - listed)
            if round_ % 100 == 0:
                gc.collect()
        gc.enable()
    for what, times in (("list", lists), ("call", calls)):
        medians = {name: statistics.median(values) * 1e6 for name, values in times.items()}
        first, *_, nothing, ours = medians
        for name, median in medians.items():
            print(f"{what}  {name:14} {median:8.0f} us  x{median / medians[first]:.3f}")
        pairs = zip(times[ours], times[nothing], strict=True)
        share = statistics.median(mine - theirs for mine, theirs in pairs) * 1e6
        print(f"{what}  our share over {nothing}: {share:.1f} us a hook call")
