"""Faults of plugins, injected at random while calls run, against what the policy says.

    uv run python -m tests.reliability.faults [--calls N] [--seed N]

Five plugins decide; before each question one of them may be given a fault of the list below. The
truth is computed apart, from the same rules as plain functions. Wrong allows must be 0.
"""

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs

from toolscope import (
    Decision,
    Effect,
    PolicyEngine,
    Scope,
    Tool,
    ToolCall,
    Toolset,
    ask,
    deny,
    hookimpl,
)

NAMES = [f"tool_{number}" for number in range(20)]
DENY = deny("policy says no")
ASK = ask("a person has to say so")


def hidden(number: int, tool: int, origin: str | None) -> bool:
    """The list rule of plugin ``number``."""
    return origin == "tool" and tool % 7 == number


def refused(number: int, tool: int, amount: int) -> bool:
    """The call rule of plugin ``number``."""
    return (tool + amount) % 11 == number


def asked(number: int, tool: int, amount: int) -> bool:
    """The asking rule of plugin ``number``."""
    return number == 4 and amount % 5 == 0


def truth(tool: int, amount: int, scope: Scope) -> Effect:
    """What becomes of a call when no plugin has a fault."""
    if any(hidden(number, tool, scope.origin) for number in range(5)):
        return Effect.DENY
    if any(refused(number, tool, amount) for number in range(5)):
        return Effect.DENY
    if any(asked(number, tool, amount) for number in range(5)):
        return Effect.ASK if scope.can_ask else Effect.DENY
    return Effect.ALLOW


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even my text is broken")


class Liar(dict[Any, Any]):
    def __iter__(self) -> Any:
        raise RuntimeError("I am no mapping")

    keys = __iter__


async def never() -> None:
    await asyncio.sleep(3600)


async def raises_later() -> None:
    await asyncio.sleep(0)
    raise ValueError("later")


async def wrong_later() -> object:
    await asyncio.sleep(0)
    return True


def generator() -> Any:
    yield DENY


def raising(error: BaseException) -> Callable[..., Any]:
    def fault(*_: object) -> Any:
        raise error

    return fault


def mutating(call: Any, *_: object) -> Any:
    call.arguments["amount"] = 0


LIST_FAULTS: Mapping[str, Callable[..., Any]] = {
    "raises": raising(ValueError("boom")),
    "raises with a broken text": raising(Broken()),
    "recurses without end": raising(RecursionError("too deep")),
    "returns None": lambda *_: None,
    "returns True": lambda *_: True,
    "names a stranger": lambda *_: {Tool(name="stranger"): DENY},
    "answers by names": lambda *_: {"tool_0": DENY},
    "asks": lambda tools, *_: {tools[0]: ASK},
    "answers no verdict": lambda tools, *_: {tools[0]: True},
    "lies about being a mapping": lambda *_: Liar({1: 2}),
    "answers a generator": lambda *_: generator(),
}
CALL_FAULTS: Mapping[str, Callable[..., Any]] = {
    "raises": raising(KeyError("boom")),
    "raises with a broken text": raising(Broken()),
    "returns True": lambda *_: True,
    "returns a text": lambda *_: "allow",
    "returns an effect": lambda *_: Effect.ALLOW,
    "answers a generator": lambda *_: generator(),
    "changes the arguments": mutating,
    "never answers": lambda *_: never(),
    "raises later": lambda *_: raises_later(),
    "answers a wrong type later": lambda *_: wrong_later(),
}


class Rule:
    """Plugin ``number``; ``list_fault`` and ``call_fault`` replace its answers once."""

    def __init__(self, number: int, engine: Callable[[], PolicyEngine]) -> None:
        self.name = f"rule-{number}"
        self.number = number
        self.engine = engine
        self.list_fault: Callable[..., Any] | None = None
        self.call_fault: Callable[..., Any] | None = None

    @hookimpl
    def filter_tools(self, tools: Toolset, origin: str | None, scope: Scope) -> Any:
        if self.list_fault is not None:
            return self.list_fault(tools)
        return {
            tool: DENY
            for number, tool in enumerate(tools)
            if hidden(self.number, int(tool.name[5:]), origin)
        }

    @hookimpl
    def on_tool_call(self, call: ToolCall, tool: Tool, scope: Scope) -> Any:
        if self.call_fault is not None:
            return self.call_fault(call, tool, scope)
        number, amount = int(tool.name[5:]), call.arguments["amount"]
        if refused(self.number, number, amount):
            return DENY
        return ASK if asked(self.number, number, amount) else None


@attrs.define(kw_only=True)
class Tally:
    """What was seen. ``wrong_allows``, ``exceptions`` and ``unrecorded`` must stay 0."""

    calls: int = 0
    faults: int = 0
    wrong_allows: int = 0
    wrong_asks: int = 0
    exceptions: int = 0
    unrecorded: int = 0
    effects: Counter[str] = attrs.field(factory=Counter)
    kinds: Counter[str] = attrs.field(factory=Counter)

    def __str__(self) -> str:
        return (
            f"{self.calls:,} calls, {self.faults:,} faults of {len(self.kinds)} kinds: "
            f"{self.wrong_allows} wrong allows, {self.wrong_asks} wrong asks, "
            f"{self.exceptions} exceptions, {self.unrecorded} faults not in the decision; "
            + ", ".join(f"{count:,} {effect}" for effect, count in sorted(self.effects.items()))
        )


async def run(calls: int, seed: int) -> Tally:
    """Asks ``calls`` questions, about a third of them with a fault in one of the five plugins."""
    chance = random.Random(seed)
    made: list[PolicyEngine] = []
    rules = [Rule(number, lambda: made[0]) for number in range(5)]
    made.append(PolicyEngine(rules, config={"async_timeout": 0.01}))
    call_faults = {
        **CALL_FAULTS,
        "asks the engine that asks it": lambda call, tool, scope: made[0].on_tool_call(
            call, Toolset([tool]), scope
        ),
    }
    tally = Tally()
    tools = Toolset()
    for number in range(calls):
        # A fresh toolset now and then, so that list rules are asked anew.
        if number % 3 == 0:
            tools = Toolset([Tool(name=name) for name in NAMES])
        which, amount = chance.randrange(20), chance.randrange(40)
        scope = Scope(origin=chance.choice(["user", "tool", None]), can_ask=chance.random() < 0.5)
        call = ToolCall(id=str(number), name=NAMES[which], arguments={"amount": amount})
        victim = chance.choice(rules)
        kind = fault = None
        if chance.random() < 0.35:
            faults = LIST_FAULTS if chance.random() < 0.4 else call_faults
            kind = chance.choice(sorted(faults))
            fault = faults[kind]
            if faults is LIST_FAULTS:
                victim.list_fault = fault
                tools = Toolset([Tool(name=name) for name in NAMES])
            else:
                victim.call_fault = fault
        await _ask(made[0], call, tools, scope, (which, amount, victim, kind), tally)
        victim.list_fault = victim.call_fault = None
    return tally


async def _ask(
    engine: PolicyEngine,
    call: ToolCall,
    tools: Toolset,
    scope: Scope,
    setup: tuple[int, int, Rule, str | None],
    tally: Tally,
) -> None:
    which, amount, victim, kind = setup
    tally.calls += 1
    expected = truth(which, amount, scope)
    try:
        asked_: Awaitable[Decision] = engine.on_tool_call_async(call, tools, scope)
        decision = await asked_
    except Exception:  # (what must never happen is counted)
        tally.exceptions += 1
        return
    tally.effects[decision.effect] += 1
    if kind is not None:
        tally.faults += 1
        tally.kinds[kind] += 1
        # A withheld tool is denied before call rules are asked, so their faults cannot show.
        on_list = victim.list_fault is not None
        reached = on_list or not any(hidden(number, which, scope.origin) for number in range(5))
        # A sync deny closes awaitables unasked, so a fault that only awaiting shows cannot show.
        late = kind in ("never answers", "raises later", "answers a wrong type later")
        denied_first = any(
            refused(number, which, amount) for number in range(5) if number != victim.number
        )
        if reached and not (late and denied_first):
            expected = Effect.DENY
            if victim.name not in {one.plugin for one in decision.errors}:
                tally.unrecorded += 1
    if decision.effect is Effect.ALLOW and expected is not Effect.ALLOW:
        tally.wrong_allows += 1
    if decision.effect is Effect.ASK and expected is Effect.DENY:
        tally.wrong_asks += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    tally = asyncio.run(run(options.calls, options.seed))
    print(tally)
    return 1 if tally.wrong_allows or tally.exceptions or tally.unrecorded else 0


if __name__ == "__main__":
    raise SystemExit(main())
