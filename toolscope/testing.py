"""For the tests of plugins: short ways to make tools, and the checks that hold for every plugin.

The checks raise `AssertionError` and say which tool, which list and what the plugin answered::

    from toolscope.testing import assert_pure, tool, toolset

    def test_no_shell_looks_at_each_tool_alone() -> None:
        assert_pure(NoShell, toolset("read", tool("run", tags=["shell"])), Scope(origin="tool"))
"""

from collections.abc import Iterable, Sequence
from itertools import islice, permutations
from typing import Any

from toolscope.builtin import BUILTINS
from toolscope.engine import PolicyEngine
from toolscope.model import Provider, Scope, Tool, ToolCall, Toolset
from toolscope.verdicts import PluginVerdict

__all__ = ["assert_order_irrelevant", "assert_pure", "tool", "toolset"]

_MOST_ORDERS = 24


def tool(name: str, provider: str = "host", **fields: Any) -> Tool:
    """A tool whose provider is given in its text form; ``fields`` are those of `Tool`.

    Raises:
        ToolsetError: The provider is no text form, or a field is not well formed.
    """
    return Tool(name=name, provider=Provider.parse(provider), **fields)


def toolset(*tools: Tool | str) -> Toolset:
    """A toolset of tools, in order; a text stands for the host's tool of that name."""
    return Toolset(tool(one) if isinstance(one, str) else one for one in tools)


def assert_pure(plugin: object, tools: Toolset, scope: Scope | None = None) -> None:
    """Checks that ``filter_tools`` of a plugin is pure tool by tool, and answers without a fault.

    It is asked about all tools, about each alone, about all but each, about all in reverse, and
    about all once more; what it says of a tool must be the same every time.

    Args:
        plugin: A plugin object, or a class that can be built without settings.
        tools: The tools to ask about. Mix those it withholds with those it does not.
        scope: Where they would be used.

    Raises:
        AssertionError: The answers differ, or one is a fault.
    """
    engine = PolicyEngine([plugin])
    (name,) = (record.name for record in engine.plugins if record.name not in BUILTINS)
    scope = scope or Scope()

    def answer(asked: Iterable[Tool], which: str) -> dict[Tool, tuple[PluginVerdict, ...]]:
        # A toolset of its own each time, so that no kept answer stands in for a new one.
        withheld = engine.filter_tools(Toolset(asked), scope).withheld
        mine = {one: tuple(v for v in vs if v.plugin == name) for one, vs in withheld.items()}
        for verdicts in mine.values():
            for verdict in verdicts:
                if verdict.error is not None:
                    raise AssertionError(f"plugin {name!r} failed on {which}: {verdict.error}")
        return mine

    whole = answer(tools, "the whole list")
    lists: list[tuple[list[Tool], str]] = [
        (list(tools), "the whole list, asked again"),
        (list(reversed(tools)), "the whole list in reverse"),
    ]
    for one in tools:
        lists.append(([one], f"the list of {one.identity!r} alone"))
        lists.append(
            ([other for other in tools if other is not one], f"the list without {one.identity!r}")
        )
    for asked, which in lists:
        part = answer(asked, which)
        for one in asked:
            if part.get(one, ()) != whole.get(one, ()):
                said, now = _said(whole.get(one, ())), _said(part.get(one, ()))
                raise AssertionError(
                    f"plugin {name!r} is not pure tool by tool: of {one.identity!r} it says "
                    f"{said} in the whole list, and {now} in {which}"
                )


def assert_order_irrelevant(
    plugins: Sequence[object],
    tools: Toolset,
    scope: Scope | None = None,
    calls: Iterable[ToolCall] = (),
) -> None:
    """Checks that the plugins give the same listing and decisions in whatever order they come.

    The engine asks in order of names, so only plugins that share something they change can fail.
    At most 24 orders are tried.

    Raises:
        AssertionError: An order gives another listing, or another decision about one of ``calls``.
    """
    scope = scope or Scope()
    calls = tuple(calls)
    first: list[object] | None = None
    for order in islice(permutations(plugins), _MOST_ORDERS):
        engine = PolicyEngine(order)
        asked = Toolset(tools)
        listing = engine.filter_tools(asked, scope)
        decisions = [engine.on_tool_call(call, asked, scope) for call in calls]
        outcome: list[object] = [list(listing), dict(listing.withheld), *decisions]
        first = first or outcome
        for what, one, other in zip(
            ("the tools listed", "the tools withheld", *(f"call {c.name!r}" for c in calls)),
            first,
            outcome,
            strict=True,
        ):
            if one != other:
                names = [record.name for record in engine.plugins if record.name not in BUILTINS]
                raise AssertionError(
                    f"the order of plugins {names} changes {what}: {one!r} became {other!r}"
                )


def _said(verdicts: Sequence[PluginVerdict]) -> str:
    return " and ".join(repr(one.verdict.reason) for one in verdicts) or "nothing"
