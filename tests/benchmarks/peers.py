"""The same policy for each peer; one that is not installed is left out.

A peer that knows single conditions only is given the joined facts it needs, so what is timed is its
own work and the record of facts that any host would have to build for it.
"""

import asyncio
import importlib.util
import json
import logging
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from tests.benchmarks.policy import DOMAINS, LIMIT, OPERATORS, PLACES, PROGRAMS, RESERVED, UNSTABLE
from toolscope import Scope, Tool, ToolCall

REFUSED = "block"
"""What agent-tool-firewall calls a denial."""


@attrs.frozen(kw_only=True)
class Peer:
    """One peer: how it decides a list and a call, by the policy of `tests.benchmarks.policy`."""

    name: str
    filter: Callable[[Sequence[Tool], Scope], list[Tool]]
    call: Callable[[ToolCall, Tool, Scope], bool]


def installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def available() -> list[Peer]:
    """Every peer that is installed here."""
    made = []
    for module, make in (
        ("agent_firewall", _agent_tool_firewall),
        ("agent_os", _agent_os_kernel),
        ("cedarpy", _cedarpy),
        ("cpex", _cpex),
    ):
        if installed(module):
            made.append(make())
    return made


def _list_facts(tool: Tool, scope: Scope) -> dict[str, Any]:
    return {
        "tool_name": tool.name,
        "availability_in": f"{tool.availability}@{scope.origin}",
        "reserved_in": scope.origin if RESERVED.match(tool.name) else "user",
        "destructive_of": f"{tool.annotations.destructive}@{tool.provider.kind}@{scope.origin}",
        "experimental_in": scope.origin if not tool.tags.isdisjoint(UNSTABLE) else "user",
    }


def _call_facts(call: ToolCall, tool: Tool, scope: Scope) -> dict[str, Any]:
    arguments = call.arguments
    return {
        "tool_name": tool.name,
        "program": arguments.get("command", "").partition(" ")[0],
        "path": arguments.get("path", ""),
        "amount": arguments.get("amount", 0),
        "domain": arguments["to"].rpartition("@")[2] if "to" in arguments else "example.test",
        "destructive_subject": scope.subject if tool.annotations.destructive else "ops",
    }


def _alternation(names: Sequence[str] | frozenset[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names))


def _agent_tool_firewall() -> Peer:
    from agent_firewall import PolicyEngine

    def rule(*conditions: tuple[str, str, object], tool_name: str | None = None) -> dict[str, Any]:
        contains = [{"field": f, "operator": o, "value": v} for f, o, v in conditions]
        match: dict[str, Any] = {"payload_contains": contains}
        if tool_name is not None:
            match["tool_name"] = tool_name
        return {"name": conditions[0][0], "action": REFUSED, "match": match}

    in_worker = ("origin", "==", "tool")
    lists = PolicyEngine(
        rules=[
            rule(("availability", "==", "userChats"), in_worker),
            rule(("listed", "==", False)),
            rule(in_worker, tool_name=f"^(?:{RESERVED.pattern}).*"),
            rule(("destructive", "==", True), ("provider", "==", "client"), in_worker),
            rule(("unstable", "==", True), in_worker),
        ]
    )

    def filter_(tools: Sequence[Tool], scope: Scope) -> list[Tool]:
        allowed = scope.agent.tools if scope.agent and scope.agent.tools is not None else ()
        kept = []
        for tool in tools:
            facts = {
                "availability": str(tool.availability),
                "origin": str(scope.origin),
                "listed": tool.name in allowed,
                "destructive": tool.annotations.destructive,
                "provider": str(tool.provider.kind),
                "unstable": not tool.tags.isdisjoint(UNSTABLE),
            }
            if lists.evaluate(tool.name, facts).action.value != REFUSED:
                kept.append(tool)
        return kept

    calls = PolicyEngine(
        rules=[
            rule(("bad_program", "==", True)),
            rule(("bad_place", "==", True)),
            rule(("amount", ">", LIMIT)),
            rule(("bad_domain", "==", True)),
            rule(("destructive", "==", True), ("operator", "==", False)),
        ]
    )

    def call_(call: ToolCall, tool: Tool, scope: Scope) -> bool:
        facts = _call_facts(call, tool, scope)
        facts["bad_program"] = facts["program"] in PROGRAMS
        facts["bad_place"] = facts["path"].startswith(PLACES)
        facts["bad_domain"] = facts["domain"] not in DOMAINS
        facts["destructive"] = tool.annotations.destructive
        facts["operator"] = scope.subject in OPERATORS
        return bool(calls.evaluate(tool.name, facts).action.value != REFUSED)

    return Peer(name="agent-tool-firewall", filter=filter_, call=call_)


def _agent_os_kernel() -> Peer:
    from agent_os.policies.evaluator import PolicyEvaluator
    from agent_os.policies.schema import PolicyCondition, PolicyDocument, PolicyRule

    def evaluator(*rules: tuple[str, str, object]) -> Any:
        return PolicyEvaluator(
            [
                PolicyDocument(
                    name="benchmark",
                    rules=[
                        PolicyRule(
                            name=field,
                            condition=PolicyCondition(field=field, operator=operator, value=value),
                            action="deny",
                        )
                        for field, operator, value in rules
                    ],
                )
            ]
        )

    lists: dict[Scope, Any] = {}

    def filter_(tools: Sequence[Tool], scope: Scope) -> list[Tool]:
        if scope not in lists:
            allowed = scope.agent.tools if scope.agent and scope.agent.tools is not None else ()
            lists[scope] = evaluator(
                ("availability_in", "eq", "userChats@tool"),
                ("tool_name", "not_in", frozenset(allowed)),
                ("reserved_in", "ne", "user"),
                ("destructive_of", "eq", "True@client@tool"),
                ("experimental_in", "ne", "user"),
            )
        engine = lists[scope]
        return [tool for tool in tools if engine.evaluate(_list_facts(tool, scope)).allowed]

    calls = evaluator(
        ("program", "in", PROGRAMS),
        ("path", "matches", f"^({_alternation(frozenset(PLACES))})"),
        ("amount", "gt", LIMIT),
        ("domain", "not_in", DOMAINS),
        ("destructive_subject", "not_in", OPERATORS),
    )

    def call_(call: ToolCall, tool: Tool, scope: Scope) -> bool:
        return bool(calls.evaluate(_call_facts(call, tool, scope)).allowed)

    return Peer(name="agent-os-kernel", filter=filter_, call=call_)


_CEDAR = """
permit(principal, action, resource);
forbid(principal, action == Action::"list", resource)
  when { context.availability_in == "userChats@tool" };
forbid(principal, action == Action::"list", resource) when { !context.listed };
forbid(principal, action == Action::"list", resource)
  when { context.reserved_in != "user" };
forbid(principal, action == Action::"list", resource)
  when { context.destructive_of == "True@client@tool" };
forbid(principal, action == Action::"list", resource)
  when { context.experimental_in != "user" };
forbid(principal, action == Action::"call", resource)
  when { ["rm", "dd", "mkfs", "shutdown"].contains(context.program) };
forbid(principal, action == Action::"call", resource)
  when { context.path like "/etc/*" || context.path like "/proc/*" || context.path like "/sys/*" };
forbid(principal, action == Action::"call", resource) when { context.amount > 1000 };
forbid(principal, action == Action::"call", resource)
  when { !["example.test", "example.invalid"].contains(context.domain) };
forbid(principal, action == Action::"call", resource)
  when { !["ops", "root"].contains(context.destructive_subject) };
"""


def _cedarpy() -> Peer:
    import cedarpy

    policies = cedarpy.PolicySet.from_str(_CEDAR)
    entities = cedarpy.Entities.from_json_str("[]")

    def request(action: str, tool: Tool, facts: dict[str, Any]) -> dict[str, Any]:
        return {
            "principal": 'Agent::"worker"',
            "action": f'Action::"{action}"',
            "resource": f"Tool::{json.dumps(tool.name)}",
            "context": facts,
        }

    def filter_(tools: Sequence[Tool], scope: Scope) -> list[Tool]:
        allowed = scope.agent.tools if scope.agent and scope.agent.tools is not None else ()
        requests = [
            request("list", t, {**_list_facts(t, scope), "listed": t.name in allowed})
            for t in tools
        ]
        results = cedarpy.is_authorized_batch(requests, policies, entities)
        return [tool for tool, result in zip(tools, results, strict=True) if result.allowed]

    def call_(call: ToolCall, tool: Tool, scope: Scope) -> bool:
        facts = _call_facts(call, tool, scope)
        return bool(cedarpy.is_authorized(request("call", tool, facts), policies, entities).allowed)

    return Peer(name="cedarpy", filter=filter_, call=call_)


_CPEX_CONFIG = """
plugin_dirs: []
plugin_settings: {}
plugins:
  - name: benchmark
    kind: tests.benchmarks.cpex_plugin.BenchmarkPlugin
    hooks: [tool_pre_invoke]
    mode: enforce
    priority: 1
"""


def _cpex() -> Peer:
    from cpex.framework import GlobalContext, PluginManager
    from cpex.framework.hooks.tools import ToolHookType, ToolPreInvokePayload

    logging.getLogger("cpex").setLevel(logging.CRITICAL)  # it warns on every denial
    loop = asyncio.new_event_loop()
    folder = Path(tempfile.mkdtemp())
    config = folder / "cpex.yaml"
    config.write_text(_CPEX_CONFIG, encoding="utf-8")
    manager = PluginManager(str(config))
    loop.run_until_complete(manager.initialize())

    async def ask(tool: Tool, arguments: dict[str, Any]) -> bool:
        payload = ToolPreInvokePayload(name=tool.name, args=arguments)
        result, _ = await manager.invoke_hook(
            ToolHookType.TOOL_PRE_INVOKE, payload, GlobalContext(request_id="1")
        )
        return bool(result.continue_processing)

    async def ask_all(tools: Sequence[Tool], scope: Scope) -> list[Tool]:
        allowed = scope.agent.tools if scope.agent and scope.agent.tools is not None else ()
        return [
            tool
            for tool in tools
            if await ask(
                tool, {"list": True, "listed": tool.name in allowed, **_list_facts(tool, scope)}
            )
        ]

    def filter_(tools: Sequence[Tool], scope: Scope) -> list[Tool]:
        return loop.run_until_complete(ask_all(tools, scope))

    def call_(call: ToolCall, tool: Tool, scope: Scope) -> bool:
        return loop.run_until_complete(ask(tool, _call_facts(call, tool, scope)))

    return Peer(name="cpex", filter=filter_, call=call_)
