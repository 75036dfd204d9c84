"""Plugins that cases tell of: checks by a service, filters of the list, limits."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import anyio
from toolscope_rules.patterns import Pattern
from toolscope_rules.selectors import SelectorIndex, read_selector

from tests.case_words import UnknownWord, choose
from toolscope import Decision, Effect, Listing, Tool, Toolset, Verdict, ask, deny, hookimpl

__all__ = ["Check", "Limits", "ListCheck", "selector", "selectors"]

_PERIODS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}


class Situation(Protocol):
    """What the plugins look at: what the service does now, and the time."""

    callback: Any
    now: float


def selector(text: str) -> str:
    """An entry of the cases (``server:ID``, ``*``, a name, a pattern) as a selector of rules."""
    if text == "*":
        return "**"
    if text.startswith("server:"):
        server, slash, tool = text[7:].partition("/")
        return f"mcp:{server}/{tool if slash else '*'}"
    return text


def selectors(rule: Mapping[str, Any]) -> list[str]:
    """The tool selectors of one rule."""
    if "server" in rule:
        return [f"mcp:{rule['server']}/{rule.get('tool', '*')}"]
    if "tool" not in rule:
        return []
    tools = rule["tool"]
    return [selector(one) for one in ([tools] if isinstance(tools, str) else tools)]


def behaviour(callback: Any, name: str) -> Any:
    """What the plugin of this name does: where several are told apart, its own."""
    if not isinstance(callback, Mapping):
        return callback
    if name in callback:
        return callback[name]
    if len(callback) == 1 and next(iter(callback)) in ("keep", "keeps", "returns", "tools"):
        return next(iter(callback.values()))
    return None


class Check:
    """A plugin that asks a service about calls (``callback:NAME``)."""

    def __init__(self, world: Situation, rule: Mapping[str, Any], name: str) -> None:
        self.name = name
        self._world = world
        chosen = [(read_selector(one), 1) for one in selectors(rule)]
        self._index = SelectorIndex(chosen, generous=True)
        self._all = not chosen

    @hookimpl
    async def on_tool_call(self, tool: Tool) -> Verdict | None:
        """What the service answers; what it says that is no answer is none."""
        if not self._all and not self._index.owners(tool):
            return None
        said = behaviour(self._world.callback, self.name)
        match said:
            case None | "allow":
                return None
            case "deny":
                return deny("the check says no; ask the user", rule=self.name)
            case "ask":
                return ask("the check wants a person to decide", rule=self.name)
            case str() if "raise" in said:
                raise RuntimeError("the service failed")
            case str() if "no answer" in said:
                await anyio.sleep_forever()
            case str() if "None" in said:
                raise TypeError("the service answered nothing")
            case str() if "no decision" in said or "not given" in said:
                return "yes"  # type: ignore[return-value]  # what a wrong plugin does
        raise UnknownWord(f"a callback: {said!r}")


class ListCheck:
    """A plugin that says which tools to keep (``list_callback:NAME``)."""

    def __init__(self, world: Situation, name: str) -> None:
        self.name = name
        self._world = world

    @hookimpl
    def filter_tools(self, tools: Toolset) -> Mapping[Tool, Verdict]:
        """Withholds what it was not told to keep."""
        said = behaviour(self._world.callback, self.name)
        verdict = deny("the filter keeps other tools; use those", rule=self.name)
        match said:
            case None | "keeps all":
                return {}
            case list():
                return {tool: verdict for tool in tools if tool.name not in said}
            case str() if "raise" in said:
                raise RuntimeError("the filter failed")
            case str() if "None" in said:
                return None  # type: ignore[return-value]  # what a wrong plugin does
            case str() if "no decision" in said:
                return ["yes"]  # type: ignore[return-value]  # what a wrong plugin does
            case str() if "not given" in said:
                return {Tool(name="made-up"): verdict}
        raise UnknownWord(f"a callback: {said!r}")


class Limits:
    """A plugin that counts the calls that were allowed, and denies those beyond a limit."""

    name = "limits"

    def __init__(self, world: Situation, limits: Sequence[Mapping[str, Any]]) -> None:
        self._world = world
        self.all = limits
        self._ran: dict[str, list[float]] = {}

    def resets(self, limit: Mapping[str, Any]) -> float | None:
        """When the next call may run, where none may now."""
        period = _PERIODS[choose("a period", limit["per"], _PERIODS)]
        recent = [one for one in self._ran.get(limit["tool"], ()) if one > self._world.now - period]
        return None if len(recent) < limit["max"] else recent[-limit["max"]] + period

    @hookimpl
    def on_tool_call(self, tool: Tool) -> Verdict | None:
        """Denies where the limit is reached, and says until when."""
        for limit in self.all:
            if Pattern(limit["tool"]).matches(tool.name, generous=True):
                until = self.resets(limit)
                if until is not None:
                    return deny(
                        f"at most {limit['max']} calls of it may run per {limit['per']}; the limit "
                        f"resets at {until:.0f}",
                        code="limit_exceeded",
                    )
        return None

    @hookimpl
    def on_decision(self, outcome: Decision | Listing) -> None:
        """Charges what runs, and nothing else."""
        if isinstance(outcome, Decision) and outcome.effect is Effect.ALLOW and outcome.tool:
            for limit in self.all:
                if Pattern(limit["tool"]).matches(outcome.tool.name, generous=True):
                    self._ran.setdefault(limit["tool"], []).append(self._world.now)
