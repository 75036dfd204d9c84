"""Following tool calls: the protocol's own reducer cases, and its transition table."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ahp_strategies import Json, ahp_cases, json_values, needs_ahp
from toolscope import PolicyEngine
from toolscope.ahp._following import FollowedChat, client_of, follow_call
from toolscope.ahp.host import HostSession


def without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_null(one) for key, one in value.items() if one is not None}
    return [without_null(one) for one in value] if isinstance(value, list) else value


def calls_of(state: Json) -> list[Json]:
    turns = [
        *(state.get("turns") or ()),
        *([state["activeTurn"]] if state.get("activeTurn") else []),
    ]
    return [
        without_null(part["toolCall"])
        for turn in turns
        if turn is not None
        for part in turn["responseParts"]
        if part.get("kind") == "toolCall"
    ]


CHAT_CASES = [
    pytest.param(case, id=name) for name, case in ahp_cases("reducers") if case["reducer"] == "chat"
]
SESSION_KEYS = ("activeClients", "serverTools", "chats", "customizations")
SESSION_CASES = [
    pytest.param(case, id=name)
    for name, case in ahp_cases("reducers")
    if case["reducer"] == "session"
    and any(
        action["type"]
        .removeprefix("session/")
        .startswith(("activeClient", "serverTools", "chat", "customization"))
        for action in case["actions"]
    )
]


@needs_ahp
@pytest.mark.parametrize("case", CHAT_CASES)
def test_the_protocols_chat_cases(case: Json) -> None:
    """Every tool call of every chat case ends as the protocol's own reducer has it."""
    chat = FollowedChat(case["initial"])
    for action in case["actions"]:
        chat.apply(action)
    active = {} if chat.active is None else {"activeTurn": chat.active}
    assert calls_of({"turns": chat.turns, **active}) == calls_of(case["expected"])
    expected = case["expected"].get("activeTurn")
    assert chat.turn == (None if expected is None else expected["id"])


@needs_ahp
@pytest.mark.parametrize("case", SESSION_CASES)
def test_the_protocols_session_cases(case: Json) -> None:
    """Clients, server tools, chats and customizations are as the protocol's reducer has them."""
    session = HostSession(PolicyEngine(), "ahp-session:/s", case["initial"])
    for action in case["actions"]:
        assert session.dispatch("ahp-session:/s", action).refusal in (None, "there is no such chat")
    after = without_null(session.to_json())
    expected = without_null(case["expected"])
    for key in SESSION_KEYS:
        assert (after.get(key) or []) == (expected.get(key) or []), key


@needs_ahp
def test_the_protocols_cases_are_there() -> None:
    """The cases that concern tool calls and clients are those that were meant."""
    assert (len(CHAT_CASES), len(SESSION_CASES)) == (121, 25)


# The transition table, without the protocol's cases -----------------------------------------

BASE: Json = {"toolCallId": "c", "toolName": "look", "displayName": "Look"}
READY: Json = {**BASE, "invocationMessage": "Look"}
MCP: Json = {"contributor": {"kind": "mcp", "customizationId": "m"}}
RAN: Json = {**READY, "confirmed": "not-needed", "success": True, "pastTenseMessage": "Looked"}
STATES: dict[str, Json] = {
    "streaming": BASE,
    "pending-confirmation": {**READY, "toolInput": "{}", "options": [{"id": "o", "label": "O"}]},
    "running": {**READY, "confirmed": "setting", **MCP, "content": [{"type": "text", "text": "x"}]},
    "auth-required": {**READY, "confirmed": "setting", **MCP, "content": [], "auth": {}},
    "pending-result-confirmation": RAN,
    "completed": RAN,
    "cancelled": {**READY, "reason": "skipped"},
    "future": BASE,
}
FAIL: Json = {
    "type": "chat/toolCallComplete",
    "result": {"success": False, "pastTenseMessage": "No"},
}
OK: Json = {"type": "chat/toolCallComplete", "result": {"success": True, "pastTenseMessage": "Yes"}}
ACTIONS: dict[str, Json] = {
    "delta": {"type": "chat/toolCallDelta", "content": "{"},
    "ready+": {"type": "chat/toolCallReady", "invocationMessage": "R", "confirmed": "not-needed"},
    "ready": {"type": "chat/toolCallReady", "invocationMessage": "R"},
    "approve": {"type": "chat/toolCallConfirmed", "approved": True, "confirmed": "user-action"},
    "deny": {"type": "chat/toolCallConfirmed", "approved": False, "reason": "denied"},
    "fail": FAIL,
    "ok": OK,
    "ok?": {**OK, "requiresResultConfirmation": True},
    "yes": {"type": "chat/toolCallResultConfirmed", "approved": True},
    "no": {"type": "chat/toolCallResultConfirmed", "approved": False},
    "content": {"type": "chat/toolCallContentChanged", "content": []},
    "auth": {"type": "chat/toolCallAuthRequired", "auth": {}},
    "authed": {"type": "chat/toolCallAuthResolved"},
    "unknown": {"type": "chat/toolCallProgress"},
}
TABLE = {
    ("streaming", "delta"): "streaming",
    ("streaming", "ready+"): "running",
    ("streaming", "ready"): "pending-confirmation",
    ("pending-confirmation", "ready+"): "running",
    ("pending-confirmation", "ready"): "pending-confirmation",
    ("pending-confirmation", "approve"): "running",
    ("pending-confirmation", "deny"): "cancelled",
    ("pending-confirmation", "fail"): "completed",
    ("pending-confirmation", "ok"): "completed",
    ("pending-confirmation", "ok?"): "pending-result-confirmation",
    ("running", "ready+"): "running",
    ("running", "ready"): "pending-confirmation",
    ("running", "fail"): "completed",
    ("running", "ok"): "completed",
    ("running", "ok?"): "pending-result-confirmation",
    ("running", "content"): "running",
    ("running", "auth"): "auth-required",
    ("auth-required", "fail"): "completed",
    ("auth-required", "authed"): "running",
    ("pending-result-confirmation", "yes"): "completed",
    ("pending-result-confirmation", "no"): "cancelled",
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("status", STATES)
def test_the_transition_table(status: str, action: str) -> None:
    """Each action does in each status what the protocol's reducer was measured to do."""
    call = {"status": status, **STATES[status]}
    before = json.dumps(call)
    after = follow_call(call, {**ACTIONS[action], "_meta": {"m": 1}})
    assert json.dumps(call) == before
    expected = TABLE.get((status, action))
    if expected is None:
        assert after is call
    else:
        assert after["status"] == expected
        assert after["_meta"] == {"m": 1}
        assert None not in after.values()


def test_what_a_call_keeps() -> None:
    """The base is kept throughout; what an answer or a result brings is added."""
    call: Json = {"status": "streaming", **BASE, "contributor": {"kind": "client", "clientId": "a"}}
    call = follow_call(
        call, {"type": "chat/toolCallDelta", "content": "{", "invocationMessage": "I"}
    )
    call = follow_call(call, {"type": "chat/toolCallDelta"})
    assert (call["partialInput"], call["invocationMessage"]) == ("{", "I")
    ready = {"type": "chat/toolCallReady", "toolInput": "{}", "options": [{"id": "o"}, {"id": "p"}]}
    call = follow_call(call, {**ready, "invocationMessage": "R"})
    edit = {"approved": True, "editedToolInput": '{"a":1}', "selectedOptionId": "o"}
    call = follow_call(call, {"type": "chat/toolCallConfirmed", **edit})
    assert call == {
        "status": "running",
        **BASE,
        "contributor": {"kind": "client", "clientId": "a"},
        "invocationMessage": "R",
        "toolInput": '{"a":1}',
        "selectedOption": {"id": "o"},
        "confirmed": "user-action",
    }
    assert client_of(call) == "a"
    assert client_of({"contributor": {"kind": "mcp"}}) is None
    assert client_of({"contributor": {"kind": "client", "clientId": 7}}) is None


# Turns --------------------------------------------------------------------------------------


def started(*ids: str, turn: str = "t1") -> FollowedChat:
    chat = FollowedChat()
    chat.apply({"type": "chat/turnStarted", "turnId": turn, "message": {"text": "x"}})
    for id_ in ids:
        chat.apply({"type": "chat/toolCallStart", "turnId": turn, **BASE, "toolCallId": id_})
    return chat


@pytest.mark.parametrize(
    ("type_", "state"),
    [("turnComplete", "complete"), ("turnCancelled", "cancelled"), ("error", "error")],
)
def test_the_end_of_a_turn_cancels_what_is_open(type_: str, state: str) -> None:
    """Each unfinished call becomes cancelled, for the reason 'skipped'; others stay."""
    chat = started("a", "b")
    chat.apply({**ACTIONS["ready+"], "turnId": "t1", "toolCallId": "a"})
    chat.apply({**OK, "turnId": "t1", "toolCallId": "a"})
    assert chat.apply({"type": f"chat/{type_}", "turnId": "other"}) == ()
    ((before, after),) = chat.apply({"type": f"chat/{type_}", "turnId": "t1", "duration": 3})
    assert (before or {})["status"] == "streaming"
    assert after == {
        "status": "cancelled",
        **BASE,
        "toolCallId": "b",
        "invocationMessage": "",
        "reason": "skipped",
    }
    assert chat.turn is None
    assert (chat.turns[0]["state"], chat.turns[0]["duration"]) == (state, 3)
    assert chat.call("a") is None
    assert list(chat.calls()) == []


def test_two_calls_of_one_id_are_followed_both() -> None:
    """The reducers do not look whether an id is taken."""
    chat = started("a", "a")
    assert len(chat.apply({**ACTIONS["ready+"], "turnId": "t1", "toolCallId": "a"})) == 2
    assert [call["status"] for call in chat.calls()] == ["running", "running"]


def test_actions_of_another_turn_do_nothing() -> None:
    """Calls are found in the running turn only."""
    chat = started("a")
    assert chat.apply({**ACTIONS["ready+"], "turnId": "t0", "toolCallId": "a"}) == ()
    assert chat.apply({**ACTIONS["ready+"], "turnId": "t1", "toolCallId": "z"}) == ()
    assert FollowedChat().apply({**ACTIONS["ready+"], "turnId": "t1", "toolCallId": "a"}) == ()


def test_parts_that_arrive_ready_made() -> None:
    """A call in a response part is followed; other parts are kept as they are."""
    chat = started()
    part = {"kind": "toolCall", "toolCall": {"status": "running", **BASE}}
    chat.apply({"type": "chat/responsePart", "turnId": "t1", "part": part})
    chat.apply({"type": "chat/responsePart", "turnId": "t1", "part": {"kind": "markdown"}})
    chat.apply({"type": "chat/responsePart", "turnId": "t1"})
    assert chat.call("c") == {"status": "running", **BASE}
    assert (chat.active or {})["responseParts"][1] == {"kind": "markdown"}


def test_without_turns_only_the_running_one_is_kept() -> None:
    """Memory stays bounded by one turn, and the ids of the last hundred."""
    state = {"turns": [{"id": "t0", "x": 1}], "activeTurn": {"id": "t1"}}
    chat = FollowedChat(state, keep_turns=False)
    chat.apply({"type": "chat/responsePart", "turnId": "t1", "part": {"kind": "markdown"}})
    assert (chat.active or {})["responseParts"] == []
    chat.apply({"type": "chat/turnComplete", "turnId": "t1"})
    assert chat.turns == [{"id": "t0"}, {"id": "t1"}]
    for number in range(2, 200):
        chat.apply({"type": "chat/turnStarted", "turnId": f"t{number}"})
        chat.apply({"type": "chat/turnComplete", "turnId": f"t{number}"})
    assert [turn["id"] for turn in chat.turns] == [f"t{number}" for number in range(100, 200)]
    chat.apply({"type": "chat/turnStarted", "turnId": "t200"})
    chat.apply({"type": "chat/truncated", "turnId": "t0"})
    assert chat.turn == "t200"
    chat.apply({"type": "chat/truncated", "turnId": "t150"})
    assert chat.active is None


def test_a_chat_that_is_truncated() -> None:
    """The running turn goes, and the turns behind the named one; an unknown one does nothing."""
    chat = FollowedChat({"turns": [{"id": "t0"}, {"id": "t1"}], "activeTurn": {"id": "t2"}})
    chat.apply({"type": "chat/truncated", "turnId": "t9"})
    assert chat.turn == "t2"
    chat.apply({"type": "chat/truncated", "turnId": "t0"})
    assert [turn["id"] for turn in chat.turns] == ["t0"]
    assert chat.active is None
    chat.apply({"type": "chat/truncated"})
    assert chat.turns == []


@given(
    st.dictionaries(st.sampled_from(["turns", "activeTurn"]), json_values),
    st.lists(
        st.fixed_dictionaries(
            {"type": st.sampled_from([one["type"] for one in ACTIONS.values()]) | json_values},
            optional={
                key: json_values | st.just("c")
                for key in ("turnId", "toolCallId", "content", "result", "options", "contributor")
            },
        ),
        max_size=8,
    ),
)
def test_any_json_can_be_followed(state: Json, actions: list[Json]) -> None:
    """Foreign JSON of any shape is passed over, not raised about."""
    chat = FollowedChat(state)
    chat.apply({"type": "chat/turnStarted", "turnId": "t1"})
    chat.apply({"type": "chat/toolCallStart", "turnId": "t1", **BASE})
    for action in actions:
        chat.apply({"turnId": "t1", "toolCallId": "c", **action})


def test_only_an_mcp_servers_call_waits_for_authorisation() -> None:
    """Of any other call the action changes nothing."""
    call = {"status": "running", **STATES["running"]}
    assert follow_call(call, ACTIONS["auth"])["status"] == "auth-required"
    other = {**call, "contributor": {"kind": "client", "clientId": "desk-1"}}
    assert follow_call(other, ACTIONS["auth"]) is other
