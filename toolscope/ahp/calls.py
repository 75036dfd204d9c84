"""The actions by which a host announces, asks about and ends tool calls (AHP issue #446, P2).

Every action is new, holds only keys that the protocol has, and never null. A ``contributor`` is
there only where a client or an MCP server is to execute an allowed or asking call.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from toolscope.model import InvalidArguments, ProviderKind
from toolscope.verdicts import Decision, Failure

__all__ = ["denied_actions", "ready_action", "settling_actions", "start_action"]

Action = dict[str, Any]


def start_action(
    decision: Decision, *, turn: str, call_id: str, display_name: str | None = None
) -> Action:
    """``chat/toolCallStart``; it names who executes the call, and is final in that (AHP).

    A denied call names nobody, since nobody is responsible for executing it.
    """
    contributor = {}
    if (provider := decision.provider) is not None and provider.id is not None:
        of_client = provider.kind is ProviderKind.CLIENT
        key = "clientId" if of_client else "customizationId"
        contributor = {"contributor": {"kind": provider.kind.value, key: provider.id}}
    return {
        "type": "chat/toolCallStart",
        "turnId": turn,
        "toolCallId": call_id,
        "toolName": decision.call.name,
        "displayName": shown_name(decision, display_name),
        **contributor,
    }


def ready_action(
    decision: Decision,
    *,
    turn: str,
    call_id: str,
    display_name: str | None = None,
    confirmed: str | None = "not-needed",
) -> Action:
    """``chat/toolCallReady``; with ``confirmed=None`` the call waits for a person."""
    action = {
        "type": "chat/toolCallReady",
        "turnId": turn,
        "toolCallId": call_id,
        "invocationMessage": shown_name(decision, display_name),
    }
    arguments = decision.call.arguments
    if not isinstance(arguments, InvalidArguments):
        action["toolInput"] = json.dumps(arguments)
    return action if confirmed is None else {**action, "confirmed": confirmed}


def denied_actions(
    decision: Decision, *, turn: str, call_id: str, display_name: str | None = None
) -> list[Action]:
    """The three actions that a host dispatches on the chat's channel for a denied call.

    ``chat/toolCallStart``, ``chat/toolCallReady`` that needs no confirmation, and a failed
    ``chat/toolCallComplete``: the shortest sequence that every reducer follows to ``completed``
    (a Complete straight after Start is lost). None of them names a contributor, so nobody is asked
    to execute the call. The failure's message is also what goes back to the model.

    Args:
        decision: The decision that denies the call.
        turn: The id of the chat's active turn. Dispatch before it ends.
        call_id: The call's id, unique in the chat.
        display_name: What people see; the tool's title, else its name, where it is not given.

    Raises:
        ValueError: The decision does not deny.
    """
    failure = decision.failure
    if failure is None:
        raise ValueError(f"the decision is '{decision.effect}'; only a denied call ends this way")
    shown = shown_name(decision, display_name)
    return [
        start_action(decision, turn=turn, call_id=call_id, display_name=shown),
        ready_action(decision, turn=turn, call_id=call_id, display_name=shown),
        _complete(turn, call_id, failure, shown),
    ]


def settling_actions(call: Mapping[str, Any], *, turn: str, failure: Failure) -> list[Action]:
    """The actions that end a call which is already under way, whatever its status.

    ``call`` is its ``ToolCallState``. A call that is streaming needs a Ready first; one that waits,
    runs or wants authentication fails at once. It keeps its contributor: that is settled by Start.
    A result that waits for confirmation was produced already; it is withheld (a failed one stands
    as it is). Nothing is done about a call that has ended, or whose status is not known.
    """
    status, call_id = call.get("status"), str(call.get("toolCallId"))
    shown = str(call.get("displayName") or call.get("toolName") or call_id)
    complete = _complete(turn, call_id, failure, shown)
    if status == "streaming":
        ready = {
            "type": "chat/toolCallReady",
            "turnId": turn,
            "toolCallId": call_id,
            "invocationMessage": shown,
            "confirmed": "not-needed",
        }
        return [ready, complete]
    if status in _FAIL_AT_ONCE:
        return [complete]
    if status == "pending-result-confirmation":
        return [
            {
                "type": "chat/toolCallResultConfirmed",
                "turnId": turn,
                "toolCallId": call_id,
                "approved": call.get("success") is False,
            }
        ]
    return []


_FAIL_AT_ONCE: Final = frozenset({"pending-confirmation", "running", "auth-required"})


def shown_name(decision: Decision, display_name: str | None) -> str:
    """What people see of a call: the given name, else the tool's title, else its name."""
    return display_name or (decision.tool and decision.tool.title) or decision.call.name


def _complete(turn: str, call_id: str, failure: Failure, shown: str) -> Action:
    """The failed Complete; its content is what the transcript shows of the failure."""
    return {
        "type": "chat/toolCallComplete",
        "turnId": turn,
        "toolCallId": call_id,
        "result": {
            "success": False,
            "pastTenseMessage": f"{shown} was not run",
            "content": [{"type": "text", "text": failure.message}],
            "error": {"message": failure.message, "code": str(failure.code)},
        },
    }
