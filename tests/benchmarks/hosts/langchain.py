"""What toolscope adds to a run of a LangChain agent, over a middleware that does nothing.

A run is two model calls and one tool call with 12 tools: three hook calls. Runs without a hook,
with a middleware that does nothing, and with toolscope take turns, so that noise hits all alike.

    python -m tests.benchmarks.hosts.langchain
"""

import asyncio
import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware

from tests.hosts.langchain_support import make_tool, scripted
from tests.hosts.matrix import Call, ToolSpec
from toolscope import PolicyEngine, ToolCall, Verdict, hookimpl
from toolscope.hosts.langchain import Toolscope

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 300
HOOK_CALLS = 3


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


def timed(made: tuple[Any, Any], run: Callable[[Any], Any]) -> float:
    graph, model = made
    model.produced = 0
    model.listed.clear()
    start = time.process_time()
    run(graph)
    return time.process_time() - start


def compare(title: str, run: Callable[[Any], Any], create: Any = create_agent) -> None:
    kinds = {
        "no hook": agent([], create),
        "no-op hook": agent([NoOp()], create),
        "toolscope": agent([Toolscope(PolicyEngine([Rule()]))], create),
    }
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for made in kinds.values():
        for _ in range(10):
            timed(made, run)
    gc.disable()
    for _ in range(ROUNDS):
        for kind, made in kinds.items():
            times[kind].append(timed(made, run))
    gc.enable()
    medians = {kind: statistics.median(row) * 1e6 for kind, row in times.items()}
    shares = [
        (ours - noop) * 1e6 / HOOK_CALLS
        for ours, noop in zip(times["toolscope"], times["no-op hook"], strict=True)
    ]
    quiet = [statistics.quantiles(times[kind], n=10)[0] for kind in ("toolscope", "no-op hook")]
    print(f"{title}: " + ", ".join(f"{kind} {us:.0f} us" for kind, us in medians.items()))
    print(
        f"  ratio to the no-op hook {medians['toolscope'] / medians['no-op hook']:.3f}, our share "
        f"{statistics.median(shares):.1f} us per hook call (of the quietest tenth of the runs: "
        f"{(quiet[0] - quiet[1]) * 1e6 / HOOK_CALLS:.1f} us)"
    )


GIVEN = {"messages": [("user", "go")]}


def main(create: Any = create_agent) -> None:
    compare("sync", lambda graph: graph.invoke(GIVEN), create)
    with asyncio.Runner() as runner:
        compare("async", lambda graph: runner.run(graph.ainvoke(GIVEN)), create)


if __name__ == "__main__":
    main()
