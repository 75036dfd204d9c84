"""The members of a session that change: clients, tools, customizations, chats and their turns."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from toolscope._frozen import thaw
from toolscope.ahp import wire
from toolscope.ahp._chats import Chat, derive
from toolscope.ahp._following import Call, Change, FollowedChat, client_of
from toolscope.errors import Fault
from toolscope.model import Agent, Origin, Tool, Toolset
from toolscope.verdicts import Decision

__all__ = ["LiveChat", "LiveSession"]

_PARTS: Final = frozenset({"turns", "activeTurn"})


class LiveChat:
    """A chat as it is now: its summary, its turns, and who started the running one."""

    def __init__(self, view: wire.ChatState) -> None:
        document = wire.write(view)
        self.followed = FollowedChat(document)
        self.summary = {key: one for key, one in document.items() if key not in _PARTS}
        self.uri = view.resource
        self.view = view
        self.sender: str | None = None
        self.decisions: dict[str, Decision] = {}
        """The decisions on the calls of the running turn, by call id."""
        self.used_ids = {call.id for call in view.tool_calls}

    def to_json(self) -> dict[str, Any]:
        """The ``ChatState``: a copy, for what is followed goes on changing."""
        active = self.followed.active
        running = {} if active is None else {"activeTurn": active}
        copied: dict[str, Any] = thaw({**self.summary, "turns": self.followed.turns, **running})
        return copied

    def apply(
        self, action: wire.Action, json: Mapping[str, Any], sender: str | None
    ) -> tuple[Change, ...]:
        """Follows an action on this chat's channel."""
        changes = self.followed.apply(json)
        if action.type == "chat/turnStarted":
            self.sender = sender
        for _, call in changes:
            self.used_ids.add(call.get("toolCallId"))
        if action.type in _CHANGES_AGENT or any(_names_worker(*change) for change in changes):
            self.view = self._viewed()
        return changes

    def _viewed(self) -> wire.ChatState:
        """What the agents of this chat and of the chats it spawned are found by."""
        turns = self.followed.turns
        kept = [turn for turn in turns[:-1] if _spawns(turn)] + turns[-1:]
        active = self.followed.active
        running = {} if active is None else {"activeTurn": _with_calls(active)}
        return wire.read_chat({**self.summary, "turns": list(map(_with_calls, kept)), **running})


_CHANGES_AGENT: Final = frozenset(
    {"chat/turnStarted", "chat/turnComplete", "chat/turnCancelled", "chat/error", "chat/truncated"}
)


def _with_calls(turn: Mapping[str, Any]) -> dict[str, Any]:
    """The turn with its message and its calls alone: no other part matters here."""
    parts = [part for part in turn.get("responseParts", ()) if part.get("kind") == "toolCall"]
    known = {key: turn[key] for key in ("id", "message") if key in turn}
    return {**known, "responseParts": parts}


def _spawns(turn: Mapping[str, Any]) -> bool:
    return any(
        _names_worker(None, part["toolCall"])
        for part in turn.get("responseParts", ())
        if part.get("kind") == "toolCall"
    )


def _names_worker(before: Call | None, after: Call) -> bool:
    """Whether the call's content is new and names a chat that the call spawned."""
    content = after.get("content")
    if not content or (before is not None and before.get("content") is content):
        return False
    return any(one.get("type") == "subagent" for one in content)


@attrs.define(eq=False)
class LiveSession:
    """A session as it is now, and what it means for tools and chats."""

    document: dict[str, Any]
    host_tools: tuple[Tool, ...]
    clients: dict[str, wire.ActiveClient]
    customizations: tuple[wire.Customization, ...]
    chats: dict[str, LiveChat]
    pinned: dict[str, wire.ChatOrigin | None] = attrs.Factory(dict)
    requests: dict[str, dict[str, Any]] = attrs.Factory(dict)
    toolset: Toolset = attrs.Factory(Toolset)
    _derived: tuple[Mapping[str, Chat], Mapping[str, Agent], list[Fault], list[Fault]] | None = None

    @classmethod
    def read(cls, document: wire.Document) -> "LiveSession":
        """The session of a ``SessionState``."""
        state = wire.read_session(document)
        chats = {}
        for chat in sorted(state.chats, key=lambda one: not one.summary):
            chats[chat.resource] = LiveChat(chat)
        live = cls(
            document={} if state.lone_chat else wire.write(state),
            host_tools=state.server_tools,
            clients={client.id: client for client in state.clients},
            customizations=state.customizations,
            chats=chats,
        )
        for uri, found in derive(state)[0].items():
            live.pinned[uri] = _origin_of(state, uri, found.origin)
        live.changed()
        return live

    def changed(self) -> None:
        """What was computed of clients, tools and chats no longer holds."""
        self._derived = None
        of_clients = [tool for client in self.clients.values() for tool in client.tools]
        self.toolset = self.toolset.renewed([*self.host_tools, *of_clients])

    @property
    def scopes(self) -> Mapping[str, Chat]:
        """Each chat with its scope; asking for one that is not there is a `WireError`."""
        return self._now()[0]

    @property
    def errors(self) -> tuple[Fault, ...]:
        """Agents that a chat names and that cannot be resolved now."""
        return tuple(self._now()[3])

    def _now(self) -> tuple[Mapping[str, Chat], Mapping[str, Agent], list[Fault], list[Fault]]:
        if self._derived is None:
            views = [
                attrs.evolve(chat.view, origin=self.pinned[uri], summary=True)
                for uri, chat in self.chats.items()
            ]
            self._derived = derive(
                wire.SessionState(
                    json={},
                    clients=tuple(self.clients.values()),
                    chats=tuple(views),
                    customizations=self.customizations,
                )
            )
        return self._derived

    def apply(self, action: wire.Action, json: Mapping[str, Any]) -> None:
        """Follows an action on the session's channel that was not refused."""
        match action.type:
            case "session/activeClientSet" if action.client is not None:
                self.clients[action.client.id] = action.client
            case "session/activeClientRemoved":
                self.clients.pop(action.client_id or "", None)
            case "session/serverToolsChanged":
                self.host_tools = action.tools or ()
            case "session/customizationsChanged":
                self.customizations = action.customizations or ()
            case _ if action.type in _CHANGES_CUSTOMIZATION:
                documents = [wire.write(one) for one in self.customizations]
                _CHANGES_CUSTOMIZATION[action.type](documents, json)
                self.customizations = tuple(map(wire.read_customization, documents))
            case "session/chatAdded" if isinstance(action.chat, wire.ChatState):
                self._add_chat(action.chat)
            case "session/chatUpdated" if action.changes is not None:
                chat = self.chats[action.changes.resource]
                chat.summary.update(wire.write(action.changes))
                self._pin(chat.uri, action.changes.origin)
            case "session/chatRemoved":
                self.chats.pop(str(action.chat), None)
            case "session/inputNeededSet" | "session/inputNeededRemoved":
                self._change_request(json)
            case _:
                return
        self.changed()

    def _own_requests(self) -> list[dict[str, Any]]:
        needed = self.document.get("inputNeeded")
        return [
            one
            for one in (needed if isinstance(needed, list) else ())
            if isinstance(one, dict) and one.get("kind") != "toolClientExecution"
        ]

    def _change_request(self, json: Mapping[str, Any]) -> None:
        """The requests of the host's own: those to execute a call follow from the calls."""
        request = json.get("request")
        id_ = request.get("id") if isinstance(request, Mapping) else json.get("id")
        kept = [one for one in self._own_requests() if one.get("id") != id_]
        added = [dict(request)] if isinstance(request, Mapping) else []
        self.document["inputNeeded"] = [*kept, *added]

    def _add_chat(self, view: wire.ChatState) -> None:
        known = self.chats.get(view.resource)
        if known is None:
            self.chats[view.resource] = LiveChat(view)
        else:
            known.summary = wire.write(view)
        self._pin(view.resource, view.origin)

    def _pin(self, uri: str, origin: wire.ChatOrigin | None) -> None:
        """The first origin that is known stays: the chat came to exist in one way."""
        if self.pinned.get(uri) is None:
            self.pinned[uri] = origin

    def to_json(self) -> dict[str, Any]:
        """The ``SessionState``, with what else its document held: a copy."""
        requests = [*self._own_requests(), *self.requests.values()]
        needed = {"inputNeeded": requests} if requests else {}
        tools = {"serverTools": [wire.write(tool) for tool in self.host_tools]}
        rest = {key: one for key, one in self.document.items() if key not in _LIVE}
        agents = [wire.write(one) for one in self.customizations]
        state = {
            **rest,
            "activeClients": [wire.write(client) for client in self.clients.values()],
            "chats": [chat.summary for chat in self.chats.values()],
            **(tools if self.host_tools else {}),
            **({"customizations": agents} if agents else {}),
            **needed,
        }
        copied: dict[str, Any] = thaw(state)
        return copied

    def calls_of(self, client: str) -> Iterator[tuple[LiveChat, Call]]:
        """The calls of every running turn that this client is to execute."""
        for chat in self.chats.values():
            for call in list(chat.followed.calls()):
                if client_of(call) == client:
                    yield chat, call

    def sender(self, uri: str) -> str | None:
        """Who started the chat's turn; for a worker, the turn at the top of its ancestry."""
        seen: set[str] = set()
        while uri in self.chats and uri not in seen:
            seen.add(uri)
            if (sender := self.chats[uri].sender) is not None:
                return sender
            origin = self.pinned[uri]
            if origin is None or origin.kind is not Origin.TOOL or origin.chat is None:
                return None
            uri = origin.chat
        return None


def _updated(customizations: list[dict[str, Any]], json: Mapping[str, Any]) -> None:
    new = json["customization"]
    for place, one in enumerate(customizations):
        if one.get("id") == new.get("id"):
            customizations[place] = new
            return
    customizations.append(new)


def _removed(customizations: list[dict[str, Any]], json: Mapping[str, Any]) -> None:
    for one in (customizations, *(one.get("children") for one in customizations)):
        if isinstance(one, list):
            one[:] = [child for child in one if child.get("id") != json.get("id")]


def _toggled(customizations: list[dict[str, Any]], json: Mapping[str, Any]) -> None:
    for one in customizations:
        for place in (one, *(one.get("children") or ())):
            if place.get("id") == json.get("id") and isinstance(json.get("enabled"), bool):
                place["enabled"] = json["enabled"]


_CHANGES_CUSTOMIZATION: Final = {
    "session/customizationUpdated": _updated,
    "session/customizationRemoved": _removed,
    "session/customizationToggled": _toggled,
}
_LIVE: Final = frozenset({"activeClients", "chats", "serverTools", "customizations", "inputNeeded"})


def _origin_of(
    state: wire.SessionState, uri: str, kind: Origin | str | None
) -> wire.ChatOrigin | None:
    for chat in state.chats:
        if chat.resource == uri and chat.origin is not None and chat.origin.kind == kind:
            return chat.origin
    return None
