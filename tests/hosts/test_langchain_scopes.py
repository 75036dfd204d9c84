"""LangChain: scopes of nested runs, bare LangGraph, and what `coverage` finds."""

import asyncio
import contextvars
import logging
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.pregel.remote import RemoteGraph
from langgraph.types import Command

from tests.hosts.langchain_support import (
    GO,
    PICK,
    READ,
    WORKER,
    Asks,
    Scripted,
    codes,
    made,
    make_tool,
    scripted,
    thread,
)
from tests.hosts.matrix import Call, ToolSpec
from toolscope import Origin, PolicyEngine, Scope, Tool, hookimpl, scopes
from toolscope.calls import CallLedger
from toolscope.hosts import ORIGIN_KEY
from toolscope.hosts.langchain import Toolscope, attach, coverage

# --------------------------------------------------------------------------------------------
# Scopes
# --------------------------------------------------------------------------------------------


class Sees:
    """Records the scope of each call by tool name."""

    name = "sees"

    def __init__(self) -> None:
        self.scopes: dict[str, Scope] = {}

    @hookimpl
    def on_tool_call(self, tool: Tool, scope: Scope) -> None:
        self.scopes[tool.name] = scope


def test_a_worker_below_an_open_boss_is_still_a_worker() -> None:
    """LangGraph's namespace tells that a tool started the run, whoever runs the tool."""
    executed: list[str] = []
    model = scripted([[Call(tool="pick_file")]])
    worker = attach(create_agent, PolicyEngine())(model, [make_tool(PICK, executed)])

    @tool
    def delegate() -> str:
        """Delegates."""
        return str(worker.invoke(GO, {"configurable": {ORIGIN_KEY: "user"}})["messages"][-1].text)

    create_agent(scripted([[Call(tool="delegate")]]), [delegate]).invoke(GO)
    assert model.listed[0] == ()
    assert executed == []


def test_nested_runs_know_their_ancestry() -> None:
    """A worker's worker has both chats above it, nearest first, and no sibling is touched."""
    sees = Sees()
    create = attach(create_agent, PolicyEngine([sees]), scope=Scope(origin="user"))

    def level(name: str, *below: Any) -> Any:
        @tool
        def delegate() -> str:
            """Delegates."""
            return str(below[0].invoke(GO)["messages"][-1].text) if below else "end"

        delegate.name = f"{name}_delegate"
        beside = make_tool(ToolSpec(name=f"{name}_beside"), [])
        turns = [[Call(tool=f"{name}_delegate"), Call(tool=f"{name}_beside")]]
        return create(scripted(turns), [delegate, beside], name=name)

    level("boss", level("worker", level("helper"))).invoke(GO)
    ways = {
        name: [scope.origin, *((one.origin, one.agent) for one in scope.ancestry)]  # type: ignore[union-attr]
        for name, scope in sees.scopes.items()
    }
    boss: list[Any] = [Origin.USER]
    worker = [Origin.TOOL, (Origin.USER, "boss")]
    helper = [Origin.TOOL, (Origin.TOOL, "worker"), (Origin.USER, "boss")]
    assert ways == {
        "boss_delegate": boss, "boss_beside": boss,
        "worker_delegate": worker, "worker_beside": worker,
        "helper_delegate": helper, "helper_beside": helper,
    }  # fmt: skip


def test_a_run_in_a_context_of_its_own_has_no_origin() -> None:
    """What leaves the context has no origin; ``absent_origin`` says what that counts as."""
    for absent, runs in (("user", ["pick_file"]), ("tool", [])):
        executed: list[str] = []
        engine = PolicyEngine(config={"plugins": {"availability": {"absent_origin": absent}}})
        create = attach(create_agent, engine)
        worker = create(scripted([[Call(tool="pick_file")]]), [make_tool(PICK, executed)])

        @tool
        def detach() -> str:
            """Starts a run that inherits nothing."""
            contextvars.Context().run(worker.invoke, GO)  # noqa: B023  (run in this round)
            return "started"

        create(scripted([[Call(tool="detach")]]), [detach]).invoke(GO)
        assert executed == runs


def test_a_scope_made_from_the_config() -> None:
    """A callable tells the scope of each run; an origin in the config can only narrow it."""

    def from_config(config: Any) -> Scope:
        return Scope(origin="user", subject=config["configurable"]["owner"])

    sees = Sees()
    agent, model = made([], make_tool(PICK, []), policy=PolicyEngine([sees]), scope=from_config)
    for claim in ("user", "fork", "tool"):
        agent.invoke(GO, {"configurable": {"owner": "ada", ORIGIN_KEY: claim}})
    assert model.listed == [("pick_file",), ("pick_file",), ()]
    executed: list[str] = []
    agent, _ = made(
        [[Call(tool="read_doc")]],
        make_tool(READ, executed),
        policy=PolicyEngine([sees]),
        scope=from_config,
    )
    agent.invoke(GO, {"configurable": {"owner": "ada"}})
    assert sees.scopes["read_doc"].subject == "ada"


def test_a_claim_in_the_config_never_widens() -> None:
    """Configs come over the wire on a server: only an origin that counts as a tool's is taken."""
    engine = PolicyEngine(config={"plugins": {"availability": {"absent_origin": "tool"}}})
    for declared, claim, shown in (
        (None, "user", False),
        (None, None, False),
        ("user", "fork", True),
        ("user", None, True),
        ("user", "teleport", False),
        ("tool", "user", False),
    ):
        agent, model = made([], make_tool(PICK, []), policy=engine, scope=Scope(origin=declared))
        agent.invoke(GO, {"configurable": {ORIGIN_KEY: claim}})
        assert bool(model.listed[0]) is shown


@pytest.mark.parametrize("claim", [5, ["user"], {}])
def test_a_claim_that_is_no_text_shows_nothing(claim: Any) -> None:
    """A config that cannot be read is no default."""
    agent, model = made([], make_tool(READ, []))
    agent.invoke(GO, {"configurable": {ORIGIN_KEY: claim}})
    assert model.listed == [()]


def test_a_cancelled_run_leaves_nothing_entered() -> None:
    """Cancelled in the middle of a tool: no scope stays, and the call has ended as failed."""
    ledger = CallLedger(PolicyEngine())
    inside: list[Scope | None] = []

    @tool
    async def waits() -> str:
        """Waits for ever."""
        inside.append(scopes.current())
        await asyncio.sleep(60)
        return "never"

    agent, _ = made([[Call(tool="waits")]], waits, policy=ledger)

    async def cancelled() -> None:
        run = asyncio.create_task(agent.ainvoke(GO, thread()))
        while not inside:
            await asyncio.sleep(0.01)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert scopes.current() is None

    asyncio.run(asyncio.wait_for(cancelled(), 20))
    assert inside == [Scope()]
    states = [record["state"] for kind, record in ledger.save()["records"] if kind[0] == "call"]
    assert states == ["failed"]


def test_concurrent_runs_do_not_mix() -> None:
    """Runs of one agent at the same time keep their own lists and origins."""
    agent, model = made([], make_tool(PICK, []), make_tool(READ, []))

    async def all_of_them() -> None:
        await asyncio.gather(*(agent.ainvoke(GO, WORKER if n % 2 else {}) for n in range(10)))

    asyncio.run(all_of_them())
    assert sorted(map(len, model.listed)) == [1] * 5 + [2] * 5


# --------------------------------------------------------------------------------------------
# Bare LangGraph
# --------------------------------------------------------------------------------------------


def bare(turns: Any, scope: Toolscope, *tools: BaseTool, **compiled: Any) -> tuple[Any, Scripted]:
    model = scripted(turns)

    def think(state: MessagesState) -> dict[str, Any]:
        bound = model.bind_tools(scope.listed(tools))
        return {"messages": [bound.invoke(state["messages"])]}

    def more(state: MessagesState) -> str:
        last = state["messages"][-1]
        return "act" if isinstance(last, AIMessage) and last.tool_calls else "__end__"

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("act", scope.tool_node(tools))
    graph.set_entry_point("think")
    graph.add_conditional_edges("think", more)
    graph.add_edge("act", "think")
    return graph.compile(**compiled), model


def test_a_bare_graph() -> None:
    """A ``ToolNode`` and ``bind_tools`` of one's own are protected by the same object."""
    executed: list[str] = []
    agent, model = bare(
        [[Call(tool="pick_file"), Call(tool="read_doc"), Call(tool="made_up")]],
        Toolscope(PolicyEngine()),
        make_tool(PICK, executed),
        make_tool(READ, executed),
    )
    state = agent.invoke(GO, WORKER)
    assert model.listed[0] == ("read_doc",)
    assert executed == ["read_doc"]
    assert codes(state) == ["tool_not_available", None, "tool_unknown"]
    assert coverage(agent) == ()


def test_one_ask_in_a_bare_graph_and_several() -> None:
    """Calls that share a task share its answers, so only one that is alone may ask."""
    for calls, expected in ((1, 1), (2, 0)):
        executed: list[str] = []
        agent, _ = bare(
            [[Call(tool="refund", arguments={"value": str(n)}) for n in range(calls)]],
            Toolscope(PolicyEngine([Asks()]), scope=Scope(can_ask=True)),
            make_tool(ToolSpec(name="refund"), executed),
            checkpointer=InMemorySaver(),
        )
        state = agent.invoke(GO, thread())
        assert len(state.get("__interrupt__", ())) == expected
        if expected:
            agent.invoke(Command(resume={"type": "approve"}), thread())
        else:
            assert codes(state) == ["approval_unavailable"] * 2
        assert len(executed) == expected


def test_one_id_twice_in_one_message() -> None:
    """In a bare graph the second call of one id is denied: no call runs twice."""
    executed: list[str] = []
    scope = Toolscope(PolicyEngine())
    node = scope.tool_node([make_tool(READ, executed)])
    call = {"name": "read_doc", "args": {}, "id": "1", "type": "tool_call"}
    graph = StateGraph(MessagesState)
    graph.add_node("tools", node)
    graph.set_entry_point("tools")
    state = graph.compile().invoke({"messages": [AIMessage("", tool_calls=[call, call])]})
    assert executed == ["read_doc"]
    assert sorted(codes(state), key=str) == [None, "call_settled"]


# --------------------------------------------------------------------------------------------
# Coverage
# --------------------------------------------------------------------------------------------

PLAIN = create_agent(scripted(), [make_tool(READ, [])], name="plain")


def _through_a_function() -> Any:
    return PLAIN.invoke(GO)


@pytest.fixture
def reaching() -> list[BaseTool]:
    """Tools that reach the open agent: by a global, by a closure, by another function."""
    local = PLAIN

    @tool
    def by_global() -> str:
        """Runs it."""
        return str(PLAIN.invoke(GO))

    @tool
    async def by_closure() -> str:
        """Runs it."""
        return str(await local.ainvoke(GO))

    @tool
    def by_function() -> str:
        """Runs it."""
        return str(_through_a_function())

    return [by_global, by_closure, by_function]


def test_coverage_finds_open_workers(
    reaching: list[BaseTool], caplog: pytest.LogCaptureFixture
) -> None:
    """However a tool refers to an unprotected agent, it is listed and logged where it is made."""
    for one in reaching:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "toolscope"):
            agent, _ = made([], one)
        (line,) = coverage(agent)
        assert f"tool {one.name!r} ('plain')" in line
        assert "without Toolscope" in line
        assert line in caplog.text


def test_coverage_of_open_agents_and_graphs() -> None:
    """A plain agent, a plain node, a plain subgraph and a remote one are all listed."""
    assert "'model' and 'tools' without Toolscope" in coverage(PLAIN)[0]
    covered = attach(create_agent, PolicyEngine())(scripted(), [make_tool(READ, [])])
    assert coverage(covered) == ()
    graph = StateGraph(MessagesState)
    graph.add_node("open", PLAIN)
    graph.add_node("closed", covered)
    graph.set_entry_point("open")
    assert ["node 'open'" in line for line in coverage(graph.compile())] == [True]
    remote = RemoteGraph("away", url="http://127.0.0.1:9")
    assert "another process" in coverage(remote)[0]


def test_an_agent_has_one_toolscope() -> None:
    """The attached function adds none where there is one; the host refuses two."""
    own = Toolscope(PolicyEngine())
    agent, model = made([], make_tool(PICK, []), middleware=[own], scope=Scope(origin="tool"))
    agent.invoke(GO)
    assert model.listed == [("pick_file",)]
    with pytest.raises(AssertionError, match="duplicate middleware"):
        create_agent(scripted(), [], middleware=[own, Toolscope(PolicyEngine())])
