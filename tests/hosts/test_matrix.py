"""One matrix over all hosts: the same scenarios with the same expected answers."""

import importlib
from collections.abc import Awaitable
from typing import TypeVar

import pytest

from tests.hosts.matrix import Call, Column, Outcome, ToolSpec, Unsupported
from toolscope import Effect, PolicyEngine, Tool, ToolCall, Verdict, ask, deny, hookimpl

HOSTS = ("deepagents", "fastmcp", "langchain", "mcp", "openai_agents", "pydantic_ai")

PICK = ToolSpec(name="pick_file", availability="userChats")
MARKED = ToolSpec(name="send_mail", availability="userChats", by_decorator=True)
READ = ToolSpec(name="read_doc")

T = TypeVar("T")


@pytest.fixture(params=HOSTS)
def column(request: pytest.FixtureRequest) -> Column:
    module = importlib.import_module(f"tests.hosts.{request.param}_column")
    made: Column = module.COLUMN
    return made


async def supported(awaitable: Awaitable[T]) -> T:
    try:
        return await awaitable
    except Unsupported as why:
        pytest.skip(str(why))


class Rules:
    """Asks about ``refund``, denies ``drop``, and breaks on ``broken``."""

    name = "rules"

    @hookimpl
    def on_tool_call(self, call: ToolCall, tool: Tool) -> Verdict | None:
        if tool.name == "refund":
            return ask("a refund needs a person")
        if tool.name == "drop":
            return deny("nothing may be dropped; archive it")
        if tool.name == "broken":
            raise RuntimeError("a secret cause")
        return None


def fails_without_running(outcome: Outcome, tool: str) -> str:
    """The one failed result for this tool; it did not run and the run went on."""
    results = [one for one in outcome.results if one.tool == tool]
    assert [one.failed for one in results] == [True], outcome
    assert tool not in outcome.executed
    assert outcome.finished
    return results[0].text


@pytest.mark.anyio
@pytest.mark.parametrize("origin", ["user", "fork", "tool", "teleport", None])
async def test_list(column: Column, origin: str | None) -> None:
    """The list holds what may be used in a chat of this origin, whichever slot declares it."""
    outcome = await supported(column.chat(PolicyEngine(), [PICK, MARKED, READ], [], origin=origin))
    hidden = origin in ("tool", "teleport")
    assert outcome.listed == (
        (("read_doc",) if hidden else ("pick_file", "send_mail", "read_doc")),
    )
    assert outcome.finished


@pytest.mark.anyio
async def test_empty_list(column: Column) -> None:
    """A list filtered to nothing is sent as an empty list, not as the host's default."""
    outcome = await supported(column.chat(PolicyEngine(), [PICK, MARKED], [], origin="tool"))
    assert outcome.listed == ((),)
    assert outcome.finished


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("sync", [False, True])
async def test_forced_call(column: Column, stream: bool, sync: bool) -> None:
    """A call of a withheld tool fails, again and again, and the run goes on."""
    outcome = await supported(
        column.chat(
            PolicyEngine(),
            [PICK, READ],
            [[Call(tool="pick_file")], [Call(tool="pick_file")], [Call(tool="read_doc")]],
            origin="tool",
            stream=stream,
            sync=sync,
        )
    )
    assert [(one.tool, one.failed) for one in outcome.results] == [
        ("pick_file", True),
        ("pick_file", True),
        ("read_doc", False),
    ]
    assert outcome.executed == ("read_doc",)
    assert "only available in chats that the user drives" in outcome.results[0].text
    assert all("pick_file" not in names for names in outcome.listed)
    assert outcome.finished


@pytest.mark.anyio
async def test_parallel_call(column: Column) -> None:
    """The sibling of a denied parallel call runs untouched."""
    outcome = await supported(
        column.chat(
            PolicyEngine(),
            [PICK, READ],
            [[Call(tool="pick_file"), Call(tool="read_doc")]],
            origin="tool",
        )
    )
    fails_without_running(outcome, "pick_file")
    assert outcome.executed == ("read_doc",)


@pytest.mark.anyio
async def test_unknown_tool(column: Column) -> None:
    """A name that does not exist fails, and the message names no tool that does."""
    outcome = await supported(
        column.chat(PolicyEngine(), [PICK, READ], [[Call(tool="no_such_tool")]], origin="user")
    )
    text = fails_without_running(outcome, "no_such_tool")
    assert "read_doc" not in text
    assert "pick_file" not in text


@pytest.mark.anyio
async def test_denied_call(column: Column) -> None:
    """A listed tool that a rule denies at the call fails with the rule's reason."""
    engine = PolicyEngine([Rules()])
    outcome = await supported(
        column.chat(engine, [ToolSpec(name="drop"), READ], [[Call(tool="drop")]])
    )
    assert outcome.listed[0] == ("drop", "read_doc")
    assert "archive it" in fails_without_running(outcome, "drop")


@pytest.mark.anyio
async def test_policy_error(column: Column) -> None:
    """A rule that raises denies, in the same way, and its cause stays out of the message."""
    engine = PolicyEngine([Rules()])
    outcome = await supported(
        column.chat(engine, [ToolSpec(name="broken"), READ], [[Call(tool="broken")]])
    )
    assert "a secret cause" not in fails_without_running(outcome, "broken")


@pytest.mark.anyio
@pytest.mark.parametrize(("answer", "runs"), [(True, True), (False, False), (None, False)])
async def test_ask(column: Column, answer: bool | None, runs: bool) -> None:
    """An ask reaches a person by the host's own means; with nobody there the call fails at once."""
    engine = PolicyEngine([Rules()])
    outcome = await supported(
        column.chat(engine, [ToolSpec(name="refund")], [[Call(tool="refund")]], answer=answer)
    )
    assert outcome.executed == (("refund",) if runs else ())
    assert outcome.asked == (() if answer is None else ("refund",))
    assert [one.failed for one in outcome.results] == [not runs]


@pytest.mark.anyio
@pytest.mark.parametrize("declared", [None, "user"])
async def test_sub_agent(column: Column, declared: str | None) -> None:
    """A worker is tool-spawned whatever it declares; its boss is not touched."""
    boss, worker = await supported(
        column.sub_agent(
            PolicyEngine(),
            [MARKED, READ],
            [MARKED, READ],
            [[Call(tool="send_mail"), Call(tool="read_doc")]],
            declared=declared,
        )
    )
    assert "send_mail" in boss.listed[0]
    assert worker.listed[0] == ("read_doc",)
    fails_without_running(worker, "send_mail")
    assert worker.executed == ("read_doc",)
    assert boss.finished


@pytest.mark.anyio
async def test_handoff(column: Column) -> None:
    """A handoff changes the agent only: the chat is still the user's."""
    outcome = await supported(
        column.handoff(PolicyEngine(), [READ], [MARKED, READ], [[Call(tool="send_mail")]])
    )
    assert outcome.listed[0] == ("send_mail", "read_doc")
    assert outcome.executed == ("send_mail",)


@pytest.mark.anyio
async def test_tool_added_in_the_run(column: Column) -> None:
    """A tool that appears in the middle of a run is filtered like any other."""
    outcome = await supported(
        column.chat(
            PolicyEngine(),
            [READ],
            [[Call(tool="read_doc")], [Call(tool="pick_file")]],
            origin="tool",
            added=[PICK, ToolSpec(name="late")],
        )
    )
    assert "late" in outcome.listed[-1]
    assert all("pick_file" not in names for names in outcome.listed)
    fails_without_running(outcome, "pick_file")


@pytest.mark.anyio
async def test_same_name_twice(column: Column) -> None:
    """Two providers' tools of one name are never merged into a silent winner."""
    outcome = await supported(column.same_name_twice(PolicyEngine(), [[Call(tool="send_mail")]]))
    distinct = set(outcome.listed[0])
    assert len(distinct) == len(outcome.listed[0])
    assert outcome.executed == ()
    assert outcome.finished


def test_the_rules_ask_and_deny() -> None:
    """The rules of this matrix do what its scenarios rest on."""
    from toolscope import Scope, Toolset

    engine = PolicyEngine([Rules()])
    tools = Toolset([Tool(name="refund"), Tool(name="drop"), Tool(name="broken")])
    effects = [
        engine.on_tool_call(ToolCall(name=tool.name), tools, Scope(can_ask=True)).effect
        for tool in tools
    ]
    assert effects == [Effect.ASK, Effect.DENY, Effect.DENY]
