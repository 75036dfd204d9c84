"""Hostile input: bounded time and memory, and a named error."""

import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from toolscope import Effect, PolicyEngine, Scope, Tool, ToolCall, ToolscopeError, Toolset
from toolscope.ahp.session import Session
from toolscope.calls import CallLedger
from toolscope.model import Approval

MEGABYTE = 1_000_000
ENGINE = PolicyEngine()
SCOPE = Scope(origin="tool", can_ask=True)


@contextmanager
def bounded(*, seconds: float, megabytes: float) -> Iterator[None]:
    """The block ends within this time and memory. The bounds are wide: they catch explosions."""
    tracemalloc.start()
    started = time.perf_counter()
    try:
        yield
        spent, peak = time.perf_counter() - started, tracemalloc.get_traced_memory()[1] / MEGABYTE
    finally:
        tracemalloc.stop()
    assert spent < seconds
    assert peak < megabytes


def session(**parts: Any) -> str:
    return json.dumps({"activeClients": [], "chats": [{"resource": "c"}], **parts})


def test_a_session_of_ten_megabytes() -> None:
    """A session of 10 MB is read, listed and decided about."""
    tools = [
        {"name": f"t{number}", "description": "x" * 900, "inputSchema": {"type": "object"}}
        for number in range(10_000)
    ]
    text = session(serverTools=tools)
    assert len(text) > 9 * MEGABYTE
    with bounded(seconds=60, megabytes=200):
        read = Session.read(text)
        assert len(ENGINE.filter_tools(read.toolset, read.chats["c"].scope)) == 10_000


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("place", ["top", "tool"])
def test_json_nested_a_hundred_thousand_deep(opening: str, place: str) -> None:
    """JSON of any depth gets a named error, not the interpreter's."""
    deep = opening * 100_000
    text = deep if place == "top" else session(serverTools=[{"name": "t"}])[:-2] + "," + deep
    with bounded(seconds=20, megabytes=200), pytest.raises(ToolscopeError):
        Session.read(text)


@pytest.mark.parametrize("closing", [True, False])
def test_arguments_nested_a_hundred_thousand_deep(closing: bool) -> None:
    """A call whose arguments are of any depth is denied before a rule is asked."""
    text = '{"a":' * 100_000 + ("1" + "}" * 100_000 if closing else "")
    tools = Toolset([Tool(name="t")])
    with bounded(seconds=20, megabytes=200):
        decision = ENGINE.on_tool_call(ToolCall(name="t", arguments=text), tools, SCOPE)
    assert decision.failure is not None
    assert decision.failure.code == "arguments_invalid"


def nested(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(levels):
        inner = {"a": inner, "b": inner}
    return inner


def cyclic() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["a"] = [made, made]
    return made


@pytest.mark.parametrize("make", [lambda: nested(60), cyclic], ids=["doubling", "cyclic"])
def test_arguments_that_grow_when_they_are_looked_at(make: Callable[[], Any]) -> None:
    """A small mapping that unfolds to 2^60 values, or without end, is denied in bounded time."""
    tools = Toolset([Tool(name="t")])
    with bounded(seconds=60, megabytes=1_500):
        decision = ENGINE.on_tool_call(ToolCall(name="t", arguments=make()), tools, SCOPE)
    assert decision.failure is not None
    assert decision.failure.code == "arguments_invalid"


def test_a_name_of_a_million_characters() -> None:
    """A name of any length is unknown, and nothing that is said or kept of it is as long."""
    name = "x" * MEGABYTE
    ledger = CallLedger(ENGINE)
    tools = Toolset([Tool(name="t")])
    with bounded(seconds=10, megabytes=50):
        decision = ledger.on_tool_call(ToolCall(id="1", name=name), tools, SCOPE)
        saved = json.dumps(ledger.save())
    assert decision.failure is not None
    assert decision.failure.code == "tool_unknown"
    assert len(decision.failure.message) < 1_000
    assert len(saved) < 10_000


@pytest.mark.parametrize(
    "text",
    [
        '{"a": NaN}',
        '{"a": Infinity}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": ' + "9" * 5_000 + "}",
    ],
    ids=["NaN", "Infinity", "minus Infinity", "1e999", "5,000 digits"],
)
def test_numbers_that_are_none(text: str) -> None:
    """What JSON cannot say, or no float can hold, makes the arguments invalid."""
    tools = Toolset([Tool(name="t")])
    decision = ENGINE.on_tool_call(ToolCall(name="t", arguments=text), tools, SCOPE)
    assert decision.failure is not None
    assert decision.failure.code == "arguments_invalid"


def test_lone_surrogates() -> None:
    """Texts that no UTF-8 can hold are decided about, digested and recorded like others."""
    odd = json.loads('"\\ud800"')
    tools = Toolset([Tool(name=f"t{odd}", description=odd)])
    call = ToolCall(id=odd, chat=odd, name=f"t{odd}", arguments={odd: odd})
    ledger = CallLedger(ENGINE)
    decision = ledger.on_tool_call(call, tools, Scope(origin="user", subject=odd))
    assert decision.effect is Effect.ALLOW
    assert json.loads(json.dumps(decision.record()))["call_id"] == odd
    assert len(ENGINE.filter_tools(tools, SCOPE).fingerprint) == 64


def test_keys_that_hash_alike() -> None:
    """Numbers spelled as keys cannot be made to collide; a session of them is read in time."""
    members = {str(number * (2**61 - 1)): number for number in range(50_000)}
    text = session(
        serverTools=[{"name": "t", "inputSchema": members}], **{"x" + k: 1 for k in members}
    )
    with bounded(seconds=30, megabytes=300):
        Session.read(text)


def test_a_thousand_times_the_same_name() -> None:
    """Names that many providers share are settled in bounded time."""
    from toolscope import Provider

    tools = Toolset(
        [Tool(name="t", provider=Provider.mcp(str(number))) for number in range(20_000)]
    )
    with bounded(seconds=20, megabytes=200):
        listing = ENGINE.filter_tools(tools, SCOPE)
        decision = ENGINE.on_tool_call(ToolCall(name="t"), tools, SCOPE)
    assert len(listing.collisions["t"]) == 20_000
    assert decision.failure is not None
    assert decision.failure.code == "tool_ambiguous"


def test_an_approval_that_is_a_bomb() -> None:
    """A saved approval with a huge or deep condition is refused with a named error."""
    saved = {
        "schema": 1, "allow": True, "provider": "host", "own_name": "t", "definition": "0" * 64,
        "arguments": {"condition": nested(60)}, "reach": "chat",
    }  # fmt: skip
    with bounded(seconds=60, megabytes=1_500), pytest.raises(ToolscopeError):
        Approval.from_json(saved)
