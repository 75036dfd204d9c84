"""Reading and writing the protocol's shapes."""

import json
from typing import Any

import attrs
import pytest
from hypothesis import given

from tests.ahp_strategies import Json, ahp_cases, needs_ahp, sessions, tools
from toolscope._frozen import MAX_DEPTH, MAX_VALUES
from toolscope.ahp import _json, wire
from toolscope.errors import ToolscopeError, WireError
from toolscope.model import Annotations, Availability, Provider, Tool

EMPTY: Json = {"activeClients": [], "chats": []}


def faults(document: Any, read: Any = wire.read_session) -> list[str]:
    with pytest.raises(WireError) as caught:
        read(document)
    return [str(fault) for fault in caught.value.faults]


def session(**members: Any) -> Json:
    return {**EMPTY, **members}


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


# Lossless -----------------------------------------------------------------------------------


@given(sessions())
def test_a_session_is_written_as_it_was_read(document: Json) -> None:
    """Every key survives reading and writing, known or not, and absent stays absent."""
    assert wire.write(wire.read_session(json.dumps(document))) == document
    assert wire.write(wire.read_session(document)) == document


@given(sessions())
def test_text_bytes_and_mapping_are_read_alike(document: Json) -> None:
    """The three forms of a document give the same session."""
    text = json.dumps(document, ensure_ascii=False)
    forms = [wire.read_session(form) for form in (text, text.encode(), document)]
    assert len({repr(wire.write(form)) for form in forms}) == 1
    assert len({len(form.chats) for form in forms}) == 1


@given(tools())
def test_a_tool_is_written_as_it_was_read(document: Json) -> None:
    """A tool's raw form is the definition, unknown keys included."""
    tool = wire.read_tool(document, Provider.client("desk-1"))
    assert wire.write(tool) == document
    assert tool.identity == f"client:desk-1/{document['name']}"
    assert tool.input_schema == document.get("inputSchema")
    assert tool.output_schema == document.get("outputSchema")
    assert tool.meta == document.get("_meta")


@given(tools())
def test_a_tool_that_was_read_is_like_one_that_was_constructed(document: Json) -> None:
    """Reading leaves out the constructor's checks, and nothing else."""
    hints = document.get("annotations", {})
    named = {
        "title": hints.get("title"),
        "read_only": hints.get("readOnlyHint"),
        "destructive": hints.get("destructiveHint"),
        "idempotent": hints.get("idempotentHint"),
        "open_world": hints.get("openWorldHint"),
    }
    constructed = Tool(
        name=document["name"],
        title=document.get("title"),
        description=document.get("description"),
        input_schema=document.get("inputSchema"),
        output_schema=document.get("outputSchema"),
        annotations=Annotations(**{key: one for key, one in named.items() if one is not None}),
        availability=document.get("availability", "session"),
        meta=document.get("_meta"),
        raw=document,
    )
    read = wire.read_tool(document)
    for field in attrs.fields(Tool):
        if field.init:
            name = field.name.removeprefix("_")
            assert getattr(read, name) == getattr(constructed, name)
    assert type(read.availability) is type(constructed.availability)
    assert read.digest == constructed.digest
    assert read.same_to_rules(constructed)


def test_a_tool_of_the_host_itself_has_nothing_to_write() -> None:
    """Only what was read from the wire can be written to it."""
    with pytest.raises(ValueError, match="the tool 'look' was not read from the wire"):
        wire.write(Tool(name="look"))


def test_the_caller_keeps_its_mapping() -> None:
    """Reading neither changes the given mapping nor sees what becomes of it afterwards."""
    document = session(title=None, serverTools=[{"name": "look", "inputSchema": {"a": [1]}}])
    before = json.dumps(document)
    state = wire.read_session(document)
    assert json.dumps(document) == before
    document["serverTools"][0]["inputSchema"]["a"].append(2)
    written = wire.write(state)
    assert written["serverTools"][0]["inputSchema"] == {"a": [1]}
    written["serverTools"].clear()
    assert len(wire.write(state)["serverTools"]) == 1
    assert state.server_tools[0].input_schema == {"a": [1]}


# Types --------------------------------------------------------------------------------------


def test_a_tool_has_all_that_the_definition_says() -> None:
    """Each typed key of a ToolDefinition arrives, and absent hints are the worst case."""
    tool = wire.read_tool(
        {
            "name": "look",
            "title": "Look",
            "description": "Looks something up",
            "inputSchema": {"type": "object"},
            "annotations": {"title": "T", "readOnlyHint": True, "openWorldHint": False},
            "availability": "userChats",
            "_meta": {"v": 1},
        }
    )
    assert (tool.name, tool.own_name, tool.title) == ("look", "look", "Look")
    assert tool.description == "Looks something up"
    assert tool.input_schema == {"type": "object"}
    assert tool.output_schema is None
    assert tool.annotations == Annotations(title="T", read_only=True, open_world=False)
    assert tool.availability is Availability.USER_CHATS
    assert tool.meta == {"v": 1}


def test_an_unknown_availability_is_kept() -> None:
    """A value of a later protocol is read, not refused; absent is session."""
    assert wire.read_tool({"name": "a", "availability": "later"}).availability == "later"
    assert wire.read_tool({"name": "a"}).availability is Availability.SESSION


def test_every_fault_is_listed_with_its_path() -> None:
    """One error names all that is wrong, each with its JSON path and what is allowed."""
    document = {
        "title": 7,
        "serverTools": [
            {"name": "a", "annotations": {"readOnlyHint": "false", "openWorldHint": 1}},
            {"name": "b", "inputSchema": [], "availability": True},
            {"title": "no name"},
            {"name": ""},
            "no object",
        ],
        "activeClients": [{"displayName": "x"}, {"clientId": "", "tools": {}}],
        "chats": [{"origin": {}}, {"resource": "c", "origin": "tool", "turns": [{"message": 1}]}],
        "customizations": [
            {"type": "agent", "tools": ["a", 1]},
            {"children": [{"type": "agent", "tools": "abc", "enabled": "yes"}]},
            7,
        ],
    }
    assert faults(document) == [
        "$.activeClients[0].clientId: it is missing; this key is demanded",
        "$.activeClients[0].tools: it is missing; this key is demanded",
        "$.activeClients[1].clientId: it is empty; give it a text",
        "$.activeClients[1].tools: {} is an object; allowed is an array",
        "$.chats[0].resource: it is missing; this key is demanded",
        "$.chats[0].origin.kind: it is missing; this key is demanded",
        '$.chats[1].origin: "tool" is text; allowed is an object',
        "$.chats[1].turns[0].message: 1 is a number; allowed is an object",
        "$.title: 7 is a number; allowed is text",
        '$.serverTools[0].annotations.readOnlyHint: "false" is text; allowed is true or false',
        "$.serverTools[0].annotations.openWorldHint: 1 is a number; allowed is true or false",
        "$.serverTools[1].inputSchema: [] is an array; allowed is an object",
        "$.serverTools[1].availability: true is true or false; allowed is text",
        "$.serverTools[2].name: it is missing; this key is demanded",
        "$.serverTools[3].name: it is empty; give it a text",
        "$.serverTools[4]: it is text; allowed is an object",
        "$.customizations[0].tools[1]: it is a number; allowed is text",
        '$.customizations[1].children[0].enabled: "yes" is text; allowed is true or false',
        '$.customizations[1].children[0].tools: "abc" is text; allowed is an array',
        "$.customizations[2]: it is a number; allowed is an object",
    ]


def test_what_is_demanded_of_a_session() -> None:
    """Only activeClients and chats are; null under them is no way to leave them out."""
    assert wire.read_session(EMPTY).chats == ()
    assert faults({}) == [
        "$.activeClients: it is missing; this key is demanded",
        "$.chats: it is missing; this key is demanded",
    ]
    assert faults({"activeClients": None, "chats": None}) == faults({})


def test_things_that_are_there_twice() -> None:
    """A client, a chat of one form, and a tool of one provider may each be there once."""
    tool = {"name": "look"}
    document = session(
        activeClients=[{"clientId": "a", "tools": [tool, tool]}, {"clientId": "a", "tools": []}],
        chats=[{"resource": "c"}, {"resource": "c"}, {"resource": "d", "turns": []}] * 2,
        serverTools=[tool, tool, tool],
    )
    assert faults(document) == [
        "$.activeClients[0].tools[1].name: the tool of 'client:a' named 'look' is there twice",
        "$.activeClients[1].clientId: the client 'a' is there twice",
        "$.chats[1].resource: the chat 'c' is there twice",
        "$.chats[3].resource: the chat 'c' is there twice",
        "$.chats[4].resource: the chat 'c' is there twice",
        "$.chats[5].resource: the chat 'd' is there twice",
        "$.serverTools[1].name: the tool of 'host' named 'look' is there twice",
        "$.serverTools[2].name: the tool of 'host' named 'look' is there twice",
    ]


def test_a_name_twice_among_broken_tools() -> None:
    """Each fault is told once."""
    broken = [{"name": "a"}, 7, {"name": 3}, {"name": "a"}]
    assert faults(session(serverTools=broken)) == [
        "$.serverTools[1]: it is a number; allowed is an object",
        "$.serverTools[2].name: 3 is a number; allowed is text",
        "$.serverTools[3].name: the tool of 'host' named 'a' is there twice",
    ]


def test_a_long_value_is_shown_in_part() -> None:
    """A message stays readable whatever the document holds."""
    (fault,) = faults(session(title=["x" * 500]))
    assert len(fault) < 200
    assert "..." in fault


def test_a_snapshot_is_no_session() -> None:
    """The state inside is what is meant; the snapshot would read as a chat without tools."""
    snapshot = {"resource": "ahp-session:/s", "state": EMPTY, "fromSeq": 3}
    assert faults(snapshot) == [
        "$: it is a snapshot, not a session; give what is under its 'state'"
    ]


def test_a_lone_chat_is_the_one_chat_of_an_empty_session() -> None:
    """A ChatState or ChatSummary by itself is read, and written as it was."""
    document: Json = {"resource": "ahp-chat:/a", "title": None, "turns": [], "usage": None}
    state = wire.read_session(document)
    assert [chat.resource for chat in state.chats] == ["ahp-chat:/a"]
    assert state.server_tools == ()
    assert wire.write(state) == {"resource": "ahp-chat:/a", "turns": [], "usage": None}
    assert [str(one) for one in state.warnings] == [
        "$.title: null is read as absent; leave the key out"
    ]


# Null ---------------------------------------------------------------------------------------


def test_null_under_a_typed_key_is_absent_and_warned_about() -> None:
    """It is recorded and not written; null under any other key is kept."""
    document = session(
        title=None,
        project=None,
        serverTools=[
            {"name": "a", "availability": None, "annotations": {"readOnlyHint": None}, "x": None},
            {"name": "b", "annotations": None, "_meta": {"inner": None}},
        ],
        chats=[{"resource": "c", "origin": None, "activeTurn": None, "turns": [{"usage": None}]}],
        customizations=None,
    )
    state = wire.read_session(document)
    assert [fault.path for fault in state.warnings] == [
        "$.chats[0].origin",
        "$.chats[0].activeTurn",
        "$.title",
        "$.serverTools[0].availability",
        "$.serverTools[0].annotations.readOnlyHint",
        "$.serverTools[1].annotations",
        "$.customizations",
    ]
    assert wire.write(state) == session(
        project=None,
        serverTools=[
            {"name": "a", "annotations": {}, "x": None},
            {"name": "b", "_meta": {"inner": None}},
        ],
        chats=[{"resource": "c", "turns": [{"usage": None}]}],
    )
    assert state.server_tools[0].availability is Availability.SESSION
    assert state.server_tools[0].annotations == Annotations()
    assert wire.write(state.server_tools[0]) == {"name": "a", "annotations": {}, "x": None}
    assert wire.read_session(wire.write(state)).warnings == ()


# Documents that are not plain JSON ----------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("", "$: it is not JSON: Expecting value (line 1, column 1)"),
        ("[1", "$: it is not JSON: Expecting ',' delimiter (line 1, column 3)"),
        (b"\xff\xfe", "$: it is not UTF-8: invalid start byte"),
        ("[]", "$: it is an array; allowed is an object"),
        ("1", "$: it is a number; allowed is an object"),
        ("null", "$: it is null; allowed is an object"),
        ('{"a": NaN}', "$.a: NaN and infinities are not JSON"),
        ('{"a": [1, -Infinity]}', "$.a[1]: NaN and infinities are not JSON"),
        ('{"a": 1e999}', "$.a: NaN and infinities are not JSON"),
        ('{"a": ' + "9" * 5000 + "}", "$: an integer of more digits than Python reads or writes"),
        ('{"a b": {"x": 1, "x": 2}}', "$[\"a b\"]: the key 'x' is there twice"),
        ('{"x": "\\"", "x": 2}', "$: the key 'x' is there twice"),
        ('{"x": "\\\\", "x": 2}', "$: the key 'x' is there twice"),
        ('{"\\u0022x": 1, "\\u0022x": ""}', "$: the key '\"x' is there twice"),
        ('{"a": "\\ud800"}', "$.a: text with a lone surrogate, which is no Unicode"),
        ('{"\\udfff": 1}', "$: a key with a lone surrogate, which is no Unicode"),
        ('{"a": "\ud800"}', "$.a: text with a lone surrogate, which is no Unicode"),
        (nested(MAX_DEPTH + 1), f"$: it is nested deeper than {MAX_DEPTH} levels"),
        (nested(300_000), f"$: it is nested deeper than {MAX_DEPTH} levels"),
        ("[" + "0," * MAX_VALUES + "0]", f"$: it holds more than {MAX_VALUES:,} values"),
    ],
)  # fmt: skip
def test_text_that_is_not_plain_json(document: str | bytes, message: str) -> None:
    """Each is one named error with the place, never a traceback of the parser."""
    assert faults(document)[0] == message


class Odd:
    """No JSON."""


@pytest.mark.parametrize(
    ("document", "messages"),
    [
        ({"b": True, "a": float("nan"), "c": 1.5}, ["$.a: NaN and infinities are not JSON"]),
        ({"a": {1: 2}}, ["$.a: a key is of type int, not text"]),
        ({"a": [Odd(), {2}]}, [
            "$.a[0]: a value is of type Odd, which is not JSON",
            "$.a[1]: a value is of type set, which is not JSON",
        ]),
        ({"a": "\ud800", "\udfff": 1}, [
            "$: a key with a lone surrogate, which is no Unicode",
            "$.a: text with a lone surrogate, which is no Unicode",
        ]),
        ({"a": 10**5000}, ["$.a: an integer of more digits than Python reads or writes"]),
        (Odd(), ["$: a value is of type Odd, which is not JSON"]),
        ([1], ["$: it is an array; allowed is an object"]),
    ],
)  # fmt: skip
def test_a_mapping_that_is_not_plain_json(document: Any, messages: list[str]) -> None:
    """A mapping is held to the same rules as a text, with all faults located."""
    assert faults(document) == messages


def test_a_mapping_within_itself() -> None:
    """What never ends is nested too deep."""
    document: Json = {}
    document["again"] = document
    assert faults(document) == [f"$: nested deeper than {MAX_DEPTH} levels"]


def test_a_document_too_long_to_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its length is looked at before anything else."""
    monkeypatch.setattr(_json, "MAX_CHARACTERS", 10)
    assert faults("[" * 11) == ["$: the document has 11 characters; allowed are 10"]


def test_only_the_first_faults_of_a_hopeless_document_are_listed() -> None:
    """A hundred are enough to see what is wrong."""
    assert len(faults({"a": [float("inf")] * 1000})) == 100


def test_what_looks_odd_and_is_plain_json() -> None:
    """Escapes, a byte order mark, deep and repeated values are all read."""
    text = (
        '\ufeff{"activeClients": [], "chats": [], "a\\"b": "\\\\", "c" : "\\ud83d\\ude00\\u0022"}'
    )
    state = wire.read_session(text)
    assert wire.write(state)["c"] == '\U0001f600"'
    assert wire.read_session(text.encode()).chats == ()
    deep: Any = 1
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]
    assert wire.write(wire.read_session(json.dumps(session(deep=deep))))["deep"] == deep


# Chats, calls and actions -------------------------------------------------------------------


def test_a_chat_state() -> None:
    """Turns, the agents that their messages select, and the calls in them."""
    call = {
        "toolCallId": "tc-1",
        "toolName": "task",
        "status": "completed",
        "contributor": {"kind": "client", "clientId": "a"},
        "content": [{"type": "text"}, {"type": "subagent", "resource": "w", "agentName": "W"}],
    }
    parts = [{"kind": "markdown"}, {"kind": "toolCall", "toolCall": call}, {"kind": "toolCall"}]
    chat = wire.read_chat(
        {
            "resource": "c",
            "turns": [
                {"id": "t0", "message": {"agent": {"uri": "u"}}, "responseParts": parts},
                {"id": "t1", "message": {"agent": {}}},
            ],
            "activeTurn": {"id": "t2", "message": {}},
        }
    )
    assert [turn.agent for turn in chat.turns] == ["u", ""]
    assert chat.selecting_turn is chat.active_turn
    assert chat.active_turn is not None
    assert chat.active_turn.agent is None
    (read,) = chat.tool_calls
    assert (read.id, read.name, read.status) == ("tc-1", "task", "completed")
    assert read.contributor is not None
    assert (read.contributor.kind, read.contributor.client_id) == ("client", "a")
    assert [(one.resource, one.agent_name) for one in read.subagents] == [("w", "W")]
    assert wire.read_chat({"resource": "c", "turns": []}).selecting_turn is None


def test_an_origin_of_an_unknown_kind() -> None:
    """It is read, with the chat that it names."""
    chat = wire.read_chat(
        {"resource": "c", "origin": {"kind": "dream", "chat": "d", "turnId": "t"}}
    )
    assert chat.origin is not None
    assert (chat.origin.kind, chat.origin.chat, chat.origin.turn_id) == ("dream", "d", "t")
    assert chat.summary


@pytest.mark.parametrize(
    ("action", "missing"),
    [
        ({}, "$.type"),
        ({"type": "session/activeClientSet"}, "$.activeClient"),
        ({"type": "session/activeClientRemoved"}, "$.clientId"),
        ({"type": "session/serverToolsChanged"}, "$.tools"),
        ({"type": "session/chatAdded"}, "$.summary"),
        ({"type": "session/chatAdded", "summary": {}}, "$.summary.resource"),
        ({"type": "session/chatUpdated"}, "$.chat"),
        ({"type": "session/chatRemoved"}, "$.chat"),
        ({"type": "chat/turnStarted"}, "$.turnId"),
        ({"type": "chat/toolCallStart", "turnId": "t"}, "$.toolCallId"),
    ],
)
def test_what_is_demanded_of_an_action(action: Json, missing: str) -> None:
    """The keys without which an action says nothing."""
    assert faults(action, wire.read_action) == [f"{missing}: it is missing; this key is demanded"]


def test_actions_carry_what_toolscope_reads() -> None:
    """Clients, tools, chats, agents and contributors arrive as values."""
    read = wire.read_action
    client = read(
        {"type": "session/activeClientSet", "activeClient": {"clientId": "a", "tools": []}}
    )
    assert client.client is not None
    assert client.client.id == "a"
    assert read({"type": "session/activeClientRemoved", "clientId": "a"}).client_id == "a"
    tools = read({"type": "session/serverToolsChanged", "tools": [{"name": "look"}]}).tools
    assert tools is not None
    assert [tool.name for tool in tools] == ["look"]
    added = read({"type": "session/chatAdded", "summary": {"resource": "c"}})
    assert isinstance(added.chat, wire.ChatState)
    updated = read(
        {"type": "session/chatUpdated", "chat": "c", "changes": {"origin": {"kind": "user"}}}
    )
    assert updated.chat == "c"
    assert updated.changes is not None
    assert updated.changes.origin is not None
    assert read({"type": "session/chatUpdated", "chat": "c"}).changes is None
    assert read({"type": "session/chatRemoved", "chat": "c"}).chat == "c"
    agents = read({"type": "session/customizationsChanged", "customizations": [{"type": "agent"}]})
    assert agents.customizations is not None
    turn = read({"type": "chat/turnStarted", "turnId": "t", "message": {"agent": {"uri": "u"}}})
    assert (turn.turn_id, turn.agent) == ("t", "u")
    start = read(
        {
            "type": "chat/toolCallStart",
            "turnId": "t",
            "toolCallId": "tc",
            "contributor": {"kind": "client", "clientId": "a"},
            "toolName": "look",
        }
    )
    assert start.contributor is not None
    assert wire.write(start)["toolName"] == "look"
    warned = read(
        {"type": "chat/toolCallReady", "turnId": "t", "toolCallId": "c", "contributor": None}
    )
    assert [fault.path for fault in warned.warnings] == ["$.contributor"]


def test_a_client() -> None:
    """A client stands by itself in createSession; its tools are its own."""
    document = {"clientId": "a", "displayName": "A", "tools": [{"name": "look"}], "x": 1}
    client = wire.read_client(document)
    assert (client.id, client.display_name) == ("a", "A")
    assert [tool.identity for tool in client.tools] == ["client:a/look"]
    assert wire.write(client) == document


def test_an_envelope() -> None:
    """The channel, the action and who dispatched it; a wrong member is a fault."""
    envelope = wire.read_envelope(
        {
            "channel": "ahp-session:/s",
            "action": {"type": "future/thing"},
            "serverSeq": 7,
            "origin": {"clientId": "a", "clientSeq": 1},
            "rejectionReason": "no",
        }
    )
    assert (envelope.channel, envelope.action.type) == ("ahp-session:/s", "future/thing")
    assert (envelope.server_seq, envelope.client_id) == (7, "a")
    assert envelope.rejection_reason == "no"
    assert faults({"serverSeq": "7"}, wire.read_envelope) == [
        "$.channel: it is missing; this key is demanded",
        "$.action: it is missing; this key is demanded",
    ]
    assert faults(
        {"channel": "c", "action": {"type": "x"}, "serverSeq": "7"}, wire.read_envelope
    ) == ['$.serverSeq: "7" is text; allowed is a whole number']


READERS = {
    "ActionEnvelope": wire.read_envelope,
    "Customization": wire.read_customization,
    "StateAction": wire.read_action,
}
ROUND_TRIPS = [
    pytest.param(case, id=name)
    for name, case in ahp_cases("round-trips")
    if case["type"] in READERS
]


@needs_ahp
@pytest.mark.parametrize("case", ROUND_TRIPS)
def test_the_protocols_round_trips(case: Json) -> None:
    """Every case of a type that is read comes back unchanged, without a warning."""
    value = READERS[case["type"]](json.dumps(case["input"]))
    assert wire.write(value) == case.get("preservedOutput", case["acceptableOutputs"][0])
    assert value.warnings == ()


@needs_ahp
def test_the_protocols_round_trips_are_there() -> None:
    """The cases of the read types are those that were meant."""
    assert len(ROUND_TRIPS) == 16


def without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_null(one) for key, one in value.items() if one is not None}
    return [without_null(one) for one in value] if isinstance(value, list) else value


@needs_ahp
@pytest.mark.parametrize("case", [pytest.param(c, id=n) for n, c in ahp_cases("reducers")])
def test_the_protocols_states_come_back(case: Json) -> None:
    """Every state before and after is written as it was read; null counts as absent there."""
    for state in (case["initial"], case["expected"]):
        assert without_null(wire.write(wire.read_session(state))) == without_null(state)


def test_errors_are_of_this_package() -> None:
    """One except clause is enough."""
    assert issubclass(WireError, ToolscopeError)
