"""What all adapters do the same way, whatever the host."""

import asyncio

import pytest

from toolscope import PolicyEngine, Scope, Tool, ToolCall, Toolset
from toolscope.calls import CallLedger
from toolscope.hosts import EnforcementPoint
from toolscope.model import HOST
from toolscope.stores import Key, MemoryStore, Record

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


class Broken(MemoryStore):
    """A store that cannot be written once a call is out."""

    def swap(self, key: Key, old: Record | None, new: Record | None) -> bool:
        if key[0] == "call" and old is not None:
            raise OSError("the disk is full")
        return super().swap(key, old, new)


@pytest.mark.parametrize("end", ["completed", "cancelled"])
def test_an_end_that_cannot_be_recorded_is_no_error_of_the_host(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The call has run: its result goes to the model, and the call is not run again."""
    point = EnforcementPoint(CallLedger(PolicyEngine(), Broken()))
    call = ToolCall(id="c1", chat="main", name="pay")
    assert point.on_tool_call(call, TOOLS, Scope()).provider == HOST
    getattr(point, end)(call)
    assert "the end of the call 'c1' could not be recorded" in caplog.text
    assert "the disk is full" in caplog.text
    assert point.on_tool_call(call, TOOLS, Scope()).provider is None
    getattr(point, end)(ToolCall(name="pay"))  # one without an id is not remembered
