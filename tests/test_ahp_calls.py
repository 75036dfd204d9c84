"""The actions that a host dispatches for a call, word for word."""

from typing import Any

import pytest

from toolscope.ahp.calls import (
    denied_actions,
    ready_action,
    settling_actions,
    shown_name,
    start_action,
)
from toolscope.engine import PolicyEngine
from toolscope.model import Scope, Tool, ToolCall, Toolset
from toolscope.testing import tool
from toolscope.verdicts import Code, Decision, Effect, Failure

OF_CALL = {"turnId": "t1", "toolCallId": "c1"}
FAILURE = Failure(code=Code.TOOL_DENIED, message="It is late.")
FAILED = {
    "success": False,
    "pastTenseMessage": "Look was not run",
    "content": [{"type": "text", "text": "It is late."}],
    "error": {"message": "It is late.", "code": "tool_denied"},
}


def decided(one: Tool | None, name: str = "look", arguments: Any = None) -> Decision:
    """The decision on a call of this tool, or of one that is not there."""
    tools = Toolset([] if one is None else [one])
    call = ToolCall(name=name, arguments={} if arguments is None else arguments)
    return PolicyEngine().on_tool_call(call, tools, Scope())


@pytest.mark.parametrize(
    ("provider", "contributor"),
    [
        ("client:desk", {"contributor": {"kind": "client", "clientId": "desk"}}),
        ("mcp:files", {"contributor": {"kind": "mcp", "customizationId": "files"}}),
        ("host", {}),
        ("model", {}),
    ],
)
def test_start_names_who_executes_the_call(provider: str, contributor: dict[str, Any]) -> None:
    """A client or an MCP server, each by its own key; the host and the model are not named."""
    decision = decided(tool("look", provider, title="Look"))
    assert decision.effect is Effect.ALLOW
    assert start_action(decision, turn="t1", call_id="c1") == {
        "type": "chat/toolCallStart",
        **OF_CALL,
        "toolName": "look",
        "displayName": "Look",
        **contributor,
    }
    shown = start_action(decision, turn="t1", call_id="c1", display_name="A look")
    assert (shown["toolName"], shown["displayName"]) == ("look", "A look")


def test_ready_says_the_input_and_whether_a_person_is_asked() -> None:
    """Not needed by default; a call that waits for a person has no ``confirmed`` at all."""
    decision = decided(tool("look", title="Look"), arguments={"at": 1})
    of_ready = {"type": "chat/toolCallReady", **OF_CALL}
    assert ready_action(decision, turn="t1", call_id="c1") == {
        **of_ready,
        "invocationMessage": "Look",
        "toolInput": '{"at": 1}',
        "confirmed": "not-needed",
    }
    assert ready_action(
        decision, turn="t1", call_id="c1", display_name="A look", confirmed=None
    ) == {**of_ready, "invocationMessage": "A look", "toolInput": '{"at": 1}'}
    setting = ready_action(decision, turn="t1", call_id="c1", confirmed="setting")
    assert setting["confirmed"] == "setting"
    invalid = decided(tool("look"), arguments="{")
    assert ready_action(invalid, turn="t1", call_id="c1") == {
        **of_ready,
        "invocationMessage": "look",
        "confirmed": "not-needed",
    }


def test_a_denied_call_takes_three_actions() -> None:
    """Start, Ready and a failed Complete under one name; the failure is in the result twice."""
    denied = decided(None)
    assert denied.failure is not None
    message = denied.failure.message
    assert denied_actions(denied, turn="t1", call_id="c1", display_name="A look") == [
        {
            "type": "chat/toolCallStart",
            **OF_CALL,
            "toolName": "look",
            "displayName": "A look",
        },
        {
            "type": "chat/toolCallReady",
            **OF_CALL,
            "invocationMessage": "A look",
            "toolInput": "{}",
            "confirmed": "not-needed",
        },
        {
            "type": "chat/toolCallComplete",
            **OF_CALL,
            "result": {
                "success": False,
                "pastTenseMessage": "A look was not run",
                "content": [{"type": "text", "text": message}],
                "error": {"message": message, "code": "tool_unknown"},
            },
        },
    ]


def test_a_denied_call_is_shown_by_its_tool() -> None:
    """Where no other name is given, in all three actions."""
    start, ready, complete = denied_actions(decided(None), turn="t1", call_id="c1")
    assert (start["displayName"], ready["invocationMessage"]) == ("look", "look")
    assert complete["result"]["pastTenseMessage"] == "look was not run"


def test_an_allowed_call_does_not_end_as_a_denied_one() -> None:
    """The host would end what it may run."""
    with pytest.raises(ValueError) as caught:
        denied_actions(decided(tool("look")), turn="t1", call_id="c1")
    assert str(caught.value) == "the decision is 'allow'; only a denied call ends this way"


@pytest.mark.parametrize("status", ["pending-confirmation", "running", "auth-required"])
def test_a_call_that_is_ready_fails_at_once(status: str) -> None:
    """With one Complete."""
    call = {"status": status, "toolCallId": "c1", "toolName": "look", "displayName": "Look"}
    assert settling_actions(call, turn="t1", failure=FAILURE) == [
        {"type": "chat/toolCallComplete", **OF_CALL, "result": FAILED}
    ]


def test_a_call_that_streams_is_made_ready_first() -> None:
    """A Complete straight after Start is lost."""
    call = {"status": "streaming", "toolCallId": "c1", "toolName": "look", "displayName": "Look"}
    assert settling_actions(call, turn="t1", failure=FAILURE) == [
        {
            "type": "chat/toolCallReady",
            **OF_CALL,
            "invocationMessage": "Look",
            "confirmed": "not-needed",
        },
        {"type": "chat/toolCallComplete", **OF_CALL, "result": FAILED},
    ]


@pytest.mark.parametrize(
    ("parts", "approved"),
    [({"success": True}, False), ({"success": False}, True), ({}, False), ({"success": 0}, False)],
)
def test_a_result_that_waits_is_withheld(parts: dict[str, Any], approved: bool) -> None:
    """Unless it says itself that it failed: that stands."""
    call = {"status": "pending-result-confirmation", "toolCallId": "c1", **parts}
    assert settling_actions(call, turn="t1", failure=FAILURE) == [
        {"type": "chat/toolCallResultConfirmed", **OF_CALL, "approved": approved}
    ]


def test_a_call_that_has_ended_is_left_alone() -> None:
    """As is one whose status is not known, or missing."""
    for status in ({"status": "completed"}, {"status": "later"}, {}):
        assert settling_actions({**status, "toolCallId": "c1"}, turn="t1", failure=FAILURE) == []


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ({"displayName": "Look", "toolName": "look"}, "Look was not run"),
        ({"displayName": "", "toolName": "look"}, "look was not run"),
        ({"toolName": "look"}, "look was not run"),
        ({}, "c1 was not run"),
    ],
)
def test_what_people_see_of_a_call_that_is_settled(parts: dict[str, Any], shown: str) -> None:
    """Its display name, else its tool's name, else its id."""
    call = {"status": "running", "toolCallId": "c1", **parts}
    (complete,) = settling_actions(call, turn="t1", failure=FAILURE)
    assert complete["result"]["pastTenseMessage"] == shown


def test_what_people_see_of_a_call() -> None:
    """The given name, else the tool's title, else the name that the model produced."""
    titled, plain, unknown = (
        decided(tool("look", title="Look")),
        decided(tool("look")),
        decided(None, "peek"),
    )
    assert shown_name(titled, "A look") == "A look"
    assert [shown_name(one, None) for one in (titled, plain, unknown)] == ["Look", "look", "peek"]
    assert shown_name(titled, "") == "Look"
