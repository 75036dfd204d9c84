"""LangChain: asks are interrupts, and how they meet the host's own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    HumanInTheLoopMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt

from tests.hosts.langchain_support import (
    GO,
    PICK,
    READ,
    Asks,
    codes,
    made,
    make_tool,
    results,
    scripted,
    thread,
)
from tests.hosts.matrix import Call, ToolSpec
from toolscope import PolicyEngine, Scope, Tool, Verdict, ask, hookimpl
from toolscope.calls import CallLedger
from toolscope.hosts import ORIGIN_KEY
from toolscope.hosts.langchain import Toolscope, attach, coverage
from toolscope.stores import SQLiteStore

REFUND = [[Call(tool="refund", arguments={"value": "5"})]]
CAN_ASK = Scope(can_ask=True)


@pytest.mark.parametrize(("scope", "checkpointer"), [(CAN_ASK, None), (Scope(), InMemorySaver())])
def test_nobody_can_be_asked(scope: Scope, checkpointer: Any) -> None:
    """Without a checkpointer, or where the scope says so, an ask fails at once."""
    executed: list[str] = []
    agent, _ = made(
        REFUND,
        make_tool(ToolSpec(name="refund"), executed),
        policy=PolicyEngine([Asks()]),
        scope=scope,
        checkpointer=checkpointer,
    )
    state = agent.invoke(GO, thread())
    assert codes(state) == ["approval_unavailable"]
    assert executed == []


def asking(
    *extra: BaseTool, policy: Any = None, turns: Any = REFUND, **more: Any
) -> tuple[Any, list[str]]:
    executed: list[str] = []
    agent, _ = made(
        turns,
        make_tool(ToolSpec(name="refund"), executed),
        *extra,
        policy=policy or PolicyEngine([Asks()]),
        scope=CAN_ASK,
        checkpointer=InMemorySaver(),
        **more,
    )
    return agent, executed


def test_the_question_has_the_host_s_own_form() -> None:
    """An ask is a ``tool_approval`` interrupt, as LangChain's own middleware raises it."""
    agent, executed = asking()
    (put,) = agent.invoke(GO, thread())["__interrupt__"]
    assert put.value == {
        "type": "tool_approval",
        "tool_call_id": "0",
        "name": "refund",
        "args": {"value": "5"},
        "description": "a refund needs a person",
    }
    state = agent.invoke(Command(resume={"type": "reject", "message": "not today"}), thread())
    assert "not today" in results(state)[0].text
    assert codes(state) == ["approval_refused"]
    assert executed == []


def test_an_answer_of_another_form_is_none() -> None:
    """It is refused before it is saved, and the question can be answered again."""
    agent, executed = asking()
    agent.invoke(GO, thread())
    with pytest.raises(ValueError, match="type"):
        agent.invoke(Command(resume=True), thread())
    assert executed == []
    agent.invoke(Command(resume={"type": "approve"}), thread())
    assert executed == ["refund"]


def test_an_answer_counts_for_its_own_question() -> None:
    """A policy that asks something else by now asks again; the old answer is passed over."""
    engines = [PolicyEngine([Asks()])]
    agent, executed = asking(policy=lambda: engines[-1])
    agent.invoke(GO, thread())
    engines.append(PolicyEngine([Asks("a second pair of eyes is needed")]))
    state = agent.invoke(Command(resume={"type": "approve"}), thread())
    assert executed == []
    (put,) = state["__interrupt__"]
    assert put.value["description"] == "a second pair of eyes is needed"
    agent.invoke(Command(resume={"type": "approve"}), thread())
    assert executed == ["refund"]


@pytest.mark.parametrize("shared", [True, False])
def test_a_run_is_resumed_in_another_process(shared: bool, tmp_path: Path) -> None:
    """What holds the state of the run is the checkpointer, with or without a ledger for both."""
    saver = InMemorySaver()
    stores: list[SQLiteStore] = []

    def process() -> tuple[Any, list[str]]:
        executed: list[str] = []
        engine = PolicyEngine([Asks()])
        store = None
        if shared:
            store = SQLiteStore(str(tmp_path / "ledger.db"))
            stores.append(store)
        agent, _ = made(
            REFUND,
            make_tool(ToolSpec(name="refund"), executed),
            policy=CallLedger(engine, store),
            scope=CAN_ASK,
            checkpointer=saver,
        )
        return agent, executed

    process()[0].invoke(GO, thread())
    agent, executed = process()
    state = agent.invoke(Command(resume={"type": "approve"}), thread())
    assert executed == ["refund"]
    assert results(state)[0].status == "success"
    for store in stores:
        store.close()


def test_parallel_asks_are_answered_each_by_itself() -> None:
    """Two calls of one message are two questions; refusing one leaves the other."""
    turns = [[Call(tool="refund", arguments={"value": v}) for v in "ab"]]
    agent, executed = asking(turns=turns)
    puts = agent.invoke(GO, thread())["__interrupt__"]
    answers = {
        put.id: {"type": "approve" if put.value["args"]["value"] == "a" else "reject"}
        for put in puts
    }
    state = agent.invoke(Command(resume=answers), thread())
    assert executed == ["refund"]
    assert [one.status for one in results(state)] == ["success", "error"]


def test_a_tool_that_interrupts_goes_on_when_it_is_answered() -> None:
    """The host runs the call anew with the answer; that is no second call."""
    heard: list[str] = []

    @tool
    def form() -> str:
        """Asks by itself."""
        heard.append(interrupt("name?"))
        return "filled"

    agent, _ = asking(form, turns=[[Call(tool="form")]])
    agent.invoke(GO, thread())
    state = agent.invoke(Command(resume="Ada"), thread())
    assert heard == ["Ada"]
    assert results(state)[0].text == "filled"


def test_a_worker_s_ask_reaches_the_person_of_its_boss() -> None:
    """The interrupt travels up through the boss's tool, and the answer down."""
    engine = PolicyEngine([Asks()])
    ledger = CallLedger(engine)
    create = attach(create_agent, ledger, scope=CAN_ASK)
    executed: list[str] = []
    worker = create(scripted(REFUND), [make_tool(ToolSpec(name="refund"), executed)], name="worker")

    @tool
    def delegate() -> str:
        """Delegates."""
        return str(worker.invoke(GO)["messages"][-1].text)

    boss = create(scripted([[Call(tool="delegate")]]), [delegate], checkpointer=InMemorySaver())
    (put,) = boss.invoke(GO, thread())["__interrupt__"]
    assert put.value["name"] == "refund"
    state = boss.invoke(Command(resume={"type": "approve"}), thread())
    assert executed == ["refund"]
    assert results(state)[0].text == "done"


def review(interrupts: Any, decision: Mapping[str, Any]) -> Command[Any]:
    return Command(resume={one.id: {"decisions": [decision]} for one in interrupts})


def test_the_host_s_own_review_comes_before_the_policy() -> None:
    """A person may be asked about a withheld tool; approved, it is denied all the same."""
    executed: list[str] = []
    hitl: Any = HumanInTheLoopMiddleware({"pick_file": True})
    agent, _ = made(
        [[Call(tool="pick_file")]],
        make_tool(PICK, executed),
        middleware=[hitl],
        checkpointer=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": "1", ORIGIN_KEY: "tool"}}
    put = agent.invoke(GO, config)["__interrupt__"]
    state = agent.invoke(review(put, {"type": "approve"}), config)
    assert executed == []
    assert codes(state) == ["tool_not_available"]


@pytest.mark.parametrize("last", [True, False])
def test_a_reviewer_s_edit_is_decided_as_edited(last: bool) -> None:
    """Whether the edit is applied above or below us, a withheld tool is not reached by it."""
    executed: list[str] = []
    hitl: Any = HumanInTheLoopMiddleware({"read_doc": True})
    ours = Toolscope(PolicyEngine())
    agent = create_agent(
        scripted([[Call(tool="read_doc")]]),
        [make_tool(PICK, executed), make_tool(READ, executed)],
        middleware=[hitl, ours] if last else [ours, hitl],
        checkpointer=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": "1", ORIGIN_KEY: "tool"}}
    put = agent.invoke(GO, config)["__interrupt__"]
    edit = {"type": "edit", "edited_action": {"name": "pick_file", "args": {}}}
    agent.invoke(review(put, edit), config)
    assert executed == []


# --------------------------------------------------------------------------------------------
# Whose answer it is
# --------------------------------------------------------------------------------------------

YES, NO = {"type": "approve"}, {"type": "reject", "message": "no"}


class AsksAbout:
    """Asks about the tool of this name."""

    def __init__(self, name: str) -> None:
        self.name, self._about = f"asks-about-{name}", name

    @hookimpl
    def on_tool_call(self, tool: Tool) -> Verdict | None:
        return ask("it needs a person") if tool.name == self._about else None


@pytest.mark.parametrize("whole", [True, False])
def test_calls_that_share_a_task_do_not_share_an_answer(whole: bool) -> None:
    """LangGraph gives the answers of a task in order: the first is not the second call's."""
    executed: list[str] = []
    both = AIMessage(
        "", tool_calls=[{"name": "refund", "args": {"value": v}, "id": v} for v in "ab"]
    )

    @tool
    def refund(value: str) -> str:
        """Refunds."""
        executed.append(value)
        return "ran"

    def route(state: Any) -> Any:
        message = state["messages"][-1]
        calls = [{**one, "type": "tool_call"} for one in message.tool_calls]
        return [Send("tools", {"messages": [message]} if whole else calls)]

    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [both]})
    node = Toolscope(PolicyEngine([AsksAbout("refund")]), scope=CAN_ASK).tool_node([refund])
    graph.add_node("tools", node)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", route, ["tools"])
    agent = graph.compile(checkpointer=InMemorySaver())
    state = agent.invoke(GO, thread())
    for answer in (YES, NO):
        if "__interrupt__" in state:
            state = agent.invoke(Command(resume=answer), thread())
    assert executed in ([], ["a"])
    assert results(state)[-1].status == "error"


def test_the_answer_to_a_tool_is_no_answer_to_the_policy() -> None:
    """A policy that asks by now puts its own question; the tool's person did not answer that."""
    started: list[str] = []
    engines = [PolicyEngine()]

    @tool
    def form() -> str:
        """Asks by itself."""
        started.append("form")
        interrupt("really?")
        return "filled"

    agent, _ = asking(form, turns=[[Call(tool="form")]], policy=lambda: engines[-1])
    agent.invoke(GO, thread())
    engines.append(PolicyEngine([AsksAbout("form")]))
    (put,) = agent.invoke(Command(resume=YES), thread())["__interrupt__"]
    assert put.value["description"] == "it needs a person"
    assert started == ["form"]


def test_the_answer_to_the_policy_is_no_answer_to_the_tool() -> None:
    """Where the policy does not ask any more, its answer is passed over."""
    heard: list[object] = []
    engines = [PolicyEngine([AsksAbout("form")])]

    @tool
    def form() -> str:
        """Asks by itself."""
        heard.append(interrupt("delete everything?"))
        return "filled"

    agent, _ = asking(form, turns=[[Call(tool="form")]], policy=lambda: engines[-1])
    agent.invoke(GO, thread())
    agent.invoke(Command(resume=YES), thread())
    engines.append(PolicyEngine())
    agent.invoke(Command(resume="no"), thread())
    assert heard == ["no"]


@pytest.mark.parametrize("part", ["description", "metadata"])
def test_an_answer_is_about_the_definition_that_was_shown(part: str) -> None:
    """A tool that was changed since is asked about anew."""
    executed: list[str] = []
    refund = make_tool(ToolSpec(name="refund"), executed)
    agent, _ = made(
        REFUND,
        refund,
        policy=PolicyEngine([Asks()]),
        scope=CAN_ASK,
        checkpointer=InMemorySaver(),
    )
    agent.invoke(GO, thread())
    refund.description = "Wires money abroad."
    if part == "metadata":
        refund.metadata = {"team": "b"}
    state = agent.invoke(Command(resume=YES), thread())
    assert (len(state["__interrupt__"]), executed) == (1, [])
    agent.invoke(Command(resume=YES), thread())
    assert executed == ["refund"]


def test_a_retry_is_asked_about_anew() -> None:
    """One approval is for one execution, and a refusal runs nothing."""
    executed: list[str] = []

    @tool
    def refund(value: str) -> str:
        """Refunds."""
        executed.append(value)
        raise RuntimeError("the bank is closed")

    agent, _ = made(
        REFUND,
        refund,
        policy=PolicyEngine([Asks()]),
        scope=CAN_ASK,
        checkpointer=InMemorySaver(),
        middleware=[ToolRetryMiddleware(max_retries=1, initial_delay=0)],
    )
    agent.invoke(GO, thread())
    state = agent.invoke(Command(resume=YES), thread())
    assert (len(state["__interrupt__"]), executed) == (1, ["5"])
    state = agent.invoke(Command(resume=NO), thread())
    assert (codes(state), executed) == (["approval_refused"], ["5"])


class KeepsEdits(AgentMiddleware[Any, Any, Any]):
    """Keeps a reviewer's edits in the state, and applies none."""

    class state_schema(AgentState[Any]):
        hitl_edited_tool_calls: dict[str, Any]


def test_an_edit_that_nobody_applies_permits_no_other_tool() -> None:
    """The call in the request must be permitted as well as the one that an edit makes of it."""
    executed: list[str] = []
    agent, _ = made(
        [[Call(tool="pick_file")]],
        make_tool(PICK, executed),
        make_tool(READ, executed),
        scope=Scope(origin="tool"),
        middleware=[KeepsEdits()],
    )
    edits = {"0": {"name": "read_doc", "args": {}, "id": "0", "type": "tool_call"}}
    state = agent.invoke({**GO, "hitl_edited_tool_calls": edits})
    assert (codes(state), executed) == (["tool_not_available"], [])


def test_what_may_change_a_call_after_it_was_decided_is_listed() -> None:
    """A middleware of the user's below, and a review that applies its edits there."""

    class Changing(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return handler(request)

    ours = Toolscope(PolicyEngine())
    for below, listed in (
        (Changing(), 1),
        (HumanInTheLoopMiddleware({"read_doc": True}, interrupt_mode="per_call"), 1),
        (HumanInTheLoopMiddleware({"read_doc": True}), 0),
    ):
        agent = create_agent(scripted([]), [make_tool(READ, [])], middleware=[ours, below])
        found = [one for one in coverage(agent) if "is not decided" in one]
        assert len(found) == listed
