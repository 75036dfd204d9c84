"""What toolscope adds to a run of a LangChain agent, over a middleware that does nothing.

A run is two model calls and one tool call with 12 tools: three hook calls.

    python -m tests.benchmarks.hosts.langchain
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware

from tests.benchmarks.hosts.turns import Share, Turns, report
from tests.hosts.langchain_support import make_tool, scripted
from tests.hosts.matrix import Call, ToolSpec
from toolscope import PolicyEngine, ToolCall, Verdict, hookimpl
from toolscope.hosts.langchain import Toolscope

ROUNDS, HOOK_CALLS = 300, 3


class NoOp(AgentMiddleware[Any, Any, Any]):
    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request)

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return handler(request)

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return await handler(request)


class Rule:
    name = "rule"

    @hookimpl
    def on_tool_call(self, call: ToolCall) -> Verdict | None:
        return None


def agent(middleware: list[Any], create: Any = create_agent) -> tuple[Any, Any]:
    names = [f"tool_{n}" for n in range(10)]
    tools = [make_tool(ToolSpec(name=name), []) for name in names]
    tools += [make_tool(ToolSpec(name=f"mine_{n}", availability="userChats"), []) for n in range(2)]
    model = scripted([[Call(tool="tool_3", arguments={"value": "x"})]])
    return create(model, tools, middleware=middleware), model


def shares(
    rounds: int = ROUNDS, create: Any = create_agent, host: str = "LangChain"
) -> list[Share]:
    """The shares of the sync and of the async hooks."""
    with asyncio.Runner() as runner:
        ways: dict[str, Callable[[Any], object]] = {
            "sync": lambda graph: graph.invoke(GIVEN),
            "async": lambda graph: runner.run(graph.ainvoke(GIVEN)),
        }
        return [compare(f"{host}, {way}", run, create, rounds) for way, run in ways.items()]


def compare(what: str, run: Callable[[Any], object], create: Any, rounds: int) -> Share:
    kinds = {
        "no hook": agent([], create),
        "empty hook": agent([NoOp()], create),
        "toolscope": agent([Toolscope(PolicyEngine([Rule()]))], create),
    }
    turns = Turns(list(kinds), rounds)
    for kind in turns:
        graph, model = kinds[kind]
        model.produced = 0
        model.listed.clear()
        started = time.process_time()
        run(graph)
        turns.note(kind, time.process_time() - started)
    return turns.share(what, "toolscope", "empty hook", HOOK_CALLS)


GIVEN = {"messages": [("user", "go")]}


if __name__ == "__main__":
    report(shares())
