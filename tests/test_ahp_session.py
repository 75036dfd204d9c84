"""From a session to a toolset and a scope per chat, and how a denied call ends."""

import json
from typing import Any

import pytest
from hypothesis import given

from tests.ahp_strategies import Json, ahp_cases, needs_ahp, sessions
from toolscope import HOST, UNKNOWN, Agent, Origin, PolicyEngine, Provider, ToolCall, deny, hookimpl
from toolscope.ahp import wire
from toolscope.ahp.calls import denied_actions
from toolscope.ahp.session import Chat, Session
from toolscope.errors import WireError
from toolscope.model import Ancestor

ENGINE = PolicyEngine()


def read(**members: Any) -> Session:
    return Session.read({"activeClients": [], "chats": [], **members})


def chat(uri: str, kind: str | None = None, parent: str | None = None, **members: Any) -> Json:
    origin = {} if kind is None else {"origin": {"kind": kind}}
    if parent is not None:
        origin["origin"]["chat"] = parent
    return {"resource": uri, **origin, **members}


def selecting(uri: str) -> Json:
    return {"message": {"text": "go", "agent": {"uri": uri}}}


def agent(name: str, tools: list[str] | None = None, **members: Any) -> Json:
    listed = {} if tools is None else {"tools": tools}
    return {"type": "agent", "uri": f"file:///{name}.md", "name": name, **listed, **members}


def plugin(*children: Json, **members: Any) -> Json:
    return {"type": "plugin", "children": list(children), **members}


# Toolset ------------------------------------------------------------------------------------


def test_server_tools_are_the_hosts_and_client_tools_the_clients() -> None:
    """They come in order: the server's, then each client's."""
    session = read(
        serverTools=[{"name": "shell"}],
        activeClients=[
            {"clientId": "desk-1", "tools": [{"name": "pick"}, {"name": "look"}]},
            {"clientId": "web-2", "tools": [{"name": "look"}]},
        ],
    )
    assert [(tool.name, tool.provider) for tool in session.toolset] == [
        ("shell", HOST),
        ("pick", Provider.client("desk-1")),
        ("look", Provider.client("desk-1")),
        ("look", Provider.client("web-2")),
    ]


# Chats --------------------------------------------------------------------------------------


def test_chats_are_found_by_uri_in_order() -> None:
    """Origin and title are the chat's own, absent ones None."""
    session = read(chats=[chat("b", "fork", title="B"), chat("a"), chat("c", "dream")])
    assert list(session.chats) == ["b", "a", "c"]
    assert [(one.title, one.origin) for one in session.chats.values()] == [
        ("B", Origin.FORK),
        (None, None),
        (None, "dream"),
    ]
    assert session.chats["b"].scope.origin is Origin.FORK


def test_a_chat_that_is_not_there() -> None:
    """The error names the chats that are; looking is not asking."""
    session = read(chats=[chat("a"), chat("b")])
    with pytest.raises(WireError, match=r"no chat 'z'; chats are 'a', 'b'"):
        session.chats["z"]
    with pytest.raises(WireError, match="chats are none"):
        read().chats["z"]
    with pytest.raises(WireError, match="'c19' and 5 more"):
        read(chats=[chat(f"c{index}") for index in range(25)]).chats["z"]
    assert session.chats.get("z") is None
    assert "z" not in session.chats


def test_can_ask_is_true_where_a_client_is_there() -> None:
    """An active client can bring the question before a person."""
    client = {"clientId": "a", "tools": []}
    assert read(chats=[chat("c")], activeClients=[client]).chats["c"].scope.can_ask
    assert not read(chats=[chat("c")]).chats["c"].scope.can_ask


def test_ancestry_follows_the_chat_that_the_origin_names() -> None:
    """Nearest first, with origin and agent, whatever the kind of the origin."""
    session = read(
        chats=[
            chat("main", "user", turns=[selecting("file:///Writer.md")]),
            chat("work", "tool", "main"),
            chat("fork", "fork", "work"),
        ],
        customizations=[agent("Writer")],
    )
    assert session.chats["fork"].scope.ancestry == (
        Ancestor(origin=Origin.TOOL),
        Ancestor(origin=Origin.USER, agent="Writer"),
    )
    assert session.chats["fork"].ancestors == ("work", "main")
    assert session.chats["main"].scope.ancestry == ()


def test_ancestry_ends_with_unknown_where_it_breaks_off() -> None:
    """A missing chat, a cycle and a chat that is its own parent are no error, but not nothing."""
    session = read(
        chats=[
            chat("lost", "tool", "gone"),
            chat("self", "tool", "self"),
            chat("a", "tool", "b"),
            chat("b", "tool", "a"),
            chat("unnamed", "tool"),
        ]
    )
    ancestries = {uri: one.scope.ancestry for uri, one in session.chats.items()}
    worker = Ancestor(origin=Origin.TOOL)
    assert ancestries == {
        "lost": (UNKNOWN,),
        "self": (UNKNOWN,),
        "a": (worker, UNKNOWN),
        "b": (worker, UNKNOWN),
        "unnamed": (),
    }
    assert session.chats["a"].ancestors == ("b", None)


def test_a_long_chain_of_chats_costs_bounded_memory() -> None:
    """Beyond 256 chats the ancestry ends with UNKNOWN."""
    chain = [chat("c0", "user")] + [
        chat(f"c{index}", "tool", f"c{index - 1}") for index in range(1, 1000)
    ]
    session = read(chats=chain)
    assert len(session.chats["c256"].scope.ancestry) == 256
    assert session.chats["c256"].scope.ancestry[-1] == Ancestor(origin=Origin.USER)
    assert len(session.chats["c999"].scope.ancestry) == 257
    assert session.chats["c999"].scope.ancestry[-1] is UNKNOWN


@pytest.mark.parametrize("state_first", [True, False])
@pytest.mark.parametrize(
    ("state", "summary", "counts"),
    [
        ("tool", "user", "tool"),
        ("user", "tool", "tool"),
        ("user", "dream", "dream"),
        (None, "tool", "tool"),
        ("fork", None, "fork"),
        ("fork", "user", "fork"),
    ],
)
def test_where_state_and_summary_disagree_about_the_origin(
    state: str | None, summary: str | None, counts: str, state_first: bool
) -> None:
    """The narrower one counts, with the chat it names, and a warning says so."""
    entries = [
        chat("c", state, "main" if state == "tool" else None, turns=[]),
        chat("c", summary, "main" if summary == "tool" else None, title="T"),
    ]
    session = read(chats=[chat("main", "user"), *(entries if state_first else entries[::-1])])
    found = session.chats["c"]
    assert (str(found.origin), found.title) == (counts, "T")
    assert len(found.scope.ancestry) == (1 if counts == "tool" else 0)
    (warning,) = session.warnings
    assert "ChatState and ChatSummary of 'c' disagree" in str(warning)
    assert f"'{counts}' counts" in str(warning)


def test_where_state_and_summary_agree() -> None:
    """They are one chat, and nothing is warned about."""
    session = read(chats=[chat("c", "user"), chat("c", "user", turns=[])])
    assert list(session.chats) == ["c"]
    assert session.warnings == ()


def test_a_lone_chat_state() -> None:
    """It is the one chat of an empty session; its worker's parent is not there."""
    session = Session.read(json.dumps(chat("c", "tool", "main", turns=[selecting("u")])))
    assert session.chats["c"].scope.ancestry == (UNKNOWN,)
    assert len(session.toolset) == 0
    assert [fault.path for fault in session.errors] == ["$"]


def test_null_is_warned_about() -> None:
    """What the reader notes arrives with the session."""
    assert [fault.path for fault in read(title=None).warnings] == ["$.title"]


# Agents -------------------------------------------------------------------------------------


def test_the_agent_is_that_of_the_active_turn_else_of_the_last() -> None:
    """Earlier turns, drafts, queued and steering messages do not count."""
    old, new = selecting("file:///Old.md"), selecting("file:///New.md")
    other = {
        "draft": old["message"],
        "queuedMessages": [{"message": old["message"]}],
        "steeringMessage": {"message": old["message"]},
    }
    session = read(
        chats=[
            chat("last", turns=[old, new], **other),
            chat("active", turns=[old], activeTurn=new),
            chat("none", turns=[old, {"message": {"text": "x"}}], **other),
            chat("active without", turns=[old], activeTurn={"message": {}}),
        ],
        customizations=[agent("Old"), agent("New", ["look"])],
    )
    agents = {uri: one.agent for uri, one in session.chats.items()}
    picked = Agent(name="New", tools=frozenset({"look"}))
    assert agents == {"last": picked, "active": picked, "none": None, "active without": None}
    assert session.chats["last"].scope.agent == picked
    assert session.errors == ()


def test_an_empty_list_of_tools_is_no_restriction() -> None:
    """AHP says the same with `tools: []` as with no key; names are exact."""
    session = read(customizations=[agent("A", []), agent("B"), plugin(agent("C", ["x", "y"]))])
    assert session.agents == {
        "A": Agent(name="A"),
        "B": Agent(name="B"),
        "C": Agent(name="C", tools=frozenset({"x", "y"})),
    }


@pytest.mark.parametrize(
    ("customizations", "problem"),
    [
        ([], "is not among the customizations"),
        ([plugin(uri="file:///A.md")], "is not among the customizations"),
        ([agent("A"), plugin(agent("A", ["look"]))], "is there twice among the customizations"),
        ([agent("A", enabled=False)], "is disabled"),
        ([plugin(agent("A"), enabled=False)], "is disabled"),
        ([plugin(plugin(agent("A", enabled=True)), enabled=False)], "is disabled"),
    ],
)
def test_an_agent_that_cannot_be_resolved(customizations: list[Json], problem: str) -> None:
    """It gets no tools and an error record, never all tools."""
    session = read(
        chats=[chat("c", "user", turns=[selecting("file:///A.md")])],
        customizations=customizations,
        serverTools=[{"name": "look"}],
    )
    assert session.chats["c"].agent == Agent(name="file:///A.md", tools=frozenset())
    assert len(ENGINE.filter_tools(session.toolset, session.chats["c"].scope)) == 0
    (error,) = session.errors
    assert error.path == "$.chats[0]"
    assert problem in error.problem
    assert "file:///A.md" not in {one.name for one in session.agents.values()}


def test_a_selection_without_a_uri_resolves_to_nothing() -> None:
    """It names an agent, only not which."""
    session = read(chats=[chat("c", turns=[{"message": {"agent": {}}}])])
    assert session.chats["c"].agent == Agent(name="", tools=frozenset())
    assert len(session.errors) == 1


def test_agents_of_one_name_are_told_apart_by_uri() -> None:
    """Both are resolvable; those without uri, disabled or there twice are not."""
    session = read(
        customizations=[
            agent("A", ["x"]),
            {**agent("A", ["y"]), "uri": "file:///other.md"},
            {"type": "agent", "uri": "file:///unnamed.md"},
            {"type": "agent", "name": "no uri"},
            agent("B"),
            agent("B"),
            agent("D", enabled=False),
            {"type": "future/thing", "uri": "u", "name": "n"},
        ]
    )
    assert list(session.agents) == ["A", "file:///other.md", "file:///unnamed.md"]
    assert session.agents["file:///other.md"].name == "A"


def spawning(worker: str, name: str | None, call: str = "tc", **members: Any) -> Json:
    block = {"type": "subagent", "resource": worker} | ({} if name is None else {"agentName": name})
    part = {"kind": "toolCall", "toolCall": {"toolCallId": call, "content": [block]}}
    return {"message": {"text": "go"}, "responseParts": [part], **members}


def worker(uri: str = "work", call: str | None = "tc", **members: Any) -> Json:
    origin = {"kind": "tool", "chat": "main"} | ({} if call is None else {"toolCallId": call})
    return {"resource": uri, "origin": origin, **members}


def test_a_worker_takes_the_agent_that_its_spawning_call_names() -> None:
    """From the parent's finished turns as from the running one, by name."""
    customizations = [agent("Reviewer", ["look"])]
    reviewer = Agent(name="Reviewer", tools=frozenset({"look"}))
    for main in (
        chat("main", turns=[spawning("work", "Reviewer")]),
        chat("main", turns=[], activeTurn=spawning("work", "Reviewer")),
    ):
        session = read(chats=[main, worker()], customizations=customizations)
        assert session.chats["work"].agent == reviewer
        without_call = read(chats=[main, worker(call=None)], customizations=customizations)
        assert without_call.chats["work"].agent == reviewer


def test_several_workers_of_one_chat() -> None:
    """Each takes the agent that is named for it."""
    session = read(
        chats=[
            chat("main", turns=[spawning("w1", "A", call="c1"), spawning("w2", "B", call="c2")]),
            worker("w1", call="c1"),
            worker("w2", call="c2"),
        ],
        customizations=[agent("A"), agent("B")],
    )
    assert [session.chats[uri].agent for uri in ("w1", "w2")] == [Agent(name="A"), Agent(name="B")]


def test_a_workers_own_selection_comes_first() -> None:
    """The name in the parent only counts where no message selects."""
    session = read(
        chats=[
            chat("main", turns=[spawning("work", "Reviewer")]),
            worker(turns=[selecting("file:///Writer.md")]),
        ],
        customizations=[agent("Reviewer"), agent("Writer")],
    )
    assert session.chats["work"].agent == Agent(name="Writer")


@pytest.mark.parametrize(
    "chats",
    [
        [chat("main", turns=[spawning("work", "Nobody")]), worker()],
        [chat("main", turns=[spawning("work", None)]), worker()],
        [chat("main", turns=[spawning("other", "Reviewer")]), worker()],
        [chat("main", turns=[spawning("work", "Reviewer", call="another")]), worker()],
        [chat("main", turns=[spawning("work", "Reviewer")]), chat("work", "tool")],
        [chat("main", turns=[spawning("work", "Reviewer")]), chat("work", "fork", "main")],
        [worker()],
    ],
)  # fmt: skip
def test_a_worker_that_nobody_names_an_agent_for(chats: list[Json]) -> None:
    """It has no agent of the session's: hosts name built-in agents there as well."""
    session = read(chats=chats, customizations=[agent("Reviewer", ["look"])])
    assert session.chats["work"].agent is None
    assert session.errors == ()


@pytest.mark.parametrize(
    ("turns", "customizations", "problem"),
    [
        ([spawning("work", "A")], [agent("A", enabled=False)], "'A' of chat 'work' is disabled"),
        ([spawning("work", "A")], [agent("A"), agent("A", uri="u")], "is there twice"),
        ([spawning("work", "A"), spawning("work", "B")], [agent("A")], "'A or B' of chat"),
    ],
)  # fmt: skip
def test_a_workers_agent_that_cannot_be_resolved(
    turns: list[Json], customizations: list[Json], problem: str
) -> None:
    """It gets no tools, like any agent that is named and not there once."""
    session = read(chats=[chat("main", turns=turns), worker()], customizations=customizations)
    worker_chat = session.chats["work"]
    assert worker_chat.agent is not None
    assert worker_chat.agent.tools == frozenset()
    assert problem in session.errors[0].problem


# All together -------------------------------------------------------------------------------


@given(sessions())
def test_every_session_can_be_listed(document: Json) -> None:
    """P1 and P3 hold in any session: what a chat is shown, computed here from the wire alone."""
    session = Session.read(json.dumps(document))
    named = {one.agent for one in session.chats.values() if one.agent and one.agent.tools is None}
    assert all(one.name in {a.name for a in session.agents.values()} for one in named)
    for one in session.chats.values():
        origins = {
            (entry.get("origin") or {}).get("kind")
            for entry in document["chats"]
            if entry["resource"] == one.uri
        }
        spawned = bool(origins - {"user", "fork", "sideChat", None})
        listing = ENGINE.filter_tools(session.toolset, one.scope)
        for tool in session.toolset:
            available = wire.write(tool).get("availability", "session") == "session"
            allowed = one.agent is None or one.agent.tools is None or tool.name in one.agent.tools
            assert (tool in listing.withheld) == (not allowed or (spawned and not available))


@needs_ahp
@pytest.mark.parametrize("case", [pytest.param(c, id=n) for n, c in ahp_cases("reducers")])
def test_the_protocols_states_can_be_listed(case: Json) -> None:
    """Every state before and after is read and listed without an error."""
    for state in (case["initial"], case["expected"]):
        session = Session.read(state)
        assert session.errors == ()
        for one in session.chats.values():
            listing = ENGINE.filter_tools(session.toolset, one.scope)
            assert list(listing) == list(session.toolset)


# A denied call ------------------------------------------------------------------------------


def denied(chat_: Chat, session: Session, call: ToolCall, **members: Any) -> list[Json]:
    decision = ENGINE.on_tool_call(call, session.toolset, chat_.scope)
    return denied_actions(decision, turn="turn-1", call_id="tc-1", **members)


CLIENT = {
    "clientId": "a",
    "tools": [{"name": "pick", "title": "Pick", "availability": "userChats"}],
}


def test_a_denied_call_ends_by_itself() -> None:
    """Start, Ready and a failed Complete, none of which names who would execute it."""
    session = read(chats=[chat("w", "tool")], activeClients=[CLIENT])
    call = ToolCall(name="pick", arguments={"b": 1, "a": "ä"})
    start, ready, complete = denied(session.chats["w"], session, call)
    of_call = {"turnId": "turn-1", "toolCallId": "tc-1"}
    assert start == {
        "type": "chat/toolCallStart", **of_call, "toolName": "pick", "displayName": "Pick"
    }  # fmt: skip
    assert ready == {
        "type": "chat/toolCallReady",
        **of_call,
        "invocationMessage": "Pick",
        "toolInput": '{"b": 1, "a": "\\u00e4"}',
        "confirmed": "not-needed",
    }
    result = complete.pop("result")
    assert complete == {"type": "chat/toolCallComplete", **of_call}
    message = result["error"]["message"]
    assert "only available in chats that the user drives" in message
    assert result == {
        "success": False,
        "pastTenseMessage": "Pick was not run",
        "content": [{"type": "text", "text": message}],
        "error": {"message": message, "code": "tool_not_available"},
    }


def test_what_people_see_of_a_denied_call() -> None:
    """The given name, else the tool's title, else the name that the model made up."""
    session = read(chats=[chat("w", "tool")], activeClients=[CLIENT])
    of = session.chats["w"]
    assert denied(of, session, ToolCall(name="pick"), display_name="X")[0]["displayName"] == "X"
    assert denied(of, session, ToolCall(name="made_up"))[0]["displayName"] == "made_up"


def test_arguments_that_are_no_json_are_not_repeated() -> None:
    """Ready has no toolInput rather than a wrong one."""
    session = read(chats=[chat("c")], serverTools=[{"name": "look"}])
    actions = denied(session.chats["c"], session, ToolCall(name="look", arguments="{oops"))
    assert "toolInput" not in actions[1]
    assert actions[2]["result"]["error"]["code"] == "arguments_invalid"


def test_only_a_denied_call_ends_this_way() -> None:
    """An allowed call has its own actions."""
    session = read(chats=[chat("c")], serverTools=[{"name": "look"}])
    with pytest.raises(ValueError, match="the decision is 'allow'; only a denied call"):
        denied(session.chats["c"], session, ToolCall(name="look"))


class NoEntry:
    """Denies every call."""

    name = "no-entry"

    @hookimpl
    def on_tool_call(self, call: ToolCall) -> Any:
        """Denies."""
        return deny("no entry", code=call.name)


@given(sessions())
def test_no_denied_call_names_a_client(document: Json) -> None:
    """P2: whatever the session, no key says contributor, and nothing is null."""
    session = Session.read(document)
    engine = PolicyEngine([NoEntry()])
    for one in session.chats.values():
        for name in ("look", "pick", "unheard of"):
            decision = engine.on_tool_call(ToolCall(name=name), session.toolset, one.scope)
            actions = denied_actions(decision, turn="t", call_id="c")
            assert [action["type"] for action in actions] == [
                "chat/toolCallStart",
                "chat/toolCallReady",
                "chat/toolCallComplete",
            ]
            assert "contributor" not in json.dumps([list(action) for action in actions])
            assert "null" not in json.dumps(actions)
            assert actions[-1]["result"]["success"] is False


def test_the_state_is_kept() -> None:
    """What was read can be written again."""
    document = {"activeClients": [], "chats": [], "x": 1}
    assert wire.write(Session.read(document).state) == document
