"""What an agent of the OpenAI Agents SDK can reach, and what of it passes the policy by."""

from collections.abc import Iterator
from typing import Any

from agents import Agent, FunctionTool, Handoff

from toolscope.hosts._openai_agents_tools import function_of, runs_at_vendor
from toolscope.hosts._referred import referred

__all__ = ["reached", "uncovered"]


def reached(agent: Agent[Any]) -> Iterator[Agent[Any]]:
    """The agent and all below it, each once: as tools, handoffs, and named by tools' functions."""
    if not isinstance(agent, Agent):
        raise TypeError(f"agent is a {type(agent).__name__}; give an agents.Agent")
    waiting: list[Agent[Any]] = [agent]
    seen: set[int] = set()
    while waiting:
        found = waiting.pop(0)
        if id(found) not in seen:
            seen.add(id(found))
            waiting += [one for one in _below(found) if isinstance(one, Agent)]
            yield found


def uncovered(agent: Agent[Any], kind: type[Agent[Any]]) -> tuple[str, ...]:
    """A sentence for everything that is known to pass the policy by."""
    gaps: list[str] = []
    for found in reached(agent):
        if not isinstance(found, kind):
            gaps.append(f"agent {found.name!r} is not attached")
        gaps += [
            f"the handoff {one.tool_name!r} of agent {found.name!r} does not say to whom it leads: "
            "attach that agent yourself"
            for one in found.handoffs
            if isinstance(one, Handoff) and _target(one) is None
        ]
        gaps += [
            f"the tool {tool.name!r} of agent {found.name!r} can be withheld, and no call of it "
            f"decided: {_why(tool)}"
            for tool in found.tools
            if not isinstance(tool, FunctionTool)
        ]
    return tuple(gaps)


def _why(tool: object) -> str:
    if runs_at_vendor(tool):
        return "the model's vendor runs it"
    return "the host has no hook before it runs"


def _below(agent: Agent[Any]) -> Iterator[object]:
    for tool in agent.tools:
        if isinstance(tool, FunctionTool):
            yield tool._agent_instance  # noqa: SLF001  (the host offers no other way to it)
            yield from referred(function_of(tool), Agent)
    for handoff in agent.handoffs:
        yield _target(handoff) if isinstance(handoff, Handoff) else handoff


def _target(handoff: Handoff[Any, Any]) -> object:
    reference = handoff._agent_ref  # noqa: SLF001  (as above)
    return None if reference is None else reference()
