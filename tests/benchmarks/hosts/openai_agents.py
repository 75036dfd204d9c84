"""What `attach` costs a run of the OpenAI Agents SDK, over hooks of the host that do nothing.

A run has 12 tools, two model requests and one tool call, so three hook calls that decide: two lists
and a call. Runs of the three kinds alternate, so that the machine's noise meets all of them.

    python -m tests.benchmarks.hosts.openai_agents
"""

import asyncio
import gc
import statistics
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

from toolscope import PolicyEngine, Scope
from toolscope.hosts.openai_agents import attach, run_config

TOOLS, ROUNDS, WARM_UP, HOOK_CALLS = 12, 800, 30, 3


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


async def main() -> None:
    """Prints the medians, and our share of each hook call."""
    base = RunConfig(tracing_disabled=True)
    kinds = {
        "no hook": Agent(name="a", model=Endless(), tools=make_tools()),
        "empty hooks": Agent(
            name="a", model=Endless(), tools=[with_nothing(tool) for tool in make_tools()]
        ),
        "toolscope": attach(
            Agent(name="a", model=Endless(), tools=make_tools()),
            PolicyEngine(),
            scope=Scope(origin="tool"),
        ),
    }
    configs = {"no hook": base, "empty hooks": base, "toolscope": run_config(base)}
    times: dict[str, list[float]] = {name: [] for name in kinds}
    gc.collect()
    gc.disable()
    for round_ in range(ROUNDS + WARM_UP):
        for name, agent in kinds.items():
            started = time.process_time()
            await Runner.run(agent, "go", run_config=configs[name])
            if round_ >= WARM_UP:
                times[name].append(time.process_time() - started)
        if round_ % 100 == 0:
            gc.collect()
    medians = {name: statistics.median(values) * 1e6 for name, values in times.items()}
    for name, median in medians.items():
        print(f"{name:12} {median:8.0f} us a run  x{median / medians['no hook']:.3f}")
    pairs = zip(times["toolscope"], times["empty hooks"], strict=True)
    share = statistics.median(ours - theirs for ours, theirs in pairs) * 1e6 / HOOK_CALLS
    print(f"our share over the empty hooks: {share:.1f} us a hook call")


if __name__ == "__main__":
    asyncio.run(main())
