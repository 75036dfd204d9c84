"""The laws of the design as properties, by their names. (L6 is the ledger's: test_calls.py.)"""

import json
import subprocess
import sys
from typing import Any

import attrs
from hypothesis import assume, given
from hypothesis import strategies as st

from tests import oracle
from tests.strategies import (
    Rule,
    agents,
    calls,
    decision_view,
    json_objects,
    listing_view,
    plugins,
    prefers,
    rules,
    scopes,
    toolsets,
    verdict_view,
)
from toolscope.engine import PolicyEngine
from toolscope.model import Agent, Scope, Tool, ToolCall, Toolset
from toolscope.verdicts import Effect

STRICTNESS = [Effect.ALLOW, Effect.ASK, Effect.DENY]


def call_of(tool: Tool) -> ToolCall:
    return ToolCall(name=tool.name, provider=tool.provider)


@given(plugins(), st.randoms(use_true_random=False), toolsets(), scopes(), calls, prefers)
def test_l1_order_is_irrelevant(
    rules: list[Rule],
    random: Any,
    tools: Toolset,
    scope: Scope,
    call: ToolCall,
    prefer: str | None,
) -> None:
    """Any registration order gives the same listing and decision, texts and codes included."""
    shuffled = random.sample(rules, len(rules))
    one, other = PolicyEngine(rules), PolicyEngine(shuffled)
    assert listing_view(one.filter_tools(tools, scope, prefer)) == listing_view(
        other.filter_tools(tools, scope, prefer)
    )
    assert decision_view(one.on_tool_call(call, tools, scope, prefer)) == decision_view(
        other.on_tool_call(call, tools, scope, prefer)
    )


@given(plugins(3), rules(), toolsets(), scopes(), prefers)
def test_l2_one_more_plugin_only_narrows(
    installed: list[Rule], added: Rule, tools: Toolset, scope: Scope, prefer: str | None
) -> None:
    """It shows no tool that was withheld, and turns no ask or deny into something weaker."""
    assume(added.name not in {rule.name for rule in installed})
    before, after = PolicyEngine(installed), PolicyEngine([*installed, added])
    old, new = before.filter_tools(tools, scope, prefer), after.filter_tools(tools, scope, prefer)
    assert set(old.withheld) <= set(new.withheld)
    for tool in tools:
        alone = Toolset([tool])
        was = before.on_tool_call(call_of(tool), alone, scope).effect
        now = after.on_tool_call(call_of(tool), alone, scope).effect
        assert STRICTNESS.index(now) >= STRICTNESS.index(was)
        # Among all tools, an uncovered tool stands on its own verdicts; the others only narrow.
        if tool not in old.shadowed and old.resolve(tool.name, tool.provider) is tool:
            was = before.on_tool_call(call_of(tool), tools, scope, prefer).effect
            now = after.on_tool_call(call_of(tool), tools, scope, prefer).effect
            assert STRICTNESS.index(now) >= STRICTNESS.index(was)


@given(plugins(), toolsets(), scopes(), calls, prefers)
def test_l3_allowed_implies_visible(
    rules: list[Rule], tools: Toolset, scope: Scope, call: ToolCall, prefer: str | None
) -> None:
    """Only a listed tool may be called, and no rule is asked about a call of any other."""
    engine = PolicyEngine(rules)
    listing = engine.filter_tools(tools, scope, prefer)
    decision = engine.on_tool_call(call, tools, scope, prefer)
    seen = {identity for rule in rules for identity in rule.seen}
    if decision.effect is not Effect.DENY:
        assert decision.tool in list(listing)
    assert seen <= {tool.identity for tool in listing}
    for tool in (*listing.withheld, *listing.shadowed):
        refused = engine.on_tool_call(call_of(tool), tools, scope, prefer)
        twins = [t for t in listing if (t.name, t.provider) == (tool.name, tool.provider)]
        assert twins or refused.effect is Effect.DENY
        assert refused.tool is not tool or refused.effect is Effect.DENY
    unknown = engine.on_tool_call(ToolCall(name="unheard-of"), tools, scope, prefer)
    assert unknown.failure is not None
    assert unknown.failure.code == "tool_unknown"


@given(plugins(), toolsets(), scopes(), calls)
def test_l4_no_decision_is_no_yes(
    rules: list[Rule], tools: Toolset, scope: Scope, call: ToolCall
) -> None:
    """A rule that fails denies; it is named, and its error is kept apart from the reason."""
    engine = PolicyEngine(rules)
    listing = engine.filter_tools(tools, scope)
    broken = {rule.name for rule in rules if rule.broken_list}
    if broken:
        assert list(listing) == []
        for tool in tools:
            failed = {one.plugin for one in listing.withheld[tool] if one.error is not None}
            assert failed == broken
    decision = engine.on_tool_call(call, tools, scope)
    failed_calls = {
        r.name for r in rules if r.seen and r.called.get(call.name) in ("raise", "wrong")
    }
    if failed_calls:
        assert decision.effect is Effect.DENY
        assert {one.plugin for one in decision.errors} == failed_calls
    for one in decision.errors:
        assert one.error
        assert one.verdict.code == "policy_error"
        assert f"'{one.plugin}'" in one.verdict.reason
        assert one.error not in one.verdict.reason
    if decision.failure is not None:
        assert "secret" not in decision.failure.message


@given(plugins(), toolsets(), scopes(), calls, prefers)
def test_l5_nobody_is_named_on_a_denied_call(
    rules: list[Rule], tools: Toolset, scope: Scope, call: ToolCall, prefer: str | None
) -> None:
    """The provider is None on a deny, else the tool's; a failure is there only on a deny."""
    decision = PolicyEngine(rules).on_tool_call(call, tools, scope, prefer)
    if decision.effect is Effect.DENY:
        assert decision.provider is None
        assert decision.failure is not None
    else:
        assert decision.tool is not None
        assert decision.provider == decision.tool.provider
        assert decision.failure is None


@given(scopes(), toolsets())
def test_l7_absent_empty_and_filtered_to_nothing_differ(scope: Scope, tools: Toolset) -> None:
    """In agents and their JSON, in listings, in schemas: three states, never two."""
    engine = PolicyEngine()

    def named(entries: frozenset[str] | None) -> Scope:
        return attrs.evolve(scope, agent=Agent(name="coder", tools=entries))

    absent, empty, nothing = named(None), named(frozenset()), named(frozenset({"no such tool"}))
    assert len({absent, empty, nothing}) == 3
    for one in (absent, empty, nothing):
        assert Scope.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert "tools" not in absent.to_json()["agent"]
    assert empty.to_json()["agent"]["tools"] == []
    assert [*engine.filter_tools(tools, empty)] == []
    assert [*engine.filter_tools(tools, nothing)] == []
    assert len(engine.filter_tools(tools, empty).withheld) == len(tools)
    assert engine.filter_tools(Toolset(), empty).withheld == {}
    schemas = [None, {}, {"type": "object"}]
    assert len({Tool(name="t", input_schema=schema).digest for schema in schemas}) == 3
    assert len({Tool(name="t", description=text).digest for text in (None, "", "d")}) == 3


@given(plugins(), toolsets(), scopes(), prefers)
def test_l8_a_listing_keeps_the_order_of_the_toolset(
    rules: list[Rule], tools: Toolset, scope: Scope, prefer: str | None
) -> None:
    """It is the toolset with tools left out: listed, withheld and shadowed are all of it."""
    listing = PolicyEngine(rules).filter_tools(tools, scope, prefer)
    listed = set(listing)
    assert list(listing) == [tool for tool in tools if tool in listed]
    assert list(listing.withheld) == [tool for tool in tools if tool in listing.withheld]
    parts = [listed, set(listing.withheld), set(listing.shadowed)]
    assert set.union(*parts) == set(tools)
    assert sum(map(len, parts)) == len(tools)
    assert all((tool in listing) is (tool in listed) for tool in tools)


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reversed_keys(item) for key, item in reversed(value.items())}
    if isinstance(value, list):
        return [reversed_keys(item) for item in value]
    return value


@given(json_objects, json_objects)
def test_l8_equal_inputs_give_an_equal_fingerprint(
    schema: dict[str, Any], output: dict[str, Any]
) -> None:
    """Whatever order the keys came in, and whatever the model does not see."""
    engine, scope = PolicyEngine(), Scope()
    one = Toolset([Tool(name="t", input_schema=schema, output_schema=output)])
    other = Toolset(
        [
            Tool(
                name="t",
                input_schema=reversed_keys(schema),
                output_schema=reversed_keys(output),
                source=object(),
                meta={"seen": "never"},
                tags=["x"],
            )
        ]
    )
    fingerprint = engine.filter_tools(one, scope).fingerprint
    assert engine.filter_tools(other, scope).fingerprint == fingerprint
    more = Toolset([*one, Tool(name="u")])
    assert engine.filter_tools(more, scope).fingerprint != fingerprint


PRINT_FINGERPRINT = """
from toolscope import Agent, Annotations, PolicyEngine, Scope, Tool, Toolset
tools = Toolset(
    Tool(
        name=f"tool {n} \\u00e4\\ud800",
        description="text",
        input_schema={"b": {"y": n, "x": [1.5, None, True]}, "a": 2**70},
        annotations=Annotations(read_only=n % 2 == 0),
        tags={"one", "two", "three", str(n)},
    )
    for n in range(20)
)
agent = Agent(name="a", tools={tool.name for tool in tools[3:]})
scope = Scope(agent=agent, attributes={"teams": {"x", "y", "z"}})
print(PolicyEngine().filter_tools(tools, scope).fingerprint)
"""


def test_l8_a_fingerprint_is_the_same_in_every_process() -> None:
    """Prompt caches live longer than processes: no hash seed shows in a fingerprint."""
    printed = {
        subprocess.run(
            [sys.executable, "-c", PRINT_FINGERPRINT],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(printed) == 1
    assert len(printed.pop().strip()) == 64


@given(plugins(), toolsets(), scopes(), st.data())
def test_a_part_of_the_tools_is_withheld_as_in_the_listing_of_all(
    rules: list[Rule], tools: Toolset, scope: Scope, data: st.DataObject
) -> None:
    """A page, a search result and the whole list agree about every tool, verdicts included."""
    kept = data.draw(st.lists(st.booleans(), min_size=len(tools), max_size=len(tools)))
    part = Toolset([tool for tool, keep in zip(tools, kept, strict=True) if keep])
    engine = PolicyEngine(rules)
    whole = engine.filter_tools(tools, scope).withheld
    of_part = engine.filter_tools(part, scope).withheld
    expected = {tool: verdicts for tool, verdicts in whole.items() if tool in part}
    assert {t: [verdict_view(v) for v in vs] for t, vs in of_part.items()} == {
        t: [verdict_view(v) for v in vs] for t, vs in expected.items()
    }


@given(plugins(), toolsets(), scopes(), prefers)
def test_names_are_settled_among_the_survivors(
    rules: list[Rule], tools: Toolset, scope: Scope, prefer: str | None
) -> None:
    """Filter first, then route: the host, the preferred client, the first client; MCP collides."""
    listing = PolicyEngine(rules).filter_tools(tools, scope, prefer)
    survivors = [tool for tool in tools if tool not in listing.withheld]
    wanted = oracle.route(
        [{"name": tool.name, "provider": str(tool.provider)} for tool in survivors], prefer
    )
    assert list(listing) == [survivors[place] for place in wanted["listed"]]
    assert listing.shadowed == {survivors[place] for place in wanted["shadowed"]}
    assert sorted(listing.collisions) == wanted["collisions"]


@given(toolsets(), scopes(), st.sampled_from(("user", "tool")), st.none() | agents)
def test_the_built_in_rules_are_those_of_the_oracle(
    tools: Toolset, scope: Scope, absent_origin: str, agent: Agent | None
) -> None:
    """Availability and allowlists of every form, over shared names and all kinds of provider."""
    config = {"plugins": {"availability": {"absent_origin": absent_origin}}}
    engine = PolicyEngine(config=config)
    scope = attrs.evolve(scope, agent=agent)
    chat = {
        "origin": scope.origin and str(scope.origin),
        "tools": agent and agent.tools,
        "can_ask": scope.can_ask,
    }
    withheld = engine.filter_tools(tools, scope).withheld
    for tool in tools:
        wanted = oracle.judge(
            {
                "name": tool.name,
                "own_name": tool.own_name,
                "provider": str(tool.provider),
                "availability": str(tool.availability),
            },
            chat,
            absent_origin=absent_origin,
        )
        assert {one.plugin for one in withheld.get(tool, ())} == wanted["named"]
