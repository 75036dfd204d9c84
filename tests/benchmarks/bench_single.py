"""Single figures, for looking at one thing at a time.

    uv run --group bench pytest tests/benchmarks/bench_single.py

Not part of the suite: no figure here is a test. Goals are ratios: ``tests/benchmarks/ratios.py``.
"""

import itertools
from typing import Any

import attrs
import pytest

from tests.benchmarks import policy
from toolscope import PolicyEngine, ToolCall, Toolset
from toolscope.calls import CallLedger

SIZES = (10, 1_000, 10_000)


@pytest.mark.parametrize("size", SIZES)
def test_filter_tools_cold(benchmark: Any, size: int) -> None:
    """A toolset that the engine has not seen."""
    tools, scope, engine = policy.tools(size), policy.scope(size), PolicyEngine(policy.plugins())
    benchmark.pedantic(
        engine.filter_tools,
        setup=lambda: ((Toolset(tools), scope), {}),
        rounds=50,
    )


@pytest.mark.parametrize("size", SIZES)
def test_filter_tools_known(benchmark: Any, size: int) -> None:
    """A listing that was made before."""
    toolset, scope = Toolset(policy.tools(size)), policy.scope(size)
    engine = PolicyEngine(policy.plugins())
    benchmark(engine.filter_tools, toolset, scope)


@pytest.mark.parametrize("name", ["tool_1", "tool_7", "no_such_tool"])
def test_on_tool_call(benchmark: Any, name: str) -> None:
    """A call that is allowed, one of a withheld tool, and one of a name that does not exist."""
    toolset, scope = Toolset(policy.tools(1_000)), policy.scope(1_000)
    engine = PolicyEngine(policy.plugins())
    benchmark(engine.on_tool_call, ToolCall(name=name), toolset, scope)


def test_ledger(benchmark: Any) -> None:
    """A new call through the ledger in memory."""
    toolset, scope = Toolset(policy.tools(1_000)), policy.scope(1_000)
    ledger = CallLedger(PolicyEngine(policy.plugins()))
    numbers = itertools.count()
    call = ToolCall(id="0", chat="c", name="tool_1")
    benchmark(
        lambda: ledger.on_tool_call(attrs.evolve(call, id=str(next(numbers))), toolset, scope)
    )


def test_record(benchmark: Any) -> None:
    """One decision record."""
    toolset, scope = Toolset(policy.tools(1_000)), policy.scope(1_000)
    engine = PolicyEngine(policy.plugins())
    benchmark(engine.on_tool_call(ToolCall(name="tool_7"), toolset, scope).record)


def test_toolset_renewed(benchmark: Any) -> None:
    """The same twelve tools, rebuilt by the host."""
    toolset = Toolset(policy.tools(12))
    rebuilt = policy.tools(12)
    assert toolset.renewed(rebuilt) is toolset
    benchmark(toolset.renewed, rebuilt)
