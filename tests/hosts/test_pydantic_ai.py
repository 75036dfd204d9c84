"""Pydantic AI beyond the matrix: every trap of the host that the adapter has to know."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from fastmcp import FastMCP
from pydantic import BaseModel, Field, SecretStr, computed_field
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    RunContext,
    Tool,
    ToolApproved,
    ToolDefinition,
    ToolDenied,
    WebSearchTool,
)
from pydantic_ai.capabilities import AbstractCapability, HandleDeferredToolCalls, NativeTool
from pydantic_ai.exceptions import SkipToolValidation, ToolFailed
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import ExternalToolset

from tests.hosts.matrix import Call, ToolSpec
from tests.hosts.pydantic_ai_column import Script, make_tool, results_of
from tests.hosts.seen import Seen
from toolscope import (
    Agent as ScopeAgent,
)
from toolscope import (
    PolicyEngine,
    Scope,
    ToolCall,
    Toolset,
    Verdict,
    deny,
    hookimpl,
)
from toolscope import (
    Tool as PolicyTool,
)
from toolscope.calls import CallLedger
from toolscope.hosts import AVAILABILITY_KEY, ORIGIN_KEY, available_in
from toolscope.hosts.pydantic_ai import Toolscope, attach, coverage

pytestmark = pytest.mark.anyio

USER_ONLY = {AVAILABILITY_KEY: "userChats"}
WORKER = Scope(origin="tool")


def refunds(executed: list[int]) -> Callable[[int], str]:
    def refund(amount: int) -> str:
        executed.append(amount)
        return f"refunded {amount}"

    return refund


async def test_a_forced_call_costs_no_retry() -> None:
    """Withheld and unknown calls fail five times over, where no retry is left at all."""
    executed: list[str] = []
    script = Script([[Call(tool="pick"), Call(tool="nothing")]] * 5)
    agent = Agent(
        script.model,
        retries=0,
        tools=[make_tool(ToolSpec(name="pick", availability="userChats"), executed)],
        capabilities=[Toolscope(PolicyEngine(), scope=WORKER)],
    )
    result = await agent.run("go")
    outcomes = [
        part.outcome
        for message in result.all_messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    assert outcomes == ["failed"] * 10
    assert script.listed == [()] * 6
    assert executed == []


async def test_deferred_tools_cannot_be_found() -> None:
    """Tool search does not reveal a withheld tool, and the search itself goes on working."""
    shown: list[list[str]] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        shown.append([tool.name for tool in info.function_tools])
        if len(shown) == 1:
            query = {"queries": ["inbox", "weather"]}
            return ModelResponse(parts=[ToolCallPart("search_tools", query, "c1")])
        return ModelResponse(parts=[TextPart("done")])

    def wipe_inbox() -> str:
        """Wipes the inbox."""
        raise AssertionError

    def get_weather() -> str:
        """Tells the weather."""
        return "sun"

    agent = Agent(
        FunctionModel(model),
        tools=[
            Tool(wipe_inbox, defer_loading=True, metadata=USER_ONLY),
            Tool(get_weather, defer_loading=True),
        ],
        capabilities=[Toolscope(PolicyEngine(), scope=WORKER)],
    )
    result = await agent.run("go")
    assert "wipe_inbox" not in str(result.all_messages()[:3])
    assert [one.failed for one in results_of(result.all_messages())] == [False]
    assert "get_weather" in str(results_of(result.all_messages())[0].text)
    assert all("wipe_inbox" not in names for names in shown)


async def test_tools_of_the_host_itself() -> None:
    """The tool that searches tools is a tool to the rules: an allowlist without it hides it."""
    for entries, shown in ((None, ("search_tools",)), (frozenset({"late"}), ())):
        script = Script([[Call(tool="search_tools", arguments={"queries": ["late"]})]])
        agent = Agent(
            FunctionModel(script.answer, profile={"supported_native_tools": frozenset()}),
            tools=[Tool(lambda: "x", name="late", defer_loading=True)],
            capabilities=[
                Toolscope(PolicyEngine(), scope=Scope(agent=ScopeAgent(name="a", tools=entries)))
            ],
        )
        result = await agent.run("go")
        assert script.listed[0] == shown
        assert results_of(result.all_messages())[0].failed is (entries is not None)


async def test_denied_before_a_person_is_asked() -> None:
    """What is withheld or denied fails before the host asks anybody for its own approval."""
    asked: list[str] = []

    async def answer(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        asked.extend(call.tool_name for call in requests.approvals)
        return requests.build_results(approve_all=True)

    executed: list[int] = []
    seen = Seen()
    script = Script(
        [[Call(tool="refund", arguments={"amount": n})] for n in (5, 500, 5000)]
        + [[Call(tool="hidden")]]
    )
    agent = Agent(
        script.model,
        tools=[
            Tool(refunds(executed), requires_approval=True),
            Tool(lambda: "x", name="hidden", requires_approval=True, metadata=USER_ONLY),
        ],
        capabilities=[
            HandleDeferredToolCalls(answer),
            Toolscope(PolicyEngine([seen]), scope=WORKER),
        ],
    )
    result = await agent.run("go")
    assert asked == ["refund", "refund"]  # 5 and 500, each once
    assert executed == [5, 500]
    assert [one.failed for one in results_of(result.all_messages())] == [False, False, True, True]


@pytest.mark.parametrize("by_the_host", [False, True])
async def test_the_reasons_reach_the_person(by_the_host: bool) -> None:
    """Who is asked finds the rule's reason beside the call, also where the host asks anyway."""
    agent = Agent(
        Script([[Call(tool="refund", arguments={"amount": 500})]]).model,
        output_type=[str, DeferredToolRequests],
        tools=[Tool(refunds([]), requires_approval=by_the_host)],
        capabilities=[Toolscope(PolicyEngine([Seen()]))],
    )
    output = (await agent.run("go")).output
    assert isinstance(output, DeferredToolRequests)
    (metadata,) = output.metadata.values()
    assert metadata == {
        "toolscope": [{"plugin": "seen", "code": None, "reason": "a large refund needs a person"}]
    }


async def resumed(
    agent: Agent[None, Any], messages: list[ModelMessage], answer: Any
) -> list[ModelMessage]:
    call = next(p for p in messages[-1].parts if isinstance(p, ToolCallPart))
    result = await agent.run(
        message_history=messages,
        deferred_tool_results=DeferredToolResults(approvals={call.tool_call_id: answer}),
    )
    return result.all_messages()


def refunding(engine: PolicyEngine | CallLedger, executed: list[int]) -> Agent[None, Any]:
    return Agent(
        Script([[Call(tool="refund", arguments={"amount": 500})]]).model,
        output_type=[str, DeferredToolRequests],
        tools=[refunds(executed)],
        capabilities=[Toolscope(engine)],
    )


async def test_an_answer_in_another_process() -> None:
    """A saved history is resumed by another agent with another ledger, once."""
    executed: list[int] = []
    first = refunding(PolicyEngine([Seen()]), executed)
    saved = (await first.run("go")).all_messages_json()
    assert executed == []
    history = ModelMessagesTypeAdapter.validate_json(saved)
    second = refunding(PolicyEngine([Seen()]), executed)
    await resumed(second, history, True)
    assert executed == [500]
    again = await resumed(second, history, True)
    assert executed == [500], "answered twice, the call ran twice"
    assert "no call runs twice" in results_of(again)[-1].text


async def test_edited_arguments_are_decided() -> None:
    """A person's new arguments run if the rules allow them, and not if the rules deny them."""
    for amount, ran in ((300, [300]), (3000, [])):
        executed: list[int] = []
        agent = refunding(PolicyEngine([Seen()]), executed)
        history = (await agent.run("go")).all_messages()
        await resumed(agent, history, ToolApproved(override_args={"amount": amount}))
        assert executed == ran


async def test_a_refusal_settles_the_call() -> None:
    """The host tells no hook of a refusal; the ledger learns of it all the same."""
    ledger = CallLedger(PolicyEngine([Seen()]))
    executed: list[int] = []
    agent = refunding(ledger, executed)
    history = (await agent.run("go")).all_messages()
    messages = await resumed(agent, history, ToolDenied("no"))
    assert results_of(messages)[-1].failed
    states = [record[1]["state"] for record in ledger.save()["records"] if record[0][0] == "call"]
    assert states == ["denied"]
    await resumed(agent, history, True)
    assert executed == [], "a refused call ran after a second answer"


async def test_external_tools() -> None:
    """A call that is executed elsewhere is decided before it leaves, and is never asked about."""
    seen = Seen()
    external = ExternalToolset[None](
        [ToolDefinition(name="refund"), ToolDefinition(name="hidden", metadata=USER_ONLY)]
    )
    script = Script(
        [
            [Call(tool="hidden"), Call(tool="refund", arguments={"amount": 500})],
            [Call(tool="refund", arguments={"amount": 5})],
        ]
    )
    agent: Agent[None, Any] = Agent(
        script.model,
        output_type=[str, DeferredToolRequests],
        toolsets=[external],
        capabilities=[Toolscope(PolicyEngine([seen]), scope=WORKER)],
    )
    result = await agent.run("go")
    assert isinstance(result.output, DeferredToolRequests)
    assert [call.args for call in result.output.calls] == [{"amount": 5}]
    assert [one.failed for one in results_of(result.all_messages())] == [True, True]


async def test_native_tools_are_withheld() -> None:
    """A tool that the vendor runs passes no hook of a call: it is taken out of the request."""

    class NoSearch:
        name = "nosearch"

        @hookimpl
        def filter_tools(self, tools: Toolset) -> dict[PolicyTool, Verdict]:
            return {t: deny("no search here") for t in tools if str(t.provider) == "model"}

    for engine, expected in ((PolicyEngine(), 1), (PolicyEngine([NoSearch()]), 0)):
        shown: list[int] = []

        def model(
            _: list[ModelMessage], info: AgentInfo, shown: list[int] = shown
        ) -> ModelResponse:
            shown.append(len(info.model_request_parameters.native_tools))
            return ModelResponse(parts=[TextPart("done")])

        agent = Agent(
            FunctionModel(model, profile={"supported_native_tools": frozenset({WebSearchTool})}),
            capabilities=[NativeTool(WebSearchTool()), Toolscope(engine)],
        )
        await agent.run("go")
        assert shown == [expected]


class Rewriting(AbstractCapability[Any]):
    """Changes the arguments of a call at one of the places where the host lets it."""

    def __init__(self, place: str, *, in_place: bool = False) -> None:
        self.place, self.in_place = place, in_place

    def changed(self, args: Any) -> Any:
        if self.in_place:
            args["amount"] = 5000
            return args
        return {"amount": 5000}

    async def before_tool_validate(self, ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        if self.place == "skip":
            raise SkipToolValidation({"amount": 5000})
        return self.changed(args) if self.place == "before_validate" else args

    async def after_tool_validate(self, ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        return self.changed(args) if self.place == "after_validate" else args

    async def before_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        return self.changed(args) if self.place == "before_execute" else args

    async def wrap_tool_execute(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        return await handler(self.changed(args) if self.place == "wrap_execute" else args)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    "place", ["before_validate", "after_validate", "before_execute", "wrap_execute", "skip"]
)
async def test_what_another_hook_makes_of_the_arguments_is_decided(
    place: str, in_place: bool
) -> None:
    """Nothing runs that was not decided, wherever another capability changes it."""
    executed: list[int] = []
    agent = Agent(
        Script([[Call(tool="refund", arguments={"amount": 5})]]).model,
        tools=[refunds(executed)],
        capabilities=[Toolscope(PolicyEngine([Seen()])), Rewriting(place, in_place=in_place)],
    )
    result = await agent.run("go")
    assert executed == []
    assert [one.failed for one in results_of(result.all_messages())] == [True]


class Hidden(BaseModel):
    """A field that no serialisation shows."""

    amount: int = Field(exclude=True)


class Swapping(AbstractCapability[Any]):
    """Changes what JSON would not show, just before the tool runs."""

    async def before_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        if "word" in args:
            return {"word": SecretStr("evil")}
        args["hidden"].amount = 5000
        return args


class NoEvil:
    """Denies what says evil, or is too much, wherever it stands."""

    name = "no-evil"

    @hookimpl
    def on_tool_call(self, call: ToolCall) -> Verdict | None:
        text = str(call.arguments)
        return deny("nothing evil") if "evil" in text or "5000" in text else None


async def test_what_no_serialisation_shows_is_compared_and_decided() -> None:
    """A secret and an excluded field are as much of the arguments as any other part."""
    executed: list[str] = []

    def spell(word: SecretStr) -> str:
        executed.append(word.get_secret_value())
        return "ran"

    def pay(hidden: Hidden) -> str:
        executed.append(str(hidden.amount))
        return "ran"

    calls = [
        Call(tool="spell", arguments={"word": "good"}),
        Call(tool="pay", arguments={"hidden": {"amount": 5}}),
    ]
    for capabilities, ran in (([], ["good", "5"]), ([Swapping()], [])):
        executed.clear()
        agent = Agent(
            Script([[one] for one in calls]).model,
            tools=[spell, pay],
            capabilities=[*capabilities, Toolscope(PolicyEngine([NoEvil()]))],
        )
        await agent.run("go")
        assert executed == ran


async def test_arguments_that_are_read_once_reach_the_tool_whole() -> None:
    """The host validates an iterable as the tool reads it: to look at it would use it up."""
    executed: list[list[int]] = []

    def total(numbers: Iterable[int]) -> str:
        executed.append(list(numbers))
        return "ran"

    class Broken(BaseModel):
        name: str

        @computed_field  # type: ignore[prop-decorator]
        @property
        def shout(self) -> str:
            raise RuntimeError("cannot be computed")

    def greet(who: Broken) -> str:
        executed.append([len(who.name)])
        return "ran"

    calls = [
        Call(tool="total", arguments={"numbers": [1, 2]}),
        Call(tool="greet", arguments={"who": {"name": "Ann"}}),
    ]
    agent = Agent(
        Script([[one] for one in calls]).model,
        tools=[total, greet],
        capabilities=[Toolscope(PolicyEngine([NoEvil()]))],
    )
    await agent.run("go")
    assert executed == [[1, 2], [3]]


async def test_another_function_under_the_same_definition_is_another_tool() -> None:
    """A toolset that is made anew for every run may put a marked function in the place of one."""
    executed: list[str] = []
    schema: dict[str, Any] = {"type": "object", "properties": {}}

    def open_() -> str:
        executed.append("open")
        return "ran"

    @available_in("userChats")
    def marked() -> str:
        executed.append("marked")
        return "ran"

    agent = Agent(
        Script([]).model,
        capabilities=[Toolscope(PolicyEngine(), scope=WORKER)],
    )
    current: Callable[[], str] = open_

    @agent.toolset(per_run_step=True)
    def tools(ctx: RunContext[None]) -> FunctionToolset[None]:
        return FunctionToolset([Tool.from_schema(current, "act", "Acts.", schema)])

    for function in (open_, marked):
        current = function
        await agent.run("go", model=Script([[Call(tool="act")]]).model)
    assert executed == ["open"]


@pytest.mark.parametrize("place", ["after_validate", "wrap_execute"])
async def test_a_call_that_another_capability_defers_runs_once_it_is_approved(place: str) -> None:
    """It was allowed and has not run: approved, it is decided anew and runs."""

    class Deferring(AbstractCapability[Any]):
        async def after_tool_validate(
            self, ctx: Any, *, call: Any, tool_def: Any, args: Any
        ) -> Any:
            if place == "after_validate" and not ctx.tool_call_approved:
                raise ApprovalRequired
            return args

        async def wrap_tool_execute(
            self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any
        ) -> Any:
            if not ctx.tool_call_approved:
                raise ApprovalRequired
            return await handler(args)

    executed: list[int] = []
    agent = Agent(
        Script([[Call(tool="refund", arguments={"amount": 5})]]).model,
        tools=[refunds(executed)],
        output_type=[str, DeferredToolRequests],
        capabilities=[Toolscope(PolicyEngine()), Deferring()],
    )
    first = await agent.run("go")
    assert isinstance(first.output, DeferredToolRequests)
    (asked,) = first.output.approvals
    answer = DeferredToolResults(approvals={asked.tool_call_id: True})
    await agent.run(message_history=first.all_messages(), deferred_tool_results=answer)
    assert executed == [5]


async def test_a_tool_that_another_capability_hides() -> None:
    """A call of an allowed tool that the host does not offer fails as one of an unknown tool."""

    class Hiding(AbstractCapability[Any]):
        def get_wrapper_toolset(self, toolset: Any) -> Any:
            return toolset.filtered(lambda ctx, definition: definition.name != "refund")

    executed: list[int] = []
    agent = Agent(
        Script([[Call(tool="refund", arguments={"amount": 5})]]).model,
        tools=[refunds(executed)],
        capabilities=[Hiding(), Toolscope(PolicyEngine())],
    )
    result = await agent.run("go")
    assert "There is no tool named 'refund'" in results_of(result.all_messages())[0].text
    assert executed == []


async def test_a_call_that_another_hook_stops() -> None:
    """A call that was allowed and then stopped is not left open in the ledger."""

    class Stopping(AbstractCapability[Any]):
        async def after_tool_validate(
            self, ctx: Any, *, call: Any, tool_def: Any, args: Any
        ) -> Any:
            raise ToolFailed("not today")

    ledger = CallLedger(PolicyEngine())
    executed: list[int] = []
    agent = Agent(
        Script([[Call(tool="refund", arguments={"amount": 5})]]).model,
        tools=[refunds(executed)],
        capabilities=[Stopping(), Toolscope(ledger)],
    )
    await agent.run("go")
    assert executed == []
    states = [record[1]["state"] for record in ledger.save()["records"] if record[0][0] == "call"]
    assert states == ["cancelled"]


async def test_arguments_keep_their_meaning() -> None:
    """JSON text stays JSON text (it is validated less strictly), and odd texts are refused."""
    executed: list[Any] = []
    texts = ['{"amount": 5}', '{"amount": 5, "amount": 5000}', "[5]", ""]

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = len(messages) // 2
        if turn == len(texts):
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("refund", texts[turn], f"c{turn}")])

    def refund(amount: int = 1) -> str:
        executed.append(amount)
        return "ok"

    agent = Agent(
        FunctionModel(model), tools=[refund], capabilities=[Toolscope(PolicyEngine([Seen()]))]
    )
    result = await agent.run("go")
    assert executed == [5, 1]
    assert [one.failed for one in results_of(result.all_messages())] == [False, True, True, False]


async def test_reused_call_ids() -> None:
    """A vendor that counts call ids from 0 in every message gets every call decided anew."""
    executed: list[int] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 6:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("refund", {"amount": 5}, "call_0")])

    agent = Agent(
        FunctionModel(model),
        tools=[refunds(executed)],
        capabilities=[Toolscope(PolicyEngine([Seen()]))],
    )
    await agent.run("go")
    assert executed == [5, 5, 5]


async def test_a_tool_that_refuses_its_arguments() -> None:
    """An invalid call is the host's to retry, and leaves no call open in the ledger."""
    ledger = CallLedger(PolicyEngine())
    executed: list[int] = []
    script = Script(
        [
            [Call(tool="refund", arguments={"amount": "x"})],
            [Call(tool="refund", arguments={"amount": 5})],
        ]
    )
    agent = Agent(script.model, tools=[refunds(executed)], capabilities=[Toolscope(ledger)])
    await agent.run("go")
    assert executed == [5]
    states = [record[1]["state"] for record in ledger.save()["records"] if record[0][0] == "call"]
    assert states == ["failed", "completed"]


async def test_metadata_that_is_no_json() -> None:
    """The host's metadata holds any object; rules see the part of it that is JSON."""
    seen: list[Any] = []

    class Look:
        name = "look"

        @hookimpl
        def filter_tools(self, tools: Toolset) -> dict[PolicyTool, Verdict]:
            seen.extend(dict(tool.meta or {}) for tool in tools)
            return {}

    agent = Agent(
        TestModel(),
        tools=[Tool(lambda: "x", name="one", metadata={"run": print, "team": "a"})],
        capabilities=[Toolscope(PolicyEngine([Look()]))],
    )
    await agent.run("go")
    assert seen == [{"team": "a"}]


async def test_mcp_tools() -> None:
    """An MCP server's tools are its own, below prefixes and added metadata; ``_meta`` is read."""
    server: FastMCP[None] = FastMCP("files")
    server.tool(name="pick", meta=USER_ONLY)(lambda: "x")
    server.tool(name="read", annotations={"readOnlyHint": True})(lambda: "y")
    seen: list[tuple[str, str, bool]] = []

    class Look:
        name = "look"

        @hookimpl
        def filter_tools(self, tools: Toolset) -> dict[PolicyTool, Verdict]:
            seen.extend((t.name, t.identity, t.annotations.read_only) for t in tools)
            return {}

    files = MCPToolset[None](server, id="files")
    model = TestModel(call_tools=[])
    agent = Agent(
        model,
        toolsets=[
            files.with_metadata(team="a").prefixed("a"),
            files.filtered(lambda ctx, d: d.name == "read").renamed({"b": "read"}),
        ],
        capabilities=[Toolscope(PolicyEngine([Look()]), scope=WORKER)],
    )
    await agent.run("go")
    assert seen == [
        ("a_pick", "mcp:files/pick", False),
        ("a_read", "mcp:files/read", True),
        ("b", "mcp:files/read#2", True),
    ]
    assert model.last_model_request_parameters is not None
    shown = [tool.name for tool in model.last_model_request_parameters.function_tools]
    assert shown == ["a_read", "b"]


async def test_a_history_that_ends_in_calls() -> None:
    """Calls that are resumed without a request reach the hooks too, withheld and unknown ones."""
    executed: list[str] = []
    calls = [ToolCallPart(name, {}, f"c_{name}") for name in ("pick", "nothing", "read")]
    history: list[ModelMessage] = [
        ModelRequest.user_text_prompt("go"),
        ModelResponse(parts=calls),
    ]
    agent = Agent(
        Script([]).model,
        retries=0,
        tools=[
            make_tool(ToolSpec(name="pick", availability="userChats"), executed),
            make_tool(ToolSpec(name="read"), executed),
        ],
        capabilities=[Toolscope(PolicyEngine(), scope=WORKER)],
    )
    result = await agent.run(message_history=history)
    failed = {one.tool: one.failed for one in results_of(result.all_messages())}
    assert failed == {"pick": True, "nothing": True, "read": False}
    assert executed == ["read"]


async def test_a_mark_through_wrappers() -> None:
    """The decorator's mark is found below the host's toolsets, prefixes included."""

    @available_in("userChats")
    async def pick() -> str:
        raise AssertionError

    inner: FunctionToolset[None] = FunctionToolset([pick])
    model = TestModel(call_tools=[])
    agent = Agent(
        model,
        tools=[Tool(functools.wraps(pick)(lambda: "x"), name="wrapped")],
        toolsets=[inner.prefixed("a").filtered(lambda ctx, definition: True)],
        capabilities=[Toolscope(PolicyEngine(), scope=WORKER)],
    )
    await agent.run("go")
    assert model.last_model_request_parameters is not None
    assert model.last_model_request_parameters.function_tools == []


async def test_metadata_changed_in_place() -> None:
    """A host's list that looks the same and says something else is read again."""
    metadata = {AVAILABILITY_KEY: "session"}
    script = Script([])
    agent = Agent(
        script.model,
        tools=[Tool(lambda: "x", name="one", metadata=metadata)],
        capabilities=[Toolscope(PolicyEngine(), scope=WORKER)],
    )
    await agent.run("go")
    metadata[AVAILABILITY_KEY] = "userChats"
    await agent.run("go")
    assert script.listed == [("one",), ()]


async def test_a_list_is_computed_once() -> None:
    """The host makes new definitions for every step; the rules are asked once."""
    asked: list[int] = []

    class Count:
        name = "count"

        @hookimpl
        def filter_tools(self, tools: Toolset) -> dict[PolicyTool, Verdict]:
            asked.append(len(tools))
            return {}

    script = Script([[Call(tool="refund", arguments={"amount": 1})]] * 3)
    agent = Agent(
        script.model, tools=[refunds([])], capabilities=[Toolscope(PolicyEngine([Count()]))]
    )
    await agent.run("go")
    await agent.run("go")
    assert asked == [1]


def worker_of(engine: PolicyEngine, *, protected: bool = True) -> tuple[Agent[None, str], Script]:
    script = Script([])
    agent = Agent(
        script.model,
        name="worker",
        tools=[Tool(lambda: "x", name="pick", metadata=USER_ONLY)],
        capabilities=[Toolscope(engine, scope=Scope(origin="user"))] if protected else [],
    )
    return agent, script


async def test_a_worker_below_an_unprotected_boss() -> None:
    """The host knows that a run is nested, even where the outer agent has no capability."""
    worker, script = worker_of(PolicyEngine())

    async def delegate() -> str:
        return (await worker.run("go")).output

    boss = Agent(Script([[Call(tool="delegate")]]).model, tools=[delegate])
    await boss.run("go")
    await worker.run("go")
    assert script.listed == [(), ("pick",)]


async def test_a_run_beside_a_stream_is_no_worker() -> None:
    """The application starts another chat while it reads a stream: the user's chat it stays."""
    worker, script = worker_of(PolicyEngine())
    agent = Agent(Script([]).model, capabilities=[Toolscope(PolicyEngine())])
    async with agent.run_stream("go") as result:
        await worker.run("go")
        await result.get_output()
    assert script.listed == [("pick",)]


@pytest.mark.parametrize(("claimed", "shown"), [("tool", ()), ("user", ("pick",)), (7, ())])
async def test_an_origin_in_the_metadata_of_the_run(claimed: object, shown: object) -> None:
    """A run may be declared a worker's by its metadata; what is no text counts as that."""
    worker, script = worker_of(PolicyEngine())
    await worker.run("go", metadata={ORIGIN_KEY: claimed})
    assert script.listed == [shown]


async def test_a_scope_that_cannot_be_told() -> None:
    """An error in the host's own scope function shows nothing, runs nothing and ends no run."""

    def broken(ctx: RunContext[Any]) -> Scope:
        raise LookupError("no such session")

    executed: list[int] = []
    script = Script([[Call(tool="refund", arguments={"amount": 5})]])
    agent = Agent(
        script.model,
        tools=[refunds(executed)],
        capabilities=[Toolscope(PolicyEngine(), scope=broken)],
    )
    result = await agent.run("go")
    assert script.listed == [(), ()]
    assert [one.failed for one in results_of(result.all_messages())] == [True]
    assert executed == []


async def test_the_tools_own_approval_is_left_alone() -> None:
    """A tool that asks by raising works as without the capability."""
    executed: list[int] = []

    def refund(ctx: RunContext[None], amount: int) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        executed.append(amount)
        return "ok"

    agent: Agent[None, Any] = Agent(
        Script([[Call(tool="refund", arguments={"amount": 5})]]).model,
        output_type=[str, DeferredToolRequests],
        tools=[refund],
        capabilities=[Toolscope(PolicyEngine())],
    )
    history = (await agent.run("go")).all_messages()
    await resumed(agent, history, True)
    assert executed == [5]


async def test_attach_reaches_the_agents_that_tools_name() -> None:
    """One call protects the boss and the workers in its tools' closures; coverage says so."""
    engine = PolicyEngine()
    worker, script = worker_of(engine, protected=False)

    async def delegate() -> str:
        return (await worker.run("go")).output

    boss = Agent(Script([[Call(tool="delegate")]]).model, name="boss", tools=[delegate])
    assert coverage(boss) == (
        "agent 'boss' has no Toolscope: attach it",
        "agent 'worker', which the tool 'delegate' refers to, has no Toolscope: attach it",
    )
    assert attach(boss, engine) is boss
    assert coverage(boss) == ()
    await boss.run("go")
    await worker.run("go")
    assert script.listed == [(), ("pick",)]


async def test_attach_twice() -> None:
    """An agent that has the capability keeps it, and no call is decided twice."""
    seen = Seen()
    engine = PolicyEngine([seen])
    agent = Agent(
        Script([[Call(tool="refund", arguments={"amount": 5})]]).model,
        tools=[refunds([])],
        capabilities=[Toolscope(engine)],
    )
    attach(attach(agent, engine), engine)
    await agent.run("go")
    assert seen.calls == [("refund", {"amount": 5})]


async def test_attach_takes_agents_only() -> None:
    """What is no agent is refused with a word on what to give."""
    with pytest.raises(TypeError, match=r"agent is a str; give a pydantic_ai\.Agent"):
        attach("boss", PolicyEngine())
