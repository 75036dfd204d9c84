"""Follows the tool calls of a chat through its actions, as the protocol's reducers do.

Only what tool calls need is followed: turns beginning and ending, the calls themselves, and parts
that arrive ready-made. Titles, status, text and the rest of a chat are left to the host.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

__all__ = ["TERMINAL", "TURN_ENDS", "Call", "Change", "FollowedChat", "client_of", "follow_call"]

Call: TypeAlias = dict[str, Any]
"""A ``ToolCallState``, as JSON. Absent members are absent: nothing here is ever null."""

Change: TypeAlias = tuple[Call | None, Call]
"""A call before (None = there was none) and after an action."""

TERMINAL: Final = frozenset({"completed", "cancelled"})
"""The statuses that no action changes."""

_BASE: Final = ("toolCallId", "toolName", "displayName", "intention", "contributor", "_meta")
_ASKED: Final = (
    "toolInput", "confirmationTitle", "riskAssessment", "edits", "editable", "options",
)  # fmt: skip
_STARTED: Final = ("toolCallId", "toolName", "displayName", "intention", "contributor", "_meta")
_CONFIRMED: Final = ("invocationMessage", "toolInput", "confirmed", "selectedOption", "content")
TURN_ENDS: Final[Mapping[str, str]] = {
    "chat/turnComplete": "complete",
    "chat/turnCancelled": "cancelled",
    "chat/error": "error",
}
"""The actions that end a turn, and the state the turn is in then."""


def client_of(call: Mapping[str, Any]) -> str | None:
    """The id of the client that a call (or action) names as contributor; None for none."""
    contributor = call.get("contributor")
    if isinstance(contributor, Mapping) and contributor.get("kind") == "client":
        client = contributor.get("clientId")
        return client if isinstance(client, str) else None
    return None


def _some(of: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: of[key] for key in keys if of.get(key) is not None}


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def follow_call(call: Call, action: Mapping[str, Any]) -> Call:
    """The call after an action about it; the very same object where the action does nothing.

    The table is that of the protocol's reducer (``toolCall*`` actions, July 2026).
    """
    follow = _FOLLOW.get((str(call.get("status")), str(action.get("type"))))
    if follow is None:
        return call
    after = follow(call, action)
    if after is call:
        return call
    meta = action.get("_meta")
    return after if meta is None else {**after, "_meta": meta}


def _delta(call: Call, action: Mapping[str, Any]) -> Call:
    after = {**call, **_some(action, ("invocationMessage",))}
    if action.get("content") is not None:
        after["partialInput"] = f"{call.get('partialInput') or ''}{action['content']}"
    return after


def _ready(call: Call, action: Mapping[str, Any]) -> Call:
    asked_before = call["status"] == "pending-confirmation"
    after = _some(call, _BASE)
    after["invocationMessage"] = action.get("invocationMessage")
    kept = _some(call, _ASKED) if asked_before else {}
    if action.get("confirmed") is not None:
        tool_input = _some({**kept, **_some(action, _ASKED)}, ("toolInput",))
        return {"status": "running", **after, **tool_input, "confirmed": action["confirmed"]}
    return {"status": "pending-confirmation", **after, **kept, **_some(action, _ASKED)}


def _confirmed(call: Call, action: Mapping[str, Any]) -> Call:
    after = _some(call, (*_BASE, "invocationMessage", "toolInput"))
    chosen = action.get("selectedOptionId")
    for option in _objects(call.get("options")):
        if chosen is not None and option.get("id") == chosen:
            after["selectedOption"] = option
    if action.get("approved"):
        if action.get("editedToolInput") is not None:
            after["toolInput"] = action["editedToolInput"]
        confirmed = action.get("confirmed") or "user-action"
        return {"status": "running", **after, "confirmed": confirmed}
    why = _some(action, ("reasonMessage", "userSuggestion"))
    return {"status": "cancelled", **after, "reason": action.get("reason") or "denied", **why}


def _complete(call: Call, action: Mapping[str, Any]) -> Call:
    result = {key: one for key, one in _object(action.get("result")).items() if one is not None}
    after = _some(call, (*_BASE, *_CONFIRMED))
    after.setdefault("confirmed", "not-needed")
    waiting_for_auth = call["status"] == "auth-required"
    if waiting_for_auth and result.get("success"):
        return call
    if not waiting_for_auth:
        after.pop("content", None)
    status = "completed"
    if action.get("requiresResultConfirmation") and not waiting_for_auth:
        status = "pending-result-confirmation"
    return {"status": status, **after, **result}


def _result_confirmed(call: Call, action: Mapping[str, Any]) -> Call:
    if action.get("approved"):
        return {**call, "status": "completed"}
    return _cancelled(call, "result-denied")


def _content(call: Call, action: Mapping[str, Any]) -> Call:
    return {**call, "content": action.get("content")}


def _auth_required(call: Call, action: Mapping[str, Any]) -> Call:
    if _object(call.get("contributor")).get("kind") != "mcp":
        return call
    return {**call, "status": "auth-required", **_some(action, ("auth",))}


def _auth_resolved(call: Call, action: Mapping[str, Any]) -> Call:
    return {"status": "running", **_some(call, (*_BASE, *_CONFIRMED))}


def _cancelled(call: Call, reason: str) -> Call:
    after = _some(call, (*_BASE, "invocationMessage", "toolInput", "selectedOption"))
    after.setdefault("invocationMessage", "")
    return {"status": "cancelled", **after, "reason": reason}


_FOLLOW: Final = {
    ("streaming", "chat/toolCallDelta"): _delta,
    ("streaming", "chat/toolCallReady"): _ready,
    ("pending-confirmation", "chat/toolCallReady"): _ready,
    ("running", "chat/toolCallReady"): _ready,
    ("pending-confirmation", "chat/toolCallConfirmed"): _confirmed,
    ("pending-confirmation", "chat/toolCallComplete"): _complete,
    ("running", "chat/toolCallComplete"): _complete,
    ("auth-required", "chat/toolCallComplete"): _complete,
    ("pending-result-confirmation", "chat/toolCallResultConfirmed"): _result_confirmed,
    ("running", "chat/toolCallContentChanged"): _content,
    ("running", "chat/toolCallAuthRequired"): _auth_required,
    ("auth-required", "chat/toolCallAuthResolved"): _auth_resolved,
}


_TURNS_KNOWN: Final = 100


def _holds_call(part: Mapping[str, Any]) -> bool:
    return part.get("kind") == "toolCall" and isinstance(part.get("toolCall"), dict)


class FollowedChat:
    """The turns of one chat, as far as tool calls go.

    Args:
        state: The ``ChatState`` to begin with, as JSON; it is copied where it is followed.
        keep_turns: Whether finished turns are kept in `turns`. Without, `turns` knows the last
            100 ids, and memory stays bounded by one turn.
    """

    def __init__(self, state: Mapping[str, Any] | None = None, *, keep_turns: bool = True) -> None:
        state = state or {}
        self._keep = keep_turns
        self.turns: list[dict[str, Any]] = _objects(state.get("turns"))
        if not keep_turns:
            self.turns = [{"id": turn.get("id")} for turn in self.turns[-_TURNS_KNOWN:]]
        self.active: dict[str, Any] | None = None
        self._parts: dict[str, list[int]] = {}
        if isinstance(state.get("activeTurn"), Mapping):
            self._begin(state["activeTurn"])

    def _begin(self, turn: Mapping[str, Any]) -> None:
        parts = _objects(turn.get("responseParts"))
        self.active = {**turn, "responseParts": parts}
        self._parts = {}
        for place, part in enumerate(parts):
            self._index(place, part)

    def _index(self, place: int, part: Mapping[str, Any]) -> None:
        if _holds_call(part):
            self._parts.setdefault(str(part["toolCall"].get("toolCallId")), []).append(place)

    @property
    def turn(self) -> str | None:
        """The id of the active turn; None where none is active."""
        return None if self.active is None else self.active.get("id")

    def call(self, call_id: str) -> Call | None:
        """The call of this id in the active turn (the first one, should there be several)."""
        places = self._parts.get(call_id)
        if self.active is None or not places:
            return None
        found: Call = self.active["responseParts"][places[0]]["toolCall"]
        return found

    def calls(self) -> Iterator[Call]:
        """The calls of the active turn, in order."""
        if self.active is not None:
            for part in self.active["responseParts"]:
                if _holds_call(part):
                    yield part["toolCall"]

    def apply(self, action: Mapping[str, Any]) -> tuple[Change, ...]:
        """Follows one action; gives each call that it changed: before (None = new) and after."""
        type_ = str(action.get("type"))
        if type_ == "chat/turnStarted":
            message = _some(action, ("startedAt", "message"))
            self._begin({"id": action.get("turnId"), **message, "responseParts": []})
            return ()
        if type_ == "chat/truncated":
            self._truncate(action.get("turnId"))
            return ()
        if self.active is None or action.get("turnId") != self.active.get("id"):
            return ()
        if type_ in TURN_ENDS:
            return self._end(self.active, action, TURN_ENDS[type_])
        if type_ == "chat/toolCallStart":
            call = {"status": "streaming", **_some(action, _STARTED)}
            return self._add({"kind": "toolCall", "toolCall": call})
        if type_ == "chat/responsePart":
            return self._add({**_object(action.get("part"))})
        changes: list[Change] = []
        for place in self._parts.get(str(action.get("toolCallId")), ()):
            changes.extend(self._change(place, follow_call(self._at(place), action)))
        return tuple(changes)

    def _at(self, place: int) -> Call:
        call: Call = self._active_parts[place]["toolCall"]
        return call

    @property
    def _active_parts(self) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = [] if self.active is None else self.active["responseParts"]
        return parts

    def _add(self, part: dict[str, Any]) -> tuple[Change, ...]:
        if not _holds_call(part):
            if self._keep:
                self._active_parts.append(part)
            return ()
        self._active_parts.append(part)
        self._index(len(self._active_parts) - 1, part)
        return ((None, part["toolCall"]),)

    def _change(self, place: int, after: Call) -> Iterator[Change]:
        before = self._at(place)
        if after is not before:
            self._active_parts[place] = {**self._active_parts[place], "toolCall": after}
            yield before, after

    def _end(
        self, turn: dict[str, Any], action: Mapping[str, Any], state: str
    ) -> tuple[Change, ...]:
        changes: list[Change] = []
        for places in self._parts.values():
            for place in places:
                call = self._at(place)
                if call.get("status") not in TERMINAL:
                    changes.extend(self._change(place, _cancelled(call, "skipped")))
        if self._keep:
            ended = {**turn, "state": state}
            self.turns.append({**ended, **_some(action, ("duration", "error"))})
        else:
            self.turns = [*self.turns[1 - _TURNS_KNOWN :], {"id": turn.get("id")}]
        self.active = None
        self._parts = {}
        return tuple(changes)

    def _truncate(self, turn_id: object) -> None:
        ids = [turn.get("id") for turn in self.turns]
        if turn_id is None:
            self.turns.clear()
        elif turn_id in ids:
            del self.turns[ids.index(turn_id) + 1 :]
        else:
            return
        self.active = None
        self._parts = {}
