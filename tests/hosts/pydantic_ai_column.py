"""Pydantic AI as a column of the matrix: the real library with a scripted model."""

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    PrefixedToolset,
    Tool,
    ToolApproved,
    ToolDenied,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from tests.hosts.loops import in_thread
from tests.hosts.matrix import Call, Outcome, Result, ToolSpec, Turns
from toolscope import PolicyEngine, Scope
from toolscope.hosts import AVAILABILITY_KEY, ORIGIN_KEY, available_in
from toolscope.hosts.pydantic_ai import Toolscope

_ids = count()


class Script:
    """A model that produces these turns, then a final text; keeps the names it was shown."""

    def __init__(self, turns: Turns, on_turn: Callable[[int], None] | None = None) -> None:
        self.turns, self.on_turn, self.place = list(turns), on_turn, 0
        self.listed: list[tuple[str, ...]] = []
        self.model = FunctionModel(self.answer, stream_function=self.stream)

    def next(self, info: AgentInfo) -> list[ToolCallPart]:
        self.listed.append(tuple(tool.name for tool in info.function_tools))
        turn = self.turns[self.place] if self.place < len(self.turns) else ()
        self.place += 1
        if self.on_turn is not None:
            self.on_turn(self.place)
        return [ToolCallPart(c.tool, dict(c.arguments), f"call_{next(_ids)}") for c in turn]

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        calls = self.next(info)
        return ModelResponse(parts=calls) if calls else ModelResponse(parts=[TextPart("done")])

    async def stream(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls]:
        calls = self.next(info)
        if not calls:
            yield "done"
        for place, call in enumerate(calls):
            yield {
                place: DeltaToolCall(
                    name=call.tool_name,
                    json_args=call.args_as_json_str(),
                    tool_call_id=call.tool_call_id,
                )
            }


def make_tool(spec: ToolSpec, executed: list[str]) -> Tool[None]:
    async def run() -> str:
        executed.append(spec.name)
        return f"ran {spec.name}"

    if spec.by_decorator:
        return Tool(available_in(spec.availability)(run), name=spec.name)
    return Tool(run, name=spec.name, metadata={AVAILABILITY_KEY: spec.availability})


def results_of(messages: Sequence[ModelMessage]) -> tuple[Result, ...]:
    return tuple(
        Result(tool=part.tool_name, failed=part.outcome != "success", text=str(part.content))
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    )


async def run(
    agent: Agent[None, Any], prompt: str | None, stream: bool, sync: bool, **kw: Any
) -> Any:
    """Runs the agent by one of the host's four ways."""
    if stream and sync:

        def streamed() -> Any:
            with agent.run_stream_sync(prompt, **kw) as result:
                result.get_output()
                return result

        return await in_thread(streamed)
    if stream:
        async with agent.run_stream(prompt, **kw) as result:
            await result.get_output()
            return result
    if sync:
        return await in_thread(partial(agent.run_sync, prompt, **kw))
    return await agent.run(prompt, **kw)


class PydanticAI:
    name = "pydantic_ai"

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
        toolset: FunctionToolset[None] = FunctionToolset(
            [make_tool(spec, executed) for spec in tools]
        )

        def add(turn: int) -> None:
            if turn == 1:
                for spec in added:
                    toolset.add_tool(make_tool(spec, executed))

        script = Script(turns, add)
        agent: Agent[None, Any] = Agent(
            script.model,
            toolsets=[toolset],
            output_type=str if answer is None else [str, DeferredToolRequests],
            capabilities=[Toolscope(engine, scope=Scope(origin=origin))],
        )
        result = await run(agent, "go", stream, sync)
        asked: list[str] = []
        output = getattr(result, "output", None)
        if isinstance(output, DeferredToolRequests):
            asked = [call.tool_name for call in output.approvals]
            said: bool | ToolApproved | ToolDenied = True if answer else ToolDenied("no")
            approvals = {call.tool_call_id: said for call in output.approvals}
            result = await run(
                agent,
                None,
                stream,
                sync,
                message_history=result.all_messages(),
                deferred_tool_results=DeferredToolResults(approvals=approvals),
            )
        return Outcome(
            listed=tuple(script.listed),
            results=results_of(result.all_messages()),
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
        worker_script = Script(worker_turns)
        worker = Agent(
            worker_script.model,
            name="worker",
            tools=[make_tool(spec, ran[1]) for spec in worker_tools],
            capabilities=[Toolscope(engine, scope=Scope(origin=declared))],
        )
        messages: list[ModelMessage] = []

        async def delegate() -> str:
            metadata = None if declared is None else {ORIGIN_KEY: declared}
            result = await worker.run("work", metadata=metadata)
            messages.extend(result.all_messages())
            return result.output

        boss_script = Script([[Call(tool="delegate")]])
        boss = Agent(
            boss_script.model,
            name="boss",
            tools=[*(make_tool(spec, ran[0]) for spec in boss_tools), delegate],
            capabilities=[Toolscope(engine, scope=Scope(origin="user"))],
        )
        result = await boss.run("go")
        listed = tuple(
            tuple(name for name in names if name != "delegate") for names in boss_script.listed
        )
        return (
            Outcome(
                listed=listed,
                results=results_of(result.all_messages()),
                executed=tuple(ran[0]),
            ),
            Outcome(
                listed=tuple(worker_script.listed),
                results=results_of(messages),
                executed=tuple(ran[1]),
            ),
        )

    async def handoff(
        self,
        engine: PolicyEngine,
        first_tools: Sequence[ToolSpec],
        second_tools: Sequence[ToolSpec],
        second_turns: Turns,
    ) -> Outcome:
        """The host's hand-off by an output function: the second agent's run ends the first's."""
        executed: list[str] = []
        script = Script(second_turns)
        capability = Toolscope(engine, scope=Scope(origin="user"))
        second = Agent(
            script.model,
            name="second",
            tools=[make_tool(spec, executed) for spec in second_tools],
            capabilities=[capability],
        )
        messages: list[ModelMessage] = []

        async def hand_off(query: str) -> str:
            result = await second.run(query)
            messages.extend(result.all_messages())
            return result.output

        def first_model(_: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {"query": "go"})])

        first: Agent[None, str] = Agent(
            FunctionModel(first_model),
            name="first",
            output_type=hand_off,
            tools=[make_tool(spec, executed) for spec in first_tools],
            capabilities=[capability],
        )
        await first.run("go")
        return Outcome(
            listed=tuple(script.listed), results=results_of(messages), executed=tuple(executed)
        )

    async def same_name_twice(self, engine: PolicyEngine, turns: Turns) -> Outcome:
        """The host refuses one name twice, so both servers' tools are prefixed."""
        executed: list[str] = []
        script = Script(turns)
        agent = Agent(
            script.model,
            toolsets=[
                PrefixedToolset(
                    FunctionToolset([make_tool(ToolSpec(name="send_mail"), executed)]), prefix
                )
                for prefix in ("one", "two")
            ],
            capabilities=[Toolscope(engine, scope=Scope(origin="user"))],
        )
        result = await agent.run("go")
        return Outcome(
            listed=tuple(script.listed),
            results=results_of(result.all_messages()),
            executed=tuple(executed),
        )


COLUMN = PydanticAI()
