"""What all adapters do the same way, whatever the host."""

import asyncio

import pytest

from toolscope import PolicyEngine, Scope, Tool, ToolCall, Toolset
from toolscope.calls import CallLedger
from toolscope.hosts import EnforcementPoint
from toolscope.model import HOST

TOOLS = Toolset([Tool(name="pay")])


@pytest.mark.parametrize("is_async", [False, True])
def test_what_an_adapter_runs_is_nobody_elses_to_execute(is_async: bool) -> None:
    """An execution without an id, at an endpoint over the same ledger, is a call of its own."""
    ledger = CallLedger(PolicyEngine())
    point = EnforcementPoint(ledger)
    call = ToolCall(id="c1", chat="main", name="pay")
    if is_async:
        decision = asyncio.run(point.on_tool_call_async(call, TOOLS, Scope()))
    else:
        decision = point.on_tool_call(call, TOOLS, Scope())
    assert decision.provider == HOST
    assert ledger.claim(HOST, "pay", {}, TOOLS, Scope()).call.id is None
