"""The OpenAI Agents SDK beyond the matrix: every trap of the host that the adapter has to know."""

import asyncio
import contextvars
from typing import Any

import pytest
from agents import (
    Agent,
    FunctionTool,
    RunConfig,
    RunContextWrapper,
    RunHooks,
    Runner,
    RunState,
    ShellTool,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    WebSearchTool,
    function_tool,
    handoff,
    tool_namespace,
)
from agents.exceptions import ModelBehaviorError
from agents.run_config import ToolErrorFormatterArgs
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool_context import ToolContext
from openai.types.responses import ResponseFunctionToolCall

from tests.hosts.matrix import Call, ToolSpec
from tests.hosts.openai_agents_column import (
    CONFIG,
    OfferingServer,
    listed_by,
    make_tool,
    results_of,
    run,
    script,
)
from tests.hosts.seen import Seen
from toolscope import (
    Agent as ScopeAgent,
)
from toolscope import (
    PolicyEngine,
    Scope,
    Tool,
    ToolCall,
    Toolset,
    Verdict,
    ask,
    deny,
    hookimpl,
)
from toolscope.calls import CallLedger
from toolscope.hosts import available_in
from toolscope.hosts.openai_agents import attach, coverage, run_config

pytestmark = pytest.mark.anyio

PICK = ToolSpec(name="pick", availability="userChats")
READ = ToolSpec(name="read")
WORKER = Scope(origin="tool")
USER = Scope(origin="user", can_ask=True)


def refunds(executed: list[int], **kw: Any) -> FunctionTool:
    def refund(amount: int = 1, note: str = "") -> str:
        """Refunds."""
        executed.append(amount)
        return "ran refund"

    return function_tool(refund, strict_mode=False, **kw)


def refund_calls(*amounts: int) -> list[list[Call]]:
    return [[Call(tool="refund", arguments={"amount": amount})] for amount in amounts]


def chatting(policy: Any, turns: Any, tools: list[Any], **kw: Any) -> Agent[Any]:
    scope = kw.pop("scope", USER)
    agent: Agent[Any] = Agent(name="agent", model=script(turns), tools=tools, **kw)
    return attach(agent, policy, scope=scope)


def model_of(agent: Agent[Any]) -> ScriptedModel:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model


async def ran(agent: Agent[Any], given: Any = "go", **kw: Any) -> Any:
    return await run(agent, given, stream=False, sync=False, **kw)


async def test_without_the_run_configuration() -> None:
    """The host itself ends the run after a call of a tool that was not shown; it does not run."""
    executed: list[str] = []
    agent = chatting(
        PolicyEngine(), [[Call(tool="pick")]], [make_tool(PICK, executed)], scope=WORKER
    )
    with pytest.raises(ModelBehaviorError, match="pick not found"):
        await Runner.run(agent, "go", run_config=CONFIG)
    assert executed == []


async def test_the_run_configuration_keeps_what_it_is_given() -> None:
    """Settings and the formatter of the host's own stay; ours answers for missing tools."""
    kinds: list[str] = []

    def own(args: ToolErrorFormatterArgs[Any]) -> str | None:
        kinds.append(args.kind)
        return "refused by the shop"

    config = run_config(
        RunConfig(tracing_disabled=True, workflow_name="shop", tool_error_formatter=own)
    )
    assert config.workflow_name == "shop"
    agent = chatting(
        PolicyEngine([Seen()]),
        [[Call(tool="nothing"), Call(tool="refund", arguments={"amount": 500})]],
        [refunds([])],
    )
    result = await Runner.run(agent, "go", run_config=config)
    state = result.to_state()
    state.reject(result.interruptions[0])
    result = await Runner.run(agent, state, run_config=config)
    texts = {one.tool: one.text for one in results_of(result.new_items)}
    assert "There is no tool named 'nothing'" in texts["nothing"]
    assert texts["refund"] == "refused by the shop"
    assert kinds == ["approval_rejected"]


@pytest.mark.parametrize("config", [CONFIG, run_config(CONFIG)])
async def test_denied_before_a_person_is_asked(config: RunConfig) -> None:
    """A tool that the host asks people about: a denied call ends before anybody is asked."""
    executed: list[int] = []
    agent = chatting(
        PolicyEngine([Seen()]), refund_calls(5000), [refunds(executed, needs_approval=True)]
    )
    result = await Runner.run(agent, "go", run_config=config)
    assert result.interruptions == []
    assert "nobody refunds more than 1000" in results_of(result.new_items)[0].text
    assert executed == []


async def test_the_tools_own_approval() -> None:
    """A tool's own setting still asks, by value or by its function, and once for both."""

    async def large(context: RunContextWrapper[Any], arguments: dict[str, Any], _: str) -> bool:
        return bool(arguments["amount"] > 50)

    for setting, interrupted in ((True, [1, 60, 500]), (large, [60, 500])):
        for amount in (1, 60, 500):
            executed: list[int] = []
            tool = refunds(executed, needs_approval=setting)
            agent = chatting(PolicyEngine([Seen()]), [], [tool])
            agent.model = ScriptedModel(
                [
                    [function_call("refund", {"amount": amount, "note": ""}, call_id="c1")],
                    [assistant_message("done")],
                ]
            )
            result = await ran(agent)
            assert bool(result.interruptions) is (amount in interrupted), (setting, amount)
            if result.interruptions:
                assert executed == []
                state = result.to_state()
                state.approve(result.interruptions[0])
                result = await ran(agent, state)
            assert result.final_output == "done"
            assert executed == [amount]


async def test_arguments_that_validation_changes() -> None:
    """The host would ask about every call with defaults; a call that no rule asks about runs."""
    executed: list[int] = []
    agent = chatting(PolicyEngine([Seen()]), [[Call(tool="refund")]], [refunds(executed)])
    result = await ran(agent)
    assert result.interruptions == []
    assert executed == [1]


async def test_arguments_that_are_no_json() -> None:
    """Nobody is asked about arguments that cannot be read, or that can be read in two ways."""
    executed: list[int] = []
    texts = ["{", '{"amount": 5, "amount": 5000}', "[5]", "", '{"amount": 5}']
    agent = chatting(PolicyEngine([Seen()]), [], [refunds(executed)])
    agent.model = ScriptedModel(
        [
            *([function_call("refund", text, call_id=f"c{n}")] for n, text in enumerate(texts)),
            [assistant_message("done")],
        ]
    )
    result = await ran(agent)
    assert result.interruptions == []
    assert executed == [1, 5]
    assert [one.failed for one in results_of(result.new_items)] == [True, True, True, False, False]


class Asking:
    """Asks about every call."""

    name = "asking"

    @hookimpl
    def on_tool_call(self) -> Verdict | None:
        return ask("a person must allow this")


@pytest.mark.parametrize("text", ["", "{}"])
@pytest.mark.parametrize("allow", [True, False])
async def test_a_person_is_asked_about_a_call_without_arguments(text: str, allow: bool) -> None:
    """The adapter answers no ask itself; the person's answer reaches the ledger."""
    executed: list[int] = []
    ledger = CallLedger(PolicyEngine([Asking()]))
    agent = chatting(ledger, [], [refunds(executed)])
    agent.model = ScriptedModel(
        [[function_call("refund", text, call_id="c1")], [assistant_message("done")]]
    )
    result = await ran(agent)
    assert (len(result.interruptions), executed) == (1, [])
    state = result.to_state()
    (state.approve if allow else state.reject)(result.interruptions[0])
    result = await ran(agent, state)
    assert (result.final_output, executed) == ("done", [1] if allow else [])
    states = [one["state"] for key, one in ledger.save()["records"] if key[0] == "call"]
    assert states == ["completed" if allow else "denied"]


class OnlyTheJudgeMayWipe:
    """Denies ``wipe`` to everybody but the judge."""

    name = "only-the-judge"

    @hookimpl
    def on_tool_call(self, call: ToolCall, scope: Scope) -> Verdict | None:
        agent = scope.agent
        if call.name == "wipe" and (agent is None or agent.name != "judge"):
            return deny("only the judge may wipe")
        return None


async def test_a_run_inside_a_guardrail_leaves_the_calls_around_it_alone() -> None:
    """They are decided for their own agent, whoever ran in a hook of the host meanwhile."""
    executed: list[str] = []
    engine = PolicyEngine([OnlyTheJudgeMayWipe()])
    look = make_tool(ToolSpec(name="look"), [])

    async def guard(data: Any) -> ToolGuardrailFunctionOutput:
        judge.model = script([[Call(tool="look")]])
        await Runner.run(judge, "is it fine?", run_config=run_config(CONFIG))
        return ToolGuardrailFunctionOutput.allow()

    wipe = make_tool(ToolSpec(name="wipe"), executed)
    wipe.tool_input_guardrails = [ToolInputGuardrail(guardrail_function=guard)]
    boss = chatting(engine, [[Call(tool="wipe")]], [wipe])
    judge = attach(Agent(name="judge", tools=[look]), engine)
    result = await ran(boss)
    (denied,) = results_of(result.new_items)
    assert (denied.failed, executed) == (True, [])
    assert "only the judge may wipe" in denied.text


@pytest.mark.parametrize("allow", [True, False])
async def test_an_answer_about_a_tool_with_a_namespace(allow: bool) -> None:
    """The host keeps it under the full name of the tool."""
    executed: list[int] = []
    ledger = CallLedger(PolicyEngine([Asking()]))
    tools = tool_namespace(name="bank", description="A bank.", tools=[refunds(executed)])
    agent = chatting(ledger, [], [*tools])
    call = ResponseFunctionToolCall(
        type="function_call", name="refund", namespace="bank", arguments="{}", call_id="c1"
    )
    agent.model = ScriptedModel([[call], [assistant_message("done")]])
    state = (await ran(agent)).to_state()
    (state.approve if allow else state.reject)(state.get_interruptions()[0])
    result = await ran(agent, state)
    assert (result.final_output, executed) == ("done", [1] if allow else [])
    states = [one["state"] for key, one in ledger.save()["records"] if key[0] == "call"]
    assert states == ["completed" if allow else "denied"]


class Rewriting(RunHooks[Any]):
    """Changes the arguments of a call just before it runs."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        context.tool_call.arguments = self.text


@pytest.mark.parametrize(("amount", "ran_with"), [(7, [7]), (500, []), (5000, [])])
async def test_what_a_hook_makes_of_the_arguments_is_decided(
    amount: int, ran_with: list[int]
) -> None:
    """Arguments that are changed after the decision run if no rule denies or asks about them."""
    executed: list[int] = []
    ledger = CallLedger(PolicyEngine([Seen()]))
    agent = chatting(ledger, refund_calls(5), [refunds(executed)])
    result = await ran(agent, hooks=Rewriting(f'{{"amount": {amount}}}'))
    assert executed == ran_with
    assert result.final_output == "done"
    states = [record[1]["state"] for record in ledger.save()["records"] if record[0][0] == "call"]
    assert states == (["completed"] if ran_with else ["failed"])


async def test_equal_arguments_that_are_not_the_same() -> None:
    """True equals 1 to Python; it is another value to a rule, and is decided as such."""
    seen = Seen()
    agent = chatting(PolicyEngine([seen]), refund_calls(1), [refunds([])])
    await ran(agent, hooks=Rewriting('{"amount": true}'))
    assert [type(arguments["amount"]) for _, arguments in seen.calls] == [int, bool]


async def test_a_guarded_tool_outside_of_a_run() -> None:
    """A tool that is invoked beside the host's runs was decided by nobody, and does not run."""
    executed: list[int] = []
    agent = chatting(PolicyEngine(), [], [refunds(executed)])
    tool = agent.tools[0]
    assert isinstance(tool, FunctionTool)
    context = ToolContext(None, tool_name="refund", tool_call_id="c1", tool_arguments="{}")
    said = await contextvars.Context().run(
        asyncio.ensure_future, tool.on_invoke_tool(context, "{}")
    )
    assert "failed to decide" in said
    assert executed == []


async def test_reused_call_ids() -> None:
    """A vendor that counts call ids from 0 in every run gets every call decided anew."""
    executed: list[int] = []
    agent = chatting(PolicyEngine([Seen()]), [], [refunds(executed)])
    for amount in (1, 2, 5000):
        call = function_call("refund", {"amount": amount}, call_id="call_0")
        agent.model = ScriptedModel([[call], [assistant_message("done")]])
        assert (await ran(agent)).final_output == "done"
    assert executed == [1, 2]


async def test_an_answer_in_another_process() -> None:
    """A saved state is resumed by another agent with another ledger."""
    executed: list[int] = []
    first = chatting(PolicyEngine([Seen()]), refund_calls(500), [refunds(executed)])
    saved = (await ran(first)).to_state().to_string()
    second = chatting(PolicyEngine([Seen()]), [], [refunds(executed)])
    state: RunState[Any, Any] = await RunState.from_string(second, saved)
    state.approve(state.get_interruptions()[0])
    result = await ran(second, state)
    assert executed == [500]
    assert result.final_output == "done"


async def test_one_result_resumed_twice() -> None:
    """Two states of one interrupted run, both approved, run the call once."""
    executed: list[int] = []
    agent = chatting(PolicyEngine([Seen()]), refund_calls(500), [refunds(executed)])
    model_of(agent).enqueue([assistant_message("done")])
    result = await ran(agent)
    outcomes = []
    for _ in range(2):
        state = result.to_state()
        state.approve(result.interruptions[0])
        outcomes.append(results_of((await ran(agent, state)).new_items)[-1])
    assert executed == [500]
    assert [one.failed for one in outcomes] == [False, True]
    assert "no call runs twice" in outcomes[1].text


async def test_a_refusal_settles_the_call() -> None:
    """The host tells no hook of a refusal; the ledger learns of it all the same."""
    ledger = CallLedger(PolicyEngine([Seen()]))
    executed: list[int] = []
    agent = chatting(ledger, refund_calls(500), [refunds(executed)])
    result = await ran(agent)
    state = result.to_state()
    state.reject(result.interruptions[0])
    await ran(agent, state)
    states = [record[1]["state"] for record in ledger.save()["records"] if record[0][0] == "call"]
    assert states == ["denied"]
    assert executed == []


async def test_no_call_stays_open() -> None:
    """Calls that ran, raised, or were rejected by the host's own guardrail have all ended."""
    ledger = CallLedger(PolicyEngine())

    def breaks() -> str:
        raise LookupError("broken")

    executed: list[int] = []
    rejecting = refunds(executed, name_override="rejected")
    rejecting.tool_input_guardrails = [
        ToolInputGuardrail(lambda _: ToolGuardrailFunctionOutput.reject_content("not today"))
    ]
    calls = [Call(tool=name) for name in ("breaks", "refund", "rejected")]
    agent = chatting(ledger, [calls], [function_tool(breaks), refunds(executed), rejecting])
    await ran(agent)
    states = [record[1]["state"] for record in ledger.save()["records"] if record[0][0] == "call"]
    assert sorted(states) == ["completed", "completed", "failed"]
    assert executed == [1]


def asking_boss(policy: Any, executed: list[int], scope: Scope) -> Agent[Any]:
    worker: Agent[Any] = Agent(
        name="worker", model=script(refund_calls(500)), tools=[refunds(executed)]
    )
    boss: Agent[Any] = Agent(
        name="boss",
        model=script([[Call(tool="delegate", arguments={"input": "go"})]]),
        tools=[worker.as_tool("delegate", "Delegates.")],
    )
    return attach(boss, policy, scope=scope)


async def test_an_ask_of_an_agent_as_tool_is_forwarded() -> None:
    """The worker's interruption reaches the boss's run, and its answer the worker."""
    executed: list[int] = []
    boss = asking_boss(PolicyEngine([Seen()]), executed, USER)
    result = await ran(boss)
    assert [item.name for item in result.interruptions] == ["refund"]
    state = result.to_state()
    state.approve(result.interruptions[0])
    result = await ran(boss, state)
    assert executed == [500]
    assert result.final_output == "done"


async def test_nobody_is_asked_where_nobody_looks() -> None:
    """Where the boss's chat cannot ask, neither can its worker: the call fails and the run ends."""
    executed: list[int] = []
    result = await ran(asking_boss(PolicyEngine([Seen()]), executed, Scope(origin="user")))
    assert result.interruptions == []
    assert result.final_output == "done"
    assert executed == []


def worker_with(executed: list[str], turns: Any = ()) -> Agent[Any]:
    tools: list[Any] = [make_tool(PICK, executed), make_tool(READ, executed)]
    return Agent(name="worker", model=script(turns), tools=tools)


async def test_a_run_inside_a_function() -> None:
    """A run that a tool's own function starts is a worker's, and its asks reach nobody."""
    executed: list[int] = []
    worker = worker_with([], refund_calls(500))
    worker.tools.append(refunds(executed))

    async def delegate() -> str:
        return str((await ran(worker)).final_output)

    boss = chatting(
        PolicyEngine([Seen()]),
        [[Call(tool="delegate")]],
        [function_tool(delegate)],
    )
    result = await ran(boss)
    assert listed_by(model_of(worker)) == (("read", "refund"),) * 2, "it waits for nobody"
    assert executed == []
    assert result.final_output == "done"


async def test_a_worker_below_an_unprotected_boss() -> None:
    """The host gives an agent that runs as a tool the context of that call: a sign of its own."""
    worker = attach(worker_with([], []), PolicyEngine(), scope=Scope(origin="user"))
    boss: Agent[Any] = Agent(
        name="boss",
        model=script([[Call(tool="delegate", arguments={"input": "go"})]]),
        tools=[worker.as_tool("delegate", "Delegates.")],
    )
    await ran(boss)
    assert listed_by(model_of(worker)) == (("read",),)


async def test_mcp_tools() -> None:
    """An MCP server's ``_meta`` is read, its tools are its own, and its calls are decided."""
    executed: list[str] = []
    seen: list[str] = []

    class Look:
        name = "look"

        @hookimpl
        def on_tool_call(self, call: ToolCall, tool: Tool) -> Verdict | None:
            seen.append(tool.identity)
            return deny("not this one") if tool.own_name == "drop" else None

    specs = [PICK, READ, ToolSpec(name="drop")]
    server = OfferingServer("files", specs, executed)
    agent = chatting(
        PolicyEngine([Look()]),
        [[Call(tool="pick"), Call(tool="read"), Call(tool="drop")]],
        [],
        mcp_servers=[server],
        scope=WORKER,
    )
    result = await ran(agent)
    assert listed_by(model_of(agent))[0] == ("read", "drop")
    assert executed == ["read"]
    assert seen == ["mcp:files/read", "mcp:files/drop"]
    assert result.final_output == "done"


async def test_an_mcp_servers_own_approval() -> None:
    """A server's ``require_approval`` still asks, for its allowed calls."""
    executed: list[str] = []
    server = OfferingServer("files", [READ], executed, require_approval=lambda *_: True)
    agent = chatting(PolicyEngine(), [[Call(tool="read")]], [], mcp_servers=[server])
    result = await ran(agent)
    assert [item.name for item in result.interruptions] == ["read"]
    state = result.to_state()
    state.approve(result.interruptions[0])
    result = await ran(agent, state)
    assert executed == ["read"]
    assert result.final_output == "done"


async def test_hosted_tools_are_withheld() -> None:
    """A tool that the vendor runs is taken out of the list; coverage says that it is all."""

    class NoSearch:
        name = "nosearch"

        @hookimpl
        def filter_tools(self, tools: Toolset) -> dict[Tool, Verdict]:
            return {t: deny("no search here") for t in tools if str(t.provider) == "model"}

    tools: list[Any] = [WebSearchTool(), ShellTool(executor=lambda request: "")]
    agent = chatting(PolicyEngine([NoSearch()]), [], tools)
    await ran(agent)
    assert listed_by(model_of(agent)) == (("shell",),)
    what = "the tool '{}' of agent 'agent' can be withheld, and no call of it decided"
    assert coverage(agent) == (
        f"{what.format('web_search')}: the model's vendor runs it",
        f"{what.format('shell')}: the host has no hook before it runs",
    )


async def test_a_clone_keeps_the_policy() -> None:
    """An agent that is cloned from an attached one, with other tools, is attached."""
    executed: list[str] = []
    clone = chatting(PolicyEngine(), [], [], scope=WORKER).clone(
        model=script([[Call(tool="pick")]]),
        tools=[make_tool(PICK, executed), make_tool(READ, executed)],
    )
    await ran(clone)
    assert listed_by(model_of(clone))[0] == ("read",)
    assert executed == []
    assert coverage(clone) == ()


async def test_a_shared_tool_is_left_alone() -> None:
    """An agent beside the attached ones uses the same tool object, without the policy."""
    executed: list[int] = []
    tool = refunds(executed)
    chatting(PolicyEngine([Seen()]), [], [tool])
    other: Agent[Any] = Agent(name="other", model=script(refund_calls(5000)), tools=[tool])
    await ran(other)
    assert executed == [5000]


async def test_runs_at_the_same_time() -> None:
    """Runs of one agent in different scopes do not mix, nor do their equal call ids."""
    executed: list[str] = []

    @available_in("userChats")
    async def pick(context: RunContextWrapper[str]) -> str:
        await asyncio.sleep(0.01)
        executed.append(context.context)
        return "ran pick"

    class Waiting(ScriptedModel):
        async def get_response(self, *args: Any, **kw: Any) -> Any:
            await asyncio.sleep(0.01)
            return await super().get_response(*args, **kw)

    model = Waiting(
        [
            *([function_call("pick", {}, call_id="call_0")] for _ in range(4)),
            *([assistant_message("done")] for _ in range(4)),
        ]
    )
    agent: Agent[Any] = Agent(name="agent", model=model, tools=[function_tool(pick)])
    attach(agent, PolicyEngine(), scope=lambda context: Scope(origin=context.context))
    origins = ["user", "tool", "user", "tool"]
    results = await asyncio.gather(*(ran(agent, context=origin) for origin in origins))
    assert [results_of(one.new_items)[0].failed for one in results] == [False, True, False, True]
    assert executed == ["user", "user"]


async def test_a_scope_that_cannot_be_told() -> None:
    """An error in the host's own scope function shows nothing, runs nothing and ends no run."""

    def broken(context: RunContextWrapper[Any]) -> Scope:
        raise LookupError("no such session")

    executed: list[int] = []
    agent = chatting(PolicyEngine(), refund_calls(5), [refunds(executed)], scope=broken)
    result = await ran(agent)
    assert listed_by(model_of(agent)) == ((), ())
    assert executed == []
    assert result.final_output == "done"


async def test_a_list_is_computed_once() -> None:
    """The host gathers its tools in every turn; the rules are asked once."""
    asked: list[int] = []

    class Count:
        name = "count"

        @hookimpl
        def filter_tools(self, tools: Toolset) -> dict[Tool, Verdict]:
            asked.append(len(tools))
            return {}

    agent = chatting(PolicyEngine([Count()]), refund_calls(1, 2, 3), [refunds([])])
    await ran(agent)
    assert asked == [1]


async def test_an_allowlist_is_its_agents_own() -> None:
    """A handoff's target gets the declared chat, and not the first agent's allowlist."""
    executed: list[str] = []
    second = worker_with(executed, [[Call(tool="read")]])
    first: Agent[Any] = Agent(
        name="first",
        model=script([[Call(tool="transfer_to_worker")]]),
        tools=[make_tool(READ, executed)],
        handoffs=[handoff(second)],
    )
    scope = Scope(origin="user", agent=ScopeAgent(name="first", tools=frozenset()))
    attach(first, PolicyEngine(), scope=scope)
    await ran(first)
    assert listed_by(model_of(first)) == ((),)
    assert listed_by(model_of(second))[0] == ("pick", "read")
    assert executed == ["read"]


async def test_coverage() -> None:
    """What is not attached is named, all the way down, and nothing of it is after `attach`."""
    worker, second = worker_with([]), worker_with([])
    second.name = "second"
    inner: Agent[Any] = Agent(name="inner")

    async def delegate() -> str:
        return str((await ran(inner)).final_output)

    boss: Agent[Any] = Agent(
        name="boss",
        tools=[worker.as_tool("ask", "Asks."), function_tool(delegate)],
        handoffs=[second],
    )
    assert coverage(boss) == tuple(
        f"agent {name!r} is not attached" for name in ("boss", "worker", "inner", "second")
    )
    assert attach(boss, PolicyEngine()) is boss
    assert coverage(boss) == ()


async def test_attach_twice() -> None:
    """An agent that is attached keeps its policy, and no call is decided twice."""
    seen = Seen()
    agent = chatting(PolicyEngine([seen]), refund_calls(5), [refunds([])])
    attach(agent, PolicyEngine([Seen()]))
    await ran(agent)
    assert seen.calls == [("refund", {"amount": 5})]


async def test_attach_takes_agents_only() -> None:
    """What is no agent is refused with a word on what to give."""
    not_an_agent: Any = "boss"
    with pytest.raises(TypeError, match=r"agent is a str; give an agents\.Agent"):
        attach(not_an_agent, PolicyEngine())
