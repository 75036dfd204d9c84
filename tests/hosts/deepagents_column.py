"""The column of Deep Agents: `create_deep_agent` attached once, workers by its own ``task``."""

from collections.abc import Sequence
from typing import Any

from deepagents import create_deep_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AnyMessage
from langchain_core.tools import BaseTool

from tests.hosts.langchain_support import Scripted
from tests.hosts.langgraph_columns import LangGraphColumn
from tests.hosts.matrix import Call
from toolscope import PolicyEngine, Scope
from toolscope.hosts.deepagents import Toolscope, attach


class Overhears(AgentMiddleware[Any, Any, Any]):
    """Keeps the messages of a worker, which the boss never sees."""

    def __init__(self, messages: list[AnyMessage]) -> None:
        super().__init__()
        self._messages = messages

    def after_agent(self, state: Any, runtime: Any) -> None:
        self._messages[:] = state["messages"]


class DeepAgentsColumn(LangGraphColumn):
    name = "deepagents"
    machinery = frozenset(
        {
            "edit_file", "execute", "glob", "grep", "ls", "read_file", "task", "transfer",
            "write_file", "write_todos", "delete",
        }
    )  # fmt: skip

    def create(
        self, engine: PolicyEngine, scope: Scope, model: Scripted, tools: Sequence[BaseTool],
        **arguments: Any,
    ) -> Any:  # fmt: skip
        return attach(create_deep_agent, engine, scope=scope)(model, tools, **arguments)

    def worker_tool(
        self, engine: PolicyEngine, model: Scripted, tools: Sequence[BaseTool],
        declared: str | None, messages: list[AnyMessage],
    ) -> tuple[Sequence[BaseTool], dict[str, Any], Call]:  # fmt: skip
        middleware: list[Any] = [Overhears(messages)]
        if declared is not None:
            middleware.append(Toolscope(engine, scope=Scope(origin=declared)))
        worker = {
            "name": "worker",
            "description": "Works.",
            "model": model,
            "tools": list(tools),
            "middleware": middleware,
        }
        arguments = {"description": "do it", "subagent_type": "worker"}
        return [], {"subagents": [worker]}, Call(tool="task", arguments=arguments)


COLUMN = DeepAgentsColumn()
