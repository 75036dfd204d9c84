"""Blocking ways of hosts, tried out from async tests."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread

T = TypeVar("T")


async def in_thread(function: Callable[[], T]) -> T:
    """Runs a blocking way of a host where no loop runs, in a loop that is closed again."""

    def call() -> T:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            return function()
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    return await anyio.to_thread.run_sync(call)
