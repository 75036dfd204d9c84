"""The contract kit: the cases that ship for implementers in other languages hold here."""

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no types

from tests.ahp_strategies import AHP, Json, needs_ahp
from toolscope import PolicyEngine, ToolCall
from toolscope.ahp._following import FollowedChat
from toolscope.ahp.host import HostSession

KIT = Path(str(files("toolscope.ahp").joinpath("contract")))
DOCUMENT = Path(__file__).parent.parent / "docs" / "ahp_contract.md"
SESSION = "ahp-session:/kit"


def cases(folder: str) -> list[Any]:
    return [
        pytest.param(json.loads(path.read_text()), id=path.stem)
        for path in sorted((KIT / folder).glob("*.json"))
    ]


def without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_null(one) for key, one in value.items() if one is not None}
    return [without_null(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("case", cases("reducers"))
def test_the_reducer_cases(case: Json) -> None:
    """They have the protocol's own form, and the follower agrees with them."""
    assert set(case) == {"description", "reducer", "initial", "actions", "expected"}
    expected = without_null(case["expected"])
    if case["reducer"] == "chat":
        chat = FollowedChat(without_null(case["initial"]))
        for action in case["actions"]:
            chat.apply(action)
        turns = without_null(chat.turns)
        assert turns == expected["turns"]
        assert without_null(chat.active) == expected.get("activeTurn")
        assert expected["origin"] == case["initial"]["origin"]
    else:
        session = HostSession(PolicyEngine(), SESSION, case["initial"])
        for action in case["actions"]:
            assert session.dispatch(SESSION, action).refusal is None
        assert session.to_json() == expected


@pytest.mark.parametrize("case", cases("decisions"))
def test_the_decision_cases(case: Json) -> None:
    """Each chat's list and each call's outcome are as the case says."""
    assert set(case) - {"actions"} == {"description", "session", "listings", "calls"}
    session = HostSession(PolicyEngine(), SESSION, case["session"])
    for one in case.get("actions", ()):
        channel = SESSION if one["channel"] == "session" else one["channel"]
        session.dispatch(channel, one["action"])
    for listing in case["listings"]:
        listed = [
            {"name": tool.name, "provider": str(tool.provider)}
            for tool in session.tools(listing["chat"])
        ]
        assert listed == listing["tools"], listing["chat"]
    for number, call in enumerate(case["calls"]):
        turn = session.chat_to_json(call["chat"]).get("activeTurn", {}).get("id")
        if turn is None:
            turn = "turn-1"
            begin = {"type": "chat/turnStarted", "turnId": turn, "message": {"text": "go"}}
            message = case_message(session, call["chat"])
            session.dispatch(call["chat"], {**begin, "message": {"text": "go", **message}})
        made = ToolCall(id=f"call-{number}", name=call["tool"])
        step = session.on_tool_call(call["chat"], turn, made)
        assert step.decision.effect == call["effect"], call
        failure = step.decision.failure
        assert (None if failure is None else failure.code) == call.get("code")
        assert step.sends[0].action.get("contributor") == call["contributor"]
        ends = [send.action["type"] for send in step.sends if send.channel == call["chat"]]
        if call["effect"] == "deny":
            assert [one.removeprefix("chat/toolCall") for one in ends] == [
                "Start",
                "Ready",
                "Complete",
            ]


def case_message(session: HostSession, chat: str) -> Json:
    """The agent that the chat's last turn selects, so that a new turn selects it as well."""
    turns = session.chat_to_json(chat)["turns"]
    message = turns[-1]["message"] if turns else {}
    return {key: message[key] for key in ("agent",) if key in message}


def test_the_schema_of_the_field() -> None:
    """Absent, known and unknown texts are valid; anything else is not."""
    schema = json.loads((KIT / "availability.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    for valid in ({}, {"name": "a"}, {"availability": "userChats"}, {"availability": "later"}):
        assert validator.is_valid(valid)
    for broken in ({"availability": None}, {"availability": True}, {"availability": ["session"]}):
        assert not validator.is_valid(broken)


def test_the_declaration_names_the_values() -> None:
    """The TypeScript declaration and the schema speak of the same two values."""
    text = (KIT / "availability.d.ts").read_text()
    assert re.findall(r"= '(\w+)'", text) == ["session", "userChats"]
    assert "availability?: ToolAvailability;" in text


@needs_ahp
@pytest.mark.parametrize("case", cases("reducers"))
def test_the_states_are_valid_upstream(case: Json) -> None:
    """The states validate against the protocol's schema, but for the unknown origin."""
    schema = json.loads((AHP / "schema" / "state.schema.json").read_text())
    kind = "ChatState" if case["reducer"] == "chat" else "SessionState"
    definition = {**schema, "$ref": f"#/$defs/{kind}"}
    for name in ("Turn", "ActiveTurn"):  # 'usage' is wrongly required there
        required = definition["$defs"][name]["required"]
        definition["$defs"][name]["required"] = [one for one in required if one != "usage"]
    definition = {key: definition[key] for key in ("$schema", "$defs", "$ref") if key in definition}
    for state in (case["initial"], case["expected"]):
        faults = list(Draft202012Validator(definition).iter_errors(without_null(state)))
        unknown = "schedule" in json.dumps(state)
        assert bool(faults) == unknown, faults[:1]


def test_the_page_says_how_to_run_the_cases() -> None:
    """Every case and file of the kit is named in the page, and the page names no other."""
    text = DOCUMENT.read_text()
    shipped = {path.stem for path in KIT.rglob("*.json") if path.parent != KIT}
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", text)) | {"origins", "allowlists"}
    assert named == shipped
    for path in KIT.iterdir():
        assert path.is_dir() or f"`{path.name}`" in text
