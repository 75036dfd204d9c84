"""Checks a recorded stream of any AHP host against the contract of AHP issue #446.

A tool that is marked ``userChats`` is not for chats that a tool spawned. Where such a call is
produced anyway, the host ends it: completed, not successful, and no client named for it. The
checker follows sessions and chats through the envelopes, snapshots and replays of a stream and
reports each place where the stream says otherwise.

A call counts as such a call where its chat's origin counts as ``tool`` and the contributor's own
definition, or every definition of that name that the session holds, counts as ``userChats``. What
the stream does not show (an origin, a definition) is not judged.
"""

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final, TypeVar

import attrs

from toolscope.ahp._breaches import Breach, BreachKind, Report, breach, ended, standing
from toolscope.ahp._following import TERMINAL, FollowedChat, client_of
from toolscope.ahp._trace import Trace
from toolscope.errors import Fault, WireError
from toolscope.model import Availability, Origin

__all__ = ["Breach", "BreachKind", "Report", "Trace", "Verifier", "verify"]


def verify(stream: BinaryIO) -> Report:
    """Checks a stream: JSON lines or an array, of envelopes or JSON-RPC messages.

    Either may stand under ``message``. Several connections and sessions may be in one stream.

    Raises:
        WireError: It cannot be read, or holds nothing that is known.
    """
    verifier = Verifier()
    breaches = [one for line, entry in Trace(stream) for one in verifier.feed(entry, line)]
    return verifier.report(breaches)


_IDS_KEPT: Final = 1_000
"""How many call ids are remembered for a chat; the oldest go first."""


@attrs.define
class _Session:
    """What is known of a session: who offers which tool names, with which availability."""

    host: dict[str, str] = attrs.Factory(dict)
    clients: dict[str, dict[str, str]] = attrs.Factory(dict)
    chats: set[str] = attrs.Factory(set)


@attrs.define
class _Chat:
    """What is known of a chat.

    ``calls`` says of each recent call id whether it is forbidden, ``started`` has those that began.
    """

    session: str | None = None
    origin: Mapping[str, Any] | None = None
    spawned: bool = False
    followed: FollowedChat = attrs.Factory(lambda: FollowedChat(keep_turns=False))
    calls: dict[str, bool] = attrs.Factory(dict)
    started: dict[str, None] = attrs.Factory(dict)


class Verifier:
    """Checks entry by entry. Memory is bounded by the sessions, chats and running turns."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._chats: dict[str, _Chat] = {}
        self._seen: dict[str, int] = {}
        self._actions = 0
        self._snapshots = 0
        self._chats_seen = 0

    def report(self, breaches: list[Breach]) -> Report:
        """The report on all that was fed, with the breaches that came of it.

        Raises:
            WireError: Nothing that was fed is an envelope, a message with one, or a snapshot.
        """
        if not self._actions and not self._snapshots:
            problem = "no entry is an action envelope or holds a snapshot"
            cure = "record the host's 'action' notifications and the results of its requests"
            raise WireError(
                "the trace cannot be checked", [Fault(path="", problem=problem, cure=cure)]
            )
        return Report(
            breaches=tuple(breaches),
            actions=self._actions,
            snapshots=self._snapshots,
            chats=self._chats_seen,
        )

    def feed(self, entry: object, line: int) -> Iterator[Breach]:
        """The breaches that one entry shows. What is not known is passed over."""
        entries = entry if isinstance(entry, list) else [entry]
        for one in entries:
            message = _object(one)
            if isinstance(message.get("message"), Mapping):
                message = message["message"]
            yield from self._message(message, line)

    def _message(self, message: Mapping[str, Any], line: int) -> Iterator[Breach]:
        method, params = message.get("method"), _object(message.get("params"))
        if method == "action":
            yield from self._envelope(params, line)
        elif method == "createSession":
            client = _object(params.get("activeClient"))
            self._client(self._session(params.get("channel")), client)
        elif method == "root/sessionRemoved":
            self._drop_session(str(params.get("session")))
        elif method is None and isinstance(message.get("action"), Mapping):
            yield from self._envelope(message, line)
        else:
            yield from self._result(_object(message.get("result")), line)

    def _result(self, result: Mapping[str, Any], line: int) -> Iterator[Breach]:
        for snapshot in [result.get("snapshot"), *_array(result.get("snapshots"))]:
            if isinstance(snapshot, Mapping):
                yield from self._snapshot(snapshot, line)
        for envelope in _array(result.get("actions")):
            yield from self._envelope(_object(envelope), line)

    def _is_news(self, channel: str, seq: object) -> bool:
        """Whether an envelope was not seen yet, on another connection or in a snapshot."""
        if type(seq) is not int:
            return True
        if seq <= self._seen.get(channel, -1):
            return False
        self._seen[channel] = seq
        return True

    def _session(self, uri: object) -> _Session:
        return self._sessions.setdefault(str(uri), _Session())

    def _chat(self, uri: object) -> _Chat:
        chat = self._chats.get(str(uri))
        if chat is None:
            self._chats_seen += 1
            chat = self._chats[str(uri)] = _Chat()
        return chat

    def _drop_session(self, uri: str) -> None:
        session = self._sessions.pop(uri, None)
        for chat in session.chats if session else ():
            self._chats.pop(chat, None)
            self._seen.pop(chat, None)

    # ----------------------------------------------------------------------------------------
    # Sessions
    # ----------------------------------------------------------------------------------------

    def _envelope(self, envelope: Mapping[str, Any], line: int) -> Iterator[Breach]:
        action = _object(envelope.get("action"))
        channel, type_ = str(envelope.get("channel")), str(action.get("type"))
        self._actions += 1
        if envelope.get("rejectionReason") is not None:
            return
        if not self._is_news(channel, envelope.get("serverSeq")):
            return
        sender = _object(envelope.get("origin")).get("clientId")
        if type_.startswith("session/"):
            yield from self._session_action(channel, type_, action, line)
        elif type_.startswith("chat/"):
            yield from self._chat_action(channel, type_, action, sender, line)

    def _session_action(
        self, uri: str, type_: str, action: Mapping[str, Any], line: int
    ) -> Iterator[Breach]:
        session = self._session(uri)
        match type_:
            case "session/activeClientSet":
                self._client(session, _object(action.get("activeClient")))
            case "session/activeClientRemoved":
                session.clients.pop(str(action.get("clientId")), None)
            case "session/serverToolsChanged":
                session.host = _availabilities(action.get("tools"))
            case "session/chatAdded":
                yield from self._summary(uri, _object(action.get("summary")), line)
            case "session/chatUpdated":
                changes = _object(action.get("changes"))
                if "origin" in changes:
                    chat = str(action.get("chat"))
                    yield from self._summary(uri, {**changes, "resource": chat}, line)
            case "session/inputNeededSet":
                yield from self._request(uri, _object(action.get("request")), line)
            case _:
                pass

    def _client(self, session: _Session, client: Mapping[str, Any]) -> None:
        if "clientId" in client:
            session.clients[str(client["clientId"])] = _availabilities(client.get("tools"))

    def _summary(self, uri: str, summary: Mapping[str, Any], line: int) -> Iterator[Breach]:
        resource = str(summary.get("resource"))
        chat = self._chat(resource)
        chat.session = uri
        self._session(uri).chats.add(resource)
        yield from self._origin(resource, chat, summary, line)

    def _origin(
        self, uri: str, chat: _Chat, state: Mapping[str, Any], line: int
    ) -> Iterator[Breach]:
        found = state.get("origin")
        origin = found if isinstance(found, Mapping) else None
        before, chat.origin = chat.origin, origin
        if before is not None and _essence(before) != _essence(origin):
            yield Breach(
                line=line,
                kind=BreachKind.ORIGIN_CHANGED,
                chat=uri,
                detail=f"it was {_shown(before)} and is now {_shown(origin)}",
            )
        if origin is not None and Origin.counted(str(origin.get("kind"))) is Origin.TOOL:
            chat.spawned = True  # for good: an origin is what it was at the beginning

    def _request(self, uri: str, request: Mapping[str, Any], line: int) -> Iterator[Breach]:
        if request.get("kind") != "toolClientExecution":
            return
        resource, call = str(request.get("chat")), _object(request.get("toolCall"))
        chat = self._chats.get(resource)
        if chat is None:
            return
        chat.session = chat.session or uri
        if self._forbidden(chat, call):
            named = request.get("clientId")
            yield breach(BreachKind.EXECUTION_REQUEST, line, resource, call, f"it names {named!r}")

    def _forbidden(self, chat: _Chat, call: Mapping[str, Any]) -> bool:
        """Whether the call is of a ``userChats`` tool in a chat that a tool spawned."""
        call_id = str(call.get("toolCallId"))
        known = chat.calls.get(call_id)
        if known is None:
            known = chat.spawned and self._user_chats_only(chat, call)
            _remember(chat.calls, call_id, known)
        return known

    def _user_chats_only(self, chat: _Chat, call: Mapping[str, Any]) -> bool:
        session = self._sessions.get(chat.session or "")
        if session is None or _object(call.get("contributor")).get("kind") == "mcp":
            return False
        name = str(call.get("toolName"))
        own = session.clients.get(client_of(call) or "", {}).get(name)
        offers = [
            tools[name] for tools in (session.host, *session.clients.values()) if name in tools
        ]
        counted = [Availability.counted(one) for one in ([own] if own is not None else offers)]
        return bool(counted) and Availability.SESSION not in counted

    # ----------------------------------------------------------------------------------------
    # Snapshots
    # ----------------------------------------------------------------------------------------

    def _snapshot(self, snapshot: Mapping[str, Any], line: int) -> Iterator[Breach]:
        uri, state = str(snapshot.get("resource")), _object(snapshot.get("state"))
        seq = snapshot.get("fromSeq")
        self._snapshots += 1
        if type(seq) is int:
            if seq < self._seen.get(uri, -1):
                return  # older than what is known
            self._seen[uri] = seq
        if "activeClients" in state or "chats" in state:
            yield from self._session_snapshot(uri, state, line)
        elif "turns" in state or "activeTurn" in state:
            yield from self._chat_snapshot(uri, state, line)

    def _session_snapshot(self, uri: str, state: Mapping[str, Any], line: int) -> Iterator[Breach]:
        session = self._session(uri)
        session.host = _availabilities(state.get("serverTools"))
        session.clients = {}
        for client in _array(state.get("activeClients")):
            self._client(session, _object(client))
        for summary in _array(state.get("chats")):
            yield from self._summary(uri, _object(summary), line)
        for request in _array(state.get("inputNeeded")):
            yield from self._request(uri, _object(request), line)

    def _chat_snapshot(self, uri: str, state: Mapping[str, Any], line: int) -> Iterator[Breach]:
        chat = self._chat(uri)
        yield from self._origin(uri, chat, state, line)
        for turn in _array(state.get("turns")):
            for part in _array(_object(turn).get("responseParts")):
                call = _object(_object(part).get("toolCall"))
                _remember(chat.started, str(call.get("toolCallId")), None)
                if self._forbidden(chat, call):
                    yield from standing(uri, call, line)
                    if call.get("status") not in TERMINAL:
                        yield breach(BreachKind.UNFINISHED, line, uri, call)
        chat.followed = FollowedChat(state, keep_turns=False)
        for call in chat.followed.calls():
            _remember(chat.started, str(call.get("toolCallId")), None)
            if self._forbidden(chat, call):
                yield from standing(uri, call, line)

    # ----------------------------------------------------------------------------------------
    # Chats
    # ----------------------------------------------------------------------------------------

    def _chat_action(
        self, uri: str, type_: str, action: Mapping[str, Any], sender: object, line: int
    ) -> Iterator[Breach]:
        chat = self._chat(uri)
        if type_ == "chat/turnStarted":
            for call in chat.followed.calls():
                if call.get("status") not in TERMINAL and self._forbidden(chat, call):
                    yield breach(BreachKind.UNFINISHED, line, uri, call)
        elif type_.startswith("chat/toolCall"):
            yield from self._call_action(uri, chat, type_, action, sender, line)
        for before, after in chat.followed.apply(action):
            if not self._forbidden(chat, after):
                continue
            if before is None or type_ == "chat/toolCallReady":
                said = (
                    after if before is None else {**after, "contributor": action.get("contributor")}
                )
                if client_of(said) is not None:
                    yield breach(BreachKind.CLIENT_CONTRIBUTOR, line, uri, after)
            if after.get("status") in TERMINAL:
                yield from ended(uri, after, line)

    def _call_action(
        self,
        uri: str,
        chat: _Chat,
        type_: str,
        action: Mapping[str, Any],
        sender: object,
        line: int,
    ) -> Iterator[Breach]:
        call_id = str(action.get("toolCallId"))
        if type_ == "chat/toolCallStart":
            if call_id in chat.started:
                yield breach(BreachKind.DUPLICATE_CALL_ID, line, uri, action)
            _remember(chat.started, call_id, None)
            chat.calls.pop(call_id, None)  # another call: it is judged for itself
            return
        call = chat.followed.call(call_id)
        if call is None or action.get("turnId") != chat.followed.turn:
            return
        if type_ == "chat/toolCallComplete" and call.get("status") == "streaming":
            yield breach(BreachKind.COMPLETE_BEFORE_READY, line, uri, call)
        completes = type_ in ("chat/toolCallComplete", "chat/toolCallContentChanged")
        if completes and sender is not None and sender != client_of(call):
            owner = client_of(call) or "the host"
            detail = f"{sender!r} dispatched it, {owner!r} owns the call"
            yield breach(BreachKind.FOREIGN_COMPLETION, line, uri, call, detail)


_T = TypeVar("_T")


def _remember(kept: dict[str, _T], key: str, value: _T) -> None:
    kept[key] = value
    if len(kept) > _IDS_KEPT:
        del kept[next(iter(kept))]


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _array(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _availabilities(tools: object) -> dict[str, str]:
    return {
        str(tool["name"]): str(tool.get("availability") or "session")
        for tool in _array(tools)
        if isinstance(tool, Mapping) and "name" in tool
    }


def _essence(origin: Mapping[str, Any] | None) -> tuple[object, ...]:
    return tuple((origin or {}).get(key) for key in ("kind", "chat", "toolCallId"))


def _shown(origin: Mapping[str, Any] | None) -> str:
    return "absent" if origin is None else repr(str(origin.get("kind")))
