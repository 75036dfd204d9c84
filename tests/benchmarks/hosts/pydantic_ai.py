"""What Toolscope costs a run of Pydantic AI, over a capability of the host that does nothing.

A run has 12 tools, two model requests and one tool call, so three hook calls that decide: two lists
and a call.

    python -m tests.benchmarks.hosts.pydantic_ai
"""

import asyncio
import time
from typing import Any

from pydantic_ai import Agent, Tool
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import AbstractToolset, WrapperToolset

from tests.benchmarks.hosts.turns import Share, Turns, report
from toolscope import PolicyEngine, Scope
from toolscope.hosts import AVAILABILITY_KEY
from toolscope.hosts.pydantic_ai import Toolscope

TOOLS, ROUNDS, HOOK_CALLS = 12, 500, 3


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


async def measure(rounds: int) -> list[Share]:
    agents = {
        "no capability": make_agent([]),
        "empty capability": make_agent([Nothing()]),
        "toolscope": make_agent([Toolscope(PolicyEngine(), scope=Scope(origin="tool"))]),
    }
    turns = Turns(list(agents), rounds)
    for kind in turns:
        started = time.process_time()
        await agents[kind].run("go")
        turns.note(kind, time.process_time() - started)
    return [turns.share("Pydantic AI", "toolscope", "empty capability", HOOK_CALLS)]


def shares(rounds: int = ROUNDS) -> list[Share]:
    """The share of each of the hook calls that decide."""
    return asyncio.run(measure(rounds))


if __name__ == "__main__":
    report(shares())
