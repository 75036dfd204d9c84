"""Faults of rules: each denies, with its plugin named and the error kept apart (law L4)."""

import asyncio
import gc
import inspect
import logging
import warnings
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from typing import Any

import anyio
import pytest
import trio
import trio.testing

from toolscope._chain import positional
from toolscope.engine import PolicyEngine
from toolscope.errors import RecursionRefused
from toolscope.hookspecs import hookimpl
from toolscope.listings import Listing
from toolscope.model import Scope, Tool, ToolCall, Toolset
from toolscope.testing import toolset
from toolscope.verdicts import Decision, Effect, Verdict, ask, deny

TOOLS = toolset("read", "write")
SCOPE = Scope(can_ask=True)
CALL = ToolCall(name="read")
NO = deny("it is not needed")
REASON = (
    "the rule of plugin 'bad' gave no decision, and no decision is no permission; go on without "
    "this tool and say so"
)


def no_content() -> str:
    """What Python says of a verdict without content; from 3.12 on it names the module too."""
    with pytest.raises(AttributeError) as caught:
        object.__new__(Verdict).code  # noqa: B018
    return f"AttributeError: {caught.value}"


NO_CONTENT = no_content()


def listing_with(answer: Callable[[Toolset], Any]) -> Listing:
    """The listing where a plugin ``bad`` answers like this."""

    class Bad:
        name = "bad"

        @hookimpl
        def filter_tools(self, tools: Toolset) -> Any:
            return answer(tools)

    return PolicyEngine([Bad()]).filter_tools(TOOLS, SCOPE)


def list_error(answer: Callable[[Toolset], Any]) -> str | None:
    """The error of such a listing, which withholds every tool for the same reason."""
    listing = listing_with(answer)
    assert list(listing) == []
    errors = set()
    for tool in TOOLS:
        (verdict,) = listing.withheld[tool]
        assert (verdict.plugin, verdict.verdict.code) == ("bad", "policy_error")
        assert verdict.verdict.reason == REASON
        errors.add(verdict.error)
    (error,) = errors
    return error


def decision_with(answer: Callable[[], Any], *, timeout: float = 5.0) -> PolicyEngine:
    """An engine with a plugin ``bad`` that answers each call like this."""

    class Bad:
        name = "bad"

        @hookimpl
        def on_tool_call(self) -> Any:
            return answer()

    return PolicyEngine([Bad()], config={"async_timeout": timeout})


def call_error(decision: Decision) -> str | None:
    """The error of a decision that a fault of ``bad`` denied."""
    (verdict,) = decision.verdicts
    assert decision.effect is Effect.DENY
    assert decision.failure is not None
    assert (decision.failure.code, decision.failure.final) == ("policy_error", False)
    assert decision.failure.message == (
        f"The policy failed to decide about 'read', so the call was not run: {REASON}."
    )
    assert decision.provider is None
    assert decision.errors == (verdict,)
    assert verdict.verdict.reason == REASON
    return verdict.error


def raises(error: BaseException) -> Callable[..., Any]:
    def answer(*_: object) -> Any:
        raise error

    return answer


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


# --------------------------------------------------------------------------------------------
# filter_tools
# --------------------------------------------------------------------------------------------


class Hostile(dict[Any, Any]):
    """A mapping whose reading fails."""

    def keys(self) -> Any:
        raise OSError("no keys")

    __iter__ = keys


class Liar:
    """A key that claims to equal a tool."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool

    def __hash__(self) -> int:
        return hash(self.tool)

    def __eq__(self, other: object) -> bool:
        return True


class LazyMapping(Mapping[Tool, Verdict]):
    """No dict, but a mapping: a fair answer."""

    def __init__(self, tools: Toolset) -> None:
        self.tools = tools

    def __getitem__(self, tool: Tool) -> Verdict:
        return NO

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools[:1])

    def __len__(self) -> int:
        return 1


def broken_verdict() -> Verdict:
    """One that was made past its constructor."""
    return Verdict.__new__(Verdict)


def changed_verdict(**parts: object) -> Verdict:
    """One that was changed behind attrs' back."""
    verdict = deny("a")
    for name, value in parts.items():
        object.__setattr__(verdict, name, value)
    return verdict


async def a_coroutine() -> None:
    """Never awaited: it must be closed, or the interpreter warns."""


def a_generator(tools: Toolset) -> Iterator[Tool]:
    yield from tools


OLD_TOOLS = toolset("read", "write")

KEY = (
    "filter_tools answered with a key that it was not asked about; the keys are the Tool objects "
    "of this very toolset"
)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(raises(LookupError("lost")), "LookupError: lost", id="raises"),
        pytest.param(
            raises(Unprintable()), "Unprintable (its text raises RuntimeError)", id="unprintable"
        ),
        pytest.param(raises(RecursionError("deep")), "RecursionError: deep", id="recursion"),
        pytest.param(
            lambda tools: None,
            "filter_tools answered NoneType, not a mapping of tools (a forgotten return? {} is no "
            "opinion)",
            id="forgotten return",
        ),
        pytest.param(
            lambda tools: list(tools),
            "filter_tools answered list, not a mapping of tools",
            id="list",
        ),
        pytest.param(
            lambda tools: True, "filter_tools answered bool, not a mapping of tools", id="bool"
        ),
        pytest.param(
            a_generator, "filter_tools answered generator, not a mapping of tools", id="generator"
        ),
        pytest.param(
            lambda tools: a_coroutine(),
            "filter_tools answered coroutine, not a mapping of tools",
            id="coroutine",
        ),
        pytest.param(lambda tools: {Tool(name="read"): NO}, KEY, id="a tool that was not asked"),
        pytest.param(
            lambda tools: dict.fromkeys(OLD_TOOLS, NO), KEY, id="keys of yesterday's toolset"
        ),
        pytest.param(lambda tools: {"read": NO}, KEY, id="a name as key"),
        pytest.param(lambda tools: {Liar(tools[0]): NO}, KEY, id="a key that lies"),
        pytest.param(
            lambda tools: {tools[0]: ask("may it?")},
            "filter_tools answered an ask for a tool; asks belong into on_tool_call",
            id="ask",
        ),
        pytest.param(
            lambda tools: {tools[0]: None},
            "filter_tools answered a NoneType for a tool; allowed is deny(...)",
            id="no verdict",
        ),
        pytest.param(
            lambda tools: {tools[0]: NO, tools[1]: "no"},
            "filter_tools answered a str for a tool; allowed is deny(...)",
            id="one of two is no verdict",
        ),
        pytest.param(
            lambda tools: {tools[0]: broken_verdict()},
            NO_CONTENT,
            id="a verdict without content",
        ),
        pytest.param(
            lambda tools: {tools[0]: changed_verdict(effect=Effect.ALLOW)},
            "TypeError: the effect of the verdict is <Effect.ALLOW: 'allow'>",
            id="a verdict that was made to allow",
        ),
        pytest.param(
            lambda tools: {tools[0]: changed_verdict(reason="")},
            "TypeError: the reason of the verdict is no text",
            id="a verdict that lost its reason",
        ),
        pytest.param(
            lambda tools: {tools[0]: changed_verdict(code=["quota"])},
            "TypeError: a part of the verdict is a list, not text",
            id="a verdict with another code",
        ),
        pytest.param(lambda tools: Hostile(a=1), "OSError: no keys", id="hostile mapping"),
    ],
)
def test_a_faulty_answer_withholds_every_tool(answer: Callable[[Toolset], Any], error: str) -> None:
    """Whatever is wrong with it: the plugin is named, the error says what to mend."""
    assert list_error(answer) == error


def test_any_mapping_is_an_answer() -> None:
    """Not only a dict."""
    listing = listing_with(LazyMapping)
    assert [tool.name for tool in listing] == ["write"]
    assert listing.withheld[TOOLS[0]][0].verdict is NO


@pytest.mark.parametrize("withheld", [1, 9, 10, 60, 99, 100])
def test_few_and_many_withheld_tools_are_those_that_were_named(withheld: int) -> None:
    """The two ways to mark them give the listing that the answer means."""
    tools = toolset(*(f"tool-{place}" for place in range(100)))

    class Some:
        @hookimpl
        def filter_tools(self, tools: Toolset) -> dict[Tool, Verdict]:
            return dict.fromkeys(tools[::-1][:withheld], NO)

    listing = PolicyEngine([Some()]).filter_tools(tools, SCOPE)
    assert list(listing) == list(tools)[: 100 - withheld]
    assert list(listing.withheld) == list(tools)[100 - withheld :]


def test_every_verdict_of_an_answer_is_looked_at() -> None:
    """Also after one that stands for several tools."""
    late = deny("it is late")

    class Mixed:
        name = "mixed"

        @hookimpl
        def filter_tools(self, tools: Toolset) -> dict[Tool, Verdict]:
            return {tools[0]: late, tools[1]: late, tools[2]: ask("may it?")}

    tools = toolset("a", "b", "c", "d")
    listing = PolicyEngine([Mixed()]).filter_tools(tools, SCOPE)
    assert list(listing) == []
    (verdict,) = listing.verdicts(tools[3])
    assert verdict.error == "filter_tools answered an ask for a tool; asks belong into on_tool_call"


def test_an_answer_is_copied() -> None:
    """A plugin that refills one dict changes nothing that was answered before."""
    kept: dict[Tool, Verdict] = {}

    class Refilling:
        @hookimpl
        def filter_tools(self, tools: Toolset, scope: Scope) -> dict[Tool, Verdict]:
            kept.clear()
            kept[tools[0] if scope.subject == "ann" else tools[1]] = NO
            return kept

    engine = PolicyEngine([Refilling()])
    first = engine.filter_tools(TOOLS, Scope(subject="ann"))
    second = engine.filter_tools(TOOLS, Scope(subject="bob"))
    kept.clear()
    assert [[tool.name for tool in one] for one in (first, second)] == [["write"], ["read"]]
    assert [[tool.name for tool in one.withheld] for one in (first, second)] == [
        ["read"],
        ["write"],
    ]
    assert engine.filter_tools(TOOLS, Scope(subject="ann")) is first


def test_a_faulty_answer_is_not_kept() -> None:
    """A rule that recovers is asked again; what the sound rules said is kept."""
    asked: list[str] = []

    class Flaky:
        @hookimpl
        def filter_tools(self) -> dict[Tool, Verdict]:
            asked.append("flaky")
            if asked.count("flaky") == 1:
                raise OSError("the disk is away")
            return {}

    class Sound:
        @hookimpl
        def filter_tools(self) -> dict[Tool, Verdict]:
            asked.append("sound")
            return {}

    engine = PolicyEngine([Flaky(), Sound()])
    assert list(engine.filter_tools(TOOLS, SCOPE)) == []
    assert list(engine.filter_tools(TOOLS, SCOPE)) == list(TOOLS)
    assert list(engine.filter_tools(TOOLS, SCOPE)) == list(TOOLS)
    assert asked == ["flaky", "sound", "flaky"]


def test_a_base_exception_passes_through_a_listing() -> None:
    """An interrupt is no fault of a rule; it ends the question, and the next one is answered."""
    interrupt = [KeyboardInterrupt()]

    class Interrupted:
        @hookimpl
        def filter_tools(self) -> dict[Tool, Verdict]:
            if interrupt:
                raise interrupt.pop()
            return {}

    engine = PolicyEngine([Interrupted()])
    with pytest.raises(KeyboardInterrupt):
        engine.filter_tools(TOOLS, SCOPE)
    assert list(engine.filter_tools(TOOLS, SCOPE)) == list(TOOLS)


# --------------------------------------------------------------------------------------------
# on_tool_call, sync
# --------------------------------------------------------------------------------------------

ALLOWED = "allowed are ask(...), deny(...) and None"


def async_generator() -> Any:
    async def generate() -> Any:
        yield NO

    return generate()


class HostileClass:
    """An answer that cannot even be asked what it is."""

    @property
    def __class__(self) -> Any:
        raise ValueError("no class")

    @__class__.setter
    def __class__(self, value: object) -> None: ...


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(raises(LookupError("lost")), "LookupError: lost", id="raises"),
        pytest.param(lambda: True, f"on_tool_call answered bool; {ALLOWED}", id="true"),
        pytest.param(lambda: False, f"on_tool_call answered bool; {ALLOWED}", id="false"),
        pytest.param(lambda: "deny", f"on_tool_call answered str; {ALLOWED}", id="text"),
        pytest.param(
            lambda: Effect.ALLOW, f"on_tool_call answered Effect; {ALLOWED}", id="an effect"
        ),
        pytest.param(
            lambda: a_generator(TOOLS),
            f"on_tool_call answered generator; {ALLOWED}",
            id="generator",
        ),
        pytest.param(
            async_generator,
            f"on_tool_call answered async_generator; {ALLOWED}",
            id="async generator",
        ),
        pytest.param(
            broken_verdict,
            NO_CONTENT,
            id="a verdict without content",
        ),
        pytest.param(
            lambda: changed_verdict(effect=Effect.ALLOW),
            "TypeError: the effect of the verdict is <Effect.ALLOW: 'allow'>",
            id="a verdict that was made to allow",
        ),
        pytest.param(HostileClass, "ValueError: no class", id="hostile answer"),
        pytest.param(
            a_coroutine,
            "on_tool_call answered an awaitable to a sync question; ask with on_tool_call_async",
            id="awaitable",
        ),
    ],
)
def test_a_faulty_rule_denies_the_call(answer: Callable[[], Any], error: str) -> None:
    """Whatever is wrong with it, to a sync question."""
    decision = decision_with(answer).on_tool_call(CALL, TOOLS, SCOPE)
    assert call_error(decision) == error


def test_the_awaitable_of_a_sync_question_is_ended() -> None:
    """A coroutine is closed (no warning), a future is cancelled, and a broken one is logged."""
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    decision = decision_with(lambda: future).on_tool_call(CALL, TOOLS, SCOPE)
    loop.close()
    assert future.cancelled()
    assert call_error(decision) is not None


class UncancellableAwaitable:
    """An awaitable whose ``cancel`` cannot even be looked up."""

    def __await__(self) -> Generator[Any, None, None]:
        yield

    @property
    def cancel(self) -> Any:
        raise ValueError("no")


class PlainAwaitable:
    """An awaitable without ``cancel``: there is nothing to end."""

    def __await__(self) -> Generator[Any, None, None]:
        yield


def test_an_awaitable_that_cannot_be_ended_denies_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What goes wrong in ending it is logged; the host sees none of it."""
    decision = decision_with(UncancellableAwaitable).on_tool_call(CALL, TOOLS, SCOPE)
    assert call_error(decision) is not None
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("toolscope", "WARNING")
    assert record.message == "a rule's awaitable could not be closed"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "no"
    caplog.clear()
    decision = decision_with(PlainAwaitable).on_tool_call(CALL, TOOLS, SCOPE)
    assert call_error(decision) is not None
    assert caplog.records == []


def test_a_base_exception_passes_through_a_call() -> None:
    """And the awaitables that other rules had answered are closed."""

    class Early:
        name = "a"

        @hookimpl
        async def on_tool_call(self) -> None: ...

    class Interrupting:
        name = "b"

        @hookimpl
        def on_tool_call(self) -> None:
            raise KeyboardInterrupt

    engine = PolicyEngine([Early(), Interrupting()])
    with pytest.raises(KeyboardInterrupt):
        engine.on_tool_call(CALL, TOOLS, SCOPE)


def test_every_rule_is_asked_after_one_that_failed() -> None:
    """A real deny is the cause where there is one; the errors stay in the record."""

    class Failing:
        name = "a"

        @hookimpl
        def on_tool_call(self) -> None:
            raise OSError("gone")

    class Denying:
        name = "b"

        @hookimpl
        def on_tool_call(self) -> Verdict:
            return deny("use search instead", code="quota")

    decision = PolicyEngine([Denying(), Failing()]).on_tool_call(CALL, TOOLS, SCOPE)
    assert [(one.plugin, one.error) for one in decision.verdicts] == [
        ("a", "OSError: gone"),
        ("b", None),
    ]
    assert decision.failure is not None
    assert decision.failure.code == "quota"
    assert decision.failure.message == (
        "Policy denies this call of 'read': use search instead. The same call cannot succeed here; "
        "do not repeat it."
    )


def test_every_rule_is_asked_after_one_without_an_opinion() -> None:
    """Whatever it is given; the verdicts come in the order of plugin names."""
    asked: list[str] = []

    class Nothing:
        name = "a"

        @hookimpl
        def on_tool_call(self, call: ToolCall) -> None:
            asked.append("a")

    class Asking:
        name = "b"

        @hookimpl
        def on_tool_call(self, call: ToolCall, tool: Tool) -> Verdict:
            asked.append("b")
            return ask(f"{call.name} is {tool.name}")

    class Denying:
        name = "c"

        @hookimpl
        def on_tool_call(self) -> Verdict:
            asked.append("c")
            return deny("no")

    plugins = [Denying(), Asking(), Nothing()]
    decision = PolicyEngine(plugins).on_tool_call(CALL, TOOLS, SCOPE)
    assert asked == ["a", "b", "c"]
    assert [one.plugin for one in decision.verdicts] == ["c"]


def test_a_deny_stays_beside_an_awaitable_that_was_not_to_be() -> None:
    """Both determine the outcome, and the deny gives the code."""

    class Denying:
        name = "a"

        @hookimpl
        def on_tool_call(self) -> Verdict:
            return deny("no", code="quota")

    class Waiting:
        name = "b"

        @hookimpl
        async def on_tool_call(self) -> None:
            """Never awaited."""

    decision = PolicyEngine([Waiting(), Denying()]).on_tool_call(CALL, TOOLS, SCOPE)
    assert [(one.plugin, one.error) for one in decision.verdicts] == [
        ("a", None),
        (
            "b",
            "on_tool_call answered an awaitable to a sync question; ask with on_tool_call_async",
        ),
    ]
    assert decision.failure is not None
    assert decision.failure.code == "quota"


def test_arguments_come_by_name_in_any_order() -> None:
    """A hookimpl names those it wants; whatever it names, it gets the right ones."""
    values = ("the call", "the tool", "the scope")
    names = ("call", "tool", "scope")
    wanted = [
        (),
        ("call",),
        ("tool",),
        ("scope",),
        ("call", "tool"),
        ("tool", "call"),
        ("tool", "scope"),
        ("scope", "call", "tool"),
        ("call", "tool", "scope"),
    ]
    for arguments in wanted:
        ask_it = positional(lambda *given: given, arguments)
        expected = tuple(values[names.index(name)] for name in arguments)
        assert ask_it(*values) == expected  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------
# on_tool_call, async
# --------------------------------------------------------------------------------------------

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def decide_on(
    backend: str, engine: PolicyEngine, call: ToolCall = CALL, scope: Scope = SCOPE
) -> Decision:
    """The decision of an async question; on trio, no real time passes. ``now``: of a sync one."""
    if backend == "now":
        return engine.on_tool_call(call, TOOLS, scope)

    async def question() -> Decision:
        return await engine.on_tool_call_async(call, TOOLS, scope)

    if backend == "trio":
        return trio.run(question, clock=trio.testing.MockClock(autojump_threshold=0))
    return asyncio.run(question())


def timeout_for(backend: str) -> float:
    return 5.0 if backend == "trio" else 0.02


@BACKENDS
@pytest.mark.parametrize(
    ("answer", "effect"),
    [(None, Effect.ALLOW), (ask("may it?"), Effect.ASK), (NO, Effect.DENY)],
)
def test_an_awaited_answer_counts_like_a_sync_one(
    backend: str, answer: Verdict | None, effect: Effect
) -> None:
    """None is no opinion, an ask asks, a deny denies."""

    async def later() -> Verdict | None:
        await anyio.sleep(0)
        return answer

    decision = decide_on(backend, decision_with(later))
    assert decision.effect is effect
    assert [one.verdict for one in decision.verdicts] == ([] if answer is None else [answer])


@BACKENDS
def test_a_rule_that_never_answers_denies_at_the_deadline(backend: str) -> None:
    """Exactly the unfinished plugins are named, with the setting."""

    class Quick:
        name = "quick"

        @hookimpl
        async def on_tool_call(self) -> None: ...

    class Slow:
        name = "bad"

        @hookimpl
        async def on_tool_call(self) -> None:
            await anyio.sleep_forever()

    seconds = timeout_for(backend)
    engine = PolicyEngine([Quick(), Slow()], config={"async_timeout": seconds})
    assert call_error(decide_on(backend, engine)) == (
        f"on_tool_call did not answer within {seconds} s"
    )


@BACKENDS
def test_all_awaitables_run_at_once_under_one_deadline(backend: str) -> None:
    """Three rules that wait for each other answer; in a row none of them could."""
    arrived = 0

    class Meeting:
        def __init__(self, name: str) -> None:
            self.name = name

        @hookimpl
        async def on_tool_call(self) -> None:
            nonlocal arrived
            arrived += 1
            while arrived < 3:
                await anyio.sleep(0)

    engine = PolicyEngine([Meeting(name) for name in "abc"])
    assert decide_on(backend, engine).effect is Effect.ALLOW


@BACKENDS
def test_an_answer_after_the_deadline_is_none(backend: str) -> None:
    """A rule that swallows the cancellation and then has no objection did not answer in time."""

    async def stubborn() -> None:
        try:
            await anyio.sleep_forever()
        except BaseException:
            return

    engine = decision_with(stubborn, timeout=timeout_for(backend))
    error = call_error(decide_on(backend, engine))
    assert error == f"on_tool_call did not answer within {timeout_for(backend)} s"


def test_a_rule_that_cancels_itself_denies() -> None:
    """It ends without an answer long before the deadline, and the error says so."""
    decision = decide_on("asyncio", decision_with(lambda: later_raises(asyncio.CancelledError())))
    assert call_error(decision) == "on_tool_call cancelled itself and did not answer"


async def later_raises(error: BaseException) -> None:
    await anyio.sleep(0)
    raise error


@BACKENDS
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda: later_raises(LookupError("lost")), "LookupError: lost"),
        (lambda: later_raises(Unprintable()), "Unprintable (its text raises RuntimeError)"),
        (lambda: later(True), f"on_tool_call answered bool; {ALLOWED}"),
        (lambda: later(a_coroutine()), f"on_tool_call answered coroutine; {ALLOWED}"),
        (
            lambda: later(broken_verdict()),
            NO_CONTENT,
        ),
    ],
)
def test_a_faulty_awaited_answer_denies(
    backend: str, answer: Callable[[], Awaitable[Any]], error: str
) -> None:
    """Like a sync one."""
    assert call_error(decide_on(backend, decision_with(answer))) == error


async def later(value: Any) -> Any:
    return value


class Odd(BaseException):
    """Neither an Exception nor anything that an event loop knows."""


@BACKENDS
@pytest.mark.parametrize("error", [Odd("x"), GeneratorExit()])
def test_a_base_exception_of_an_awaitable_passes_through_as_itself(
    backend: str, error: BaseException
) -> None:
    """Not wrapped in the group of the tasks; observers are told of a deny."""
    told: list[Decision | Listing] = []
    engine = observed(lambda: later_raises(error), told)
    with pytest.raises(type(error)):
        decide_on(backend, engine)
    assert [one.effect for one in told if isinstance(one, Decision)] == [Effect.DENY]


def test_several_base_exceptions_pass_through_as_a_group() -> None:
    """None of them is lost."""

    class Raising:
        def __init__(self, name: str) -> None:
            self.name = name

        @hookimpl
        async def on_tool_call(self) -> None:
            raise Odd(self.name)

    engine = PolicyEngine([Raising("a"), Raising("b")])
    with pytest.raises(BaseExceptionGroup) as caught:
        decide_on("trio", engine)
    assert sorted(str(one) for one in caught.value.exceptions) == ["a", "b"]


def observed(
    answer: Callable[[], Any], told: list[Decision | Listing], timeout: float = 5.0
) -> PolicyEngine:
    """An engine with the rule ``bad``, and an observer that notes what it is told."""

    class Bad:
        name = "bad"

        @hookimpl
        def on_tool_call(self) -> Any:
            return answer()

    class Noting:
        name = "noting"

        @hookimpl
        def on_decision(self, outcome: Decision | Listing) -> None:
            told.append(outcome)

    return PolicyEngine([Bad(), Noting()], config={"async_timeout": timeout})


CANCELLED = "the decision was cancelled before on_tool_call answered"


def test_a_cancelled_decision_is_recorded_as_a_deny_on_asyncio() -> None:
    """The cancellation passes through; nothing was permitted, and the observers know."""
    told: list[Decision | Listing] = []
    engine = observed(anyio.sleep_forever, told)

    async def cancel_it() -> None:
        task = asyncio.create_task(engine.on_tool_call_async(CALL, TOOLS, SCOPE))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_it())
    (decision,) = [one for one in told if isinstance(one, Decision)]
    assert call_error(decision) == CANCELLED


def test_a_cancelled_decision_is_recorded_as_a_deny_on_trio() -> None:
    """The same, in a cancel scope; a rule that swallows the cancellation changes nothing."""

    async def stubborn() -> None:
        try:
            await anyio.sleep_forever()
        except trio.Cancelled:
            return

    for answer in (anyio.sleep_forever, stubborn):
        told: list[Decision | Listing] = []
        engine = observed(answer, told)
        returned: list[Decision] = []

        async def cancel_it(
            engine: PolicyEngine = engine, returned: list[Decision] = returned
        ) -> bool:
            with trio.move_on_after(1) as scope:
                returned.append(await engine.on_tool_call_async(CALL, TOOLS, SCOPE))
            return scope.cancelled_caught

        clock = trio.testing.MockClock(autojump_threshold=0)
        assert trio.run(cancel_it, clock=clock) is True
        assert returned == []
        (decision,) = [one for one in told if isinstance(one, Decision)]
        assert call_error(decision) == CANCELLED


def test_an_awaitable_that_no_task_came_to_await_is_closed() -> None:
    """It would warn later, somewhere else, that it was never awaited."""
    given = a_coroutine()

    async def main() -> None:
        asking = asyncio.ensure_future(
            decision_with(lambda: given).on_tool_call_async(CALL, TOOLS, SCOPE)
        )
        await asyncio.sleep(0)  # asked, and its tasks made, but none of them has begun
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    with warnings.catch_warnings():
        # The tasks that never began are anyio's, and warn of themselves.
        warnings.simplefilter("ignore", RuntimeWarning)
        asyncio.run(main())
        gc.collect()
    assert inspect.getcoroutinestate(given) == inspect.CORO_CLOSED


@BACKENDS
def test_awaitables_are_closed_unasked_where_a_sync_rule_denies(backend: str) -> None:
    """Nobody waits for an answer that could change nothing; no coroutine is left to warn."""
    started: list[str] = []

    class Denying:
        name = "a"

        @hookimpl
        def on_tool_call(self) -> Verdict:
            return NO

    class Waiting:
        name = "b"

        @hookimpl
        async def on_tool_call(self) -> None:
            started.append("b")
            await anyio.sleep_forever()

    decision = decide_on(backend, PolicyEngine([Waiting(), Denying()]))
    assert [one.plugin for one in decision.verdicts] == ["a"]
    assert started == []


# --------------------------------------------------------------------------------------------
# Mutation and recursion
# --------------------------------------------------------------------------------------------


def test_a_rule_cannot_change_what_others_see() -> None:
    """Arguments, schemas, attributes and the values around them raise, and the rule denies."""
    tools = Toolset([Tool(name="read", input_schema={"properties": {"a": {}}})])
    scope = Scope(attributes={"teams": {"x"}})
    call = ToolCall(name="read", arguments={"paths": ["a"], "options": {"deep": True}})

    def attempts(call: ToolCall, tool: Tool, scope: Scope) -> list[Callable[[], Any]]:
        arguments: Any = call.arguments
        schema: Any = tool.input_schema
        found: Any = scope.attributes
        return [
            lambda: arguments.update(paths=[]),
            lambda: arguments.__setitem__("paths", []),
            lambda: arguments["paths"].append("b"),
            lambda: arguments["options"].pop("deep"),
            lambda: schema["properties"].clear(),
            lambda: found.setdefault("ring", "0"),
            lambda: setattr(call, "name", "write"),
            lambda: setattr(tool, "availability", "session"),
            lambda: setattr(scope, "can_ask", True),
        ]

    def rule(place: int) -> object:
        class Meddling:
            @hookimpl
            def on_tool_call(self, call: ToolCall, tool: Tool, scope: Scope) -> None:
                attempts(call, tool, scope)[place]()

        return Meddling()

    count = len(attempts(call, tools[0], scope))
    for place in range(count):
        decision = PolicyEngine([rule(place)]).on_tool_call(call, tools, scope)
        (verdict,) = decision.verdicts
        assert verdict.error is not None
        assert verdict.error.startswith(("TypeError: Frozen", "FrozenInstanceError"))
    assert call.arguments == {"paths": ["a"], "options": {"deep": True}}
    assert tools[0].input_schema == {"properties": {"a": {}}}
    assert scope == Scope(attributes={"teams": {"x"}})


RECURSION = (
    "RecursionRefused: a hook asked the engine that is asking it; decide from the hook's own "
    "arguments"
)


def test_a_hook_that_asks_its_engine_is_refused() -> None:
    """Two plugins that ask back, at once and in every form, cost a handful of calls and deny."""
    asked: list[str] = []

    class Recursive:
        def __init__(self, name: str) -> None:
            self.name = name

        @hookimpl
        def filter_tools(self, tools: Toolset, scope: Scope) -> dict[Tool, Verdict]:
            asked.append(self.name)
            engine.filter_tools(tools, Scope(subject="another"))
            return {}

        @hookimpl
        def on_tool_call(self, call: ToolCall, scope: Scope) -> None:
            asked.append(self.name)
            engine.on_tool_call(call, TOOLS, scope)

    engine = PolicyEngine([Recursive("a"), Recursive("b")])
    listing = engine.filter_tools(TOOLS, SCOPE)
    assert [one.error for one in listing.withheld[TOOLS[0]]] == [RECURSION, RECURSION]
    assert asked == ["a", "b"]


@pytest.mark.parametrize("how", ["listing", "call", "async call", "reload"])
def test_a_rule_about_calls_that_asks_its_engine_is_refused(how: str) -> None:
    """A listing, a call or a reload from inside a call; also where the answer is awaited."""

    class Recursive:
        name = "bad"

        @hookimpl
        async def on_tool_call(self, call: ToolCall, scope: Scope) -> None:
            match how:
                case "listing":
                    engine.filter_tools(TOOLS, scope)
                case "call":
                    engine.on_tool_call(call, TOOLS, scope)
                case "async call":
                    await engine.on_tool_call_async(call, TOOLS, scope)
                case "reload":
                    engine.reload()

    engine = PolicyEngine([Recursive()])
    assert call_error(decide_on("asyncio", engine)) == RECURSION


@pytest.mark.parametrize("backend", ["now", "asyncio"])
def test_a_rule_without_waiting_that_asks_its_engine_is_refused(backend: str) -> None:
    """Whether the call is decided at once or awaited."""

    class Recursive:
        name = "bad"

        @hookimpl
        def on_tool_call(self, call: ToolCall, scope: Scope) -> None:
            engine.on_tool_call(call, TOOLS, scope)

    engine = PolicyEngine([Recursive()])
    assert call_error(decide_on(backend, engine)) == RECURSION


@pytest.mark.parametrize("backend", ["now", "asyncio"])
def test_an_engine_asked_through_another_is_refused(backend: str) -> None:
    """Two engines whose rules ask each other do not ask for ever."""
    engines: list[PolicyEngine] = []
    asked: list[int] = []

    def rule(other: int) -> object:
        class Asking:
            @hookimpl
            def on_tool_call(self, call: ToolCall, scope: Scope) -> None:
                asked.append(other)
                refuse(engines[other].on_tool_call(call, TOOLS, scope))

        class Awaiting:
            @hookimpl
            async def on_tool_call(self, call: ToolCall, scope: Scope) -> None:
                asked.append(other)
                refuse(await engines[other].on_tool_call_async(call, TOOLS, scope))

        return Asking() if backend == "now" else Awaiting()

    def refuse(decision: Decision) -> None:
        if decision.effect is not Effect.ALLOW:
            raise ValueError([one.error for one in decision.verdicts])

    engines += [PolicyEngine([rule(1)]), PolicyEngine([rule(0)])]
    decision = decide_on(backend, engines[0])
    assert decision.effect is Effect.DENY
    assert RECURSION in str(decision.verdicts[0].error)
    assert asked == [1, 0]


def test_after_a_recursion_the_engine_answers_as_before() -> None:
    """A rule that catches the refusal may have no opinion; the next question is a new one."""
    refused: list[str] = []

    class Catching:
        @hookimpl
        def on_tool_call(self, call: ToolCall) -> None:
            try:
                engine.filter_tools(TOOLS, SCOPE)
            except RecursionRefused as error:
                refused.append(str(error))

    engine = PolicyEngine([Catching()])
    assert engine.on_tool_call(CALL, TOOLS, SCOPE).effect is Effect.ALLOW
    assert list(engine.filter_tools(TOOLS, SCOPE)) == list(TOOLS)
    assert len(refused) == 1


# --------------------------------------------------------------------------------------------
# on_decision
# --------------------------------------------------------------------------------------------


def test_observers_are_told_of_every_decision_and_every_new_listing() -> None:
    """A listing that is known already is not told again; an observer may name no argument."""
    told: list[Any] = []

    class Noting:
        name = "a"

        @hookimpl
        def on_decision(self, outcome: Decision | Listing) -> None:
            told.append(outcome)

    class Counting:
        name = "b"

        @hookimpl
        def on_decision(self) -> None:
            told.append("b")

    engine = PolicyEngine([Noting(), Counting()])
    listing = engine.filter_tools(TOOLS, SCOPE)
    engine.filter_tools(TOOLS, SCOPE)
    decision = engine.on_tool_call(CALL, TOOLS, SCOPE)
    unknown = engine.on_tool_call(ToolCall(name="none"), TOOLS, SCOPE)
    assert told == [listing, "b", decision, "b", unknown, "b"]


def test_an_observer_that_raises_is_logged_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The next observer is told all the same."""
    told: list[str] = []

    class Broken:
        name = "a"

        @hookimpl
        def on_decision(self) -> None:
            raise OSError("the log is full")

    class Noting:
        name = "b"

        @hookimpl
        def on_decision(self) -> None:
            told.append("b")

    engine = PolicyEngine([Broken(), Noting()])
    with caplog.at_level(logging.ERROR, logger="toolscope"):
        assert list(engine.filter_tools(TOOLS, SCOPE)) == list(TOOLS)
    assert told == ["b"]
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("toolscope", "ERROR")
    assert record.getMessage() == "on_decision of plugin 'a' failed"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "the log is full"


def test_an_observer_cannot_change_what_it_is_told() -> None:
    """The listing that others get is the very same object, so it refuses."""

    class Meddling:
        @hookimpl
        def on_decision(self, outcome: Any) -> None:
            outcome.shadowed = frozenset(TOOLS)

    engine = PolicyEngine([Meddling()])
    listing = engine.filter_tools(TOOLS, SCOPE)
    assert listing.shadowed == frozenset()
    with pytest.raises(AttributeError, match="a Listing cannot be changed"):
        del listing.scope
