"""Hypothesis strategies for tools, scopes, plugins and calls, and plain views of the outcomes."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from hypothesis import strategies as st

from toolscope.hookspecs import hookimpl
from toolscope.listings import Listing
from toolscope.model import (
    HOST,
    MODEL,
    UNKNOWN,
    Agent,
    Ancestor,
    Annotations,
    Origin,
    Provider,
    Scope,
    Tool,
    ToolCall,
    Toolset,
)
from toolscope.verdicts import Decision, PluginVerdict, Verdict, ask, deny

NAMES = ("read", "write", "shell", "Shell", "read ")
PROVIDERS = (
    HOST,
    MODEL,
    Provider.client("desk"),
    Provider.client("phone"),
    Provider.mcp("github"),
    Provider.mcp("a/b%"),
)
CODES = (None, "tool_unknown", "quota", "tool_not_available")

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
json_objects = st.dictionaries(st.text(max_size=3), json_values, max_size=3)


@st.composite
def tools(draw: st.DrawFn, providers: Sequence[Provider] = PROVIDERS) -> Tool:
    """One tool, of any provider and with any availability."""
    name = draw(st.sampled_from(NAMES))
    return Tool(
        name=name,
        own_name=draw(st.sampled_from(("", "own", "a/b", "*"))),
        provider=draw(st.sampled_from(providers)),
        title=draw(st.none() | st.just("Title")),
        description=draw(st.none() | st.text(max_size=5)),
        input_schema=draw(st.none() | json_objects),
        annotations=Annotations(read_only=draw(st.booleans()), destructive=draw(st.booleans())),
        availability=draw(st.sampled_from(("session", "userChats", "session ", "later"))),
        tags=draw(st.frozensets(st.sampled_from(("net", "files")))),
    )


def toolsets(max_size: int = 6) -> st.SearchStrategy[Toolset]:
    """Toolsets in which names are often shared and own names never are."""
    return st.lists(
        tools(), max_size=max_size, unique_by=lambda tool: (tool.provider, tool.own_name)
    ).map(Toolset)


entries = st.sampled_from(
    [
        *NAMES,
        "*",
        "host/*",
        "model/*",
        "client:desk/*",
        "client:desk/own",
        "mcp:github/a/b",
        "mcp:github",
        "mcp:a%2Fb%25/*",
        "mcp:/x",
        "github",
    ]
)
agents = st.builds(
    Agent, name=st.sampled_from(("coder", "scout")), tools=st.none() | st.frozensets(entries)
)
origins = st.none() | st.sampled_from([*Origin, "later", "User"])
attributes = st.dictionaries(
    st.sampled_from(("team", "ring")),
    st.sampled_from(("a", "b")) | st.frozensets(st.sampled_from(("a", "b"))),
)
ancestors = st.builds(
    Ancestor, origin=origins, agent=st.none() | st.text(max_size=3), attributes=attributes
)


@st.composite
def scopes(draw: st.DrawFn) -> Scope:
    """Any scope, with ancestries that end well or are cut off."""
    above: list[Any] = draw(st.lists(ancestors, max_size=2))
    if draw(st.booleans()):
        above.append(UNKNOWN)
    return Scope(
        origin=draw(origins),
        agent=draw(st.none() | agents),
        ancestry=above,
        can_ask=draw(st.booleans()),
        subject=draw(st.none() | st.just("ann")),
        attributes=draw(attributes),
    )


@attrs.frozen(kw_only=True)
class Rule:
    """A plugin as data: what it withholds and what it says of a call, and whether it breaks.

    It is pure tool by tool, as the manual asks: it looks at names and the origin only.
    """

    name: str
    withheld: frozenset[str] = frozenset()
    only_in: Origin | None = None
    code: str | None = None
    called: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    broken_list: str | None = None
    seen: list[str] = attrs.field(factory=list, eq=False, hash=False)

    @hookimpl
    def filter_tools(self, tools: Toolset, origin: Origin | str | None) -> Any:
        match self.broken_list:
            case "raise":
                raise RuntimeError("secret of the rule")
            case "wrong":
                return None
        if self.only_in not in (None, origin):
            return {}
        verdict = deny(f"{self.name} withholds it", code=self.code)
        return {tool: verdict for tool in tools if tool.name in self.withheld}

    @hookimpl
    def on_tool_call(self, call: ToolCall, tool: Tool) -> Any:
        self.seen.append(tool.identity)
        match self.called.get(call.name):
            case "ask":
                return ask(f"{self.name} asks", code=self.code)
            case "deny":
                return deny(f"{self.name} denies", code=self.code)
            case "raise":
                raise RuntimeError("secret of the rule")
            case "wrong":
                return "no"
        return None


@st.composite
def rules(draw: st.DrawFn, *, sound: bool = False) -> Rule:
    """Any rule; a sound one breaks nowhere."""
    called = ("ask", "deny") if sound else ("ask", "deny", "raise", "wrong")
    return Rule(
        name=draw(st.sampled_from([f"rule-{letter}" for letter in "abcdefgh"])),
        withheld=draw(st.frozensets(st.sampled_from(NAMES), max_size=2)),
        only_in=draw(st.none() | st.sampled_from(Origin)),
        code=draw(st.sampled_from(CODES)),
        called=draw(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(called), max_size=3)),
        broken_list=None
        if sound
        else draw(st.sampled_from((None, None, None, None, "raise", "wrong"))),
    )


def plugins(max_size: int = 4, *, sound: bool = False) -> st.SearchStrategy[list[Rule]]:
    """Rules with different names."""
    return st.lists(rules(sound=sound), max_size=max_size, unique_by=lambda rule: rule.name)


calls = st.builds(
    ToolCall,
    name=st.sampled_from((*NAMES, "unheard-of")),
    provider=st.none() | st.sampled_from(PROVIDERS),
    arguments=st.sampled_from(('{"path": "x"}', "{}", "[]", "{")),
)
prefers = st.none() | st.sampled_from(("desk", "phone", "nobody"))


# --------------------------------------------------------------------------------------------
# What an outcome says, as plain values
# --------------------------------------------------------------------------------------------


def verdict_view(one: PluginVerdict) -> tuple[Any, ...]:
    verdict: Verdict = one.verdict
    return (one.plugin, str(verdict.effect), verdict.reason, verdict.code, one.error)


def listing_view(listing: Listing) -> dict[str, Any]:
    """All that a listing says."""
    return {
        "tools": [tool.identity for tool in listing],
        "withheld": [
            (tool.identity, [verdict_view(one) for one in verdicts])
            for tool, verdicts in listing.withheld.items()
        ],
        "shadowed": {tool.identity for tool in listing.shadowed},
        "collisions": {
            name: [tool.identity for tool in left] for name, left in listing.collisions.items()
        },
        "fingerprint": listing.fingerprint,
    }


def decision_view(decision: Decision) -> dict[str, Any]:
    """All that a decision says."""
    return {
        "effect": decision.effect,
        "tool": decision.tool and decision.tool.identity,
        "verdicts": [verdict_view(one) for one in decision.verdicts],
        "provider": decision.provider,
        "failure": decision.failure,
    }
