"""The host's side of the contract: what is sent, whatever happens."""

import json
from collections.abc import Awaitable
from typing import Any

import anyio
import pytest

from tests.ahp_strategies import Json
from toolscope import (
    Decision,
    Effect,
    PolicyEngine,
    Tool,
    ToolCall,
    Verdict,
    ask,
    deny,
    hookimpl,
)
from toolscope.ahp.calls import settling_actions
from toolscope.ahp.host import CallStep, HostSession, Send, Step
from toolscope.calls import CallLedger, CallState
from toolscope.errors import LedgerError, WireError
from toolscope.stores import Key, MemoryStore, Record
from toolscope.verdicts import Failure

SESSION, MAIN, WORK = "ahp-session:/s", "ahp-chat:/main", "ahp-chat:/work"
TURN = "t1"
TOOLS: list[Json] = [{"name": "pick", "availability": "userChats"}, {"name": "look"}]


def desk(*tools: Json, id_: str = "desk-1") -> Json:
    return {"clientId": id_, "tools": list(tools or TOOLS)}


def state(**members: Any) -> Json:
    chats = [
        {"resource": MAIN, "title": "Main", "origin": {"kind": "user"}},
        {"resource": WORK, "origin": {"kind": "tool", "chat": MAIN, "toolCallId": "spawn"}},
    ]
    base = {"activeClients": [desk()], "chats": chats, "serverTools": [{"name": "shell"}]}
    return {**base, **members}


class Asking:
    """Asks before each call of ``look`` and ``shell``, and denies what is dangerous."""

    name = "asking"

    @hookimpl
    def on_tool_call(self, call: ToolCall) -> Verdict | None:
        """Judges by the arguments."""
        if call.arguments.get("danger"):
            return deny("it is dangerous; do something else")
        return ask("it needs a look") if call.arguments.get("ask") else None


class Slow:
    """Answers later: when it is released, if it waits for that."""

    name = "slow"

    def __init__(self, released: anyio.Event | None = None) -> None:
        self.released = released

    @hookimpl
    def on_tool_call(self, call: ToolCall) -> Awaitable[Verdict | None]:
        """Takes its time, then denies what is dangerous."""

        async def judge() -> Verdict | None:
            if self.released is not None:
                await self.released.wait()
            return deny("it is dangerous") if call.arguments.get("danger") else None

        return judge()


def hosted(*plugins: Any, running: bool = True, **members: Any) -> HostSession:
    session = HostSession(PolicyEngine(plugins), SESSION, state(**members))
    if running:
        for chat in (MAIN, WORK):
            start(session, chat)
    return session


def start(session: HostSession, chat: str, turn: str = TURN, client: str | None = None) -> Step:
    message = {"text": "go", "origin": {"kind": "user"}}
    action = {"type": "chat/turnStarted", "turnId": turn, "message": message}
    return session.dispatch(chat, action, client)


def called(
    session: HostSession, chat: str, name: str, id_: str = "c1", **arguments: Any
) -> CallStep:
    return session.on_tool_call(chat, TURN, ToolCall(id=id_, name=name, arguments=arguments))


def about(type_: str, id_: str = "c1", turn: str = TURN, **members: Any) -> Json:
    return {"type": f"chat/toolCall{type_}", "turnId": turn, "toolCallId": id_, **members}


def result(success: bool = True, **members: Any) -> Json:
    return {"result": {"success": success, "pastTenseMessage": "Done", **members}}


def types(step: Step | CallStep) -> list[str]:
    return [send.action["type"].partition("/")[2] for send in step.sends]


def status(session: HostSession, chat: str = MAIN, id_: str = "c1") -> str | None:
    active = session.chat_to_json(chat).get("activeTurn") or session.chat_to_json(chat)["turns"][-1]
    for part in active["responseParts"]:
        if part["toolCall"]["toolCallId"] == id_:
            found: str = part["toolCall"]["status"]
            return found
    return None


# Lists --------------------------------------------------------------------------------------


def test_what_a_chats_agent_is_handed() -> None:
    """A worker is not shown what is for chats that a person drives."""
    session = hosted()
    assert [tool.name for tool in session.tools(MAIN)] == ["shell", "pick", "look"]
    assert [tool.name for tool in session.tools(WORK)] == ["shell", "look"]
    with pytest.raises(WireError, match="no chat 'z'"):
        session.tools("z")


def test_the_client_of_create_session_is_there_at_once() -> None:
    """VS Code ships its whole tool set this way."""
    session = HostSession(PolicyEngine(), SESSION, state(activeClients=[]), client=desk())
    assert [tool.name for tool in session.tools(MAIN)] == ["shell", "pick", "look"]
    assert session.chats[MAIN].scope.can_ask
    with pytest.raises(WireError, match="clientId"):
        HostSession(PolicyEngine(), SESSION, client={"tools": []})


def test_whose_tool_wins_a_name() -> None:
    """The turn's sender, for a worker that of the chat at the top; it can also be given."""
    session = hosted(running=False, activeClients=[desk(), desk(id_="web-2")])
    start(session, MAIN, client="web-2")
    start(session, WORK)

    def owner(chat: str, sender: str | None = None) -> str:
        tool = session.tools(chat, sender).resolve("look")
        assert tool is not None
        return str(tool.provider)

    assert [owner(MAIN), owner(WORK), owner(MAIN, "desk-1")] == [
        "client:web-2",
        "client:web-2",
        "client:desk-1",
    ]
    step = called(session, WORK, "look")
    assert step.sends[0].action["contributor"] == {"kind": "client", "clientId": "web-2"}


def test_who_started_the_turn_of_a_chat_whose_parent_is_gone() -> None:
    """Nobody that is known; a fork is its own chat."""
    chats = [
        {"resource": MAIN, "origin": {"kind": "tool", "chat": MAIN}},
        {"resource": WORK, "origin": {"kind": "fork", "chat": MAIN}},
    ]
    session = hosted(chats=chats, running=False, activeClients=[desk(), desk(id_="web-2")])
    start(session, MAIN)
    for chat in (MAIN, WORK):
        tool = session.tools(chat).resolve("look")
        assert tool is not None
        assert str(tool.provider) == "client:desk-1"


def test_a_changed_availability_alone_changes_the_toolset() -> None:
    """And what is the same keeps it, with all that was computed for it."""
    session = hosted()
    before = session.toolset
    session.dispatch(SESSION, {"type": "session/activeClientSet", "activeClient": desk()})
    assert session.toolset is before
    now = desk({"name": "pick"}, {"name": "look"})
    session.dispatch(SESSION, {"type": "session/activeClientSet", "activeClient": now})
    assert session.toolset is not before
    assert "pick" in [tool.name for tool in session.tools(WORK)]


# Calls --------------------------------------------------------------------------------------


def test_an_allowed_client_tool() -> None:
    """Start names the client; from Ready on the session asks it to execute the call."""
    session = hosted()
    step = called(session, MAIN, "pick", a=1)
    assert step.decision.effect is Effect.ALLOW
    assert [send.action for send in step.sends] == [
        {
            **about("Start"),
            "toolName": "pick",
            "displayName": "pick",
            "contributor": {"kind": "client", "clientId": "desk-1"},
        }
    ]
    ready = session.ready(MAIN, "c1", "Pick a file")
    assert types(ready) == ["toolCallReady", "inputNeededSet"]
    assert ready.sends[0].action["toolInput"] == '{"a": 1}'
    request = ready.sends[1].action["request"]
    assert (ready.sends[1].channel, request["clientId"]) == (SESSION, "desk-1")
    assert request["toolCall"]["status"] == "running"
    assert session.to_json()["inputNeeded"] == [request]
    done = session.dispatch(MAIN, about("Complete", **result()), "desk-1")
    assert types(done) == ["toolCallComplete", "inputNeededRemoved"]
    assert done.sends[0].client == "desk-1"
    assert "inputNeeded" not in session.to_json()
    assert session.ledger.state(MAIN, "c1") is CallState.COMPLETED


def test_an_allowed_host_tool() -> None:
    """Nobody is named, and nobody but the host completes it."""
    session = hosted()
    step = called(session, WORK, "shell")
    assert types(step) == ["toolCallStart"]
    assert "contributor" not in step.sends[0].action
    assert types(session.ready(WORK, "c1")) == ["toolCallReady"]
    complete = about("Complete", **result())
    refused = session.dispatch(WORK, complete, "desk-1")
    assert refused.refusal == "only who executes the call dispatches this action"
    assert types(session.dispatch(WORK, complete)) == ["toolCallComplete"]


@pytest.mark.parametrize("name", ["pick", "made_up"])
def test_a_denied_call(name: str) -> None:
    """Three actions, nobody named; later actions about it are refused."""
    session = hosted()
    step = called(session, WORK, name)
    assert types(step) == ["toolCallStart", "toolCallReady", "toolCallComplete"]
    assert all("contributor" not in send.action for send in step.sends)
    assert status(session, WORK) == "completed"
    late = session.dispatch(WORK, about("Complete", **result()), "desk-1")
    assert late.refusal == "only who executes the call dispatches this action"
    late = session.dispatch(WORK, about("Complete", **result()))
    assert late.refusal == "a call that is completed does not take this action"
    assert session.ledger.state(WORK, "c1") is CallState.DENIED
    assert session.ledger.ignored == ()


def test_an_id_is_announced_once() -> None:
    """Asked again, an allowed call is settled, a denied one gets the same denial."""
    session = hosted()
    called(session, MAIN, "pick")
    again = called(session, MAIN, "pick")
    assert (again.sends, again.decision.failure and again.decision.failure.code) == (
        (),
        "call_settled",
    )
    first = called(session, WORK, "pick")
    assert called(session, WORK, "pick").decision.failure == first.decision.failure
    assert called(session, WORK, "pick").sends == ()


def test_an_id_of_an_earlier_turn_or_of_the_first_state() -> None:
    """It is not announced again either."""
    part = {"kind": "toolCall", "toolCall": {**about("X"), "status": "running"}}
    chat = {"resource": MAIN, "turns": [], "activeTurn": {"id": TURN, "responseParts": [part]}}
    session = hosted(chats=[chat], running=False)
    step = called(session, MAIN, "look")
    assert step.sends == ()
    assert "a call with this id is in the chat already" in str(step.decision.failure)
    session.dispatch(MAIN, {"type": "chat/turnComplete", "turnId": TURN, "duration": 1})
    start(session, MAIN)
    assert called(session, MAIN, "look").sends == ()


def test_a_call_of_a_turn_that_is_over() -> None:
    """It is denied, and nothing can be sent about it."""
    session = hosted(running=False)
    step = called(session, MAIN, "look")
    assert step.sends == ()
    assert "the turn it belongs to is not running" in str(step.decision.failure)


def test_a_call_needs_an_id_and_a_chat() -> None:
    """AHP names every call in a chat."""
    session = hosted()
    with pytest.raises(ValueError, match="the call has no id"):
        session.on_tool_call(MAIN, TURN, ToolCall(name="look"))
    with pytest.raises(WireError, match="no chat 'z'"):
        called(session, "z", "look")
    assert session.ready("z", "c1").refusal == "there is no such call in the running turn"
    assert session.ready(MAIN, "c9").refusal == "there is no such call in the running turn"
    with pytest.raises(WireError):
        session.chat_to_json("z")


def test_the_ledger_may_be_the_hosts_own() -> None:
    """Then it is shared with the host's other doors."""
    ledger = CallLedger(PolicyEngine())
    session = HostSession(ledger, SESSION, state())
    start(session, MAIN)
    called(session, MAIN, "look")
    assert ledger.state(MAIN, "c1") is CallState.HANDED_OUT


# Asking -------------------------------------------------------------------------------------


def test_a_call_that_asks() -> None:
    """Start names the client, Ready waits; a person's approval lets it run."""
    session = hosted(Asking())
    step = called(session, MAIN, "look", ask=True)
    assert step.decision.effect is Effect.ASK
    assert types(step) == ["toolCallStart", "toolCallReady"]
    assert step.sends[0].action["contributor"] == {"kind": "client", "clientId": "desk-1"}
    assert "confirmed" not in step.sends[1].action
    for early in (
        about("Ready", invocationMessage="x", confirmed="not-needed"),
        about("Complete", **result()),
    ):
        client = None if "confirmed" in early else "desk-1"
        waits = session.dispatch(MAIN, early, client)
        assert waits.refusal == "the call waits for a person's answer"
    confirmed = about("Confirmed", approved=True, confirmed="user-action")
    done = session.dispatch(MAIN, confirmed, "desk-1")
    assert types(done) == ["toolCallConfirmed", "inputNeededSet"]
    assert session.ledger.state(MAIN, "c1") is CallState.HANDED_OUT
    twice = session.dispatch(MAIN, confirmed, "desk-1")
    assert twice.refusal == "a call that is running does not take this action"


def test_a_call_that_a_person_refuses() -> None:
    """It ends as cancelled, the host's own way."""
    session = hosted(Asking())
    called(session, MAIN, "look", ask=True)
    no = about("Confirmed", approved=False, reason="denied", reasonMessage="too much")
    assert types(session.dispatch(MAIN, no, "desk-1")) == ["toolCallConfirmed"]
    assert status(session) == "cancelled"
    again = called(session, MAIN, "look", ask=True)
    assert again.sends == ()
    assert "too much" in str(again.decision.failure)


def test_a_client_that_cannot_run_it_fails_it_while_it_waits() -> None:
    """A failure needs no approval."""
    session = hosted(Asking())
    called(session, MAIN, "look", ask=True)
    step = session.dispatch(MAIN, about("Complete", **result(success=False)), "desk-1")
    assert types(step) == ["toolCallComplete"]


@pytest.mark.parametrize("arguments", [{"ask": True}, {}])
def test_an_edited_input_is_decided_again(arguments: Json) -> None:
    """What the person changed is a new form of the call: it may be denied."""
    session = hosted(Asking())
    called(session, MAIN, "look", **arguments)
    if not arguments:
        session.dispatch(MAIN, about("Ready", invocationMessage="Look?"))
    edit = about(
        "Confirmed", approved=True, confirmed="user-action", editedToolInput='{"danger": 1}'
    )
    step = session.dispatch(MAIN, edit, "desk-1")
    assert "it is dangerous" in str(step.refusal)
    assert types(step) == ["toolCallComplete"]
    assert step.sends[0].action["result"]["success"] is False
    assert [(one.chat, one.call_id) for one in step.ended] == [(MAIN, "c1")]
    assert status(session) == "completed"


def test_an_edited_input_that_is_allowed_runs() -> None:
    """The edit is what runs."""
    session = hosted(Asking())
    called(session, MAIN, "look", ask=True)
    edit = about("Confirmed", approved=True, confirmed="user-action", editedToolInput='{"b": 1}')
    step = session.dispatch(MAIN, edit, "desk-1")
    assert types(step) == ["toolCallConfirmed", "inputNeededSet"]
    assert step.sends[1].action["request"]["toolCall"]["toolInput"] == '{"b": 1}'


def test_an_edited_input_that_is_no_json_ends_the_call() -> None:
    """It is no arguments."""
    session = hosted(Asking())
    called(session, MAIN, "look", ask=True)
    step = session.dispatch(
        MAIN, about("Confirmed", approved=True, editedToolInput="{oops"), "desk-1"
    )
    assert step.sends[-1].action["result"]["error"]["code"] == "arguments_invalid"


def test_an_edited_input_may_raise_an_ask_of_its_own() -> None:
    """The new form is shown again and waits; a plain approval of that lets it run."""
    session = hosted(Asking())
    called(session, MAIN, "look")
    session.dispatch(MAIN, about("Ready", invocationMessage="Look?"))
    edit = about("Confirmed", approved=True, confirmed="user-action", editedToolInput='{"ask": 1}')
    step = session.dispatch(MAIN, edit, "desk-1")
    assert step.refusal == "this form of the call needs an answer of its own"
    assert types(step) == ["toolCallReady"]
    assert step.sends[0].action["toolInput"] == '{"ask": 1}'
    assert status(session) == "pending-confirmation"


def test_an_approval_of_a_call_that_waits_for_the_hosts_own_reasons() -> None:
    """Nothing is decided anew where nothing was edited."""
    session = hosted()
    called(session, MAIN, "look")
    session.dispatch(MAIN, about("Ready", invocationMessage="Look?"))
    confirmed = about("Confirmed", approved=True, confirmed="user-action")
    assert types(session.dispatch(MAIN, confirmed, "desk-1")) == [
        "toolCallConfirmed",
        "inputNeededSet",
    ]
    assert session.dispatch(MAIN, about("Confirmed", "z", approved=False)).refusal
    called(session, MAIN, "look", "c2")
    session.dispatch(MAIN, about("Ready", "c2", invocationMessage="Look?"))
    session.dispatch(MAIN, about("Confirmed", "c2", approved=False), "desk-1")
    assert status(session, MAIN, "c2") == "cancelled"
    assert session.ledger.state(MAIN, "c2") is CallState.CANCELLED


@pytest.mark.parametrize("tool", ["pick", "look"])
def test_a_waiting_call_of_the_first_state_is_decided_when_it_is_approved(tool: str) -> None:
    """A host that was started again decides before it lets anything run."""
    call = {
        **about("X"),
        "toolName": tool,
        "status": "pending-confirmation",
        "toolInput": "{}",
        "contributor": {"kind": "client", "clientId": "desk-1"},
    }
    turn = {"id": TURN, "responseParts": [{"kind": "toolCall", "toolCall": call}]}
    origin = {"kind": "tool", "chat": MAIN}
    chats = [{"resource": WORK, "turns": [], "activeTurn": turn, "origin": origin}]
    session = hosted(chats=chats, running=False)
    confirmed = about("Confirmed", approved=True, confirmed="user-action")
    step = session.dispatch(WORK, confirmed, "desk-1")
    if tool == "pick":
        assert types(step) == ["toolCallComplete"]
        assert step.refusal is not None
    else:
        assert types(step) == ["toolCallConfirmed", "inputNeededSet"]


def test_a_host_submits_a_call_that_waits_again() -> None:
    """Still asking, nothing is sent; denied meanwhile, it ends; answered, it goes on."""
    from toolscope.calls import answer_to

    session = hosted(Asking())
    step = called(session, MAIN, "look", ask=True)
    assert called(session, MAIN, "look", ask=True).sends == ()
    session.ledger.answer(answer_to(step.decision, allow=True, by="me"))
    assert types(called(session, MAIN, "look", ask=True)) == [
        "toolCallConfirmed",
        "inputNeededSet",
    ]
    step = called(session, MAIN, "look", "c2", ask=True)
    session.ledger.answer(answer_to(step.decision, allow=False, by="me"))
    assert types(called(session, MAIN, "look", "c2", ask=True)) == ["toolCallComplete"]
    step = called(session, MAIN, "look", "c3", ask=True)
    session.dispatch(MAIN, about("Complete", "c3", **result(success=False)), "desk-1")
    assert called(session, MAIN, "look", "c3", ask=True).sends == ()


# Asynchronously -----------------------------------------------------------------------------


def run_async(work: Any) -> Any:
    return anyio.run(work)


def test_awaitable_rules_are_awaited() -> None:
    """For calls as for edited inputs."""
    session = hosted(Slow())

    async def main() -> None:
        call = ToolCall(id="c1", name="look", arguments={"danger": 1})
        step = await session.on_tool_call_async(MAIN, TURN, call)
        assert types(step) == ["toolCallStart", "toolCallReady", "toolCallComplete"]
        step = await session.on_tool_call_async(MAIN, TURN, ToolCall(id="c2", name="look"))
        assert types(step) == ["toolCallStart"]
        await session.dispatch_async(MAIN, about("Ready", "c2", invocationMessage="Look?"))
        edit = about("Confirmed", "c2", approved=True, editedToolInput='{"danger": 1}')
        edited = await session.dispatch_async(MAIN, edit, "desk-1")
        assert types(edited) == ["toolCallComplete"]

    run_async(main)


@pytest.mark.parametrize("what", ["turn", "chat", "tool"])
def test_what_changes_while_a_call_is_decided(what: str) -> None:
    """The turn ends or the chat goes: nothing is sent. The tool goes: the call is denied."""

    async def main() -> None:
        released = anyio.Event()
        session = hosted(Slow(released))
        steps: list[CallStep] = []

        async def decide() -> None:
            call = ToolCall(id="c1", name="look")
            steps.append(await session.on_tool_call_async(MAIN, TURN, call))

        async with anyio.create_task_group() as group:
            group.start_soon(decide)
            await anyio.wait_all_tasks_blocked()
            if what == "turn":
                ended = {"type": "chat/turnComplete", "turnId": TURN, "duration": 1}
                session.dispatch(MAIN, ended)
            elif what == "chat":
                session.dispatch(SESSION, {"type": "session/chatRemoved", "chat": MAIN})
            else:
                gone = {"type": "session/activeClientRemoved", "clientId": "desk-1"}
                session.dispatch(SESSION, gone)
            released.set()
        failure = steps[0].decision.failure
        if what == "tool":
            assert types(steps[0]) == ["toolCallStart", "toolCallReady", "toolCallComplete"]
            assert "contributor" not in steps[0].sends[0].action
        else:
            assert steps[0].sends == ()
            assert "its turn ended before it was decided" in str(failure)
            assert session.ledger.state(MAIN, "c1") is CallState.CANCELLED

    run_async(main)


def test_a_call_whose_decision_is_cancelled_may_come_again() -> None:
    """Nothing was announced, so its id is free."""

    async def main() -> None:
        released = anyio.Event()
        session = hosted(Slow(released))
        call = ToolCall(id="c1", name="look")
        with anyio.move_on_after(0.01) as scope:
            await session.on_tool_call_async(MAIN, TURN, call)
        assert scope.cancelled_caught
        released.set()
        step = await session.on_tool_call_async(MAIN, TURN, call)
        assert types(step) == ["toolCallStart"]

    run_async(main)


def test_a_waiting_call_whose_new_decision_is_cancelled_still_waits() -> None:
    """It was announced before, so its id is not free."""

    async def main() -> None:
        slow = Slow()
        session = hosted(Asking(), slow)
        call = ToolCall(id="c1", name="look", arguments={"ask": 1})
        await session.on_tool_call_async(MAIN, TURN, call)
        slow.released = anyio.Event()
        with anyio.move_on_after(0.01):
            await session.on_tool_call_async(MAIN, TURN, call)
        assert status(session) == "pending-confirmation"
        slow.released.set()
        step = await session.on_tool_call_async(MAIN, TURN, call)
        assert (step.decision.effect, step.sends) == (Effect.ASK, ())

    run_async(main)


def test_a_call_ends_while_its_edit_is_decided() -> None:
    """The approval comes too late."""

    async def main() -> None:
        released = anyio.Event()
        session = hosted(slow)
        steps: list[Step] = []

        async def edit() -> None:
            action = about("Confirmed", approved=True, editedToolInput="{}")
            steps.append(await session.dispatch_async(MAIN, action, "desk-1"))

        await session.on_tool_call_async(MAIN, TURN, ToolCall(id="c1", name="look"))
        session.dispatch(MAIN, about("Ready", invocationMessage="Look?"))
        slow.released = released
        async with anyio.create_task_group() as group:
            group.start_soon(edit)
            await anyio.wait_all_tasks_blocked()
            session.dispatch(MAIN, about("Complete", **result(success=False)), "desk-1")
            released.set()
        assert steps[0].refusal == "the call ended meanwhile"

    slow = Slow()
    run_async(main)


# Tools and clients that change ---------------------------------------------------------------


def set_client(session: HostSession, client: Json) -> Step:
    action = {"type": "session/activeClientSet", "activeClient": client}
    return session.dispatch(SESSION, action, client["clientId"])


def leave(session: HostSession, client: str = "desk-1") -> Step:
    action = {"type": "session/activeClientRemoved", "clientId": client}
    return session.dispatch(SESSION, action, client)


def test_a_tool_goes_while_its_call_has_not_begun_to_run() -> None:
    """Streaming and waiting calls end in the step that takes the tool away; running ones go on."""
    session = hosted(Asking())
    called(session, WORK, "look", "streams")
    called(session, WORK, "look", "waits", ask=True)
    called(session, WORK, "look", "runs")
    session.ready(WORK, "runs")
    called(session, MAIN, "look", "elsewhere")
    step = set_client(session, desk({"name": "look", "availability": "userChats"}))
    assert types(step) == [
        "activeClientSet",
        "toolCallReady",
        "toolCallComplete",
        "toolCallComplete",
    ]
    assert [one.call_id for one in step.ended] == ["streams", "waits"]
    assert all("contributor" not in send.action for send in step.sends)
    assert "only available in chats that the user drives" in step.ended[0].failure.message
    assert [status(session, WORK, id_) for id_ in ("streams", "waits", "runs")] == [
        "completed",
        "completed",
        "running",
    ]
    assert status(session, MAIN, "elsewhere") == "streaming"


def test_calls_of_a_client_that_leaves() -> None:
    """They fail, Ready first where they stream, in every chat; later completions are refused."""
    session = hosted(Asking(), activeClients=[desk(), desk({"name": "look"}, id_="web-2")])
    called(session, MAIN, "pick", "streams")
    called(session, MAIN, "look", "waits", ask=True)
    called(session, WORK, "look", "runs")
    session.ready(WORK, "runs")
    called(session, WORK, "shell", "hosts")
    called(session, MAIN, "look", "shown")
    session.ready(MAIN, "shown")
    shown = about("Complete", "shown", requiresResultConfirmation=True, **result())
    session.dispatch(MAIN, shown, "desk-1")
    step = leave(session)
    assert types(step) == [
        "activeClientRemoved",
        "toolCallReady",
        "toolCallComplete",
        "toolCallComplete",
        "toolCallComplete",
        "inputNeededRemoved",
    ]
    messages = {one.call_id: one.failure.message for one in step.ended}
    assert messages == {
        "streams": "The client 'desk-1' left before it completed 'pick'.",
        "waits": "The client 'desk-1' left before it completed 'look'. Another provider offers "
        "'look': call it again to use that one.",
        "runs": "The client 'desk-1' left before it completed 'look'. Another provider offers "
        "'look': call it again to use that one.",
    }
    assert status(session, WORK, "hosts") == "streaming"
    assert status(session, MAIN, "shown") == "pending-result-confirmation"
    set_client(session, desk())
    late = session.dispatch(WORK, about("Complete", "runs", **result()), "desk-1")
    assert late.refusal == "a call that is completed does not take this action"
    assert session.ledger.state(WORK, "runs") is CallState.FAILED


FAILURE = Failure(code="tool_not_available", message="It is gone.")


@pytest.mark.parametrize(
    ("status", "actions"),
    [
        ("streaming", ["Ready", "Complete"]),
        ("pending-confirmation", ["Complete"]),
        ("running", ["Complete"]),
        ("auth-required", ["Complete"]),
        ("pending-result-confirmation", ["ResultConfirmed"]),
        ("completed", []),
        ("cancelled", []),
        ("future", []),
    ],
)
def test_what_ends_a_call_that_is_under_way(status: str, actions: list[str]) -> None:
    """Each status has its own shortest way, and a terminal one none."""
    call = {"status": status, "toolCallId": "c1", "toolName": "look", "success": True}
    sent = settling_actions(call, turn=TURN, failure=FAILURE)
    assert [one["type"].removeprefix("chat/toolCall") for one in sent] == actions
    assert "contributor" not in json.dumps(sent)
    assert "null" not in json.dumps(sent)
    if actions == ["ResultConfirmed"]:
        assert sent[0]["approved"] is False
        failed = settling_actions({**call, "success": False}, turn=TURN, failure=FAILURE)
        assert failed[0]["approved"] is True
    elif actions:
        assert sent[-1]["result"]["error"] == {
            "message": "It is gone.",
            "code": "tool_not_available",
        }


def test_a_running_call_can_be_settled() -> None:
    """The host decides whether a running call may finish; settling it sends the failure."""
    session = hosted()
    called(session, WORK, "look")
    session.ready(WORK, "c1")
    denied = called(session, WORK, "pick", "c2").decision
    step = session.settle(WORK, "c1", denied)
    assert types(step) == ["toolCallComplete", "inputNeededRemoved"]
    assert step.ended[0].failure is denied.failure
    for chat, call in ((WORK, "c1"), (WORK, "c9"), ("z", "c1")):
        assert session.settle(chat, call, denied) == Step()
    session.dispatch(WORK, {"type": "chat/turnComplete", "turnId": TURN, "duration": 1})
    assert session.settle(WORK, "c1", denied) == Step()
    allowed = called(session, MAIN, "look").decision
    with pytest.raises(ValueError, match="the decision is 'allow'; only a denied call is settled"):
        session.settle(MAIN, "c1", allowed)


def test_the_end_of_a_turn_takes_the_pending_requests_away() -> None:
    """What was not finished is cancelled, in the ledger too."""
    session = hosted()
    called(session, MAIN, "look")
    session.ready(MAIN, "c1")
    step = session.dispatch(MAIN, {"type": "chat/turnCancelled", "turnId": TURN, "duration": 1})
    assert types(step) == ["turnCancelled", "inputNeededRemoved"]
    assert session.ledger.state(MAIN, "c1") is CallState.CANCELLED


def test_a_truncated_chat_takes_the_running_turn_away() -> None:
    """Its open calls are cancelled, and nobody is asked to execute them any more."""
    session = hosted()
    called(session, MAIN, "look")
    session.ready(MAIN, "c1")
    called(session, MAIN, "made_up", "c2")
    step = session.dispatch(MAIN, {"type": "chat/truncated", "turnId": "unknown"})
    assert types(step) == ["truncated"]
    step = session.dispatch(MAIN, {"type": "chat/truncated"})
    assert types(step) == ["truncated", "inputNeededRemoved"]
    assert session.ledger.state(MAIN, "c1") is CallState.CANCELLED
    assert session.ledger.state(MAIN, "c2") is CallState.DENIED
    start(session, MAIN)
    assert called(session, MAIN, "look").sends == ()


def test_snapshots_are_copies() -> None:
    """What happens later is not in them, and what becomes of them changes nothing."""
    session = hosted()
    before = session.chat_to_json(MAIN)
    called(session, MAIN, "look")
    assert before["activeTurn"]["responseParts"] == []
    session.chat_to_json(MAIN)["activeTurn"]["responseParts"].clear()
    session.to_json()["chats"][0]["origin"]["kind"] = "x"
    assert status(session) == "streaming"
    assert session.to_json()["chats"][0]["origin"] == {"kind": "user"}


def test_a_chat_that_is_removed_takes_its_requests_away() -> None:
    """Of that chat only."""
    session = hosted()
    for chat in (MAIN, WORK):
        called(session, chat, "look")
        session.ready(chat, "c1")
    step = session.dispatch(SESSION, {"type": "session/chatRemoved", "chat": WORK})
    assert types(step) == ["chatRemoved", "inputNeededRemoved"]
    assert session.ledger.state(WORK, "c1") is CallState.CANCELLED
    assert len(session.to_json()["inputNeeded"]) == 1
    assert session.dispatch(SESSION, {"type": "session/chatRemoved", "chat": WORK}).refusal is None


# Who may dispatch what ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channel", "action", "refusal"),
    [
        (MAIN, about("Start", toolName="look", displayName="x"), "only the host dispatches"),
        (MAIN, about("Delta", content="x"), "only the host dispatches"),
        (MAIN, {"type": "chat/turnComplete", "turnId": TURN}, "only the host dispatches"),
        (MAIN, {"type": "chat/turnStarted", "turnId": "t2", "message": {}}, "a turn is running"),
        (MAIN, {"type": "chat/turnCancelled", "turnId": "t2"}, "no such turn is running"),
        (MAIN, about("Complete", "z", **result()), "no such call in the running turn"),
        (MAIN, about("Complete", turn="t2", **result()), "no such call in the running turn"),
        (MAIN, about("Confirmed", approved=True), "a call that is streaming does not take"),
        (MAIN, about("Complete", **result()), "a call that is streaming does not take"),
        ("ahp-chat:/z", about("Complete", **result()), "there is no such chat"),
        (MAIN, {"type": 7}, "the action cannot be read: $.type: 7 is a number"),
        (SESSION, {"type": "session/serverToolsChanged", "tools": []}, "only the host"),
        (SESSION, {"type": "session/activeClientRemoved", "clientId": "b"}, "for itself only"),
        (
            SESSION,
            {"type": "session/activeClientSet", "activeClient": {"clientId": "b", "tools": []}},
            "for itself only",
        ),
        (
            SESSION,
            {"type": "session/activeClientSet", "activeClient": {"clientId": "desk-1"}},
            "$.activeClient.tools: it is missing",
        ),
    ],
)
def test_what_a_client_may_not_dispatch(channel: str, action: Json, refusal: str) -> None:
    """The reason says so, and nothing changes."""
    session = hosted()
    called(session, MAIN, "look")
    before = (session.to_json(), session.chat_to_json(MAIN))
    step = session.dispatch(channel, action, "desk-1")
    assert refusal in str(step.refusal)
    assert step.sends == ()
    assert (session.to_json(), session.chat_to_json(MAIN)) == before


@pytest.mark.parametrize(
    ("channel", "action", "refusal"),
    [
        (MAIN, about("Start", "c2", toolName="look"), "announced by what on_tool_call gives"),
        (
            MAIN,
            {"type": "chat/responsePart", "turnId": TURN, "part": {"kind": "toolCall"}},
            "announced by what on_tool_call gives",
        ),
        (
            MAIN,
            about("Ready", contributor={"kind": "client", "clientId": "b"}, confirmed="setting"),
            "who executes a call is settled by its start",
        ),
        (
            SESSION,
            {"type": "session/inputNeededSet", "request": {"kind": "toolClientExecution"}},
            "execution requests follow from the calls",
        ),
        (SESSION, {"type": "session/chatUpdated", "chat": "z", "changes": {}}, "no such chat"),
    ],
)
def test_what_the_host_may_not_dispatch(channel: str, action: Json, refusal: str) -> None:
    """What follows from the calls, and what would name a client without a decision."""
    session = hosted()
    called(session, MAIN, "look")
    assert refusal in str(session.dispatch(channel, action).refusal)


def test_other_actions_pass() -> None:
    """Text, drafts, titles and unknown actions are no business of tools."""
    session = hosted()
    markdown = {"kind": "markdown", "id": "p", "content": "hello"}
    for channel, action in (
        (MAIN, {"type": "chat/responsePart", "turnId": TURN, "part": markdown}),
        (MAIN, {"type": "chat/draftChanged", "draft": {"text": "x"}}),
        (SESSION, {"type": "session/titleChanged", "title": "T"}),
        (SESSION, {"type": "future/thing", "id": "x"}),
    ):
        step = session.dispatch(channel, action)
        assert step == Step(sends=(Send(channel=channel, action=action),))
    assert session.chat_to_json(MAIN)["activeTurn"]["responseParts"] == [markdown]


def test_what_a_client_may_leak_with_a_result() -> None:
    """Reducers copy the result onto the call: only the protocol's keys pass, and no null."""
    session = hosted()
    called(session, MAIN, "look")
    session.ready(MAIN, "c1")
    leak = result(status="running", contributor={"kind": "client"}, error=None, content=[])
    step = session.dispatch(MAIN, about("Complete", **leak), "desk-1")
    assert step.sends[0].action["result"] == {
        "success": True,
        "pastTenseMessage": "Done",
        "content": [],
    }
    called(session, MAIN, "look", "c2")
    session.ready(MAIN, "c2")
    step = session.dispatch(MAIN, about("Complete", "c2"), "desk-1")
    assert step.sends[0].action["result"] == {"success": False}


def test_only_the_owner_streams_content() -> None:
    """As with completion."""
    session = hosted()
    called(session, MAIN, "look")
    session.ready(MAIN, "c1")
    content = about("ContentChanged", content=[])
    assert session.dispatch(MAIN, content, "web-2").refusal is not None
    assert types(session.dispatch(MAIN, content, "desk-1")) == ["toolCallContentChanged"]


def test_the_hosts_own_requests_for_input() -> None:
    """They are kept beside the execution requests."""
    session = hosted(inputNeeded=[{"id": "q0", "kind": "chatInput"}])
    request = {"id": "q1", "kind": "toolConfirmation"}
    session.dispatch(SESSION, {"type": "session/inputNeededSet", "request": request})
    session.dispatch(SESSION, {"type": "session/inputNeededRemoved", "id": "q0"})
    assert session.to_json()["inputNeeded"] == [request]
    called(session, MAIN, "look")
    session.ready(MAIN, "c1")
    ids = [one["id"] for one in session.to_json()["inputNeeded"]]
    assert ids == ["q1", f"{MAIN}#c1"]
    removed = {"type": "session/inputNeededRemoved", "id": f"{MAIN}#c1"}
    assert session.dispatch(SESSION, removed).refusal is not None


# Origins ------------------------------------------------------------------------------------


def added(uri: str, kind: str | None, **members: Any) -> Json:
    origin = {} if kind is None else {"origin": {"kind": kind, **members}}
    return {"type": "session/chatAdded", "summary": {"resource": uri, **origin}}


def updated(uri: str, **changes: Any) -> Json:
    return {"type": "session/chatUpdated", "chat": uri, "changes": changes}


@pytest.mark.parametrize("kind", ["fork", "tool", None])
def test_a_users_chat_stays_one(kind: str | None) -> None:
    """How a chat came to exist does not change in the other direction either."""
    session = hosted()
    step = session.dispatch(SESSION, added(MAIN, kind))
    assert step.refusal == "the origin of this chat is 'user' and stays so"
    assert len(session.refused) == 1


@pytest.mark.parametrize(
    "action",
    [
        added(WORK, "user"),
        added(WORK, None),
        added(WORK, "dream", chat=MAIN, toolCallId="spawn"),
        added(WORK, "tool", chat="ahp-chat:/other", toolCallId="spawn"),
        updated(WORK, origin={"kind": "user"}),
        updated(WORK, origin={"kind": "fork", "chat": MAIN}),
    ],
)
def test_a_workers_origin_stays(action: Json) -> None:
    """A change of it is refused and recorded, also after the chat was removed."""
    session = hosted()
    step = session.dispatch(SESSION, action)
    assert step.refusal == "the origin of this chat is 'tool' and stays so"
    assert [fault.problem for fault in session.refused] == [step.refusal]
    assert [tool.name for tool in session.tools(WORK)] == ["shell", "look"]
    session.dispatch(SESSION, {"type": "session/chatRemoved", "chat": WORK})
    assert session.dispatch(SESSION, action).refusal is not None


def test_other_changes_of_a_chat() -> None:
    """A title may change, and an origin may be said again, or for the first time."""
    session = hosted()
    again = {"kind": "tool", "chat": MAIN, "toolCallId": "spawn"}
    assert session.dispatch(SESSION, updated(WORK, title="W", origin=again)).refusal is None
    assert session.dispatch(SESSION, updated(WORK, origin=None)).refusal is None  # is absent
    assert session.chat_to_json(WORK)["title"] == "W"
    assert session.dispatch(SESSION, added(MAIN, "user")).refusal is None
    assert session.dispatch(SESSION, added("ahp-chat:/new", None)).refusal is None
    assert session.dispatch(SESSION, added("ahp-chat:/new", "user")).refusal is None
    assert session.chats["ahp-chat:/new"].origin == "user"
    assert session.refused == ()


# Agents -------------------------------------------------------------------------------------


AGENT = {"type": "agent", "id": "a", "uri": "u", "name": "Reader", "tools": ["look"]}


def test_the_agent_that_a_turn_selects() -> None:
    """From the turn's beginning on, also for the workers that its calls name."""
    session = hosted(
        running=False, customizations=[{"type": "plugin", "id": "p", "children": [AGENT]}]
    )
    message = {"text": "go", "agent": {"uri": "u"}}
    session.dispatch(MAIN, {"type": "chat/turnStarted", "turnId": TURN, "message": message})
    assert [tool.name for tool in session.tools(MAIN)] == ["look"]
    off = {"type": "session/customizationToggled", "id": "a", "enabled": False}
    session.dispatch(SESSION, off)
    assert list(session.tools(MAIN)) == []
    assert len(session.errors) == 1
    broken = session.dispatch(SESSION, {"type": "session/customizationUpdated"})
    assert "$.customization: it is missing" in str(broken.refusal)
    session.dispatch(SESSION, {**off, "enabled": True})
    assert [tool.name for tool in session.tools(MAIN)] == ["look"]
    session.dispatch(MAIN, {"type": "chat/turnComplete", "turnId": TURN, "duration": 1})
    session.dispatch(SESSION, {"type": "session/customizationsChanged", "customizations": []})
    assert list(session.tools(MAIN)) == []


def test_a_worker_is_named_an_agent_by_its_spawning_call() -> None:
    """In a running turn, and when that turn is over."""
    session = hosted(customizations=[AGENT])
    called(session, MAIN, "shell", "spawn")
    session.ready(MAIN, "spawn")
    block = {"type": "subagent", "resource": WORK, "agentName": "Reader"}
    session.dispatch(MAIN, about("ContentChanged", "spawn", content=[{"type": "text"}]))
    assert session.chats[WORK].agent is None
    session.dispatch(MAIN, about("ContentChanged", "spawn", content=[block]))
    assert [tool.name for tool in session.tools(WORK)] == ["look"]
    session.dispatch(MAIN, about("Complete", "spawn", **result(content=[block])))
    for turn in ("t2", "t3"):
        running = session.chat_to_json(MAIN)["activeTurn"]["id"]
        session.dispatch(MAIN, {"type": "chat/turnComplete", "turnId": running, "duration": 1})
        start(session, MAIN, turn)
    assert [tool.name for tool in session.tools(WORK)] == ["look"]


# --------------------------------------------------------------------------------------------
# What was decided is what runs
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments"), [("look", {"ask": 1, "path": "/etc"}), ("look", {}), ("shell", {})]
)
def test_an_id_that_comes_back_for_another_call_confirms_nothing(
    tool: str, arguments: dict[str, Any]
) -> None:
    """Neither other arguments nor another tool answer the ask about this call."""
    session = hosted(Asking())
    called(session, MAIN, "look", ask=1)
    step = called(session, MAIN, tool, **arguments)
    assert step.sends == ()
    assert code_of(step.decision) == "call_settled"
    assert status(session) == "pending-confirmation"


def code_of(decision: Decision) -> str | None:
    return None if decision.failure is None else str(decision.failure.code)


def test_the_host_makes_ready_what_was_decided() -> None:
    """No other arguments; where it names none, they are filled in."""
    given: list[dict[str, Any]] = [{}, {"ask": 1}]
    for arguments in given:
        session = hosted(Asking())
        called(session, MAIN, "look", **arguments)
        other = about("Ready", invocationMessage="Look?", toolInput='{"path": "/etc"}')
        refusal = "the arguments of a call are those that were decided"
        assert session.dispatch(MAIN, other).refusal == refusal
        step = session.dispatch(MAIN, about("Ready", invocationMessage="Look?"))
        assert json.loads(step.sends[0].action["toolInput"]) == arguments


class ReadOnly:
    """Denies what changes something."""

    name = "read-only"

    @hookimpl
    def on_tool_call(self, tool: Tool) -> Verdict | None:
        return None if tool.annotations.read_only else deny("nothing is changed here")


@pytest.mark.parametrize("read_only", [True, False])
def test_a_tool_that_changes_before_its_call_is_made_ready_is_decided_again(
    read_only: bool,
) -> None:
    """What is true of it by then counts."""
    session = hosted(
        ReadOnly(), activeClients=[desk({"name": "look", "annotations": {"readOnlyHint": True}})]
    )
    called(session, MAIN, "look")
    changed = {"name": "look", "description": "x", "annotations": {"readOnlyHint": read_only}}
    set_ = {"type": "session/activeClientSet", "activeClient": desk(changed)}
    session.dispatch(SESSION, set_, "desk-1")
    step = session.ready(MAIN, "c1")
    if read_only:
        assert step.refusal is None
        assert status(session) == "running"
    else:
        assert "nothing is changed here" in str(step.refusal)
        assert [one.call_id for one in step.ended] == ["c1"]


@pytest.mark.parametrize("approved", [True, False])
def test_an_allowed_call_that_is_edited_into_one_that_asks(approved: bool) -> None:
    """It was handed out already: the person who edited it answers, and a refusal ends it."""
    session = hosted(Asking())
    called(session, MAIN, "look")
    session.dispatch(MAIN, about("Ready", invocationMessage="Look?"))
    edit = about("Confirmed", approved=True, confirmed="user-action", editedToolInput='{"ask": 1}')
    assert session.dispatch(MAIN, edit, "desk-1").refusal
    answer = about("Confirmed", approved=approved, confirmed="user-action", reason="denied")
    step = session.dispatch(MAIN, answer, "desk-1")
    assert step.refusal is None
    assert status(session) == ("running" if approved else "cancelled")


class Unreadable(MemoryStore):
    """A store that fails once it is told to."""

    broken = False

    def get(self, key: Key) -> Record | None:
        if self.broken:
            raise LedgerError("the disk is gone")
        return super().get(key)


def test_an_end_that_cannot_be_recorded_is_sent_all_the_same() -> None:
    """The action happened; the ledger holds the call as handed out, so it does not run again."""
    store = Unreadable()
    session = HostSession(CallLedger(PolicyEngine(), store), SESSION, state())
    start(session, MAIN)
    called(session, MAIN, "look")
    session.ready(MAIN, "c1")
    store.broken = True
    step = session.dispatch(MAIN, about("Complete", **result()), "desk-1")
    assert types(step) == ["toolCallComplete", "inputNeededRemoved"]
    store.broken = False
    assert session.ledger.state(MAIN, "c1") is CallState.HANDED_OUT


def test_a_turn_that_ends_while_a_changed_tool_is_decided_again() -> None:
    """The Ready comes too late."""
    waits = Slow()
    session = hosted(waits)

    async def main() -> None:
        await session.on_tool_call_async(MAIN, TURN, ToolCall(id="c1", name="look"))
        slow = anyio.Event()
        waits.released = slow
        set_ = {
            "type": "session/activeClientSet",
            "activeClient": desk({"name": "look", "description": "Looks twice."}),
        }
        session.dispatch(SESSION, set_, "desk-1")
        steps: list[Step] = []

        async def make_ready() -> None:
            ready = about("Ready", invocationMessage="Look?", confirmed="not-needed")
            steps.append(await session.dispatch_async(MAIN, ready))

        async with anyio.create_task_group() as group:
            group.start_soon(make_ready)
            await anyio.wait_all_tasks_blocked()
            ended = {"type": "chat/turnComplete", "turnId": TURN, "duration": 1}
            session.dispatch(MAIN, ended)
            slow.set()
        assert (steps[0].refusal, steps[0].sends) == ("the call ended meanwhile", ())

    run_async(main)


def test_an_answer_that_the_ledger_cannot_place_runs_nothing() -> None:
    """A ledger that forgot the call refuses the yes, and the call can still be refused."""
    store = MemoryStore()
    session = HostSession(CallLedger(PolicyEngine([Asking()]), store), SESSION, state())
    start(session, MAIN)
    called(session, MAIN, "look", ask=1)
    key = ("call", MAIN, "c1")
    store.swap(key, store.get(key), None)
    yes = about("Confirmed", approved=True, confirmed="user-action")
    assert "waits for no answer" in str(session.dispatch(MAIN, yes, "desk-1").refusal)
    assert status(session) == "pending-confirmation"
    no = about("Confirmed", approved=False, reason="denied")
    assert session.dispatch(MAIN, no, "desk-1").refusal is None
    assert status(session) == "cancelled"


def test_customizations_come_change_and_go() -> None:
    """One that is new is added, a known one replaced, and a child goes from its parent."""
    session = hosted(running=False)

    def now() -> Any:
        return session.to_json().get("customizations")

    def updated(customization: Json) -> None:
        action = {"type": "session/customizationUpdated", "customization": customization}
        assert session.dispatch(SESSION, action).refusal is None

    other: Json = {"type": "plugin", "id": "o"}
    plugin: Json = {"type": "plugin", "id": "p", "children": [AGENT]}
    updated(other)
    updated(plugin)
    assert now() == [other, plugin]
    renamed = {**plugin, "title": "Plugin"}
    updated(renamed)
    assert now() == [other, renamed]
    session.dispatch(SESSION, {"type": "session/customizationRemoved", "id": AGENT["id"]})
    assert now() == [other, {**renamed, "children": []}]
    session.dispatch(SESSION, {"type": "session/customizationRemoved", "id": "p"})
    assert now() == [other]
