"""LangChain: the traps of lists, tools and calls that the matrix does not hold."""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    LLMToolSelectorMiddleware,
    ToolRetryMiddleware,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

from tests.hosts.langchain_support import (
    GO,
    PICK,
    READ,
    WORKER,
    Adds,
    Asks,
    codes,
    made,
    make_tool,
    results,
    scripted,
    thread,
)
from tests.hosts.matrix import Call, ToolSpec
from toolscope import PolicyEngine, Scope, ToolCall, Verdict, deny, hookimpl
from toolscope.hosts import AVAILABILITY_KEY, EnforcementPoint, available_in
from toolscope.hosts._langchain_tools import Snapshots, read_tool
from toolscope.hosts.langchain import Toolscope, attach, coverage
from toolscope.model import HOST, MODEL

# --------------------------------------------------------------------------------------------
# The list
# --------------------------------------------------------------------------------------------


def test_the_host_s_list_is_left_alone() -> None:
    """One compiled agent serves chats of both kinds in turn: its own list is never changed."""
    agent, model = made([], make_tool(PICK, []), make_tool(READ, []))
    config: Any
    for config in (WORKER, {}, WORKER):
        agent.invoke(GO, config)
    both = ("pick_file", "read_doc")
    assert model.listed == [("read_doc",), both, ("read_doc",)]


def test_a_forced_choice_of_a_withheld_tool_is_taken_back() -> None:
    """A request that forces a tool which is not in it would be refused by the provider."""

    class Forces(AgentMiddleware[Any, Any, Any]):
        def __init__(self, choice: Any) -> None:
            super().__init__()
            self.choice = choice

        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(tool_choice=self.choice))

    function = {"type": "function", "function": {"name": "pick_file"}}
    for choice in ("pick_file", function, {"type": "tool", "name": "pick_file"}):
        agent, model = made(
            [], make_tool(PICK, []), make_tool(READ, []), middleware=[Forces(choice)]
        )
        agent.invoke(GO, WORKER)
        agent.invoke(GO)
        assert model.choices == [None, choice]
    for choice in ("any", "read_doc"):
        agent, model = made(
            [], make_tool(PICK, []), make_tool(READ, []), middleware=[Forces(choice)]
        )
        agent.invoke(GO, WORKER)
        assert model.choices == [choice]


def test_structured_output_is_no_tool_of_the_policy() -> None:
    """The tool that carries the run's answer is neither listed to the rules nor withheld."""

    class Answer(BaseModel):
        text: str

    model = scripted([[Call(tool="Answer", arguments={"text": "42"})]])
    agent = attach(create_agent, PolicyEngine())(
        model, [make_tool(PICK, [])], response_format=ToolStrategy(Answer)
    )
    state = agent.invoke(GO, WORKER)
    assert model.listed == [("Answer",)]
    assert state["structured_response"] == Answer(text="42")


def test_last_sees_what_the_others_add_and_first_does_not() -> None:
    """Put first, the filter misses a dynamic tool, and its call is denied as unknown."""
    for last in (True, False):
        executed: list[str] = []
        ours: list[Any] = [Toolscope(PolicyEngine())]
        theirs: list[Any] = [Adds([make_tool(PICK, executed)], after=0)]
        model = scripted([[Call(tool="pick_file")]])
        agent = create_agent(
            model, [make_tool(READ, executed)], middleware=theirs + ours if last else ours + theirs
        )
        state = agent.invoke(GO, WORKER)
        assert ("pick_file" in model.listed[0]) is not last
        assert codes(state) == ["tool_not_available" if last else "tool_unknown"]
        assert executed == []
        assert (coverage(agent) == ()) is last


def test_a_selector_before_us_finds_the_tools_it_insists_on() -> None:
    """Filtered before it, a tool that it must always include would end the run."""
    executed: list[str] = []
    tools = [make_tool(PICK, executed), make_tool(READ, executed)]
    selector: Any = LLMToolSelectorMiddleware(always_include=["pick_file", "read_doc"])
    ours = Toolscope(PolicyEngine())
    model = scripted()
    create_agent(model, tools, middleware=[selector, ours]).invoke(GO, WORKER)
    assert model.listed == [("read_doc",)]
    with pytest.raises(ValueError, match="pick_file"):
        create_agent(model, tools, middleware=[ours, selector]).invoke(GO, WORKER)


def test_tools_of_one_name_that_the_host_merges(caplog: pytest.LogCaptureFixture) -> None:
    """The host keeps the last of them before any hook sees the list; making the agent says so."""
    agent, _ = made([], make_tool(READ, []), make_tool(READ, []), make_tool(PICK, []))
    assert coverage(agent) == ()
    (record,) = caplog.records
    assert "a tool 'read_doc' that another one replaces" in record.getMessage()


def test_an_error_of_ours_shows_nothing_and_runs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A policy that cannot be had, and a scope that cannot be made, end no run."""

    def broken(*_: object) -> Any:
        raise RuntimeError("no policy")

    for arguments in ({"policy": broken}, {"scope": broken}):
        executed: list[str] = []
        agent, model = made([[Call(tool="read_doc")]], make_tool(READ, executed), **arguments)
        state = agent.invoke(GO)
        assert model.listed == [(), ()]
        assert codes(state) == ["policy_error"]
        assert executed == []
        assert state["messages"][-1].text == "done"
    assert "no policy" in caplog.text


# --------------------------------------------------------------------------------------------
# Tools as LangChain has them
# --------------------------------------------------------------------------------------------


def test_dictionaries_in_every_shape() -> None:
    """A function's dictionary is the host's, a provider's own tool is the model's."""
    read = [
        read_tool(one)
        for one in (
            {"name": "a", "input_schema": {"type": "object"}},
            {"type": "function", "function": {"name": "b", "parameters": {"type": "object"}}},
            {"type": "function", "name": "c", "parameters": {}},
            {"type": "web_search"},
            {"type": "mcp", "server_label": "mail", "server_url": "http://localhost"},
            {"type": "web_search_20250305", "name": "web_search"},
        )
    ]
    assert [(one.name, one.provider) for one in read] == [
        ("a", HOST),
        ("b", HOST),
        ("c", HOST),
        ("web_search", MODEL),
        ("mcp", MODEL),
        ("web_search", MODEL),
    ]
    assert len({one.identity for one in read}) == 6
    assert read[1].input_schema == {"type": "object"}


def test_a_provider_s_tool_can_be_withheld() -> None:
    """A tool that the model's provider runs is filtered, and `coverage` says what it is not."""
    search = {"type": "web_search", AVAILABILITY_KEY: "userChats"}
    agent, model = made([], search, make_tool(READ, []))
    agent.invoke(GO, WORKER)
    agent.invoke(GO)
    assert model.listed == [("read_doc",), ("read_doc", "web_search")]
    assert [line for line in coverage(agent) if "'web_search' runs at the model's provider" in line]


def test_what_is_read_of_a_tool() -> None:
    """Name, texts, schema, hints, tags and metadata; what is not JSON is left out."""

    def run(city: str) -> str:
        """Looks."""
        return city

    made_tool = StructuredTool.from_function(
        available_in("userChats")(run), name="look", tags=["weather"]
    )
    made_tool.metadata = {"readOnlyHint": True, "client": object(), "team": "a"}
    read = read_tool(made_tool)
    assert (read.name, read.description, read.availability) == ("look", "Looks.", "userChats")
    assert read.annotations.read_only
    assert read.tags == frozenset({"weather"})
    assert dict(read.meta or {}) == {"readOnlyHint": True, "team": "a"}
    assert read.input_schema is not None
    assert read.input_schema["required"] == ["city"]


def test_a_list_that_the_host_rebuilds_is_computed_once() -> None:
    """Copies that read the same give the same toolset; a tool whose metadata is new does not."""
    snapshots = Snapshots(EnforcementPoint(PolicyEngine()))
    tools = [make_tool(PICK, []), make_tool(READ, [])]
    first = snapshots.of(tools)
    copies = [one.model_copy() for one in tools]
    assert snapshots.of(tools) is first
    assert snapshots.of(copies).toolset is first.toolset
    assert snapshots.of(copies).tool_of(copies[1]) is first.tool_of(tools[1])
    copies[1].metadata = {AVAILABILITY_KEY: "userChats"}
    changed = [copies[0], copies[1].model_copy()]
    assert [one.availability for one in snapshots.of(changed).toolset] == ["userChats"] * 2


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("with_another", [False, True])
def test_a_tool_that_is_changed_where_it_is_is_read_again(
    in_place: bool, with_another: bool
) -> None:
    """LangChain's tools can be changed while they are listed: the next list knows, copies too."""
    toolscope = Toolscope(PolicyEngine(), scope=Scope(origin="tool"))
    one, other, third = (make_tool(ToolSpec(name=name), []) for name in ("one", "other", "third"))
    one.metadata = {"_meta": {}}
    assert toolscope.listed([one, other]) == [one, other]
    if in_place:
        one.metadata["_meta"][AVAILABILITY_KEY] = "userChats"
    else:
        one.metadata = {AVAILABILITY_KEY: "userChats"}
    more = [third] * with_another
    assert toolscope.listed([one, other, *more]) == [other, *more]
    assert toolscope.listed([one.model_copy(), other]) == [other]
    one.metadata = None
    assert toolscope.listed([one, other]) == [one, other]


def test_a_dictionary_that_is_changed_where_it_is_is_read_again() -> None:
    """At any depth."""
    toolscope = Toolscope(PolicyEngine(), scope=Scope(origin="tool"))
    function: dict[str, Any] = {"name": "one", "parameters": {"required": []}}
    given: dict[str, Any] = {"type": "function", "function": function}
    (first,) = toolscope._snapshots.of([given]).toolset
    function["parameters"]["required"].append("x")
    (second,) = toolscope._snapshots.of([given]).toolset
    assert [one.input_schema for one in (first, second)] == [{"required": []}, {"required": ["x"]}]
    given["metadata"] = {AVAILABILITY_KEY: "userChats"}
    assert toolscope.listed([given]) == []


class MarksPick(AgentMiddleware[Any, Any, Any]):
    """Makes a tool private once the model has called it, before the call runs."""

    def __init__(self, marked: BaseTool) -> None:
        super().__init__()
        self.marked = marked

    def after_model(self, state: Any, runtime: Any) -> None:
        self.marked.metadata = {AVAILABILITY_KEY: "userChats"}


def test_a_tool_that_becomes_private_after_it_was_listed_does_not_run() -> None:
    """What counts is what the tool is when the call would run."""
    executed: list[str] = []
    pick, other = (make_tool(ToolSpec(name=name), executed) for name in ("pick", "other"))
    agent, model = made(
        [[Call(tool="pick")]], pick, other, scope=Scope(origin="tool"), middleware=[MarksPick(pick)]
    )
    state = agent.invoke(GO)
    assert (model.listed, executed) == ([("pick", "other"), ("other",)], [])
    assert codes(state) == ["tool_not_available"]


def test_tools_of_one_name_stay_apart() -> None:
    """The same object twice is one tool; another object of its name is another tool."""
    one, other = make_tool(READ, []), make_tool(READ, [])
    snapshot = Snapshots(EnforcementPoint(PolicyEngine())).of([one, other, one])
    assert [tool.own_name for tool in snapshot.toolset] == ["read_doc", "read_doc+"]


def test_availability_of_mcp_tools_and_of_classes() -> None:
    """The MCP adapters keep ``_meta`` inside the metadata; a class is marked on its method."""
    nested = make_tool(READ, [])
    nested.metadata = {"_meta": {AVAILABILITY_KEY: "userChats"}}

    class Look(BaseTool):
        name: str = "look"
        description: str = "Looks."

        @available_in("userChats")
        def _run(self) -> str:
            return "seen"

    assert [read_tool(one).availability for one in (nested, Look())] == ["userChats"] * 2


# --------------------------------------------------------------------------------------------
# Calls
# --------------------------------------------------------------------------------------------


def test_what_runs_is_what_was_decided() -> None:
    """Arguments that a middleware rewrote are decided in their final form, and so they run."""
    ran: list[tuple[str, int]] = []

    @tool
    def refund(amount: int) -> str:
        """Refunds."""
        ran.append(("refund", amount))
        return "done"

    class Doubles(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            arguments = {"amount": request.tool_call["args"]["amount"] * 2}
            return handler(request.override(tool_call={**request.tool_call, "args": arguments}))

    class Below:
        name = "below"

        @hookimpl
        def on_tool_call(self, call: ToolCall) -> Verdict | None:
            return deny("too much; take less") if call.arguments["amount"] > 10 else None

    turns = [[Call(tool="refund", arguments={"amount": n})] for n in (5, 6)]
    agent, _ = made(turns, refund, policy=PolicyEngine([Below()]), middleware=[Doubles()])
    state = agent.invoke(GO)
    assert ran == [("refund", 10)]
    assert codes(state) == [None, "tool_denied"]


def test_a_tool_swapped_under_its_name_is_decided_as_what_it_is() -> None:
    """A middleware that puts another tool under a call's name gains nothing by it."""
    executed: list[str] = []
    pick = make_tool(PICK, executed)

    class Swaps(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(tool=pick))

    agent, _ = made([[Call(tool="read_doc")]], make_tool(READ, executed), middleware=[Swaps()])
    state = agent.invoke(GO, WORKER)
    assert executed == []
    assert codes(state) == ["tool_not_available"]


def test_retries_of_the_host() -> None:
    """A denial is not retried; a tool that fails is, and each execution is decided."""
    asks = Asks()
    tries: list[int] = []

    @tool
    def flaky() -> str:
        """Fails twice."""
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("again")
        return "there"

    retries = ToolRetryMiddleware(max_retries=3, initial_delay=0.0, jitter=False)
    agent, _ = made(
        [[Call(tool="flaky")], [Call(tool="pick_file")]],
        flaky,
        make_tool(PICK, []),
        policy=PolicyEngine([asks]),
        middleware=[retries],
    )
    state = agent.invoke(GO, WORKER)
    assert results(state)[0].text == "there"
    assert codes(state) == [None, "tool_not_available"]
    assert [name for name, _ in asks.seen] == ["flaky"] * 3


def test_a_direct_answer_that_is_denied_is_the_last_message() -> None:
    """The host ends the run after a ``return_direct`` tool by its name, denied or not."""
    executed: list[str] = []
    agent, model = made([[Call(tool="pick_file")]], make_tool(PICK, executed, return_direct=True))
    state = agent.invoke(GO, WORKER)
    assert executed == []
    assert isinstance(state["messages"][-1], ToolMessage)
    assert state["messages"][-1].status == "error"
    assert model.produced == 1


def test_an_agent_without_tools() -> None:
    """A call that its model makes up ends as any unknown one."""
    agent, _ = made([[Call(tool="made_up")]])
    state = agent.invoke(GO)
    assert codes(state) == ["tool_unknown"]
    assert state["messages"][-1].text == "done"


def test_ids_may_come_again_in_later_turns() -> None:
    """Models number their calls anew each turn; each turn's call is another call."""
    executed: list[str] = []
    agent, _ = made([[Call(tool="read_doc")]] * 3, make_tool(READ, executed))
    agent.invoke(GO)
    assert executed == ["read_doc"] * 3


def test_replayed_from_a_checkpoint_a_call_is_decided_anew() -> None:
    """Going back in time is a new execution, which the policy sees."""
    asks = Asks()
    agent, _ = made(
        [[Call(tool="read_doc")]],
        make_tool(READ, []),
        policy=PolicyEngine([asks]),
        checkpointer=InMemorySaver(),
    )
    agent.invoke(GO, thread())
    before = next(s for s in agent.get_state_history(thread()) if s.next == ("tools",))
    agent.invoke(None, before.config)
    assert [name for name, _ in asks.seen] == ["read_doc", "read_doc"]
