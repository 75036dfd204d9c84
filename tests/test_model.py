"""The values: immutable, exact about what they take, and the same in every process."""

import copy
import json
import pickle
from collections.abc import Callable, Mapping
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import json_objects, scopes, toolsets
from toolscope._frozen import MAX_ARGUMENT_VALUES, MAX_DEPTH, MAX_VALUES
from toolscope.engine import PolicyEngine
from toolscope.errors import ScopeError, ToolsetError
from toolscope.model import (
    HOST,
    MODEL,
    UNKNOWN,
    Agent,
    Ancestor,
    Annotations,
    Availability,
    FrozenDict,
    FrozenList,
    InvalidArguments,
    Origin,
    Provider,
    ProviderKind,
    Scope,
    Tool,
    ToolCall,
    Toolset,
    canonical_json,
    freeze,
    narrower_availability,
    narrower_origin,
    thaw,
)
from toolscope.testing import toolset


def refused(error: type[Exception], make: Callable[..., object], *args: Any, **kwargs: Any) -> str:
    """What making the value says."""
    with pytest.raises(error) as caught:
        make(*args, **kwargs)
    return str(caught.value)


# --------------------------------------------------------------------------------------------
# Frozen JSON
# --------------------------------------------------------------------------------------------


@given(json_objects)
def test_frozen_json_is_json(value: dict[str, Any]) -> None:
    """It equals what it was made from, dumps like it, and survives copies and pickle."""
    frozen = freeze(value)
    assert isinstance(frozen, dict)
    assert frozen == value
    assert json.loads(json.dumps(frozen)) == json.loads(json.dumps(value))
    assert pickle.loads(pickle.dumps(frozen)) == frozen
    assert type(pickle.loads(pickle.dumps(frozen))) is FrozenDict
    assert copy.copy(frozen) is frozen
    assert copy.deepcopy(frozen) is frozen
    assert freeze(frozen) is frozen
    assert hash(freeze(copy.deepcopy(value))) == hash(frozen)
    assert thaw(frozen) == value
    assert type(thaw(frozen)) is dict


DICT_CHANGES: list[Callable[[Any], Any]] = [
    lambda d: d.__setitem__("a", 1),
    lambda d: d.__delitem__("a"),
    lambda d: d.__ior__({"b": 1}),
    lambda d: d.clear(),
    lambda d: d.pop("a"),
    lambda d: d.popitem(),
    lambda d: d.setdefault("b", 1),
    lambda d: d.update(b=1),
]
LIST_CHANGES: list[Callable[[Any], Any]] = [
    lambda x: x.__setitem__(0, 1),
    lambda x: x.__delitem__(0),
    lambda x: x.__iadd__([1]),
    lambda x: x.__imul__(2),
    lambda x: x.append(1),
    lambda x: x.clear(),
    lambda x: x.extend([1]),
    lambda x: x.insert(0, 1),
    lambda x: x.pop(),
    lambda x: x.remove(1),
    lambda x: x.reverse(),
    lambda x: x.sort(),
]


def test_frozen_json_refuses_every_change_at_every_depth() -> None:
    """Each method of dict and list that changes its object raises, and says what to do."""
    frozen = freeze({"a": [1, {"a": 1}]})
    for change in DICT_CHANGES:
        for target in (frozen, frozen["a"][1]):
            with pytest.raises(TypeError, match="FrozenDict cannot be changed; thaw\\(\\) gives"):
                change(target)
    for change in LIST_CHANGES:
        with pytest.raises(
            TypeError, match="FrozenList cannot be changed; thaw\\(\\) gives a copy"
        ):
            change(frozen["a"])
    assert frozen == {"a": [1, {"a": 1}]}
    changing = {"__init__", "__new__", "__class__", "__setattr__", "__delattr__", "__setstate__"}
    for kind, frozen_kind in ((dict, FrozenDict), (list, FrozenList)):
        kept = {
            name
            for name in ("clear", "pop", "append", "update", "__setitem__", "__ior__", "sort")
            if name in vars(kind) and getattr(kind, name) is getattr(frozen_kind, name)
        }
        assert kept - changing == set()


def test_frozen_lists_copy_to_themselves() -> None:
    """As frozen dicts do; pickle gives the same kind."""
    frozen = freeze([1, [2]])
    assert copy.copy(frozen) is frozen
    assert copy.deepcopy(frozen) is frozen
    assert pickle.loads(pickle.dumps(frozen)) == frozen
    assert type(pickle.loads(pickle.dumps(frozen))[1]) is FrozenList
    assert hash(frozen) == hash(freeze([1, [2]]))
    assert freeze((1, 2)) == [1, 2]


def test_what_was_frozen_is_a_copy() -> None:
    """Changing the source, at any depth, changes nothing; frozen parts are shared."""
    source = {"a": [1, {"b": 2}]}
    frozen = freeze(source)
    source["a"].append(3)
    source["a"][1]["b"] = 4  # type: ignore[index]
    assert frozen == {"a": [1, {"b": 2}]}
    assert freeze({"x": frozen})["x"] is frozen
    assert freeze([frozen["a"]])[0] is frozen["a"]


class Word(StrEnum):
    A = "a"


class Number(IntEnum):
    ONE = 1


class Part(float):
    pass


def test_subclasses_of_scalars_become_the_plain_scalars() -> None:
    """Members of enumerations too, also as keys; true stays true."""
    frozen = freeze({Word.A: [Word.A, Number.ONE, Part(0.5), True, None]})
    assert frozen == {"a": ["a", 1, 0.5, True, None]}
    assert [type(one) for one in frozen["a"]] == [str, int, float, bool, type(None)]
    assert [type(key) for key in frozen] == [str]


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


class Endless(Mapping[str, Any]):
    """A mapping whose values are the mapping itself."""

    def __getitem__(self, key: str) -> Any:
        return self

    def __iter__(self) -> Any:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": float("nan")}, "NaN and infinities are not JSON"),
        ([float("-inf")], "NaN and infinities are not JSON"),
        ([Part("nan")], "a value is a Part, which is not JSON"),
        ({1: 2}, "a key is a int, not text"),
        ({"a": {1, 2}}, "a value is a set, which is not JSON"),
        ({"a": b"x"}, "a value is a bytes, which is not JSON"),
        ({"a": object()}, "a value is a object, which is not JSON"),
        (nested(MAX_DEPTH + 2), "nested deeper than 100 levels"),
        (nested(100_000), "nested deeper than 100 levels"),
        (Endless(), "nested deeper than 100 levels"),
        ([[0] * 1000] * (MAX_VALUES // 1000 + 1), f"more than {MAX_VALUES:,} values"),
    ],
)
def test_what_is_not_json_is_refused(value: object, problem: str) -> None:
    """By its kind; the message never shows the value."""
    assert refused(ValueError, freeze, value) == problem


def test_arguments_hold_a_hundred_thousand_values() -> None:
    """That many texts at one level, or more than one level of them, and no more."""
    texts = {str(place): "x" for place in range(MAX_ARGUMENT_VALUES - 1)}
    many = f"more than {MAX_ARGUMENT_VALUES:,} values"
    for arguments, problem in [
        (texts, None),
        (dict.fromkeys(texts, 1), None),
        ({**texts, "one more": "x"}, many),
        ({**texts, "one more": 1}, many),
        ({"nested": texts}, many),
    ]:
        call = ToolCall(name="t", arguments=arguments)
        assert getattr(call.arguments, "why", None) == problem


def test_json_may_nest_a_hundred_levels() -> None:
    """That many, and no more."""
    assert freeze(nested(MAX_DEPTH)) == nested(MAX_DEPTH)


def test_canonical_json_is_one_text_for_equal_json() -> None:
    """Keys in order; integers exact, text not normalised, no look-alikes."""
    assert canonical_json({"b": [1, None], "a": "é"}) == '{"a":"\\u00e9","b":[1,null]}'
    assert canonical_json(freeze({"b": 2**70, "a": 1})) == f'{{"a":1,"b":{2**70}}}'
    different = [1, 1.0, True, "1", "\u00e9", "e\u0301"]
    assert len({canonical_json(one) for one in different}) == len(different)
    assert "NaN" not in refused(ValueError, canonical_json, float("nan")).replace("nan", "")


# --------------------------------------------------------------------------------------------
# Availability, origin
# --------------------------------------------------------------------------------------------


def test_unknown_availabilities_and_origins_are_kept_and_count_as_the_narrower() -> None:
    """A value of a later protocol can only be narrower than what is known."""
    later = Tool(name="t", availability="devicesOnly")
    assert later.availability == "devicesOnly"
    assert Availability.counted("devicesOnly") is Availability.USER_CHATS
    assert Availability.counted("Session") is Availability.USER_CHATS
    assert Tool(name="t", availability="userChats").availability is Availability.USER_CHATS
    assert Tool(name="t").availability is Availability.SESSION
    assert Scope(origin="delegation").origin == "delegation"
    assert Origin.counted("delegation") is Origin.TOOL
    assert Scope(origin="sideChat").origin is Origin.SIDE_CHAT
    assert Scope().origin is None


def test_the_narrower_of_two_claims_counts() -> None:
    """Whichever comes first; absent says nothing."""
    assert narrower_availability("session", "userChats") == "userChats"
    assert narrower_availability("userChats", "session") == "userChats"
    assert narrower_availability("later", "userChats") == "later"
    assert narrower_availability("session", "session") == "session"
    assert narrower_origin("user", "tool") == "tool"
    assert narrower_origin("tool", "user") == "tool"
    assert narrower_origin("later", "tool") == "later"
    assert narrower_origin("user", "fork") == "user"
    assert narrower_origin(None, "fork") == "fork"
    assert narrower_origin("fork", None) == "fork"
    assert narrower_origin(None, None) is None


# --------------------------------------------------------------------------------------------
# Providers
# --------------------------------------------------------------------------------------------


@given(st.sampled_from([Provider.client, Provider.mcp]), st.text(min_size=1))
def test_the_text_form_of_a_provider_is_read_back(
    make: Callable[[str], Provider], id_: str
) -> None:
    """Whatever its id; it holds no slash, so that it can stand before one."""
    provider = make(id_)
    assert Provider.parse(str(provider)) == provider
    assert "/" not in str(provider)


@pytest.mark.parametrize(
    ("provider", "text"),
    [
        (HOST, "host"),
        (MODEL, "model"),
        (Provider.client("desk-1"), "client:desk-1"),
        (Provider.mcp("a/b"), "mcp:a%2Fb"),
        (Provider.mcp("a%2Fb"), "mcp:a%252Fb"),
        (Provider.mcp("100%"), "mcp:100%25"),
        (Provider.mcp("a:b"), "mcp:a:b"),
    ],
)
def test_text_forms_of_providers(provider: Provider, text: str) -> None:
    """One form everywhere; no two providers share one."""
    assert str(provider) == text
    assert Provider.parse(text) == provider
    assert hash(Provider.parse(text)) == hash(provider)


@pytest.mark.parametrize(
    "text", ["", "Host", "host:1", "client", "client:", "mcp:", "mcp:a/b", "github", "model:x"]
)
def test_other_texts_are_no_providers(text: str) -> None:
    """The message names the forms that are."""
    assert refused(ToolsetError, Provider.parse, text) == (
        f"{text!r} is no provider; allowed are 'host', 'client:ID', 'mcp:ID' and 'model', with "
        "'/' in an ID written as '%2F'"
    )


def test_clients_and_servers_have_ids_and_others_have_none() -> None:
    """Which are texts of at least one character."""
    needs = "a provider of kind 'client' needs an id"
    bad: Any = 7
    assert refused(ToolsetError, Provider, kind=ProviderKind.CLIENT) == needs
    assert refused(ToolsetError, Provider.client, "") == needs
    assert refused(ToolsetError, Provider.client, bad) == needs
    assert refused(ToolsetError, Provider, kind=ProviderKind.HOST, id="x") == (
        "a provider of kind 'host' has no id"
    )


# --------------------------------------------------------------------------------------------
# Tools, toolsets
# --------------------------------------------------------------------------------------------


def test_a_tool_is_itself() -> None:
    """Compared and hashed by identity; a copy is the tool, and pickle is refused."""
    one, other = Tool(name="t"), Tool(name="t")
    assert one != other
    assert copy.copy(one) is one
    assert copy.deepcopy(one) is one
    assert refused(TypeError, pickle.dumps, one) == (
        "a Tool does not leave its process; send its JSON and read it there"
    )
    assert one.own_name == "t"
    assert one.identity == "host/t"
    assert Tool(name="t", own_name="o", provider=Provider.mcp("a/b")).identity == "mcp:a%2Fb/o"


def test_what_a_tool_brings_is_frozen() -> None:
    """Schemas, meta and raw; absent stays absent and empty stays empty."""
    source: dict[str, Any] = {"type": "object", "required": []}
    tool = Tool(name="t", input_schema=source, output_schema={}, meta={"a": [1]}, raw=source)
    source["required"].append("x")
    assert tool.input_schema == {"type": "object", "required": []}
    assert tool.output_schema == {}
    assert tool.meta == {"a": [1]}
    assert tool.raw == {"type": "object", "required": []}
    bare = Tool(name="t")
    assert (bare.input_schema, bare.output_schema, bare.meta, bare.raw) == (None,) * 4
    assert tool.tags == frozenset()
    assert Tool(name="t", tags=["a", "b", "a"]).tags == {"a", "b"}
    assert Tool(name="t", former_names=["b", "a"]).former_names == ("b", "a")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": ""}, "a tool's name is a text of at least one character"),
        ({"name": None}, "a tool's name is a text of at least one character"),
        (
            {"input_schema": "{}"},
            "a tool's schema, meta or raw is a str, not a mapping",
        ),
        (
            {"meta": {"a": float("nan")}},
            "a tool's schema, meta or raw is not JSON: NaN and infinities are not JSON",
        ),
        (
            {"availability": None},
            "availability is a NoneType; allowed is text: 'session' or 'userChats'",
        ),
        ({"own_name": 7}, "a tool's own_name is a int, not text"),
        ({"title": 7}, "a tool's title is a int, not text"),
        ({"description": b"x"}, "a tool's description is a bytes, not text"),
        ({"provider": "host"}, "a tool's provider is a str; Provider.parse reads texts"),
        ({"annotations": None}, "a tool's annotations are a NoneType"),
        ({"tags": "net"}, "'net' is one text where several are expected; put it in a list"),
        ({"former_names": [1]}, "a tool's tags and former names are texts"),
    ],
)
def test_a_tool_is_well_formed(fields: dict[str, Any], problem: str) -> None:
    """The message says what is wrong with which part."""
    assert refused(ToolsetError, Tool, **{"name": "t", **fields}) == problem


@pytest.mark.parametrize("hint", ["read_only", "destructive", "idempotent", "open_world"])
@pytest.mark.parametrize("value", ["false", 1, None])
def test_a_hint_is_true_or_false(hint: str, value: object) -> None:
    """The text 'false' would count as true. Absent hints are the worst case."""
    fields: dict[str, Any] = {hint: value}
    assert refused(ToolsetError, Annotations, **fields) == (
        f"the hint {hint} is {value!r}; allowed are True and False"
    )
    worst = Annotations()
    assert (worst.read_only, worst.destructive, worst.idempotent, worst.open_world) == (
        False,
        True,
        False,
        True,
    )


def test_a_digest_covers_what_the_model_sees_and_nothing_else() -> None:
    """Each part changes it; who runs the tool does not."""
    base = Tool(name="t")
    seen: list[dict[str, Any]] = [
        {"title": "T"},
        {"description": "d"},
        {"input_schema": {}},
        {"output_schema": {}},
        {"annotations": Annotations(title="x")},
        {"annotations": Annotations(read_only=True)},
        {"annotations": Annotations(destructive=False)},
        {"annotations": Annotations(idempotent=True)},
        {"annotations": Annotations(open_world=False)},
        {"name": "u"},
    ]
    digests = {Tool(**{"name": "t", **fields}).digest for fields in seen}
    assert len(digests | {base.digest}) == len(seen) + 1
    unseen = Tool(
        name="t",
        own_name="o",
        provider=MODEL,
        availability="userChats",
        tags=["a"],
        former_names=["b"],
        meta={},
        raw={},
        source=object(),
    )
    assert unseen.digest == base.digest


def test_a_toolset_is_an_ordered_sequence() -> None:
    """With its tools by name; it holds Tool objects and nothing else."""
    mcp = Tool(name="read", provider=Provider.mcp("a"))
    tools = toolset("read", "write", mcp)
    assert len(tools) == 3
    assert list(tools) == [tools[0], tools[1], mcp]
    assert tools[1:] == (tools[1], mcp)
    assert mcp in tools
    assert Tool(name="read") not in tools
    name: object = "read"
    assert name not in tools
    assert tools.by_name("read") == (tools[0], mcp)
    assert tools.by_name("none") == ()
    assert list(tools.names) == ["read", "write"]
    assert tools.shared_names == ("read",)
    assert tools.positions[mcp] == 2
    assert repr(tools) == "<Toolset of 3 tools>"
    assert copy.copy(tools) is tools
    assert copy.deepcopy(tools) is tools
    assert refused(TypeError, pickle.dumps, tools) == (
        "a Toolset does not leave its process; send its JSON and read it there"
    )
    bad: Any = ["read"]
    assert refused(ToolsetError, Toolset, bad) == "a toolset holds Tool objects, not a str"


def test_the_same_provider_and_own_name_twice_is_an_error() -> None:
    """Named once each, and not without end."""
    pair = [Tool(name="a", own_name="x"), Tool(name="b", own_name="x")]
    assert refused(ToolsetError, Toolset, pair) == (
        "the same provider and own name twice: 'host/x'; a provider's own names are unique"
    )
    many = [Tool(name=f"{n:04d}" * 1000) for n in range(50)]
    message = refused(ToolsetError, Toolset, [*many, *(Tool(name=t.name) for t in many)])
    assert len(message) < 1_200


def test_renewing_with_the_same_tools_keeps_the_toolset() -> None:
    """And with it all that was computed; ``source`` does not count."""

    def build(**changed: Any) -> list[Tool]:
        fields: dict[str, Any] = {
            "name": "t",
            "input_schema": {"a": [1, {"b": "x"}], "c": True},
            "meta": {"m": 1},
            "source": object(),
        }
        return [Tool(name="first"), Tool(**{**fields, **changed})]

    tools = Toolset(build())
    engine = PolicyEngine()
    listing = engine.filter_tools(tools, Scope())
    assert tools.renewed(build()) is tools
    assert tools.renewed(list(tools)) is tools
    assert engine.filter_tools(tools.renewed(build()), Scope()) is listing
    changes: list[dict[str, Any]] = [
        {"name": "u"},
        {"own_name": "o"},
        {"provider": MODEL},
        {"title": ""},
        {"description": ""},
        {"input_schema": {"a": [1, {"b": "y"}], "c": True}},
        {"input_schema": {"a": [True, {"b": "x"}], "c": True}},
        {"input_schema": {"a": [1.0, {"b": "x"}], "c": True}},
        {"input_schema": {"a": [1, {"b": "x"}], "c": 1}},
        {"input_schema": None},
        {"output_schema": {}},
        {"annotations": Annotations(read_only=True)},
        {"availability": "userChats"},
        {"tags": ["a"]},
        {"former_names": ["a"]},
        {"meta": {"m": True}},
        {"raw": {}},
    ]
    for changed in changes:
        renewed = tools.renewed(build(**changed))
        assert renewed is not tools
        assert renewed[1].source is not tools[1].source
    assert tools.renewed(build()[:1]) is not tools
    assert tools.renewed(list(reversed(build()))) is not tools
    bad: Any = [*build()[:1], "t"]
    assert refused(ToolsetError, tools.renewed, bad) == "a toolset holds Tool objects, not a str"


@given(toolsets(), toolsets())
def test_a_renewed_toolset_lists_as_a_new_one(old: Toolset, new: Toolset) -> None:
    """Whatever it was before: the same names, fingerprint and withheld tools."""
    engine, scope = PolicyEngine(), Scope(origin="tool", agent=Agent(name="a", tools={"read"}))
    engine.filter_tools(old, scope)
    renewed = engine.filter_tools(old.renewed(new), scope)
    fresh = engine.filter_tools(Toolset(new), scope)
    assert renewed.fingerprint == fresh.fingerprint
    assert [t.identity for t in renewed.withheld] == [t.identity for t in fresh.withheld]


# --------------------------------------------------------------------------------------------
# Agents, scopes: more in test_scopes.py
# --------------------------------------------------------------------------------------------


def test_an_agent_has_an_allowlist_or_none() -> None:
    """A set of texts; one text is not a set of its letters."""
    assert Agent(name="a").tools is None
    assert Agent(name="a", tools=[]).tools == frozenset()
    assert Agent(name="a", tools=["x", "x"]).tools == frozenset({"x"})
    bad: list[tuple[Any, str]] = [
        ("read", "an agent's tools are 'read'; allowed is a set of entries, or None for no "),
        (7, "an agent's tools are 7; allowed is a set of entries, or None for no "),
    ]
    for tools, problem in bad:
        assert refused(ScopeError, Agent, name="a", tools=tools) == f"{problem}allowlist"
    numbers: Any = [1]
    assert refused(ScopeError, Agent, name="a", tools=numbers) == (
        "an entry of an agent's tools is no text"
    )
    none: Any = None
    assert refused(TypeError, Agent, name=none) == "name is a NoneType, not text"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"origin": 1}, "origin is a int; allowed is text, or None for absent"),
        ({"can_ask": 1}, "can_ask is 1; allowed are True and False"),
        ({"can_ask": "false"}, "can_ask is 'false'; allowed are True and False"),
        ({"attributes": ["a"]}, "attributes are a list, not a mapping"),
        (
            {"attributes": {"a": 1}},
            "attribute 'a' is a int; allowed is a text or a set of texts",
        ),
        (
            {"attributes": {"a": {"b": "c"}}},
            "attribute 'a' is a dict; allowed is a text or a set of texts",
        ),
        (
            {"attributes": {"a": [1]}},
            "attribute 'a' is a list; allowed is a text or a set of texts",
        ),
        ({"attributes": {1: "a"}}, "attribute 1 is a str; allowed is a text or a set of texts"),
        (
            {"ancestry": [UNKNOWN, Ancestor()]},
            "an ancestry is a row of Ancestor values; UNKNOWN may only end it",
        ),
        (
            {"ancestry": ["chat-1"]},
            "an ancestry is a row of Ancestor values; UNKNOWN may only end it",
        ),
    ],
)
def test_a_scope_is_well_formed(fields: dict[str, Any], problem: str) -> None:
    """The message says which part is not, and what is allowed."""
    assert refused(ScopeError, Scope, **fields) == problem


def test_equal_scopes_are_one_key() -> None:
    """Whatever they were made of: lists or sets, texts or members; unequal ones are not."""
    one = Scope(
        origin="tool", agent=Agent(name="a", tools=["x", "y"]), attributes={"t": ["b", "a"]}
    )
    other = Scope(
        origin=Origin.TOOL,
        agent=Agent(name="a", tools=frozenset({"y", "x"})),
        attributes={"t": frozenset({"a", "b"})},
    )
    assert one == other
    assert hash(one) == hash(other)
    different = [
        Scope(),
        Scope(origin="user"),
        Scope(agent=Agent(name="a")),
        Scope(agent=Agent(name="a", tools=[])),
        Scope(agent=Agent(name="a", tools=["x"])),
        Scope(agent=Agent(name="b")),
        Scope(can_ask=True),
        Scope(subject=""),
        Scope(ancestry=[Ancestor()]),
        Scope(ancestry=[UNKNOWN]),
        Scope(attributes={"t": "a"}),
        Scope(attributes={"t": {"a"}}),
        Scope(attributes={"t": ()}),
    ]
    assert len(set(different)) == len(different)
    assert repr(UNKNOWN) == "UNKNOWN"


# --------------------------------------------------------------------------------------------
# Calls
# --------------------------------------------------------------------------------------------


def test_arguments_are_a_json_object_in_any_form() -> None:
    """A mapping, or the text of one; both are frozen."""
    for given_ in ({"a": [1]}, '{"a": [1]}', b'{"a": [1]}', freeze({"a": [1]})):
        call = ToolCall(name="t", arguments=given_)
        assert type(call.arguments) is FrozenDict
        assert call.arguments == {"a": [1]}
    assert ToolCall(name="t").arguments == {}
    huge = f'{{"n": {2**200}}}'
    assert ToolCall(name="t", arguments=huge).arguments["n"] == 2**200


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("", "they are no JSON"),
        ("{", "they are no JSON"),
        (b"\xff", "they are no JSON"),
        ("[]", "they are no JSON object"),
        ("null", "they are no JSON object"),
        (None, "they are no JSON object"),
        ([], "they are no JSON object"),
        ('{"secret": 1, "secret": 2}', "the same key twice in one object"),
        ('{"a": {"b": 1, "b": 1}}', "the same key twice in one object"),
        ('{"a": NaN}', "NaN and infinities are not JSON"),
        ('{"a": -Infinity}', "NaN and infinities are not JSON"),
        ('{"a": 1e999}', "NaN and infinities are not JSON"),
        ({"a": float("inf")}, "NaN and infinities are not JSON"),
        ({1: 2}, "a key is a int, not text"),
        ({"a": {1, 2}}, "a value is a set, which is not JSON"),
        ('{"a": ' + "[" * 150 + "]" * 150 + "}", "nested deeper than 100 levels"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested deeper than 100 levels"),
    ],
)
def test_other_arguments_are_invalid_and_say_why(arguments: Any, why: str) -> None:
    """The call is denied before any rule is asked; no message shows a value."""
    call = ToolCall(name="t", arguments=arguments)
    assert isinstance(call.arguments, InvalidArguments)
    assert call.arguments.why == why
    assert call.arguments == {}
    again = pickle.loads(pickle.dumps(call.arguments))
    assert (type(again), again.why) == (InvalidArguments, why)
    assert ToolCall(name="t", arguments=call.arguments).arguments is call.arguments
    decision = PolicyEngine().on_tool_call(call, toolset("t"), Scope())
    assert decision.failure is not None
    assert (decision.failure.code, decision.failure.final) == ("arguments_invalid", True)
    assert decision.failure.message == (
        f"The arguments of this call of 't' are invalid: {why}. The same call cannot succeed here; "
        "do not repeat it."
    )


def test_an_integer_that_python_cannot_write_is_no_argument() -> None:
    """It could not be sent on; as text or as a number."""
    for arguments in ('{"n": 1' + "0" * 5000 + "}", {"n": 10**5000}, {"n": -(10**5000)}):
        call = ToolCall(name="t", arguments=arguments)
        assert isinstance(call.arguments, InvalidArguments)


def test_a_call_is_well_formed() -> None:
    """Ids and names are texts; the arguments stay out of its repr."""
    secret = {"password": "hunter2"}
    assert "hunter2" not in repr(ToolCall(name="t", arguments=secret))
    call = ToolCall(name="t", chat="c", ancestors=["p", None], via="v", id="1")
    assert call.ancestors == ("p", None)
    bad: Any = 7
    assert refused(TypeError, ToolCall, name=bad) == "name is a int, not text"
    assert refused(TypeError, ToolCall, name="t", id=bad) == "id is a int, not text"
    assert refused(TypeError, ToolCall, name="t", chat=bad) == "chat is a int, not text"
    assert refused(TypeError, ToolCall, name="t", via=bad) == "via is a int, not text"
    assert refused(TypeError, ToolCall, name="t", ancestors="chat-1") == (
        "ancestors is one text where a row of chat ids is expected"
    )
    assert "provider" in refused(TypeError, ToolCall, name="t", provider="host")


@given(scopes())
def test_a_scope_is_read_back_from_its_json(scope: Scope) -> None:
    """Through real JSON text, in every part."""
    again = Scope.from_json(json.loads(json.dumps(scope.to_json())))
    assert again == scope
    assert hash(again) == hash(scope)
