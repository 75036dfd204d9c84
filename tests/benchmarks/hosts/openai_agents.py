"""What `attach` costs a run of the OpenAI Agents SDK, over hooks of the host that do nothing.

A run has 12 tools, two model requests and one tool call: two hook calls for the lists, and three
for the call (whether a person must approve it, the input guardrail, the invocation).

    python -m tests.benchmarks.hosts.openai_agents
"""

import asyncio
import time
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    RunConfig,
    Runner,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    function_tool,
)
from agents.testing import ScriptedModel, assistant_message, function_call

from tests.benchmarks.hosts.turns import Share, Turns, report
from toolscope import PolicyEngine, Scope
from toolscope.hosts.openai_agents import attach, run_config

TOOLS, ROUNDS, HOOK_CALLS = 12, 500, 5


class Endless(ScriptedModel):
    """One call, one text, and again."""

    async def get_response(self, *args: Any, **kw: Any) -> Any:
        if not self.remaining_steps:
            self._calls.clear()
            self.enqueue([function_call("tool_3", {"text": "a"}, call_id="c1")])
            self.enqueue([assistant_message("done")])
        return await super().get_response(*args, **kw)


def make_tools() -> list[Any]:
    async def run(text: str) -> str:
        """Does something with a text."""
        return "ok"

    return [function_tool(run, name_override=f"tool_{n}") for n in range(TOOLS)]


async def invoked(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
    return False


def with_nothing(tool: FunctionTool) -> FunctionTool:
    """The tool with the host's hooks in the places of Toolscope's, each of them empty."""
    inner = tool.on_invoke_tool

    async def invoke(context: Any, arguments: str) -> Any:
        return await inner(context, arguments)

    async def check(data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.allow()

    tool.on_invoke_tool = invoke
    tool.needs_approval = invoked
    tool.tool_input_guardrails = [ToolInputGuardrail(guardrail_function=check)]
    return tool


async def measure(rounds: int) -> list[Share]:
    plain = RunConfig(tracing_disabled=True)
    empty = [with_nothing(tool) for tool in make_tools()]
    attached = attach(make_agent(make_tools()), PolicyEngine(), scope=Scope(origin="tool"))
    kinds = {
        "no hook": (make_agent(make_tools()), plain),
        "empty hooks": (make_agent(empty), plain),
        "toolscope": (attached, run_config(plain)),
    }
    turns = Turns(list(kinds), rounds)
    for kind in turns:
        agent, config = kinds[kind]
        started = time.process_time()
        await Runner.run(agent, "go", run_config=config)
        turns.note(kind, time.process_time() - started)
    return [turns.share("OpenAI Agents", "toolscope", "empty hooks", HOOK_CALLS)]


def make_agent(tools: list[Any]) -> Agent[Any]:
    return Agent(name="a", model=Endless(), tools=tools)


def shares(rounds: int = ROUNDS) -> list[Share]:
    """The share of each of the hook calls."""
    return asyncio.run(measure(rounds))


if __name__ == "__main__":
    report(shares())
