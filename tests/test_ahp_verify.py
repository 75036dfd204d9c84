"""The contract checker: streams that keep the contract, and one of each breach."""

import io
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ahp_strategies import AHP, Json, json_values, needs_ahp
from toolscope.ahp import _trace
from toolscope.ahp import verify as module
from toolscope.ahp.verify import Breach, BreachKind, Report, verify
from toolscope.errors import ToolscopeError, WireError

SESSION, MAIN, WORK = "ahp-session:/s", "ahp-chat:/main", "ahp-chat:/work"
CLIENT = {
    "clientId": "desk-1",
    "tools": [{"name": "pick", "availability": "userChats"}, {"name": "look"}],
}
ORIGIN: Json = {"kind": "tool", "chat": MAIN, "toolCallId": "spawn"}
UPDATED = "session/chatUpdated"
OWNER: Json = {"contributor": {"kind": "client", "clientId": "desk-1"}}


def envelope(channel: str, client: str | None = None, **action: Any) -> Json:
    origin = {} if client is None else {"origin": {"clientId": client, "clientSeq": 1}}
    return {"channel": channel, "action": action, **origin}


def about(type_: str, chat: str = WORK, client: str | None = None, **members: Any) -> Json:
    known = {"turnId": "t1", "toolCallId": "c1", **members}
    return envelope(chat, client, type=f"chat/toolCall{type_}", **known)


def start(name: str = "pick", chat: str = WORK, /, **members: Any) -> Json:
    return about("Start", chat, toolName=name, displayName=name, **members)


def ready(chat: str = WORK, confirmed: str | None = "not-needed", **members: Any) -> Json:
    how = {} if confirmed is None else {"confirmed": confirmed}
    return about("Ready", chat, invocationMessage="x", **how, **members)


def complete(ok: bool = False, chat: str = WORK, client: str | None = None, **members: Any) -> Json:
    result = {"success": ok, "pastTenseMessage": "x"}
    return about("Complete", chat, client, result=result, **members)


def turn(chat: str = WORK, id_: str = "t1") -> Json:
    return envelope(chat, type="chat/turnStarted", turnId=id_, message={})


def end(chat: str = WORK, type_: str = "turnComplete") -> Json:
    return envelope(chat, type=f"chat/{type_}", turnId="t1", duration=1)


def added(chat: str, origin: Json | None) -> Json:
    known = {} if origin is None else {"origin": origin}
    return envelope(SESSION, type="session/chatAdded", summary={"resource": chat, **known})


def asked(
    call: Json, client: str = "desk-1", chat: str = WORK, kind: str = "toolClientExecution"
) -> Json:
    request = {"id": "x", "kind": kind, "chat": chat, "clientId": client, "toolCall": call}
    return envelope(SESSION, type="session/inputNeededSet", request=request)


BEGIN = [
    envelope(SESSION, type="session/activeClientSet", activeClient=CLIENT),
    added(MAIN, {"kind": "user"}),
    added(WORK, ORIGIN),
    turn(MAIN),
    turn(WORK),
]
KEPT = [start(), ready(), complete(), end()]


def checked(*entries: Json) -> Report:
    return verify(io.BytesIO("\n".join(map(json.dumps, entries)).encode()))


def breaches(*entries: Json) -> list[tuple[str, int]]:
    """Kind and line of each breach; lines are counted after the beginning."""
    return [(one.kind.value, one.line - len(BEGIN)) for one in checked(*BEGIN, *entries).breaches]


# What keeps the contract --------------------------------------------------------------------


@pytest.mark.parametrize(
    "entries",
    [
        KEPT,
        [start("pick", MAIN, **OWNER), ready(MAIN), complete(True, MAIN, "desk-1"), end(MAIN)],
        [start("look", **OWNER), ready(), complete(True, client="desk-1"), end()],
        [start("shell"), ready(), complete(True), end()],
        [start("look", **OWNER), end()],
        [start(), complete(turnId="other"), ready(), complete(), end()],
        [{**start(**OWNER), "rejectionReason": "no"}, *KEPT],
        [start(contributor={"kind": "mcp"}), ready(), complete(True), end()],
        [envelope(WORK, type="future/thing"), envelope("x", type="root/thing"), *KEPT],
        [about("Ready", toolCallId="unknown"), envelope(SESSION, type="session/ready"), *KEPT],
        [asked({"toolCallId": "c1", "toolName": "look"}), asked({"toolCallId": "c2"}, chat="z")],
        [asked({"toolCallId": "c1", "toolName": "pick"}, kind="toolConfirmation"), *KEPT],
        [added("ahp-chat:/c", None), added("ahp-chat:/c", {"kind": "user"})],
        [envelope(SESSION, type="session/chatUpdated", chat=WORK, changes={"title": "x"})],
        [envelope(SESSION, type="session/inputNeededRemoved", id="x"), *KEPT],
    ],
)  # fmt: skip
def test_streams_that_keep_the_contract(entries: list[Json]) -> None:
    """Nothing is reported of them."""
    assert breaches(*entries) == []


# One breach of each kind --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ([start(**OWNER), ready(), complete(), end()], ("client_contributor", 1)),
        ([start(), ready(**OWNER), complete(), end()], ("client_contributor", 2)),
        ([start(), ready(), end()], ("unfinished", 3)),
        ([start(), end(type_="error")], ("unfinished", 2)),
        ([start(), ready(), turn(id_="t2")], ("unfinished", 3)),
        ([*KEPT[:3], about("Start", toolCallId="c2", toolName="pick"), turn()], ("unfinished", 5)),
        (
            [start(), ready(confirmed=None), about("Confirmed", approved=False), end()],
            ("cancelled", 3),
        ),
        ([start(), ready(), complete(True), end()], ("successful", 3)),
        ([start(), complete(), ready(), complete(), end()], ("complete_before_ready", 2)),
        ([*KEPT[:3], start("look"), end()], ("duplicate_call_id", 4)),
        ([*KEPT, turn(), start("shell"), end()], ("duplicate_call_id", 6)),
        ([start(), ready(), asked({"toolCallId": "c1"}), complete()], ("execution_request", 3)),
        ([added(WORK, {"kind": "user"}), *KEPT], ("origin_changed", 1)),
        ([added(WORK, None), *KEPT], ("origin_changed", 1)),
        ([added(WORK, {**ORIGIN, "chat": "ahp-chat:/other"}), *KEPT], ("origin_changed", 1)),
        (
            [envelope(SESSION, type=UPDATED, chat=WORK, changes={"origin": {"kind": "fork"}})],
            ("origin_changed", 1),
        ),
        ([start("look", **OWNER), ready(), complete(client="web-2")], ("foreign_completion", 3)),
        ([start("shell"), ready(), complete(True, client="desk-1")], ("foreign_completion", 3)),
        (
            [start("look", **OWNER), ready(), about("ContentChanged", WORK, "web-2")],
            ("foreign_completion", 3),
        ),
        ([start(), ready(), complete(client="desk-1"), end()], ("foreign_completion", 3)),
    ],
)  # fmt: skip
def test_one_breach(entries: list[Json], found: tuple[str, int]) -> None:
    """Exactly that one is reported, with its line."""
    assert breaches(*entries) == [found]


def test_every_kind_has_a_case() -> None:
    """The rows above seed each kind of breach."""
    (mark,) = test_one_breach.pytestmark  # type: ignore[attr-defined]
    assert {row[1][0] for row in mark.args[1]} == {kind.value for kind in BreachKind}


def test_what_a_breach_says() -> None:
    """The line, the chat, the call and the tool."""
    report = checked(*BEGIN, start("look", **OWNER), ready(), complete(True, client="web-2"))
    assert report.breaches == (
        Breach(
            line=8,
            kind=BreachKind.FOREIGN_COMPLETION,
            chat=WORK,
            call_id="c1",
            tool="look",
            detail="'web-2' dispatched it, 'desk-1' owns the call",
        ),
    )
    assert (report.actions, report.snapshots, report.chats) == (8, 0, 2)


@pytest.mark.parametrize(
    ("server", "clients", "found"),
    [
        ({"name": "pick"}, [], []),
        ({"name": "pick", "availability": "userChats"}, [], [("successful", 3)]),
        ({"name": "pick", "availability": "later"}, [], [("successful", 3)]),
        ({"name": "pick", "availability": None}, [], []),
        ({"name": "pick"}, [CLIENT], []),
        ({"name": "other"}, [CLIENT], [("successful", 3)]),
    ],
)
def test_which_definition_counts(server: Json, clients: list[Json], found: list[Any]) -> None:
    """Where somebody's tool of that name may be used there, the call may be about that one."""
    gone = envelope(SESSION, type="session/activeClientRemoved", clientId="desk-1")
    tools = [gone, envelope(SESSION, type="session/serverToolsChanged", tools=[server])]
    back = [envelope(SESSION, type="session/activeClientSet", activeClient=one) for one in clients]
    begin = [*BEGIN, *tools, *back]
    report = checked(*begin, start(), ready(), complete(True), end())
    assert [(one.kind.value, one.line - len(begin)) for one in report.breaches] == found


def test_a_clients_own_definition_counts_for_its_call() -> None:
    """Another client's tool of the same name does not excuse it."""
    other = {"clientId": "web-2", "tools": [{"name": "pick"}]}
    join = envelope(SESSION, type="session/activeClientSet", activeClient=other)
    assert breaches(join, start(**OWNER), ready(), complete(), end()) == [("client_contributor", 2)]
    theirs = {"contributor": {"kind": "client", "clientId": "web-2"}}
    assert breaches(join, start(**theirs), ready(), complete(True, client="web-2")) == []


def test_what_the_stream_does_not_show_is_not_judged() -> None:
    """A chat of no known session, or without a known origin."""
    entries = [turn(), start(**OWNER), ready(), complete(True, client="desk-1"), end()]
    assert checked(*entries).breaches == ()
    assert checked(*BEGIN[:2], added(WORK, None), *entries).breaches == ()


# Snapshots, connections ---------------------------------------------------------------------


def snapshot(uri: str, seq: int, **state: Any) -> Json:
    return {"id": 1, "result": {"snapshot": {"resource": uri, "state": state, "fromSeq": seq}}}


def call(status: str, **members: Any) -> Json:
    made = {"toolCallId": "c1", "toolName": "pick", "status": status, **members}
    return {"kind": "toolCall", "toolCall": made}


SESSION_STATE: Json = {
    "activeClients": [CLIENT],
    "chats": [{"resource": WORK, "origin": ORIGIN}],
}


@pytest.mark.parametrize(
    ("place", "parts", "found"),
    [
        ("active", [call("running", **OWNER)], ["client_contributor"]),
        ("active", [call("running")], []),
        ("active", [call("completed", success=True)], ["successful"]),
        ("over", [call("completed", success=False)], []),
        ("over", [call("completed", success=True, **OWNER)], ["client_contributor", "successful"]),
        ("over", [call("cancelled", reason="skipped")], ["unfinished"]),
        ("over", [call("cancelled", reason="denied")], ["cancelled"]),
        ("over", [call("running")], ["unfinished"]),
        ("over", [{"kind": "markdown"}, 7], []),
    ],
)
def test_calls_that_only_a_snapshot_shows(place: str, parts: list[Any], found: list[str]) -> None:
    """A quick worker's call may be over before anybody subscribes."""
    turn = {"id": "t1", "responseParts": parts}
    turns = {"turns": [], "activeTurn": turn} if place == "active" else {"turns": [turn, 7]}
    state = {"resource": WORK, "origin": ORIGIN, **turns}
    report = checked(snapshot(SESSION, 1, **SESSION_STATE), snapshot(WORK, 2, **state))
    assert [one.kind.value for one in report.breaches] == found
    assert report.snapshots == 2


def test_a_snapshot_without_a_number() -> None:
    """It counts wherever it stands."""
    entry = snapshot(SESSION, 1, **SESSION_STATE)
    del entry["result"]["snapshot"]["fromSeq"]
    report = checked(entry, turn(), start(**OWNER))
    assert [one.kind.value for one in report.breaches] == ["client_contributor"]


def test_pending_requests_of_a_snapshot() -> None:
    """They are looked at as those of the actions are."""
    request = asked({"toolCallId": "c1", "toolName": "pick"})["action"]["request"]
    session = {**SESSION_STATE, "inputNeeded": [request]}
    report = checked(snapshot(SESSION, 1, **session))
    assert [one.kind.value for one in report.breaches] == ["execution_request"]


def test_a_snapshot_is_followed_by_later_envelopes_only() -> None:
    """What the snapshot holds already is not applied again; an old snapshot changes nothing."""
    running = {"id": "t1", "responseParts": [call("running")]}
    state = {"resource": WORK, "origin": ORIGIN, "turns": [], "activeTurn": running}
    report = checked(
        snapshot(SESSION, 1, **SESSION_STATE),
        snapshot(WORK, 5, **state),
        {**start(**OWNER), "serverSeq": 4},
        {**complete(), "serverSeq": 6},
        snapshot(WORK, 3, **{**state, "origin": {"kind": "user"}}),
        {**end(), "serverSeq": 7},
    )
    assert report.breaches == ()


def test_the_same_envelopes_on_two_connections_count_once() -> None:
    """They are told apart by channel and serverSeq."""
    entries = [{**one, "serverSeq": seq} for seq, one in enumerate([*BEGIN, *KEPT])]
    assert checked(*entries, *entries).breaches == ()
    late = {**asked({"toolCallId": "c1", "toolName": "pick"}), "serverSeq": 50}
    report = checked(*entries[:5], late, *entries[5:])
    assert [one.kind.value for one in report.breaches] == ["execution_request"]


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("form", ["lines", "array", "pretty", "one line", "batches"])
@pytest.mark.parametrize("rpc", [False, True])
def test_the_forms_that_recorders_write(wrapped: bool, form: str, rpc: bool) -> None:
    """Envelopes or messages, bare or under a key, as lines or as an array."""
    entries: list[Any] = [*BEGIN, start(**OWNER), ready(), complete(), end()]
    if rpc:
        entries = [{"jsonrpc": "2.0", "method": "action", "params": one} for one in entries]
    if wrapped:
        entries = [{"at": 1, "dir": "recv", "message": one} for one in entries]
    text = {
        "lines": "\n\n".join(map(json.dumps, entries)),
        "array": "[\n" + ",\n".join(map(json.dumps, entries)) + "\n]\n",
        "pretty": "\ufeff" + json.dumps(entries, indent=1),
        "one line": json.dumps(entries),
        "batches": json.dumps(entries[:3]) + "\n" + json.dumps(entries[3:]),
    }[form]
    (breach,) = verify(io.BytesIO(text.encode())).breaches
    assert breach.kind is BreachKind.CLIENT_CONTRIBUTOR
    if form == "array":
        assert breach.line == 2 + len(BEGIN)
    if form == "pretty":
        shown = text.splitlines()[breach.line - 1]
        assert shown == " {"


def test_messages_of_a_connection() -> None:
    """createSession brings the client along; a replay brings what was missed."""
    create = {"method": "createSession", "params": {"channel": SESSION, "activeClient": CLIENT}}
    missed = [*BEGIN[1:], start(**OWNER)]
    replay = {"id": 2, "result": {"type": "replay", "actions": missed, "missing": []}}
    dispatch = {"method": "dispatchAction", "params": complete(True, client="web-2")}
    report = checked(create, dispatch, replay, {"id": 3, "result": None}, {"id": 4})
    assert [one.kind.value for one in report.breaches] == ["client_contributor"]


def test_only_the_last_ids_of_a_chat_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded for each chat."""
    monkeypatch.setattr(module, "_IDS_KEPT", 2)
    calls = [start("shell", toolCallId=f"c{number}") for number in range(3)]
    assert breaches(*calls, start("shell", toolCallId="c0")) == []
    assert breaches(*calls, start("shell", toolCallId="c2")) == [("duplicate_call_id", 4)]


def test_a_session_that_is_removed_is_forgotten() -> None:
    """Another one may use the same names."""
    removed = {"method": "root/sessionRemoved", "params": {"session": SESSION}}
    unknown = {"method": "root/sessionRemoved", "params": {"session": "z"}}
    assert breaches(*KEPT, removed, unknown, *BEGIN, *KEPT) == []


# What cannot be read ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "no entry is an action envelope or holds a snapshot"),
        (b'{"a": 1}\n[1, "x", null]', "no entry is an action envelope"),
        (b'{"a": 1}\n{', "line 2: it is not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "line 1: an integer of too many digits"),
        (b'{"a": ' + b"[" * 200_000, "line 1: it is nested too deep"),
        (b'{"a": 1}\n\xff', "line 2: it is not UTF-8"),
        (b'{"a": 1}\n\xe2\x82', "line 2: it is not UTF-8"),
        (b"[\n{},\n{", "line 3: it is not JSON"),
        (b"[\n{},\n", "line 3: it is not JSON: Expecting value"),
        (b"[\n{},\n" + b"[" * 200_000, "line 3: it is nested too deep"),
        (b"[\n{}\n]\nx", "line 4: it is not JSON"),
        (b"{}\n{}}\n{}", "line 2: it is not JSON"),
        (b"{}\n" + b"x" * 100_000 + b"\n{}", "line 2: it is not JSON"),
    ],
)
def test_what_cannot_be_read(raw: bytes, message: str) -> None:
    """One error with the line."""
    with pytest.raises(WireError) as caught:
        verify(io.BytesIO(raw))
    assert message in str(caught.value)


def test_entries_that_are_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by one entry."""
    monkeypatch.setattr(_trace, "MAX_ENTRY", 100)
    monkeypatch.setattr(_trace, "_CHUNK", 50)
    for raw in (b'{"a": "' + b"x" * 400 + b'"}', b'[\n{"a": [\n' + b'"x",\n' * 400):
        with pytest.raises(WireError, match="an entry of more than 100 characters"):
            verify(io.BytesIO(raw))


@pytest.mark.parametrize("chunk", [1, 2, 7, 64])
def test_entries_that_are_cut_by_the_reading(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Wherever a chunk ends: in a text, an escape, a number, a word or a character."""
    monkeypatch.setattr(_trace, "_CHUNK", chunk)
    odd = {"a": 'ä\\"\u20ac\U0001f600\n', "b": [-1.5e-7, True, None, 12345678], "ü": {}}
    entries = [odd, *BEGIN, start(**OWNER), odd]
    for text in ("\n".join(map(json.dumps, entries)), json.dumps(entries, ensure_ascii=False)):
        read = [entry for _, entry in _trace.Trace(io.BytesIO(text.encode()))]
        assert read == entries


entries = st.recursive(
    json_values
    | st.sampled_from([*BEGIN, *KEPT, snapshot(SESSION, 1, **SESSION_STATE), start(**OWNER)]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["message", "method", "params", "action", "channel", "result", "snapshot", "snapshots",
             "actions", "state", "turns", "activeTurn", "responseParts", "activeClients", "chats",
             "type", "turnId", "toolCallId", "serverSeq", "origin", "summary", "request", "kind"]
        ),
        inner | st.sampled_from(["action", "chat/toolCallStart", "session/chatAdded", WORK, "t1"]),
        max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(entries, max_size=8))
def test_any_json_is_checked_or_refused(stream: list[Any]) -> None:
    """Whatever is in the stream, only errors of this package come out."""
    with suppress(ToolscopeError):
        verify(io.BytesIO("\n".join(map(json.dumps, [BEGIN, *stream])).encode()))


@given(st.binary(max_size=60))
def test_any_bytes_are_refused(raw: bytes) -> None:
    """They hold no envelope."""
    with pytest.raises(ToolscopeError):
        verify(io.BytesIO(raw))


# The recordings -----------------------------------------------------------------------------


@needs_ahp
@pytest.mark.parametrize(("name", "count"), [("good", 0), ("broken-contributor", 10)])
def test_the_recordings(name: str, count: int) -> None:
    """The keeping host is found to keep the contract, the breaching one to breach it ten times."""
    with (AHP / "traces" / f"{name}.jsonl").open("rb") as stream:
        report = verify(stream)
    assert len(report.breaches) == count
    assert {one.tool for one in report.breaches} <= {"pick_file"}
    assert report.chats == 12
