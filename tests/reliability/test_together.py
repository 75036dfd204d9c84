"""Threads and tasks that decide, reload and enter scopes at once: nothing crosses over."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from toolscope import (
    Agent,
    Ancestor,
    Effect,
    PolicyEngine,
    Scope,
    Tool,
    ToolCall,
    Toolset,
    Verdict,
    deny,
    hookimpl,
)
from toolscope.calls import CallLedger
from toolscope.scopes import current, for_run, inside

TOOLS = Toolset([Tool(name=f"t{number}") for number in range(50)])


class OwnTool:
    """Each subject may use the tool of its own number only."""

    name = "own-tool"

    @hookimpl
    def filter_tools(self, tools: Toolset, scope: Scope) -> dict[Tool, Verdict]:
        return {tool: deny("not yours") for tool in tools if tool.name != f"t{scope.subject}"}

    @hookimpl
    async def on_tool_call(self, call: ToolCall, scope: Scope) -> Verdict | None:
        await asyncio.sleep(0)
        return None if call.arguments.get("who") == scope.subject else deny("not you")


class SyncOwnTool(OwnTool):
    """The same without awaiting, for threads."""

    @hookimpl
    def on_tool_call(self, call: ToolCall, scope: Scope) -> Verdict | None:  # type: ignore[override]
        return None if call.arguments.get("who") == scope.subject else deny("not you")


def scope_of(subject: str) -> Scope:
    return Scope(origin="user", subject=subject, agent=Agent(name=subject))


def faults_of(subject: str, engine: Callable[[], PolicyEngine], rounds: int) -> list[str]:
    """What went wrong for one subject that asks about its own and about other tools."""
    wrong = []
    scope = scope_of(subject)
    for number in range(rounds):
        with inside(scope):
            if current() is not scope:
                wrong.append("the scope is another's")
            above = for_run().ancestry[0]
            if not isinstance(above, Ancestor) or above.agent != subject:
                wrong.append("a run inside has another's ancestry")
            listed = [tool.name for tool in engine().filter_tools(TOOLS, scope)]
            if listed != [f"t{subject}"]:
                wrong.append(f"listed {listed}")
            call = ToolCall(name=f"t{subject}", arguments={"who": subject})
            if engine().on_tool_call(call, TOOLS, scope).effect is not Effect.ALLOW:
                wrong.append("its own call was denied")
            other = ToolCall(
                name=f"t{(int(subject) + 1 + number) % 50}", arguments={"who": subject}
            )
            denied = engine().on_tool_call(other, TOOLS, scope)
            if other.name != f"t{subject}" and denied.effect is not Effect.DENY:
                wrong.append("another's call was allowed")
        if current() is not None:
            wrong.append("a scope was left behind")
    return wrong


def test_sixteen_threads() -> None:
    """16 threads over one toolset, while another reloads the engine again and again."""
    engines = [PolicyEngine([SyncOwnTool()])]
    done = threading.Event()

    def reload() -> int:
        count = 0
        while not done.is_set() and count < 2_000:
            engines[0] = engines[0].reload()
            count += 1
        return count

    with ThreadPoolExecutor(17) as pool:
        reloading = pool.submit(reload)
        running = [
            pool.submit(faults_of, str(number), lambda: engines[0], 60) for number in range(16)
        ]
        wrong = [fault for future in running for fault in future.result(timeout=120)]
        done.set()
        assert reloading.result(timeout=60) > 0
    assert wrong == []


def test_a_thousand_tasks() -> None:
    """1,000 tasks that await their rules at once; each sees its own scope and its own verdicts."""
    engines = [PolicyEngine([OwnTool()])]
    ledger = CallLedger(lambda: engines[0])

    async def one(number: int) -> list[str]:
        subject = str(number % 50)
        scope = scope_of(subject)
        wrong = []
        with inside(scope):
            await asyncio.sleep(0)
            own = ToolCall(
                id=str(number), chat=subject, name=f"t{subject}", arguments={"who": subject}
            )
            if (await ledger.on_tool_call_async(own, TOOLS, scope)).effect is not Effect.ALLOW:
                wrong.append("its own call was denied")
            if number % 100 == 0:
                engines[0] = engines[0].reload()
            again = await ledger.on_tool_call_async(own, TOOLS, scope)
            if again.failure is None or again.failure.code != "call_settled":
                wrong.append("its call was handed out twice")
            false = ToolCall(name=f"t{subject}", arguments={"who": "somebody else"})
            if (await ledger.on_tool_call_async(false, TOOLS, scope)).effect is not Effect.DENY:
                wrong.append("a false call was allowed")
            if current() is not scope:
                wrong.append("the scope is another's")
        return wrong

    async def all_of_them() -> list[str]:
        faults = await asyncio.gather(*(one(number) for number in range(1_000)))
        return [fault for found in faults for fault in found]

    assert asyncio.run(all_of_them()) == []
    assert current() is None
