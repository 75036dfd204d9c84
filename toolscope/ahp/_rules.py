"""What may be dispatched on a chat's and on a session's channel, and by whom."""

from collections.abc import Mapping
from typing import Any, Final

from toolscope.ahp import wire
from toolscope.ahp._following import TURN_ENDS, client_of, follow_call
from toolscope.ahp._live import LiveChat, LiveSession
from toolscope.model import FrozenDict, arguments_digest, read_arguments
from toolscope.verdicts import Decision, Effect

__all__ = [
    "chat_refusal",
    "origin_refusal",
    "plain_result",
    "same_arguments",
    "session_refusal",
]

_HOST_ONLY: Final = frozenset(
    {
        "chat/delta", "chat/error", "chat/reasoning", "chat/responsePart", "chat/toolCallStart",
        "chat/toolCallDelta", "chat/toolCallReady", "chat/toolCallAuthRequired",
        "chat/toolCallAuthResolved", "chat/turnComplete", "chat/turnsLoaded", "chat/usage",
        "session/chatAdded", "session/chatRemoved", "session/chatUpdated",
        "session/creationFailed", "session/customizationRemoved",
        "session/customizationUpdated", "session/customizationsChanged",
        "session/defaultChatChanged", "session/inputNeededRemoved", "session/inputNeededSet",
        "session/ready", "session/serverToolsChanged",
    }
)  # fmt: skip
"""Actions that no client may dispatch (AHP, types of the two channels)."""

_OF_OWNER: Final = frozenset({"chat/toolCallComplete", "chat/toolCallContentChanged"})
_RESULT: Final = ("success", "pastTenseMessage", "content", "structuredContent", "error")


def plain_result(action: Mapping[str, Any]) -> dict[str, Any]:
    """A Complete whose result holds the protocol's keys only.

    The reducers copy the result onto the call, so that any other key in it (``status``,
    ``contributor``) would change what the call is.
    """
    given = action.get("result")
    result = given if isinstance(given, Mapping) else {}
    kept = {key: result[key] for key in _RESULT if result.get(key) is not None}
    return {**action, "result": {**kept, "success": kept.get("success") is True}}


def same_arguments(one: FrozenDict, other: FrozenDict) -> bool:
    """Whether these are the same, to the type of each value; invalid ones are not like none."""
    return type(one) is type(other) and arguments_digest(one) == arguments_digest(other)


def chat_refusal(
    chat: LiveChat,
    action: wire.Action,
    json: Mapping[str, Any],
    client: str | None,
    decision: Decision | None,
) -> str | None:
    """Why an action may not be dispatched on a chat's channel; None where it may.

    ``client`` is who wants to dispatch it (None = the host), ``decision`` that on the call.
    """
    type_, turn = action.type, chat.followed.turn
    if client is not None and type_ in _HOST_ONLY:
        return "only the host dispatches this action"
    if type_ == "chat/toolCallStart" or _part_kind(json) == "toolCall":
        return "a call is announced by what on_tool_call gives"
    if type_ == "chat/turnStarted":
        return None if turn is None else "a turn is running"
    if type_ in TURN_ENDS:
        return (
            None if turn is not None and json.get("turnId") == turn else "no such turn is running"
        )
    if not type_.startswith("chat/toolCall"):
        return None
    call = chat.followed.call(action.tool_call_id or "") if action.turn_id == turn else None
    if call is None:
        return "there is no such call in the running turn"
    if client is not None and type_ in _OF_OWNER and client_of(call) != client:
        return "only who executes the call dispatches this action"
    if follow_call(call, json) is call:
        return f"a call that is {call.get('status')} does not take this action"
    if type_ == "chat/toolCallReady" and action.contributor is not None:
        return "who executes a call is settled by its start"
    if (
        type_ == "chat/toolCallReady"
        and decision is not None
        and "toolInput" in json
        and not same_arguments(read_arguments(json["toolInput"]), decision.call.arguments)
    ):
        return "the arguments of a call are those that were decided"
    if decision is not None and decision.effect is Effect.ASK:
        confirms = type_ == "chat/toolCallReady" and json.get("confirmed") is not None
        succeeds = type_ == "chat/toolCallComplete" and plain_result(json)["result"]["success"]
        if confirms or succeeds:
            return "the call waits for a person's answer"
    return None


def _part_kind(json: Mapping[str, Any]) -> object:
    part = json.get("part")
    return part.get("kind") if isinstance(part, Mapping) else None


def session_refusal(
    live: LiveSession, action: wire.Action, json: Mapping[str, Any], client: str | None
) -> str | None:
    """Why an action may not be dispatched on the session's channel; None where it may."""
    if client is not None and action.type in _HOST_ONLY:
        return "only the host dispatches this action"
    about = action.client.id if action.client is not None else action.client_id
    if client is not None and about is not None and about != client:
        return "a client speaks for itself only"
    request = json.get("request")
    kind = request.get("kind") if isinstance(request, Mapping) else None
    if kind == "toolClientExecution" or str(json.get("id")) in live.requests:
        return "execution requests follow from the calls"
    if action.type == "session/chatUpdated" and action.chat not in live.chats:
        return "there is no such chat"
    return origin_refusal(live, action)


def origin_refusal(live: LiveSession, action: wire.Action) -> str | None:
    """Why a chat cannot get the origin that an action gives it: the first one is pinned."""
    if action.type == "session/chatAdded" and isinstance(action.chat, wire.ChatState):
        chat = action.chat
    elif action.changes is not None and action.changes.origin is not None:
        chat = action.changes
    else:
        return None
    pinned = live.pinned.get(chat.resource)
    if pinned is None or _essence(chat.origin) == _essence(pinned):
        return None
    return f"the origin of this chat is '{pinned.kind}' and stays so"


def _essence(origin: wire.ChatOrigin | None) -> tuple[str | None, ...]:
    return () if origin is None else (origin.kind, origin.chat, origin.tool_call_id)
