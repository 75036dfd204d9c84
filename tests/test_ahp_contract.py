"""The contract as a property: whatever is called, dispatched and changed, in whatever order."""

import io
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.ahp_strategies import Json
from toolscope import PolicyEngine, ToolCall, Verdict, ask, deny, hookimpl
from toolscope.ahp._following import FollowedChat
from toolscope.ahp.host import HostSession, Send
from toolscope.ahp.verify import BreachKind, verify

SESSION = "ahp-session:/s"
ORIGINS: dict[str, Json | None] = {
    "ahp-chat:/main": {"kind": "user"},
    "ahp-chat:/work": {"kind": "tool", "chat": "ahp-chat:/main", "toolCallId": "spawn"},
    "ahp-chat:/deep": {"kind": "tool", "chat": "ahp-chat:/work", "toolCallId": "spawn"},
    "ahp-chat:/fork": {"kind": "fork", "chat": "ahp-chat:/work"},
    "ahp-chat:/odd": {"kind": "dream"},
    "ahp-chat:/bare": None,
}
SPAWNED = {"ahp-chat:/work", "ahp-chat:/deep", "ahp-chat:/odd"}

chats = st.sampled_from(list(ORIGINS))
ids = st.sampled_from([f"c{number}" for number in range(8)])
names = st.sampled_from(["look", "pick", "shell", "made_up"])
client_ids = st.sampled_from(["desk-1", "web-2"])
availability = st.sampled_from([{}, {}, {"availability": "userChats"}, {"availability": "later"}])
definitions = st.lists(
    st.tuples(st.sampled_from(["look", "pick", "shell"]), availability).map(
        lambda pair: {"name": pair[0], **pair[1]}
    ),
    max_size=3,
    unique_by=lambda tool: tool["name"],
)
arguments = st.sampled_from([{}, {}, {"ask": 1}, {"danger": 1}])
client_actions = st.one_of(
    st.booleans().map(
        lambda ok: {"type": "Complete", "result": {"success": ok, "pastTenseMessage": "x"}}
    ),
    st.just({"type": "Complete", "requiresResultConfirmation": True, "result": {"success": True}}),
    st.just({"type": "Confirmed", "approved": True, "confirmed": "user-action"}),
    st.just({"type": "Confirmed", "approved": True, "editedToolInput": '{"danger": 1}'}),
    st.just({"type": "Confirmed", "approved": True, "editedToolInput": '{"ask": 1}'}),
    st.just({"type": "Confirmed", "approved": False, "reason": "denied"}),
    st.booleans().map(lambda yes: {"type": "ResultConfirmed", "approved": yes}),
    st.just({"type": "ContentChanged", "content": []}),
    st.just({"type": "Start", "toolName": "pick", "contributor": {"kind": "client"}}),
    st.just({"type": "Ready", "invocationMessage": "x", "confirmed": "not-needed"}),
    st.just({"type": "Ready", "invocationMessage": "x"}),
)
events = st.one_of(
    st.tuples(st.just("call"), chats, names, ids, arguments),
    st.tuples(st.just("call"), chats, names, ids, arguments),
    st.tuples(st.just("ready"), chats, ids),
    st.tuples(st.just("dispatch"), chats, client_ids | st.none(), ids, client_actions),
    st.tuples(st.just("set"), client_ids, definitions),
    st.tuples(st.just("leave"), client_ids),
    st.tuples(st.just("server"), definitions),
    st.tuples(st.just("turn"), chats, st.sampled_from(["turnComplete", "turnCancelled", "error"])),
    st.tuples(st.just("origin"), chats, st.sampled_from(["user", "fork", "tool"])),
    st.tuples(st.just("settle"), chats, ids),
    st.tuples(st.just("truncate"), chats),
)


class Judging:
    """Asks and denies by the arguments."""

    name = "judging"

    @hookimpl
    def on_tool_call(self, call: ToolCall) -> Verdict | None:
        """What the arguments say."""
        if call.arguments.get("danger"):
            return deny("it is dangerous")
        return ask("it needs a look") if call.arguments.get("ask") else None


class Run:
    """A host that does what the events say, and remembers what it sent."""

    def __init__(self) -> None:
        summaries = [
            {"resource": uri} | ({} if origin is None else {"origin": origin})
            for uri, origin in ORIGINS.items()
        ]
        self.state = {"activeClients": [], "chats": summaries}
        self.session = HostSession(PolicyEngine([Judging()]), SESSION, self.state)
        self.sent: list[Send] = []
        self.offers: dict[str, list[Json]] = {}
        self.forbidden: set[tuple[str, str]] = set()
        self.turns = dict.fromkeys(ORIGINS, 0)
        self.spawned = set(SPAWNED)
        for chat in ORIGINS:
            self.begin(chat)

    def begin(self, chat: str) -> None:
        self.turns[chat] += 1
        action = {"type": "chat/turnStarted", "turnId": f"t{self.turns[chat]}", "message": {}}
        self.send(chat, action)

    def send(self, channel: str, action: Json, client: str | None = None) -> None:
        self.sent.extend(self.session.dispatch(channel, action, client).sends)

    def event(self, kind: str, *of: Any) -> None:
        getattr(self, f"do_{kind}")(*of)

    def do_call(self, chat: str, name: str, id_: str, arguments: Json) -> None:
        offers = [tool for tools in self.offers.values() for tool in tools if tool["name"] == name]
        forbidden = (
            chat in self.spawned
            and bool(offers)
            and all(tool.get("availability", "session") != "session" for tool in offers)
        )
        call = ToolCall(id=id_, name=name, arguments=arguments)
        step = self.session.on_tool_call(chat, f"t{self.turns[chat]}", call)
        self.sent.extend(step.sends)
        if forbidden:
            assert step.decision.provider is None
            assert step.decision.failure is not None
        if forbidden and step.sends:
            kinds = [send.action["type"] for send in step.sends if send.channel == chat]
            waiting = kinds == ["chat/toolCallComplete"]  # it asked, and its tool went meanwhile
            assert waiting or kinds == [
                "chat/toolCallStart",
                "chat/toolCallReady",
                "chat/toolCallComplete",
            ]
            if not waiting:
                self.forbidden.add((chat, id_))

    def do_ready(self, chat: str, id_: str) -> None:
        self.sent.extend(self.session.ready(chat, id_).sends)

    def do_dispatch(self, chat: str, client: str | None, id_: str, action: Json) -> None:
        turn = f"t{self.turns[chat]}"
        named = {**action, "type": f"chat/toolCall{action['type']}"}
        self.send(chat, {**named, "turnId": turn, "toolCallId": id_}, client)

    def do_set(self, client: str, tools: list[Json]) -> None:
        self.offers[client] = tools
        entry = {"clientId": client, "tools": tools}
        self.send(SESSION, {"type": "session/activeClientSet", "activeClient": entry}, client)

    def do_leave(self, client: str) -> None:
        self.offers.pop(client, None)
        self.send(SESSION, {"type": "session/activeClientRemoved", "clientId": client}, client)

    def do_server(self, tools: list[Json]) -> None:
        self.offers["host"] = tools
        self.send(SESSION, {"type": "session/serverToolsChanged", "tools": tools})

    def do_turn(self, chat: str, end: str) -> None:
        action = {"type": f"chat/{end}", "turnId": f"t{self.turns[chat]}", "duration": 1}
        self.send(chat, action)
        self.begin(chat)

    def do_truncate(self, chat: str) -> None:
        self.send(chat, {"type": "chat/truncated", "turnId": f"t{self.turns[chat] - 1}"}, "desk-1")
        if "activeTurn" not in self.session.chat_to_json(chat):
            self.forbidden = {one for one in self.forbidden if one[0] != chat}  # gone as well
            self.begin(chat)

    def do_origin(self, chat: str, kind: str) -> None:
        changes = {"origin": {"kind": kind, "chat": "ahp-chat:/elsewhere"}}
        action = {"type": "session/chatUpdated", "chat": chat, "changes": changes}
        step = self.session.dispatch(SESSION, action)
        if ORIGINS[chat] is not None:
            assert step.refusal is not None
            return
        self.sent.extend(step.sends)
        if step.sends and kind == "tool":
            self.spawned.add(chat)

    def do_settle(self, chat: str, id_: str) -> None:
        call = ToolCall(id="none", name="made_up")
        scope = self.session.chats[chat].scope
        denied = PolicyEngine().on_tool_call(call, self.session.toolset, scope)
        if (chat, id_) not in self.forbidden:
            return
        assert self.session.settle(chat, id_, denied).sends == ()

    def stream(self) -> Iterator[Json]:
        snapshots = [{"resource": SESSION, "state": self.state, "fromSeq": 0}]
        yield {"jsonrpc": "2.0", "id": 1, "result": {"snapshots": snapshots}}
        for seq, send in enumerate(self.sent, 1):
            origin = {} if send.client is None else {"origin": {"clientId": send.client}}
            yield {"channel": send.channel, "action": send.action, "serverSeq": seq, **origin}


def lines(entries: Iterator[Json]) -> io.BytesIO:
    return io.BytesIO("\n".join(json.dumps(entry) for entry in entries).encode())


@given(st.lists(events, min_size=1, max_size=40))
def test_a_user_chats_call_in_a_worker_never_reaches_a_client(happenings: list[Any]) -> None:
    """It names no client, ends as completed and failed exactly once, and stays so."""
    run = Run()
    for one in happenings:
        run.event(*one)
    for chat, id_ in run.forbidden:
        about = [
            send.action
            for send in run.sent
            if send.channel == chat and send.action.get("toolCallId") == id_
        ]
        assert len(about) == 3
        assert all("contributor" not in action for action in about)
        assert about[-1]["result"]["success"] is False
        followed = FollowedChat()
        for send in run.sent:
            if send.channel == chat:
                followed.apply(send.action)
        calls = [
            part["toolCall"]
            for turn in (*followed.turns, followed.active or {})
            for part in turn.get("responseParts", ())
            if part["toolCall"]["toolCallId"] == id_
        ]
        assert [(call["status"], call["success"]) for call in calls] == [("completed", False)]
    requested = [
        send.action["request"]
        for send in run.sent
        if send.action["type"] == "session/inputNeededSet"
    ]
    assert not run.forbidden & {(one["chat"], one["toolCall"]["toolCallId"]) for one in requested}
    assert "null" not in json.dumps([send.action for send in run.sent])


@given(st.lists(events, min_size=1, max_size=40))
def test_what_the_host_side_sends_is_found_to_keep_the_contract(happenings: list[Any]) -> None:
    """The checker, which sees the stream alone, reports nothing."""
    run = Run()
    for one in happenings:
        run.event(*one)
    assert verify(lines(run.stream())).breaches == ()


@given(st.lists(events, min_size=1, max_size=30))
def test_the_clients_mirror_is_what_the_host_has(happenings: list[Any]) -> None:
    """Following what was sent gives the same chats as the host's snapshots."""
    run = Run()
    for one in happenings:
        run.event(*one)
    for chat in ORIGINS:
        followed = FollowedChat()
        for send in run.sent:
            if send.channel == chat:
                followed.apply(send.action)
        snapshot = run.session.chat_to_json(chat)
        assert (snapshot["turns"], snapshot.get("activeTurn")) == (followed.turns, followed.active)
    pending = {one["id"]: one for one in run.session.to_json().get("inputNeeded", ())}
    mirrored: dict[str, Json] = {}
    for send in run.sent:
        if send.action["type"] == "session/inputNeededSet":
            mirrored[send.action["request"]["id"]] = send.action["request"]
        elif send.action["type"] == "session/inputNeededRemoved":
            del mirrored[send.action["id"]]
    assert mirrored == pending


SEED = {"clientId": "seed", "tools": [{"name": "s_pick", "availability": "userChats"}]}
OWNED: Json = {"contributor": {"kind": "client", "clientId": "desk-1"}}


def seeds(turn: str) -> dict[str, list[Json]]:
    """For each kind of breach, what shows it and nothing else, in the worker's running turn."""
    work = "ahp-chat:/work"
    of_call = {"turnId": turn, "toolCallId": "seed"}

    def on(type_: str, **members: Any) -> Json:
        return {"channel": work, "action": {"type": f"chat/toolCall{type_}", **of_call, **members}}

    def session(type_: str, **members: Any) -> Json:
        return {"channel": SESSION, "action": {"type": f"session/{type_}", **members}}

    start = on("Start", toolName="s_pick", displayName="x")
    ready = on("Ready", invocationMessage="x", confirmed="not-needed")
    fail = on("Complete", result={"success": False, "pastTenseMessage": "x"})
    end = {
        "channel": work,
        "action": {"type": "chat/turnComplete", "turnId": turn, "duration": 1},
    }
    owned = on("Start", toolName="s_pick", displayName="x", **OWNED)
    request = {"kind": "toolClientExecution", "chat": work, "clientId": "desk-1"}
    waits = on("Ready", invocationMessage="x")
    return {
        "client_contributor": [owned, ready, fail],
        "execution_request": [
            start,
            ready,
            session("inputNeededSet", request={**request, "toolCall": {"toolCallId": "seed"}}),
            fail,
        ],
        "unfinished": [start, ready, end],
        "cancelled": [start, waits, on("Confirmed", approved=False)],
        "successful": [start, ready, on("Complete", result={"success": True})],
        "complete_before_ready": [start, fail, ready, fail],
        "duplicate_call_id": [start, ready, fail, start, ready, fail],
        "origin_changed": [
            session("chatUpdated", chat=work, changes={"origin": {"kind": "user"}}),
            start,
            ready,
            fail,
        ],
        "foreign_completion": [start, ready, {**fail, "origin": {"clientId": "desk-1"}}],
    }


@given(st.lists(events, max_size=20), st.sampled_from(sorted(seeds(""))))
def test_one_seeded_breach_is_found_exactly(happenings: list[Any], kind: str) -> None:
    """Whatever went before it."""
    run = Run()
    for one in happenings:
        run.event(*one)
    join = {"type": "session/activeClientSet", "activeClient": SEED}
    seeded = seeds(f"t{run.turns['ahp-chat:/work']}")[kind]
    stream = [*run.stream(), {"channel": SESSION, "action": join}, *seeded]
    report = verify(lines(iter(stream)))
    assert [one.kind.value for one in report.breaches] == [kind]
    assert report.breaches[0].line > len(stream) - len(seeded)


def test_every_kind_of_breach_is_seeded() -> None:
    """None is left out above."""
    assert set(seeds("")) == {kind.value for kind in BreachKind}
