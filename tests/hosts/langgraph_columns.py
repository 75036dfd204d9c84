"""The scenarios of the matrix for hosts whose agents are LangGraph graphs."""

from collections.abc import Sequence
from typing import Any, Literal, cast

from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.types import Command

from tests.hosts.langchain_support import Adds, Scripted, make_tool, scripted
from tests.hosts.matrix import Call, Outcome, Result, ToolSpec, Turns
from toolscope import PolicyEngine, Scope
from toolscope.hosts import ORIGIN_KEY


class LangGraphColumn:
    """The scenarios for a host whose agents are LangGraph graphs."""

    name: str
    machinery: frozenset[str] = frozenset()

    def create(
        self, engine: PolicyEngine, scope: Scope, model: Scripted, tools: Sequence[BaseTool],
        **arguments: Any,
    ) -> Any:  # fmt: skip
        raise NotImplementedError

    def outcome(
        self, model: Scripted, messages: Sequence[AnyMessage], executed: Sequence[str],
        asked: Sequence[str] = (),
    ) -> Outcome:  # fmt: skip
        """The outcome of a chat of which ``messages`` are all."""
        named = {
            call["id"]: call["name"]
            for message in messages
            if isinstance(message, AIMessage)
            for call in message.tool_calls
        }
        last = messages[-1]
        return Outcome(
            listed=tuple(
                tuple(name for name in names if name not in self.machinery)
                for names in model.listed
            ),
            results=tuple(
                Result(
                    tool=one.name or named[one.tool_call_id],
                    failed=one.status == "error",
                    text=str(one.text),
                )
                for one in messages
                if isinstance(one, ToolMessage) and one.name not in self.machinery
            ),
            executed=tuple(executed),
            asked=tuple(asked),
            finished=isinstance(last, AIMessage) and last.text == "done",
        )

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
        asked: list[str] = []
        model = scripted(turns)
        more: dict[str, Any] = {}
        if added:
            more["middleware"] = [Adds([make_tool(one, executed) for one in added])]
        if answer is not None:
            more["checkpointer"] = InMemorySaver()
        agent = self.create(
            engine,
            Scope(can_ask=answer is not None),
            model,
            [make_tool(one, executed) for one in tools],
            **more,
        )
        config: dict[str, Any] = {"configurable": {"thread_id": "1"}}
        if origin is not None:
            config["configurable"][ORIGIN_KEY] = origin
        given: Any = {"messages": [("user", "go")]}
        result: dict[str, Any] = {}
        for _ in range(5):
            result = await run(agent, given, config, stream=stream, sync=sync)
            interrupts = result.get("__interrupt__", ())
            if not interrupts:
                break
            asked += [one.value["name"] for one in interrupts]
            person = {"type": "approve" if answer else "reject"}
            given = Command(resume={one.id: person for one in interrupts})
        return self.outcome(model, result["messages"], executed, asked)

    def worker_tool(
        self, engine: PolicyEngine, model: Scripted, tools: Sequence[BaseTool],
        declared: str | None, messages: list[AnyMessage],
    ) -> tuple[Sequence[BaseTool], dict[str, Any], Call]:  # fmt: skip
        """What makes the boss able to delegate: tools, arguments, and the call that does."""
        worker = self.create(engine, Scope(origin=declared), model, tools, name="worker")

        @tool
        async def delegate(task: str) -> str:
            """Delegates."""
            config = {"configurable": {ORIGIN_KEY: declared}} if declared else {}
            state = await worker.ainvoke({"messages": [("user", task)]}, config)
            messages.extend(state["messages"])
            return str(state["messages"][-1].text)

        return [delegate], {}, Call(tool="delegate", arguments={"task": "do it"})

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
        model = scripted(worker_turns)
        messages: list[AnyMessage] = []
        tools = [make_tool(one, ran[1]) for one in worker_tools]
        extra, more, call = self.worker_tool(engine, model, tools, declared, messages)
        boss_model = scripted([[call]])
        boss = self.create(
            engine,
            Scope(origin="user"),
            boss_model,
            [*(make_tool(one, ran[0]) for one in boss_tools), *extra],
            name="boss",
            **more,
        )
        state = await boss.ainvoke({"messages": [("user", "go")]})
        return (
            self.outcome(boss_model, state["messages"], ran[0]),
            self.outcome(model, messages, ran[1]),
        )

    async def handoff(
        self,
        engine: PolicyEngine,
        first_tools: Sequence[ToolSpec],
        second_tools: Sequence[ToolSpec],
        second_turns: Turns,
    ) -> Outcome:
        executed: list[str] = []

        @tool
        def transfer(runtime: ToolRuntime) -> Command[Literal["second"]]:
            """Hands the chat over."""
            answer = ToolMessage("transferred", tool_call_id=runtime.tool_call_id, name="transfer")
            messages = [*runtime.state["messages"], answer]
            return Command(goto="second", graph=Command.PARENT, update={"messages": messages})

        model = scripted(second_turns)
        scope = Scope(origin="user")
        graph = StateGraph(MessagesState)
        graph.add_node(
            "first",
            self.create(
                engine,
                scope,
                scripted([[Call(tool="transfer")]]),
                [*(make_tool(one, []) for one in first_tools), transfer],
                name="first",
            ),
        )
        graph.add_node(
            "second",
            self.create(
                engine, scope, model, [make_tool(one, executed) for one in second_tools],
                name="second",
            ),
        )  # fmt: skip
        graph.set_entry_point("first")
        given: Any = {"messages": [("user", "go")]}
        state = await graph.compile().ainvoke(given)
        return self.outcome(model, state["messages"], executed)

    async def same_name_twice(self, engine: PolicyEngine, turns: Turns) -> Outcome:
        executed: list[str] = []
        servers = [make_tool(ToolSpec(name="send_mail"), executed) for _ in range(2)]
        model = scripted(turns)
        agent = self.create(
            engine,
            Scope(origin="user"),
            model,
            [make_tool(ToolSpec(name="read_doc"), executed)],
            # Tools given to the host at once are merged by it before any hook: the last one wins.
            middleware=[Adds(servers, after=0)],
        )
        state = await agent.ainvoke({"messages": [("user", "go")]})
        return self.outcome(model, state["messages"], executed)


async def run(
    agent: Any, given: Any, config: dict[str, Any], *, stream: bool, sync: bool
) -> dict[str, Any]:
    """One run of an agent by one of its four ways; the state at its end."""
    if not stream:
        return cast(
            "dict[str, Any]",
            agent.invoke(given, config) if sync else await agent.ainvoke(given, config),
        )
    state: dict[str, Any] = {}
    modes = ["values", "messages", "updates"]
    if sync:
        chunks = list(agent.stream(given, config, stream_mode=modes))
    else:
        chunks = [one async for one in agent.astream(given, config, stream_mode=modes)]
    for mode, chunk in chunks:
        if mode == "values" or (mode == "updates" and "__interrupt__" in chunk):
            state |= chunk
    return state
