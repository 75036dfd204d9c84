"""Documents and actions of any shape: only errors of this package come out of the readers.

With ``--hypothesis-profile=nightly`` each test reads more than 100,000 documents.
"""

import json
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ahp_strategies import Json, chats, clients, json_values, sessions, texts, tools
from tests.test_ahp_host import MAIN, SESSION, TURN, WORK, called, hosted
from toolscope import PolicyEngine
from toolscope.ahp import wire
from toolscope.ahp.host import HostSession, Step
from toolscope.ahp.session import Session
from toolscope.errors import ToolscopeError

ENGINE = PolicyEngine()
MANY = settings(max_examples=105_000 if settings.get_current_profile_name() == "nightly" else 250)

KEYS = [
    "activeClients", "activeTurn", "agent", "agentName", "annotations", "availability", "chat",
    "chats", "children", "clientId", "content", "contributor", "customizations", "enabled",
    "inputNeeded", "inputSchema", "kind", "message", "name", "origin", "readOnlyHint", "resource",
    "responseParts", "result", "serverTools", "status", "title", "toolCall", "toolCallId", "tools",
    "turnId", "turns", "type", "uri", "request", "id", "changes", "summary", "activeClient",
    "customization", "approved", "editedToolInput", "part", "options",
]  # fmt: skip
WORDS = [
    "agent", "subagent", "toolCall", "client", "tool", "running", "plugin", "look", "desk-1", "c1",
    MAIN, WORK, TURN, "toolClientExecution",
]  # fmt: skip
wild: st.SearchStrategy[Any] = st.recursive(
    json_values | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=12,
)
documents = st.dictionaries(st.sampled_from(KEYS), wild, max_size=8)


@st.composite
def damaged(draw: st.DrawFn) -> Json:
    """A well-formed session in which one member somewhere is replaced."""
    document: Json = json.loads(json.dumps(draw(sessions())))
    places = list(_places(document))
    owner, key = places[draw(st.integers(0, len(places) - 1))]
    owner[key] = draw(wild)
    return document


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in items:
        yield value, key
        if isinstance(one, (dict, list)):
            yield from _places(one)


@MANY
@given(documents | damaged() | texts | st.binary(max_size=30))
def test_any_session_is_read_or_refused(document: Any) -> None:
    """What is read can be listed and written, and hosted as well."""
    given_ = json.dumps(document) if isinstance(document, dict) else document
    with suppress(ToolscopeError):
        session = Session.read(given_)
        for one in session.chats.values():
            ENGINE.filter_tools(session.toolset, one.scope)
        assert Session.read(wire.write(session.state)).warnings is not None
        HostSession(ENGINE, SESSION, given_).to_json()


ACTIONS = [
    "session/activeClientSet", "session/activeClientRemoved", "session/serverToolsChanged",
    "session/chatAdded", "session/chatUpdated", "session/chatRemoved", "session/inputNeededSet",
    "session/inputNeededRemoved", "session/customizationsChanged", "session/customizationUpdated",
    "session/customizationRemoved", "session/customizationToggled", "chat/turnStarted",
    "chat/turnComplete", "chat/turnCancelled", "chat/responsePart", "chat/truncated",
    "chat/toolCallReady", "chat/toolCallConfirmed", "chat/toolCallComplete",
    "chat/toolCallResultConfirmed", "chat/toolCallContentChanged", "chat/toolCallDelta",
]  # fmt: skip
actions = st.tuples(
    st.sampled_from([SESSION, MAIN, WORK]),
    st.sampled_from([None, "desk-1", "web-2"]),
    st.tuples(documents, st.sampled_from(ACTIONS), st.booleans()).map(
        lambda made: {
            **made[0],
            "type": made[1],
            **({"turnId": TURN, "toolCallId": "c1"} if made[2] else {}),
        }
    ),
)
well_formed = st.one_of(
    tools().map(lambda tool: {"type": "session/serverToolsChanged", "tools": [tool]}),
    clients().map(lambda one: {"type": "session/activeClientSet", "activeClient": one}),
    chats().map(lambda one: {"type": "session/chatAdded", "summary": one}),
)


@MANY
@given(st.lists(actions | well_formed.map(lambda one: (SESSION, None, one)), max_size=6))
def test_any_action_is_followed_or_refused(happenings: list[tuple[str, str | None, Json]]) -> None:
    """The host's session never raises about what somebody dispatches, and stays readable."""
    session = hosted()
    for chat in (MAIN, WORK):
        called(session, chat, "look")
        session.ready(chat, "c1")
    for channel, client, action in happenings:
        assert isinstance(session.dispatch(channel, action, client), Step)
    state = session.to_json()
    assert [one.resource for one in wire.read_session(state).chats] == list(session.chats)
    for chat in session.chats:
        wire.read_chat(session.chat_to_json(chat))
        session.tools(chat)
