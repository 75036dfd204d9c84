"""The hooks that a plugin may implement. This module is the manual.

A plugin is an object with at least one method marked `hookimpl`::

    class NoShell:
        name = "no-shell"

        @hookimpl
        def filter_tools(self, tools, origin):
            return {tool: NO_SHELL for tool in tools if origin == "tool" and "shell" in tool.tags}

pluggy passes arguments by name: a hookimpl names those it wants, in any order, and no others. What
all hooks have in common:

* **Order does not matter.** Every hookimpl is asked, each alone, and no answer is shown to another
  plugin. Deny overrides ask, ask overrides no opinion; there is no answer that allows.
* **No decision is no yes.** A hookimpl that raises, answers with a wrong type or does not answer in
  time denies, with its plugin named. The error is kept apart from the reason the model reads.
* **Values are frozen.** Arguments, schemas and attributes cannot be changed; copy with ``thaw()``.
* **No way back.** A hook that asks the engine that is asking it gets `RecursionRefused`.

The engine refuses, when it is made, what pluggy would accept in silence: a plugin without any
hookimpl, a method that bears a hook's name without the marker, a misspelt hook, ``optionalhook``,
hook wrappers, ``async`` where it is not allowed, and arguments with defaults.
"""

from collections.abc import Awaitable, Mapping
from typing import Final, TypeAlias

import pluggy

from toolscope.listings import Listing
from toolscope.model import Agent, Origin, Scope, Tool, ToolCall, Toolset
from toolscope.verdicts import Decision, Verdict

__all__ = [
    "PROJECT",
    "CallAnswer",
    "ListAnswer",
    "filter_tools",
    "hookimpl",
    "hookspec",
    "on_decision",
    "on_tool_call",
]

PROJECT: Final = "toolscope"
"""The name of the markers, and the entry-point group that plugins register in."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

ListAnswer: TypeAlias = Mapping[Tool, Verdict]
CallAnswer: TypeAlias = Verdict | Awaitable[Verdict | None] | None


@hookspec
def filter_tools(
    tools: Toolset, origin: Origin | str | None, agent: Agent | None, scope: Scope
) -> ListAnswer:
    """Names the tools that may not be shown in this scope, each with a deny.

    Called once per list, never per tool, from any thread, and only where the answer is not yet
    known: it is kept per toolset and per value of exactly the arguments that the hookimpl names.
    So name as few as you need. ``scope`` means all of it.

    Args:
        tools: Every tool of the session. Iterate over it; answer with its objects as keys.
        origin: ``scope.origin``: how the chat came to exist. None = absent; unknown kinds are text.
        agent: ``scope.agent``: who acts in the chat, with its own allowlist. None = no agent known.
        scope: All that is known of where the tools would be used.

    Returns:
        A mapping from tools of ``tools`` to the `deny` verdict on each. ``{}`` = no opinion.

        A key that was not asked about, a verdict that is no deny, and None (a forgotten return)
        are faults: then every tool it was asked about is withheld, and the answer is not kept.

    The answer must be pure tool by tool: whether a tool is named depends on that tool and the other
    arguments alone, never on its neighbours, the clock or the outside. A page, a search result and
    the whole list then agree, and a call is decided from the same answer.

    Withhold a tool only if no arguments could pass. What depends on arguments, what shall stay
    listed to be refused, and every ask belong into `on_tool_call`. Sync only.
    """
    raise NotImplementedError


@hookspec
def on_tool_call(call: ToolCall, tool: Tool, scope: Scope) -> CallAnswer:
    """Says whether one produced call may run.

    Called for each call of a tool that is listed in this scope. A call of a withheld tool, of a
    name that does not exist, and one whose arguments are no JSON object are denied before.

    Args:
        call: The call, its arguments frozen.
        tool: The listed tool it is about.
        scope: Where it would run.

    Returns:
        A verdict made by `ask` or `deny`, or None for no opinion. It may be awaitable (an ``async
        def``): all awaitables of a call run at once, under the one deadline ``async_timeout``.
        A sync rule is not bounded in time.
    """
    raise NotImplementedError


@hookspec
def on_decision(outcome: Decision | Listing) -> None:
    """Observes every decision and every computed listing; it cannot change them.

    Called after each decision, also one that was cancelled while it waited (a deny with the code
    ``policy_error``), and after each listing that was not known before. What it raises is logged
    to the logger ``toolscope`` and swallowed. Sync only, and in the caller's way: be quick.

    Args:
        outcome: The `Decision` or the `Listing`.
    """
    raise NotImplementedError
