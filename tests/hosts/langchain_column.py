"""The column of LangChain: `create_agent` attached once."""

from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import BaseTool

from tests.hosts.langchain_support import Scripted
from tests.hosts.langgraph_columns import LangGraphColumn
from toolscope import PolicyEngine, Scope
from toolscope.hosts.langchain import attach


class LangChainColumn(LangGraphColumn):
    name = "langchain"
    machinery = frozenset({"delegate", "transfer"})

    def create(
        self, engine: PolicyEngine, scope: Scope, model: Scripted, tools: Sequence[BaseTool],
        **arguments: Any,
    ) -> Any:  # fmt: skip
        return attach(create_agent, engine, scope=scope)(model, tools, **arguments)


COLUMN = LangChainColumn()
