"""What Toolscope costs a run of Pydantic AI, over a capability of the host that does nothing.

A run has 12 tools, two model requests and one tool call, so three hook calls that decide: two lists
and a call. Runs of the three kinds alternate, so that the machine's noise meets all of them.

    python -m tests.benchmarks.hosts.pydantic_ai
"""

import asyncio
import gc
import statistics
import time
from typing import Any

from pydantic_ai import Agent, Tool
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import AbstractToolset, WrapperToolset

from toolscope import PolicyEngine, Scope
from toolscope.hosts import AVAILABILITY_KEY
from toolscope.hosts.pydantic_ai import Toolscope

TOOLS, ROUNDS, HOOK_CALLS = 12, 1_500, 3


class Nothing(AbstractCapability[Any]):
    """The same hooks as Toolscope's in the same place, each of them empty."""

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="innermost")

    async def for_run(self, ctx: Any) -> "Nothing":
        return Nothing()

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return WrapperToolset(toolset)

    async def prepare_model_request(self, ctx: Any, request_context: Any) -> Any:
        return request_context

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
        return response

    async def before_tool_validate(self, ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        return args

    async def after_tool_validate(self, ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        return args

    async def before_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        return args

    async def wrap_tool_execute(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        return await handler(args)

    async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
        return await handler()


def make_agent(capabilities: list[AbstractCapability[Any]]) -> Agent[None, str]:
    async def run(text: str, number: int = 1) -> str:
        """Does something with a text."""
        return "ok"

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("tool_3", {"text": "a"}, "c1")])

    tools = [
        Tool(
            run, name=f"tool_{n}", metadata={AVAILABILITY_KEY: "userChats"} if n % 4 == 0 else None
        )
        for n in range(TOOLS)
    ]
    return Agent(FunctionModel(model), tools=tools, capabilities=capabilities)


async def main() -> None:
    """Prints the medians, and our share of each hook call."""
    agents = {
        "no capability": make_agent([]),
        "empty capability": make_agent([Nothing()]),
        "toolscope": make_agent([Toolscope(PolicyEngine(), scope=Scope(origin="tool"))]),
    }
    times: dict[str, list[float]] = {name: [] for name in agents}
    gc.collect()
    gc.disable()
    for round_ in range(ROUNDS + 50):
        for name, agent in agents.items():
            started = time.process_time()
            await agent.run("go")
            if round_ >= 50:
                times[name].append(time.process_time() - started)
        if round_ % 100 == 0:
            gc.collect()
    medians = {name: statistics.median(values) * 1e6 for name, values in times.items()}
    for name, median in medians.items():
        print(f"{name:18} {median:8.0f} us a run  x{median / medians['no capability']:.3f}")
    pairs = zip(times["toolscope"], times["empty capability"], strict=True)
    share = statistics.median(ours - theirs for ours, theirs in pairs) * 1e6 / HOOK_CALLS
    print(f"our share over the empty capability: {share:.1f} us a hook call")


if __name__ == "__main__":
    asyncio.run(main())
