"""Deep Agents: the LangChain middleware on the main agent and on every worker it can start.

::

    create_deep_agent = attach(deepagents.create_deep_agent, PolicyEngine.load())
    agent = create_deep_agent(model, tools=[...], subagents=[...])

Deep Agents gives no worker the main agent's middleware, not even the ``general-purpose`` one that
it adds by itself. `attach` puts it on all of them; `coverage` lists what it could not reach.
"""

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

from deepagents._models import resolve_model
from deepagents.middleware.subagents import GENERAL_PURPOSE_SUBAGENT
from deepagents.profiles.harness.harness_profiles import (
    GeneralPurposeSubagentProfile,
    _harness_profile_for_model,
)
from langchain.agents.middleware import AgentMiddleware

from toolscope.hosts._langgraph_reach import agents, uncovered
from toolscope.hosts._point import Policy
from toolscope.hosts.langchain import (
    CODE_KEY,
    DeclaredScope,
    F,
    Toolscope,
    repeated,
    warn_of,
    with_toolscope,
)
from toolscope.model import Scope

__all__ = ["CODE_KEY", "DeclaredScope", "Toolscope", "attach", "coverage"]


def attach(create_deep_agent: F, policy: Policy, *, scope: DeclaredScope = Scope()) -> F:  # noqa: B008
    """``create_deep_agent``, with `Toolscope` on every agent of each deep agent it makes.

    That is the main agent, each declared sub-agent, and the ``general-purpose`` worker. What is
    handed over ready-made (a ``CompiledSubAgent``, a remote one) is logged as a warning where it is
    unprotected; `coverage` lists it. ``scope`` is what the main agent's chats are declared to be.
    """
    ours = Toolscope(policy, scope=scope)
    signature = inspect.signature(create_deep_agent)

    @functools.wraps(create_deep_agent)
    def create(*args: Any, **arguments: Any) -> Any:
        given = signature.bind(*args, **arguments)
        given.arguments.update(_covered(given.arguments, ours))
        agent = create_deep_agent(*given.args, **given.kwargs)
        warn_of([*repeated(given.arguments.get("tools") or ()), *coverage(agent)])
        return agent

    return create  # type: ignore[return-value]  # the signature is that of create_deep_agent


def coverage(agent: Any) -> tuple[str, ...]:
    """What a deep agent reaches unprotected, one sentence each; empty = nothing found.

    See `toolscope.hosts.langchain.coverage`. Remote sub-agents are always listed.
    """
    lines = list(uncovered(agent, Toolscope))
    for found in agents(agent, Toolscope):
        tools = getattr(getattr(found.graph, "nodes", {}).get("tools"), "bound", None)
        if "start_async_task" in getattr(tools, "tools_by_name", ()):
            lines.append(
                f"{found.path} starts remote sub-agents ('start_async_task'); protect them where "
                "they are served"
            )
    return tuple(lines)


def _covered(arguments: Mapping[str, Any], ours: Toolscope) -> dict[str, Any]:
    """The arguments that change: the middleware, and the sub-agents with theirs."""
    middleware = tuple(arguments.get("middleware") or ())
    specs = [_covered_spec(spec, ours) for spec in arguments.get("subagents") or ()]
    general = GENERAL_PURPOSE_SUBAGENT["name"]
    if not any(spec.get("name") == general and "graph_id" not in spec for spec in specs):
        specs[:0] = _general_purpose(arguments, middleware, ours)
    return {"middleware": with_toolscope(middleware, ours), "subagents": specs}


def _covered_spec(spec: Mapping[str, Any], ours: Toolscope) -> Mapping[str, Any]:
    if "runnable" in spec or "graph_id" in spec:
        return spec
    return {**spec, "middleware": with_toolscope(tuple(spec.get("middleware") or ()), ours)}


_INHERITED: Final = frozenset(
    {
        "AnthropicPromptCachingMiddleware",
        "BedrockPromptCachingMiddleware",
        "FilesystemMiddleware",
        "FireworksPromptCachingMiddleware",
        "PatchToolCallsMiddleware",
        "SkillsMiddleware",
        "SummarizationMiddleware",
    }
)
"""The middlewares of the general-purpose worker that the main agent's of the same name replace."""


def _general_purpose(
    arguments: Mapping[str, Any],
    middleware: Sequence[AgentMiddleware[Any, Any, Any]],
    ours: Toolscope,
) -> list[Mapping[str, Any]]:
    """The worker that Deep Agents would add, spelt out, since only then it takes a middleware."""
    profile = _profile(arguments.get("model"))
    if profile.enabled is False:
        return []
    inherited = [one for one in middleware if one.name in _INHERITED]
    spec: dict[str, Any] = {
        **GENERAL_PURPOSE_SUBAGENT,
        "middleware": with_toolscope(inherited, ours),
    }
    if arguments.get("skills") is not None:
        spec["skills"] = arguments["skills"]
    if profile.description is not None:
        spec["description"] = profile.description
    if profile.system_prompt is not None:
        spec["system_prompt"] = profile.system_prompt
    return [spec]


def _profile(model: Any) -> GeneralPurposeSubagentProfile:
    """What the model's harness profile says of the worker; the default where there is no model."""
    if model is None:
        return GeneralPurposeSubagentProfile()
    name = model if isinstance(model, str) else None
    profile = _harness_profile_for_model(resolve_model(model), name)
    return profile.general_purpose_subagent or GeneralPurposeSubagentProfile()
