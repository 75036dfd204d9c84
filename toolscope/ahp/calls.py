"""The actions that end a tool call as the contract says (AHP issue #446, P2)."""

import json
from typing import Any

from toolscope.model import InvalidArguments
from toolscope.verdicts import Decision, Failure

__all__ = ["denied_actions"]


def denied_actions(
    decision: Decision, *, turn: str, call_id: str, display_name: str | None = None
) -> list[dict[str, Any]]:
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
    call = decision.call
    shown = display_name or (decision.tool and decision.tool.title) or call.name
    of_call = {"turnId": turn, "toolCallId": call_id}
    ready = {
        "type": "chat/toolCallReady",
        **of_call,
        "invocationMessage": shown,
        "toolInput": json.dumps(call.arguments),
        "confirmed": "not-needed",
    }
    if isinstance(call.arguments, InvalidArguments):
        del ready["toolInput"]
    return [
        {
            "type": "chat/toolCallStart",
            **of_call,
            "toolName": call.name,
            "displayName": shown,
        },
        ready,
        {"type": "chat/toolCallComplete", **of_call, "result": failed_result(failure, shown)},
    ]


def failed_result(failure: Failure, shown: str) -> dict[str, Any]:
    """The ``ToolCallResult`` of a call that did not run; the transcript shows what was said."""
    return {
        "success": False,
        "pastTenseMessage": f"{shown} was not run",
        "content": [{"type": "text", "text": failure.message}],
        "error": {"message": failure.message, "code": failure.code},
    }
