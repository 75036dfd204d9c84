"""The words of the host matrix: what a scenario gives a host, and what it wants to see.

Every host is one column: a module ``tests/hosts/<host>_column.py`` with a class that has the
methods of `Column`. A column runs the real host library with a scripted model (or a real client,
for MCP servers) and reports what happened; it decides nothing and expects nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import attrs

from toolscope import PolicyEngine


@attrs.frozen(kw_only=True)
class ToolSpec:
    """A tool to make in the host's way; running it records its name and gives ``ran NAME``."""

    name: str
    availability: str = "session"
    by_decorator: bool = False
    """True: marked with ``@available_in``; False: in the host's own slot where it has one."""


@attrs.frozen(kw_only=True)
class Call:
    """One call that the scripted model produces, whether the tool was listed or not."""

    tool: str
    arguments: Mapping[str, Any] = attrs.field(factory=dict)


Turns = Sequence[Sequence[Call]]
"""What the scripted model produces: each item is one message with (parallel) calls. After the last
one it answers with a final text."""


@attrs.frozen(kw_only=True)
class Result:
    """What the model (or client) was given for one call."""

    tool: str
    failed: bool
    text: str


@attrs.frozen(kw_only=True)
class Outcome:
    """What happened in one chat.

    ``listed`` holds the names of the tools of each list that the model or client received, in
    order, tools of the host's own machinery (delegation, handoff) left out. ``executed`` are the
    names of the tools that really ran. ``asked`` are the tools that a person was asked about.
    ``finished`` says that the run ended by itself, without an exception.
    """

    listed: tuple[tuple[str, ...], ...]
    results: tuple[Result, ...]
    executed: tuple[str, ...]
    asked: tuple[str, ...] = ()
    finished: bool = True


class Column(Protocol):
    """One host. A method that the host has no counterpart for raises `Unsupported` with the why."""

    name: str

    async def chat(
        self,
        engine: PolicyEngine,
        tools: Sequence[ToolSpec],
        turns: Turns,
        *,
        origin: str | None = "user",
        stream: bool = False,
        sync: bool = False,
        answer: bool | None = None,
        added: Sequence[ToolSpec] = (),
    ) -> Outcome:
        """One chat. ``answer`` is what a person says to every ask (None: nobody can be asked);
        ``added`` are tools that appear after the first message."""

    async def sub_agent(
        self,
        engine: PolicyEngine,
        boss_tools: Sequence[ToolSpec],
        worker_tools: Sequence[ToolSpec],
        worker_turns: Turns,
        *,
        declared: str | None = None,
    ) -> tuple[Outcome, Outcome]:
        """A boss in a user chat whose model delegates once to a worker in the host's idiomatic way;
        ``declared`` is an origin the worker declares for itself. Boss's and worker's outcome."""

    async def handoff(
        self,
        engine: PolicyEngine,
        first_tools: Sequence[ToolSpec],
        second_tools: Sequence[ToolSpec],
        second_turns: Turns,
    ) -> Outcome:
        """A chat handed from one agent to another; the outcome of the second agent's part."""

    async def same_name_twice(self, engine: PolicyEngine, turns: Turns) -> Outcome:
        """Two MCP servers (or other providers) that both offer ``send_mail``."""


class Unsupported(Exception):
    """The host has no counterpart for this scenario; the text says why."""
