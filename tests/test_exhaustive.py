"""Every combination of a small domain, against an oracle that shares no code with the package."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import pytest
import trio
import trio.testing

from tests import oracle
from toolscope.engine import PolicyEngine
from toolscope.hookspecs import hookimpl
from toolscope.listings import Listing
from toolscope.model import Agent, Provider, Scope, Tool, ToolCall, Toolset
from toolscope.verdicts import Decision, ask, deny

NAME = "clipboard"
DESK = Provider.client("desk")
AVAILABILITIES = (None, "session", "userChats", "devicesOnly")
ORIGINS = (None, "user", "fork", "sideChat", "tool", "delegation")
ALLOWLISTS = (None, frozenset[str](), frozenset({NAME}), frozenset({"other"}))
ANSWERS: tuple[tuple[str, str], ...] = (
    *(("nothing", call) for call in oracle.CALL_ANSWERS),
    *((listed, "nothing") for listed in oracle.LIST_ANSWERS if listed != "nothing"),
)
"""What one plugin may do: answer the listing, or answer the call."""

SCOPES: tuple[tuple[dict[str, Any], Scope], ...] = tuple(
    (
        {"origin": origin, "tools": tools, "can_ask": can_ask},
        Scope(origin=origin, agent=Agent(name="worker", tools=tools), can_ask=can_ask),
    )
    for origin, tools, can_ask in product(ORIGINS, ALLOWLISTS, (False, True))
)
TOOLS: tuple[tuple[dict[str, Any], Toolset], ...] = tuple(
    (
        {"name": NAME, "provider": "client:desk", "availability": availability},
        Toolset(
            [
                Tool(name=NAME, provider=DESK)
                if availability is None
                else Tool(name=NAME, provider=DESK, availability=availability)
            ]
        ),
    )
    for availability in AVAILABILITIES
)
CALL = ToolCall(name=NAME)


class Scripted:
    """A plugin that answers as it is told, by the words of the oracle."""

    def __init__(self, name: str, listed: str, called: str) -> None:
        self.name = name
        self.listed = listed
        self.called = called

    @hookimpl
    def filter_tools(self, tools: Toolset) -> Any:
        match self.listed:
            case "nothing":
                return {}
            case "deny":
                return dict.fromkeys(tools, deny(f"{self.name} withholds it"))
            case "ask":
                return dict.fromkeys(tools, ask(f"{self.name} asks"))
            case "raise":
                raise LookupError(self.name)
        return [self.name]

    @hookimpl
    def on_tool_call(self) -> Any:
        match self.called:
            case "nothing":
                return None
            case "ask":
                return ask(f"{self.name} asks")
            case "deny":
                return deny(f"{self.name} denies")
            case "raise":
                raise LookupError(self.name)
            case "hang":
                return trio.sleep_forever()
        return True


def engines(*, hanging: bool) -> Iterator[tuple[list[dict[str, str]], PolicyEngine]]:
    """Engines with up to three plugins; with or without one whose answer never comes."""
    for count in range(4):
        for answers in product(ANSWERS, repeat=count):
            if any(called == "hang" for _, called in answers) is not hanging:
                continue
            plugins = [
                {"name": f"p{place}", "list": listed, "call": called}
                for place, (listed, called) in enumerate(answers)
            ]
            yield (
                plugins,
                PolicyEngine([Scripted(p["name"], p["list"], p["call"]) for p in plugins]),
            )


def outcome(listing: Listing, decision: Decision) -> dict[str, Any]:
    """What the engine said, in the words of the oracle."""
    failure = decision.failure
    meant = [one for one in decision.verdicts if one.error is None] or decision.verdicts
    return {
        "listed": bool(listing),
        "effect": str(decision.effect),
        "code": None if failure is None else str(failure.code),
        "provider": None if decision.provider is None else str(decision.provider),
        "named": frozenset(one.plugin for one in meant),
    }


def expected(
    tool: Mapping[str, Any], chat: Mapping[str, Any], plugins: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    return oracle.judge(tool, chat, plugins)


def reported(ran: int, title: str, capsys: pytest.CaptureFixture[str], record: Any) -> None:
    record("combinations", ran)
    with capsys.disabled():
        print(f"\n  {title}: {ran:,} combinations")


def test_every_combination_agrees_with_the_oracle(
    capsys: pytest.CaptureFixture[str], record_property: Any
) -> None:
    """Listing and decision of the engine are those of the oracle, whatever the plugins do."""
    ran = 0
    for plugins, engine in engines(hanging=False):
        for (tool, toolset), (chat, scope) in product(TOOLS, SCOPES):
            actual = outcome(
                engine.filter_tools(toolset, scope), engine.on_tool_call(CALL, toolset, scope)
            )
            assert actual == expected(tool, chat, plugins), (tool, chat, plugins)
            ran += 1
    assert ran == (1 + 9 + 9**2 + 9**3) * len(TOOLS) * len(SCOPES)
    reported(ran, "plugins that answer", capsys, record_property)


def test_an_awaitable_is_a_fault_where_nothing_can_be_awaited(
    capsys: pytest.CaptureFixture[str], record_property: Any
) -> None:
    """To a sync question, a rule that would hang has failed like one that raises."""
    ran = 0
    for plugins, engine in engines(hanging=True):
        for (tool, toolset), (chat, scope) in product(TOOLS, SCOPES):
            actual = outcome(
                engine.filter_tools(toolset, scope), engine.on_tool_call(CALL, toolset, scope)
            )
            assert actual == expected(tool, chat, plugins), (tool, chat, plugins)
            ran += 1
    reported(ran, "plugins that hang, asked at once", capsys, record_property)


def test_a_rule_that_never_answers_is_cut_off_at_the_deadline(
    capsys: pytest.CaptureFixture[str], record_property: Any
) -> None:
    """An awaitable that never finishes denies; on trio's jumping clock no real time passes."""
    ran = 0

    async def one(
        plugins: Sequence[Mapping[str, str]],
        engine: PolicyEngine,
        tools: tuple[dict[str, Any], Toolset],
        chats: tuple[dict[str, Any], Scope],
    ) -> None:
        nonlocal ran
        (tool, toolset), (chat, scope) = tools, chats
        decision = await engine.on_tool_call_async(CALL, toolset, scope)
        actual = outcome(engine.filter_tools(toolset, scope), decision)
        wanted = expected(tool, chat, plugins)
        if "hang" in {p["call"] for p in plugins} and wanted["code"] == "policy_error":
            # A sync rule that failed has denied already, so nobody waits for the others.
            hung = frozenset(p["name"] for p in plugins if p["call"] == "hang")
            assert actual["named"] in (wanted["named"], wanted["named"] - hung)
            wanted["named"] = actual["named"]
        assert actual == wanted, (tool, chat, plugins)
        ran += 1

    async def all_of(plugins: list[dict[str, str]], engine: PolicyEngine) -> None:
        async with trio.open_nursery() as nursery:
            for tools, chats in product(TOOLS, SCOPES):
                nursery.start_soon(one, plugins, engine, tools, chats)

    async def everything() -> float:
        for plugins, engine in engines(hanging=True):
            await all_of(plugins, engine)
        return trio.current_time()

    passed = trio.run(everything, clock=trio.testing.MockClock(autojump_threshold=0))
    assert ran == (1111 - 1 - 9 - 9**2 - 9**3) * len(TOOLS) * len(SCOPES)
    assert passed > 5.0
    reported(ran, "plugins that hang, awaited", capsys, record_property)
