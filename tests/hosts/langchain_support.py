"""What the tests of LangChain and Deep Agents share: a scripted model, tools, and small readers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.prebuilt.tool_node import ToolCallRequest

from tests.hosts.matrix import Call, ToolSpec, Turns
from toolscope import PolicyEngine, Scope, Tool, ToolCall, Verdict, ask, hookimpl
from toolscope.hosts import AVAILABILITY_KEY, ORIGIN_KEY, available_in
from toolscope.hosts.langchain import CODE_KEY, attach


class Scripted(BaseChatModel):
    """Produces ``turns``, one message each; then a final text. Records the lists it is given."""

    turns: Any
    listed: list[tuple[str, ...]]
    choices: list[Any]
    produced: int = 0

    def _next(self, kwargs: dict[str, Any]) -> AIMessage:
        self.listed.append(tuple(_name_of(one) for one in kwargs.get("tools", ())))
        self.choices.append(kwargs.get("tool_choice"))
        turn = self.turns[self.produced] if self.produced < len(self.turns) else ()
        self.produced += 1
        calls = [
            {"name": call.tool, "args": dict(call.arguments), "id": str(n), "type": "tool_call"}
            for n, call in enumerate(turn)
        ]
        return AIMessage("" if calls else "done", tool_calls=calls)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._next(kwargs))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        message = self._next(kwargs)
        chunks = [
            tool_call_chunk(name=c["name"], args=json.dumps(c["args"]), id=c["id"], index=n)
            for n, c in enumerate(message.tool_calls)
        ]
        yield ChatGenerationChunk(
            message=AIMessageChunk(content=message.content, tool_call_chunks=chunks)
        )

    def bind_tools(self, tools: Any, *, tool_choice: Any = None, **kwargs: Any) -> Any:
        return self.bind(tools=tools, tool_choice=tool_choice, **kwargs)

    @property
    def _llm_type(self) -> str:
        return "scripted"


def scripted(turns: Turns = ()) -> Scripted:
    """A model of its own lists; each item of ``turns`` is one message with calls."""
    return Scripted(turns=[list(turn) for turn in turns], listed=[], choices=[])


def _name_of(one: Any) -> str:
    if isinstance(one, dict):
        return str(one.get("name") or one.get("function", {}).get("name") or one.get("type"))
    return str(one.name)


def make_tool(spec: ToolSpec, executed: list[str], **options: Any) -> BaseTool:
    """The tool of a specification; it records that it ran."""

    def run(value: str = "") -> str:
        executed.append(spec.name)
        return f"ran {spec.name}"

    async def arun(value: str = "") -> str:
        return run(value)

    if spec.by_decorator:
        run = available_in(spec.availability)(run)
    made = StructuredTool.from_function(
        run, coroutine=arun, name=spec.name, description=f"The tool {spec.name}.", **options
    )
    if not spec.by_decorator and spec.availability != "session":
        made.metadata = {AVAILABILITY_KEY: spec.availability}
    return made


class Adds(AgentMiddleware[Any, Any, Any]):
    """Adds tools to the list once the model was answered, and runs them: dynamic tools."""

    def __init__(self, tools: Sequence[BaseTool], after: int = 1) -> None:
        super().__init__()
        self._added = list(tools)
        self._after = after

    def _widened(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        answered = sum(isinstance(one, ToolMessage) for one in request.messages)
        if answered < self._after:
            return request
        return request.override(tools=[*request.tools, *self._added])

    def _resolved(self, request: ToolCallRequest) -> ToolCallRequest:
        for one in self._added:
            if one.name == request.tool_call["name"]:
                return request.override(tool=one)
        return request

    def wrap_model_call(self, request: Any, handler: Any) -> ModelResponse[Any]:
        return cast("ModelResponse[Any]", handler(self._widened(request)))

    async def awrap_model_call(self, request: Any, handler: Any) -> ModelResponse[Any]:
        return cast("ModelResponse[Any]", await handler(self._widened(request)))

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return handler(self._resolved(request))

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return await handler(self._resolved(request))


PICK = ToolSpec(name="pick_file", availability="userChats")
READ = ToolSpec(name="read_doc")
GO: Any = {"messages": [("user", "go")]}
WORKER: Any = {"configurable": {ORIGIN_KEY: "tool"}}


class Asks:
    """Asks about ``refund``, with the reason it is given; records the arguments it saw."""

    name = "asks"

    def __init__(self, reason: str = "a refund needs a person") -> None:
        self.reason = reason
        self.seen: list[tuple[str, Mapping[str, Any]]] = []

    @hookimpl
    def on_tool_call(self, call: ToolCall, tool: Tool) -> Verdict | None:
        self.seen.append((tool.name, call.arguments))
        return ask(self.reason) if tool.name == "refund" else None


def thread(name: str = "1") -> Any:
    return {"configurable": {"thread_id": name}}


def results(state: Mapping[str, Any]) -> list[ToolMessage]:
    return [one for one in state["messages"] if isinstance(one, ToolMessage)]


def codes(state: Mapping[str, Any]) -> list[str | None]:
    return [(one.artifact or {}).get(CODE_KEY) for one in results(state)]


def made(
    turns: Sequence[Sequence[Call]],
    *tools: BaseTool | dict[str, Any],
    policy: Any = None,
    scope: Any = Scope(),  # noqa: B008
    **arguments: Any,
) -> tuple[Any, Scripted]:
    model = scripted(turns)
    create = attach(create_agent, policy or PolicyEngine(), scope=scope)
    return create(model, tools, **arguments), model
