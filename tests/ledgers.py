"""What the tests of the ledger share: a small session, its rules, and calls in it."""

from collections.abc import Mapping
from typing import Any

from tests.strategies import Rule
from toolscope.calls import CallLedger, answer_to
from toolscope.engine import PolicyEngine
from toolscope.model import (
    Agent,
    Approval,
    Origin,
    Provider,
    Scope,
    Tool,
    ToolCall,
    Toolset,
)
from toolscope.verdicts import Decision, Effect

BANK = Provider.mcp("bank")
PAY = Tool(name="pay", own_name="transfer", provider=BANK)
READ = Tool(name="read")
WIPE = Tool(name="wipe")
TOOLS = Toolset([PAY, READ, WIPE])

USER = Scope(origin=Origin.USER, can_ask=True)
WORKER = USER.child(Scope(can_ask=True))
"""A chat that a tool call in ``USER`` spawned, whose asks reach a person too."""
ALONE = Scope(origin=Origin.USER)
"""A chat where nobody can be asked."""

CALLED = {"pay": "ask", "wipe": "deny"}


def make_ledger(called: Mapping[str, str] = CALLED, **settings: Any) -> CallLedger:
    """A ledger over an engine whose one rule says this of calls by tool name."""
    return CallLedger(PolicyEngine([Rule(name="rules", called=called)]), **settings)


def call(
    id: str | None = "c1",  # noqa: A002  (the word of ToolCall)
    name: str = "pay",
    chat: str | None = "main",
    **parts: Any,
) -> ToolCall:
    """A call of the tool ``pay`` in the chat ``main``, where nothing else is said."""
    return ToolCall(id=id, name=name, chat=chat, **parts)


def asked(ledger: CallLedger, one: ToolCall, scope: Scope = USER) -> Decision:
    """The ask that this call raises."""
    decision = ledger.on_tool_call(one, TOOLS, scope)
    assert decision.effect is Effect.ASK
    return decision


def answered(ledger: CallLedger, one: ToolCall, **parts: Any) -> Approval:
    """Raises the ask of this call and answers it with a yes; the answer."""
    answer = answer_to(asked(ledger, one), allow=True, **parts)
    ledger.answer(answer)
    return answer


def effect(ledger: CallLedger, one: ToolCall, scope: Scope = USER) -> Effect:
    """What the ledger says of a call."""
    return ledger.on_tool_call(one, TOOLS, scope).effect


def code(decision: Decision) -> str:
    """The code of a denial."""
    assert decision.failure is not None
    return str(decision.failure.code)


def message(decision: Decision) -> str:
    """The text of a denial."""
    assert decision.failure is not None
    return decision.failure.message


def reader(*tools: str) -> Scope:
    """A user's chat whose agent names these tools."""
    return Scope(origin=Origin.USER, can_ask=True, agent=Agent(name="a", tools=frozenset(tools)))
