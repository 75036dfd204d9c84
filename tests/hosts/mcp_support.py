"""What the columns and tests of the MCP hosts share: a real client, and how it plays a model."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types
import uvicorn
from mcp import Client
from mcp.client import advertise

from tests.hosts.matrix import Call, Outcome, Result, ToolSpec, Turns, Unsupported
from toolscope import PolicyEngine, ToolCall, Verdict, ask, hookimpl
from toolscope.hosts import AVAILABILITY_KEY, ORIGIN_KEY, available_in

ERAS = ("legacy", "2026-07-28")


def function_of(spec: ToolSpec, executed: list[str]) -> Callable[[], str]:
    """The function of a tool; marked where the spec wants the decorator."""

    def run() -> str:
        executed.append(spec.name)
        return f"ran {spec.name}"

    run.__name__ = spec.name
    return available_in(spec.availability)(run) if spec.by_decorator else run


def meta_of(spec: ToolSpec) -> dict[str, Any] | None:
    return None if spec.by_decorator else {AVAILABILITY_KEY: spec.availability}


def text_of(result: mcp_types.CallToolResult) -> str:
    return " ".join(one.text for one in result.content if isinstance(one, mcp_types.TextContent))


class Person:
    """Answers elicitations, and remembers the questions."""

    def __init__(self, allow: bool) -> None:
        self.allow = allow
        self.questions: list[str] = []

    async def __call__(
        self, context: Any, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult:
        self.questions.append(params.message)
        if self.allow:
            return mcp_types.ElicitResult(action="accept", content={"approve": True})
        return mcp_types.ElicitResult(action="decline")


def client_of(
    server: Any, *, origin: str | None = None, mode: str = "auto", person: Person | None = None
) -> Client:
    """A client that claims this origin in its extension settings."""
    return Client(
        server,
        mode=mode,
        extensions=None if origin is None else [advertise(ORIGIN_KEY, {"origin": origin})],
        elicitation_callback=person,
    )


async def fails(client: Client, name: str, arguments: Mapping[str, Any] | None = None) -> str:
    """The text of a call that fails."""
    result = await client.call_tool(name, dict(arguments or {}))
    assert result.is_error
    return text_of(result)


class Asks:
    """Asks a person about every call."""

    name = "asks"

    @hookimpl
    def on_tool_call(self, call: ToolCall) -> Verdict:
        return ask("reading costs money")


async def names(client: Client, claim: str | None = None) -> tuple[str, ...]:
    """The names of the tools that the client is given, ``claim`` made in the request."""
    listed = await client.list_tools(meta=_meta(claim))
    return tuple(tool.name for tool in listed.tools)


def _meta(claim: str | None) -> Any:
    return None if claim is None else {ORIGIN_KEY: claim}


async def play(
    client: Client,
    turns: Turns,
    executed: list[str],
    person: Person | None = None,
    between: Callable[[], None] = lambda: None,
    claim: str | None = None,
) -> Outcome:
    """Plays a model that lists the tools before each message, and runs its calls at once."""
    listed, results = [await names(client, claim)], []
    for turn in turns:
        answers: dict[int, Result] = {}

        async def run(place: int, call: Call, answers: dict[int, Result] = answers) -> None:
            answer = await client.call_tool(call.tool, dict(call.arguments), meta=_meta(claim))
            failed = bool(answer.is_error)
            answers[place] = Result(tool=call.tool, failed=failed, text=text_of(answer))

        async with anyio.create_task_group() as group:
            for place, call in enumerate(turn):
                group.start_soon(run, place, call)
        results += [answers[place] for place in range(len(turn))]
        between()
        listed.append(await names(client, claim))
    asked = () if person is None else tuple(_named(text, turns) for text in person.questions)
    return Outcome(
        listed=tuple(listed), results=tuple(results), executed=tuple(executed), asked=asked
    )


def _named(question: str, turns: Turns) -> str:
    """The tool that a question is about."""
    return next(call.tool for turn in turns for call in turn if f'"{call.tool}"' in question)


class ServerColumn:
    """The column of an MCP server: a real client stands in the place of the model.

    The servers trust what their callers claim, so that a scenario can choose the origin.
    """

    name = "server"

    def server(self, engine: PolicyEngine) -> tuple[Any, Callable[[ToolSpec, list[str]], None]]:
        """A protected server for a client to connect to, and what adds a tool to it."""
        raise NotImplementedError

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
        claim: str | None = None,
    ) -> Outcome:
        """``origin`` is what the client advertises, ``claim`` what each request says beside it."""
        if stream or sync:
            raise Unsupported("a server has one way to answer a call, and it is async")
        executed: list[str] = []
        server, add = self.server(engine)
        for spec in tools:
            add(spec, executed)
        person = None if answer is None else Person(answer)
        between = added_once(added, lambda spec: add(spec, executed))
        async with client_of(server, origin=origin, person=person) as client:
            return await play(client, turns, executed, person, between, claim)

    async def sub_agent(
        self,
        engine: PolicyEngine,
        boss_tools: Sequence[ToolSpec],
        worker_tools: Sequence[ToolSpec],
        worker_turns: Turns,
        *,
        declared: str | None = None,
    ) -> tuple[Outcome, Outcome]:
        """The host advertises the worker's origin; the worker declares its own in each request."""
        boss = await self.chat(engine, boss_tools, [], origin="user")
        worker = await self.chat(engine, worker_tools, worker_turns, origin="tool", claim=declared)
        return boss, worker

    async def handoff(
        self,
        engine: PolicyEngine,
        first_tools: Sequence[ToolSpec],
        second_tools: Sequence[ToolSpec],
        second_turns: Turns,
    ) -> Outcome:
        raise Unsupported("a server has no agents: a handoff changes nothing it can see")


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """Serves an ASGI application on the loopback interface; gives the URL of its endpoint."""
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", ws="none")
    )
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve)
        with anyio.fail_after(20):
            while not server.started:
                await anyio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.should_exit = True


def added_once(added: Sequence[ToolSpec], add: Callable[[ToolSpec], None]) -> Callable[[], None]:
    """Adds the tools when it is called first."""
    left = list(added)

    def between() -> None:
        while left:
            add(left.pop(0))

    return between
