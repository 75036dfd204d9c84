"""The OpenAI Agents SDK as a column of the matrix: the real library with its own scripted model."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    ItemHelpers,
    RunConfig,
    RunHooks,
    Runner,
    function_tool,
)
from agents.items import RunItem, ToolCallItem, ToolCallOutputItem
from agents.mcp import MCPServer
from agents.testing import ScriptedModel, assistant_message, function_call
from mcp_types import CallToolResult, TextContent
from mcp_types import Tool as MCPTool
from openai.types.responses import ResponseFunctionToolCall

from tests.hosts.loops import in_thread
from tests.hosts.matrix import Call, Outcome, Result, ToolSpec, Turns
from toolscope import PolicyEngine, Scope
from toolscope.hosts import AVAILABILITY_KEY, available_in
from toolscope.hosts.openai_agents import attach, run_config

CONFIG = RunConfig(tracing_disabled=True)

_ids = count()


def script(turns: Turns) -> ScriptedModel:
    """A model that produces these turns, then a final text."""
    steps: list[Any] = [
        [function_call(c.tool, dict(c.arguments), call_id=f"call_{next(_ids)}") for c in turn]
        for turn in turns
    ]
    return ScriptedModel([*steps, [assistant_message("done")]])


def make_tool(spec: ToolSpec, executed: list[str]) -> FunctionTool:
    """The host has no slot for metadata: every function carries the mark."""

    @available_in(spec.availability)
    def run() -> str:
        executed.append(spec.name)
        return f"ran {spec.name}"

    return function_tool(run, name_override=spec.name, description_override="Runs.")


def listed_by(model: ScriptedModel) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(tool.name for tool in call.tools) for call in model.calls)


def results_of(items: Sequence[RunItem]) -> tuple[Result, ...]:
    """The host's failed results are texts like others; a tool of ours that ran says so."""
    calls = [item.raw_item for item in items if isinstance(item, ToolCallItem)]
    names = {one.call_id: one.name for one in calls if isinstance(one, ResponseFunctionToolCall)}
    results = []
    for item in items:
        if isinstance(item, ToolCallOutputItem):
            text = str(item.output)
            name = names[str(dict(item.raw_item)["call_id"])]
            results.append(Result(tool=name, failed=text != f"ran {name}", text=text))
    return tuple(results)


class Adding(RunHooks[Any]):
    """Gives the agent more tools after the first message."""

    def __init__(self, add: Callable[[], None]) -> None:
        self.add, self.done = add, False

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        if not self.done:
            self.done = True
            self.add()


async def run(agent: Agent[Any], given: Any, stream: bool, sync: bool, **kw: Any) -> Any:
    """Runs the agent by one of the host's ways."""
    config = run_config(CONFIG)
    if stream:
        result = Runner.run_streamed(agent, given, run_config=config, **kw)
        async for _ in result.stream_events():
            pass
        return result
    if sync:
        return await in_thread(lambda: Runner.run_sync(agent, given, run_config=config, **kw))
    return await Runner.run(agent, given, run_config=config, **kw)


class OfferingServer(MCPServer):
    """An MCP server in this process that offers tools and remembers what it ran."""

    def __init__(self, name: str, tools: Sequence[ToolSpec], executed: list[str], **kw: Any):
        super().__init__(**kw)
        self._name, self.tools, self.executed = name, list(tools), executed

    @property
    def name(self) -> str:
        return self._name

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[MCPTool]:
        return [
            MCPTool(
                name=spec.name,
                description="Runs.",
                input_schema={"type": "object", "properties": {}},
                _meta={AVAILABILITY_KEY: spec.availability},
            )
            for spec in self.tools
        ]

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: Any = None
    ) -> CallToolResult:
        self.executed.append(tool_name)
        return CallToolResult(content=[TextContent(type="text", text=f"ran {tool_name}")])

    async def list_prompts(self) -> Any:
        raise NotImplementedError

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        raise NotImplementedError


class OpenAIAgents:
    name = "openai_agents"

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
        executed: list[str] = []
        model = script(turns)
        agent: Agent[Any] = Agent(
            name="agent", model=model, tools=[make_tool(spec, executed) for spec in tools]
        )
        attach(agent, engine, scope=Scope(origin=origin, can_ask=answer is not None))

        def add() -> None:
            agent.tools.extend(make_tool(spec, executed) for spec in added)

        kw = {"hooks": Adding(add)} if added else {}
        result = await run(agent, "go", stream, sync, **kw)
        asked = [item.name for item in result.interruptions]
        items = list(result.new_items)
        if asked:
            state = result.to_state()
            for item in result.interruptions:
                (state.approve if answer else state.reject)(item)
            result = await run(agent, state, stream, sync)
            items = list(result.new_items)
        assert ItemHelpers.text_message_outputs(items) == "done"
        return Outcome(
            listed=listed_by(model),
            results=results_of(items),
            executed=tuple(executed),
            asked=tuple(asked),
        )

    async def sub_agent(
        self,
        engine: PolicyEngine,
        boss_tools: Sequence[ToolSpec],
        worker_tools: Sequence[ToolSpec],
        worker_turns: Turns,
        *,
        declared: str | None = None,
    ) -> tuple[Outcome, Outcome]:
        ran: tuple[list[str], list[str]] = ([], [])
        worker_model = script(worker_turns)
        boss_model = script([[Call(tool="delegate", arguments={"input": "work"})]])
        worker: Agent[Any] = Agent(
            name="worker",
            model=worker_model,
            tools=[make_tool(spec, ran[1]) for spec in worker_tools],
        )
        if declared is not None:
            attach(worker, engine, scope=Scope(origin=declared))
        items: list[RunItem] = []

        async def keep(result: Any) -> str:
            items.extend(result.new_items)
            return str(result.final_output)

        boss: Agent[Any] = Agent(
            name="boss",
            model=boss_model,
            tools=[
                *(make_tool(spec, ran[0]) for spec in boss_tools),
                worker.as_tool("delegate", "Delegates.", custom_output_extractor=keep),
            ],
        )
        attach(boss, engine, scope=Scope(origin="user"))
        result = await run(boss, "go", stream=False, sync=False)
        listed = tuple(
            tuple(name for name in names if name != "delegate") for names in listed_by(boss_model)
        )
        return (
            Outcome(listed=listed, results=results_of(result.new_items), executed=tuple(ran[0])),
            Outcome(
                listed=listed_by(worker_model), results=results_of(items), executed=tuple(ran[1])
            ),
        )

    async def handoff(
        self,
        engine: PolicyEngine,
        first_tools: Sequence[ToolSpec],
        second_tools: Sequence[ToolSpec],
        second_turns: Turns,
    ) -> Outcome:
        executed: list[str] = []
        model = script(second_turns)
        second: Agent[Any] = Agent(
            name="second", model=model, tools=[make_tool(spec, executed) for spec in second_tools]
        )
        first: Agent[Any] = Agent(
            name="first",
            model=script([[Call(tool="transfer_to_second")]]),
            tools=[make_tool(spec, executed) for spec in first_tools],
            handoffs=[second],
        )
        attach(first, engine, scope=Scope(origin="user"))
        result = await run(first, "go", stream=False, sync=False)
        items = [item for item in result.new_items if item.agent is second]
        return Outcome(listed=listed_by(model), results=results_of(items), executed=tuple(executed))

    async def same_name_twice(self, engine: PolicyEngine, turns: Turns) -> Outcome:
        """The host refuses one name twice, so it is told to put the servers' names before it."""
        executed: list[str] = []
        model = script(turns)
        spec = ToolSpec(name="send_mail")
        agent: Agent[Any] = Agent(
            name="agent",
            model=model,
            mcp_servers=[OfferingServer(name, [spec], executed) for name in ("one", "two")],
            mcp_config={"include_server_in_tool_names": True},
        )
        attach(agent, engine, scope=Scope(origin="user"))
        result = await run(agent, "go", stream=False, sync=False)
        return Outcome(
            listed=listed_by(model),
            results=results_of(result.new_items),
            executed=tuple(executed),
        )


COLUMN = OpenAIAgents()
