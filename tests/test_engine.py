"""The engine: names and who owns them, what is remembered, reloading, threads."""

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest

from toolscope.calls import grant_for
from toolscope.engine import PolicyEngine
from toolscope.errors import ConfigurationError, RecursionRefused
from toolscope.hookspecs import hookimpl
from toolscope.listings import Listing
from toolscope.model import (
    HOST,
    MODEL,
    Agent,
    AnyArguments,
    Availability,
    InvalidArguments,
    Origin,
    Provider,
    Reach,
    Scope,
    Tool,
    ToolCall,
    Toolset,
)
from toolscope.testing import tool, toolset
from toolscope.verdicts import (
    Decision,
    Effect,
    Failure,
    PluginVerdict,
    Unlisted,
    Verdict,
    ask,
    decide_invalid,
    decide_unlisted,
    deny,
)

USER = Scope(origin="user", can_ask=True)
WORKER = Scope(origin="tool")


def failure(
    name: str, tools: Toolset, scope: Scope = USER, *plugins: object, provider: str | None = None
) -> Failure:
    """How a call of this name fails."""
    owner = None if provider is None else Provider.parse(provider)
    decision = PolicyEngine(plugins).on_tool_call(ToolCall(name=name, provider=owner), tools, scope)
    assert decision.effect is Effect.DENY
    assert decision.provider is None
    assert decision.failure is not None
    return decision.failure


# --------------------------------------------------------------------------------------------
# Names
# --------------------------------------------------------------------------------------------

TOOLS = toolset("read_file", "écrire", "ﬁle", "shell")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("readfile", id="look-alike"),
        pytest.param("read-file", id="another sign"),
        pytest.param("rеad_file", id="a Cyrillic letter"),
        pytest.param("Read_File", id="case"),
        pytest.param("SHELL", id="upper case"),
        pytest.param("shell ", id="trailing space"),
        pytest.param(" shell", id="leading space"),
        pytest.param("shell\n", id="newline"),
        pytest.param("shell\x00", id="nul"),
        pytest.param("sh\u200bell", id="zero-width space"),
        pytest.param("shell\u200d", id="zero-width joiner"),
        pytest.param("\ufeffshell", id="byte order mark"),
        pytest.param("e\u0301crire", id="decomposed"),
        pytest.param("file", id="NFKC"),
        pytest.param("ｓｈｅｌｌ", id="full width"),
        pytest.param("host/shell", id="qualified"),
        pytest.param("", id="empty"),
        pytest.param("*", id="wildcard"),
    ],
)
def test_a_name_that_is_nearly_a_tools_is_unknown(name: str) -> None:
    """Names are compared as they are; the message lists no tool that exists."""
    failed = failure(name, TOOLS)
    assert (failed.code, failed.final, failed.attempts) == ("tool_unknown", True, 1)
    shown = f"'{name}'" if name.isprintable() else ascii(name)
    assert failed.message == (
        f"There is no tool named {shown} in this chat. The same call cannot succeed here; do not "
        "repeat it."
    )
    assert shown.isprintable()
    for other in TOOLS:
        assert other.name == name or other.name not in failed.message.replace(shown, "")


@pytest.mark.parametrize("name", ["x" * 1_000_000, "\u200b" * 1_000_000, "x" * 101])
def test_a_huge_name_is_cut_in_the_message(name: str) -> None:
    """A message is for a model to read."""
    message = failure(name, TOOLS).message
    assert "..." in message
    assert len(message) < 1_200


def test_a_withheld_tool_with_the_code_tool_unknown_fails_like_a_name_that_does_not_exist() -> None:
    """Word for word: a rule may hide that a tool is there. The record still says who did."""

    class Hiding:
        name = "hiding"

        @hookimpl
        def filter_tools(self, tools: Toolset) -> dict[Tool, Verdict]:
            hidden = deny("nobody is to know of it", code="tool_unknown", detail="for the operator")
            return {tool: hidden for tool in tools if tool.name == "shell"}

    tools = toolset("read", "shell")
    hidden = failure("shell", tools, USER, Hiding())
    unknown = failure("shell", toolset("read"), USER, Hiding())
    assert hidden == unknown
    engine = PolicyEngine([Hiding()])
    decision = engine.on_tool_call(ToolCall(name="shell"), tools, USER)
    assert [one.plugin for one in decision.verdicts] == ["hiding"]


def test_a_deny_of_a_call_may_hide_the_tool_too() -> None:
    """With the same words."""

    class Hiding:
        @hookimpl
        def on_tool_call(self) -> Verdict:
            return deny("nobody is to know of it", code="tool_unknown")

    assert failure("read", toolset("read"), USER, Hiding()) == failure("read", toolset())


# --------------------------------------------------------------------------------------------
# Who owns a name
# --------------------------------------------------------------------------------------------


def owner(tools: Toolset, prefer: str | None = None, *plugins: object) -> list[str]:
    """The listed tools."""
    listing = PolicyEngine(plugins).filter_tools(tools, USER, prefer)
    return [one.identity for one in listing]


DESK = tool("copy", "client:desk")
PHONE = tool("copy", "client:phone")


def test_the_hosts_own_tool_has_the_name() -> None:
    """Then the client that is preferred, then the client that contributed first."""
    host = tool("copy")
    assert owner(Toolset([DESK, PHONE, host]), "phone") == ["host/copy"]
    assert owner(Toolset([DESK, PHONE]), "phone") == ["client:phone/copy"]
    assert owner(Toolset([DESK, PHONE]), "tv") == ["client:desk/copy"]
    assert owner(Toolset([DESK, PHONE])) == ["client:desk/copy"]
    assert owner(Toolset([PHONE, DESK])) == ["client:phone/copy"]


def test_a_withheld_tool_uncovers_the_next() -> None:
    """Every contribution is filtered first; what is uncovered stands on its own verdicts."""

    class NoDesk:
        name = "no-desk"

        @hookimpl
        def filter_tools(self, tools: Toolset) -> dict[Tool, Verdict]:
            return {one: deny("the desk is away") for one in tools if one is DESK}

        @hookimpl
        def on_tool_call(self, tool: Tool) -> Verdict | None:
            return ask("the phone rings") if tool is PHONE else None

    tools = Toolset([DESK, PHONE])
    assert owner(tools, "desk", NoDesk()) == ["client:phone/copy"]
    decision = PolicyEngine([NoDesk()]).on_tool_call(ToolCall(name="copy"), tools, USER, "desk")
    assert (decision.effect, decision.tool, decision.provider) == (
        Effect.ASK,
        PHONE,
        Provider.client("phone"),
    )


def test_a_shadowed_tool_is_not_there() -> None:
    """A call that names its provider fails, and says that the name is another's."""
    tools = Toolset([DESK, PHONE])
    engine = PolicyEngine()
    listing = engine.filter_tools(tools, USER)
    assert listing.shadowed == {PHONE}
    assert PHONE not in listing
    assert listing.withheld == {}
    assert listing.resolve("copy") is DESK
    assert listing.resolve("copy", Provider.client("phone")) is None
    failed = failure("copy", tools, provider="client:phone")
    assert failed.code == "tool_not_available"
    assert failed.message == (
        "The tool 'copy' is not available in this chat: another provider's tool has this name "
        "here; call that one. The same call cannot succeed here; do not repeat it."
    )
    call = ToolCall(name="copy", provider=Provider.client("phone"))
    assert engine.on_tool_call(call, tools, USER, "phone").effect is Effect.ALLOW


@pytest.mark.parametrize("other", ["mcp:gitlab", "host", "client:desk", "model"])
def test_a_server_shares_its_name_with_anybody(other: str) -> None:
    """There is no order: both stay, and a call has to say whose it means."""
    server, rival = tool("copy", "mcp:github"), tool("copy", other)
    tools = Toolset([server, rival])
    engine = PolicyEngine()
    listing = engine.filter_tools(tools, USER)
    assert list(listing) == [server, rival]
    assert dict(listing.collisions) == {"copy": (server, rival)}
    assert listing.shadowed == frozenset()
    assert listing.resolve("copy") is None
    failed = failure("copy", tools)
    assert failed.code == "tool_ambiguous"
    assert failed.message == (
        "More than one tool is named 'copy', and the call does not say whose. The same call cannot "
        "succeed here; do not repeat it."
    )
    call = ToolCall(name="copy", provider=rival.provider)
    decision = engine.on_tool_call(call, tools, USER)
    assert (decision.effect, decision.tool) == (Effect.ALLOW, rival)


def test_a_provider_that_has_a_name_twice_keeps_both() -> None:
    """They collide, also for a call that names the provider."""
    tools = Toolset([tool("copy", own_name="a"), tool("copy", own_name="b"), DESK])
    listing = PolicyEngine().filter_tools(tools, USER)
    assert list(listing) == list(tools[:2])
    assert listing.shadowed == {DESK}
    assert failure("copy", tools, provider="host").code == "tool_ambiguous"


def test_a_call_that_names_a_provider_without_the_tool_is_of_an_unknown_tool() -> None:
    """Also where another provider has a tool of that name."""
    assert failure("copy", Toolset([DESK]), provider="mcp:github").code == "tool_unknown"


def test_a_name_whose_tools_are_all_withheld_fails_for_all_their_reasons() -> None:
    """Joined in order of plugins, each once; the tool is named only where there is one."""
    tools = Toolset([DESK, PHONE])
    scope = attrs.evolve(WORKER, agent=Agent(name="w", tools=()))
    engine = PolicyEngine()
    decision = engine.on_tool_call(ToolCall(name="copy"), tools, scope)
    assert decision.tool is None
    assert [one.plugin for one in decision.verdicts] == ["allowlist"]
    one = engine.on_tool_call(ToolCall(name="copy", provider=PHONE.provider), tools, scope)
    assert one.tool is PHONE


def test_a_listing_is_a_sequence() -> None:
    """With all its parts; a tool of another toolset is not in it."""
    tools = toolset("a", "b", tool("c", availability="userChats"))
    listing = PolicyEngine().filter_tools(tools, WORKER)
    assert len(listing) == 2
    assert listing[0] is tools[0]
    assert listing[:1] == (tools[0],)
    assert list(listing) == [tools[0], tools[1]]
    assert [one in listing for one in tools] == [True, True, False]
    assert tool("a") not in listing
    name: object = "a"
    assert name not in listing
    assert repr(listing) == "<Listing of 2 of 3 tools>"
    assert (listing.toolset, listing.scope) == (tools, WORKER)
    assert listing.verdicts(tools[0]) == ()
    with pytest.raises(TypeError):
        listing.withheld[tools[0]] = ()  # type: ignore[index]


# --------------------------------------------------------------------------------------------
# Codes and messages
# --------------------------------------------------------------------------------------------


def denying(name: str, reason: str, code: str | None = None) -> object:
    class Denying:
        @hookimpl
        def filter_tools(self, tools: Toolset) -> dict[Tool, Verdict]:
            no = deny(reason, code=code)
            return {tool: no for tool in tools if tool.name == "listed"}

        @hookimpl
        def on_tool_call(self) -> Verdict:
            return deny(reason, code=code)

    plugin: Any = Denying()
    plugin.name = name
    return plugin


@pytest.mark.parametrize(
    ("codes", "listed", "called"),
    [
        ((None,), "tool_not_available", "tool_denied"),
        (("quota",), "quota", "quota"),
        (("quota", "quota"), "quota", "quota"),
        (("quota", None), "tool_not_available", "tool_denied"),
        (("quota", "rate"), "tool_not_available", "tool_denied"),
        (("tool_unknown", "quota"), "tool_not_available", "tool_denied"),
        (("tool_not_available", None), "tool_not_available", "tool_denied"),
    ],
)
def test_the_code_is_the_one_that_all_denies_share(
    codes: tuple[str | None, ...], listed: str, called: str
) -> None:
    """Where they differ it is the general one: a host can rely on a code of its own."""
    plugins = [denying(f"p{n}", f"reason {n}", code) for n, code in enumerate(codes)]
    tools = toolset("listed", "called")
    assert failure("listed", tools, USER, *plugins).code == listed
    assert failure("called", tools, USER, *plugins).code == called


def test_reasons_are_joined_in_the_order_of_plugin_names() -> None:
    """Each once, as one sentence."""
    plugins = [denying("b", "ask ann."), denying("c", "ask ann."), denying("a", "it is late; ")]
    tools = toolset("listed", "called")
    end = "it is late; ask ann. The same call cannot succeed here; do not repeat it."
    expected = f"The tool 'listed' is not available in this chat: {end}"
    assert failure("listed", tools, USER, *plugins).message == expected
    assert failure("called", tools, USER, *plugins[::-1]).message == (
        f"Policy denies this call of 'called': {end}"
    )


def test_an_ask_that_reaches_nobody_is_denied() -> None:
    """With every ask's reason; where somebody can be asked, it is an ask."""

    class Asking:
        name = "asking"

        @hookimpl
        def on_tool_call(self) -> Verdict:
            return ask("it costs money", code="spending")

    engine, call, tools = PolicyEngine([Asking()]), ToolCall(name="buy"), toolset("buy")
    open_ask = engine.on_tool_call(call, tools, USER)
    assert (open_ask.effect, open_ask.provider, open_ask.failure) == (Effect.ASK, HOST, None)
    denied = engine.on_tool_call(call, tools, Scope(origin="user"))
    assert denied.failure == Failure(
        code="approval_unavailable",
        message=(
            "This call of 'buy' needs a person's approval, and nobody can be asked in this chat: "
            "it costs money. The same call cannot succeed here; do not repeat it."
        ),
        final=True,
    )
    assert denied.verdicts == open_ask.verdicts


# --------------------------------------------------------------------------------------------
# What is remembered
# --------------------------------------------------------------------------------------------


class Counting:
    """Counts how often each hook is asked, with the arguments it names."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    @hookimpl
    def filter_tools(self, tools: Toolset, origin: Origin | str | None) -> dict[Tool, Verdict]:
        self.asked.append(origin)
        return {}


def test_an_answer_is_kept_per_value_of_the_arguments_it_was_given() -> None:
    """Scopes that differ in nothing the rule asked for share it; others do not."""
    rule = Counting()
    engine, tools = PolicyEngine([rule]), toolset("a")
    first = engine.filter_tools(tools, Scope(origin="user", subject="ann"))
    assert engine.filter_tools(tools, Scope(origin="user", subject="ann")) is first
    second = engine.filter_tools(tools, Scope(origin="user", subject="bob"))
    assert second is not first
    assert second.scope.subject == "bob"
    engine.filter_tools(tools, Scope(origin="user", subject="ann"), "desk")
    assert rule.asked == ["user"]
    engine.filter_tools(tools, Scope(origin="fork"))
    engine.filter_tools(tools, Scope())
    engine.filter_tools(toolset("a"), Scope())
    assert rule.asked == ["user", "fork", None, None]


def test_what_looks_equal_shares_no_memory() -> None:
    """Agents of one name with other tools, absent and empty, a text and the set of it."""

    class Telling:
        @hookimpl
        def filter_tools(self, tools: Toolset, scope: Scope) -> dict[Tool, Verdict]:
            return dict.fromkeys(tools, deny(repr(scope)))

    engine, tools = PolicyEngine([Telling()]), toolset("a")
    scopes = [
        Scope(),
        Scope(subject=""),
        Scope(origin=""),
        Scope(agent=Agent(name="a")),
        Scope(agent=Agent(name="a", tools=[])),
        Scope(agent=Agent(name="a", tools=["a"])),
        Scope(agent=Agent(name="a", tools=["*"])),
        Scope(can_ask=True),
        Scope(attributes={"t": "a"}),
        Scope(attributes={"t": ["a"]}),
        Scope(attributes={"t": ["a", "b"]}),
        Scope().child(),
        Scope().child().child(),
    ]
    for scope in (*scopes, *reversed(scopes)):
        listing = engine.filter_tools(tools, scope)
        assert listing.scope == scope
        (mine,) = [one for one in listing.withheld[tools[0]] if one.plugin == "Telling"]
        assert mine.verdict.reason == repr(scope)


def test_what_is_remembered_is_bounded() -> None:
    """256 listings and answers a toolset; what was dropped is asked for again."""

    class Subjects:
        def __init__(self) -> None:
            self.asked: list[str | None] = []

        @hookimpl
        def filter_tools(self, scope: Scope) -> dict[Tool, Verdict]:
            self.asked.append(scope.subject)
            return {}

    rule = Subjects()
    engine, tools = PolicyEngine([rule]), toolset("a")
    for n in range(1000):
        engine.filter_tools(tools, Scope(subject=str(n)))
    memo = tools.memos[engine]
    assert len(memo.listings) == 256
    assert len(memo.answers) == 256
    engine.filter_tools(tools, Scope(subject="999"))
    assert rule.asked[-1] == "999"
    assert len(rule.asked) == 1000
    engine.filter_tools(tools, Scope(subject="0"))
    assert len(rule.asked) == 1001


def test_names_that_do_not_exist_are_not_remembered() -> None:
    """A model that makes them up fills no memory."""
    engine, tools = PolicyEngine(), toolset("a")
    for n in range(100):
        engine.on_tool_call(ToolCall(name=f"made up {n}"), tools, USER)
        provider = Provider.mcp(str(n))
        engine.on_tool_call(ToolCall(name="a", provider=provider), tools, USER)
    engine.on_tool_call(ToolCall(name="a"), tools, USER)
    assert list(engine.filter_tools(tools, USER)._found) == [("a", None)]


def test_memory_goes_with_the_toolset_and_with_the_engine() -> None:
    """Neither keeps the other alive."""
    engine, tools = PolicyEngine(), toolset("a")
    engine.on_tool_call(ToolCall(name="a"), tools, USER)
    gone = weakref.ref(tools), weakref.ref(tools[0])
    del tools
    gc.collect()
    assert [one() for one in gone] == [None, None]
    tools = toolset("a")
    engine.filter_tools(tools, USER)
    old = weakref.ref(engine)
    del engine
    gc.collect()
    assert old() is None
    assert len(tools.memos) == 0


def test_two_engines_remember_apart() -> None:
    """Over one toolset."""
    tools = toolset(tool("a", availability="userChats"))
    lenient = PolicyEngine()
    strict = PolicyEngine(config={"plugins": {"availability": {"absent_origin": "tool"}}})
    for _ in range(2):
        assert list(lenient.filter_tools(tools, Scope())) == list(tools)
        assert list(strict.filter_tools(tools, Scope())) == []


# --------------------------------------------------------------------------------------------
# Reloading
# --------------------------------------------------------------------------------------------


def test_a_reload_gives_a_new_engine_or_raises(tmp_path: Path) -> None:
    """The old one goes on as it was, also where the file is broken by now."""
    file = tmp_path / "toolscope.toml"
    tools = toolset(tool("a", availability="userChats"))
    lenient = 'enable = []\n[plugins.availability]\nabsent_origin = "user"\n'
    file.write_text(lenient, encoding="utf-8")
    engine = PolicyEngine.load(file)
    assert list(engine.filter_tools(tools, Scope())) == list(tools)
    file.write_text(lenient.replace('"user"', '"tool"'), encoding="utf-8")
    stricter = engine.reload()
    assert stricter is not engine
    assert list(stricter.filter_tools(tools, Scope())) == []
    assert list(engine.filter_tools(tools, Scope())) == list(tools)
    file.write_text("enable = [", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="it is no TOML"):
        stricter.reload()
    assert list(stricter.filter_tools(tools, Scope())) == []
    file.unlink()
    with pytest.raises(ConfigurationError, match="No such file"):
        engine.reload()


def test_an_engine_in_code_reloads_from_what_it_was_given() -> None:
    """Classes are built anew, objects are the same."""
    built: list[object] = []

    class Rule:
        name = "rule"

        def __init__(self) -> None:
            built.append(self)

        @hookimpl
        def on_tool_call(self) -> Verdict:
            return deny(str(len(built)))

    engine = PolicyEngine([Rule], config={"async_timeout": 2})
    again = engine.reload()
    assert len(built) == 2
    assert again.plugins == engine.plugins
    narrow = PolicyEngine(config={"plugins": {"availability": {"absent_origin": "tool"}}})
    tools = Toolset([tool("a", availability="userChats")])
    for one in (narrow, narrow.reload(), narrow.reload().reload()):
        assert list(one.filter_tools(tools, Scope())) == []


def test_a_decision_in_flight_ends_on_the_old_engine() -> None:
    """A host swaps engines while a rule is still being awaited."""
    answer: list[Verdict | None] = [None]
    reading = asyncio.Event()

    class Waiting:
        name = "waiting"

        @hookimpl
        async def on_tool_call(self) -> Verdict | None:
            known = answer[0]
            reading.set()
            await asyncio.sleep(0.01)
            return known

    async def main() -> tuple[Decision, Decision]:
        engine = PolicyEngine([Waiting])
        tools, call = toolset("a"), ToolCall(name="a")
        flying = asyncio.create_task(engine.on_tool_call_async(call, tools, USER))
        await reading.wait()
        answer[0] = deny("since today")
        engine = engine.reload()
        return await flying, await engine.on_tool_call_async(call, tools, USER)

    old, new = asyncio.run(main())
    assert (old.effect, new.effect) == (Effect.ALLOW, Effect.DENY)


# --------------------------------------------------------------------------------------------
# Wrong questions
# --------------------------------------------------------------------------------------------


def test_a_wrong_question_is_the_hosts_fault() -> None:
    """It raises, and permits nothing."""
    engine, tools = PolicyEngine(), toolset("a")
    bad: Any = list(tools)
    with pytest.raises(TypeError) as caught:
        engine.filter_tools(bad, USER)
    assert str(caught.value) == "tools is a list; make a Toolset of them"
    nothing: Any = None
    with pytest.raises(TypeError) as caught:
        engine.filter_tools(tools, nothing)
    assert str(caught.value) == "scope is a NoneType, not a Scope"
    call: Any = {"name": "a"}
    with pytest.raises(TypeError) as caught:
        engine.on_tool_call(call, tools, USER)
    assert str(caught.value) == "call is a dict, not a ToolCall"
    with pytest.raises(TypeError, match="call is a dict, not a ToolCall"):
        asyncio.run(engine.on_tool_call_async(call, tools, USER))


def test_sync_and_async_questions_get_the_same_answers() -> None:
    """For listed, withheld, unknown and invalid calls, and with observers."""
    told: list[Decision | Listing] = []

    class Noting:
        @hookimpl
        def on_decision(self, outcome: Decision | Listing) -> None:
            told.append(outcome)

    engine = PolicyEngine([Noting()])
    tools = toolset("a", tool("b", availability="userChats"))
    for call in (
        ToolCall(name="a"),
        ToolCall(name="b"),
        ToolCall(name="c"),
        ToolCall(name="a", arguments="["),
    ):
        decision = engine.on_tool_call(call, tools, WORKER)
        assert asyncio.run(engine.on_tool_call_async(call, tools, WORKER)) == decision
        assert told[-2:] == [decision, decision]


# --------------------------------------------------------------------------------------------
# Threads
# --------------------------------------------------------------------------------------------


def test_threads_share_an_engine_and_a_toolset() -> None:
    """Sixteen at once, over more scopes than are kept: every answer is the right one."""

    class Subjects:
        @hookimpl
        def filter_tools(self, tools: Toolset, scope: Scope) -> dict[Tool, Verdict]:
            no = deny(f"not for {scope.subject}")
            return {tool: no for tool in tools if tool.name != scope.subject}

        @hookimpl
        def on_tool_call(self, call: ToolCall, scope: Scope) -> Verdict | None:
            return ask(f"for {scope.subject}") if call.name.endswith("7") else None

    names = [f"t{n}" for n in range(300)]
    tools = toolset(*names)
    engine = PolicyEngine([Subjects()])
    start = threading.Barrier(16)

    def work(seed: int) -> int:
        start.wait()
        wrong = 0
        for step in range(400):
            name = names[(step * 7 + seed * 13) % len(names)]
            scope = Scope(subject=name, can_ask=True)
            listing = engine.filter_tools(tools, scope)
            wrong += [one.name for one in listing] != [name]
            decision = engine.on_tool_call(ToolCall(name=name), tools, scope)
            wrong += decision.effect is not (Effect.ASK if name.endswith("7") else Effect.ALLOW)
            other = engine.on_tool_call(ToolCall(name=names[step % 300]), tools, scope)
            wrong += (other.effect is Effect.DENY) is not (names[step % 300] != name)
        return wrong

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(work, range(16))) == [0] * 16
    assert len(tools.memos[engine].listings) <= 256


def test_a_hook_that_asks_in_one_thread_does_not_hinder_another() -> None:
    """Who is asking is known per task and thread, not per engine."""
    inside, leave = threading.Event(), threading.Event()

    class Slow:
        @hookimpl
        def on_tool_call(self, call: ToolCall) -> None:
            if call.id == "slow":
                inside.set()
                leave.wait(5)

    engine, tools = PolicyEngine([Slow()]), toolset("a")
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(engine.on_tool_call, ToolCall(id="slow", name="a"), tools, USER)
        assert inside.wait(5)
        assert engine.on_tool_call(ToolCall(name="a"), tools, USER).effect is Effect.ALLOW
        leave.set()
        assert slow.result().effect is Effect.ALLOW


def test_tasks_that_share_a_context_do_not_hinder_each_other() -> None:
    """While one waits for a rule, another may ask the engine; the rule itself may not."""
    refused: list[str] = []

    class Waiting:
        @hookimpl
        async def on_tool_call(self, call: ToolCall) -> None:
            arrived.set()
            try:
                engine.filter_tools(tools, USER)
            except RecursionRefused:
                refused.append(str(call.id))
            await leave.wait()

    arrived, leave = asyncio.Event(), asyncio.Event()
    engine, tools = PolicyEngine([Waiting()]), toolset("a")

    async def main() -> tuple[Decision, int]:
        shared = contextvars.copy_context()
        question = engine.on_tool_call_async(ToolCall(id="1", name="a"), tools, USER)
        first = asyncio.create_task(question, context=shared)
        await arrived.wait()

        async def other() -> int:
            return len(engine.filter_tools(tools, USER))

        listed = await asyncio.create_task(other(), context=shared)
        leave.set()
        return await first, listed

    decision, listed = asyncio.run(main())
    assert (decision.effect, listed) == (Effect.ALLOW, 1)
    assert refused == ["1"]


# --------------------------------------------------------------------------------------------
# More of what a hostile or unlucky rule may do
# --------------------------------------------------------------------------------------------


def deep(levels: int) -> Callable[[], Any]:
    def rule() -> Any:
        return deep(levels)()

    return rule


def test_a_rule_that_recurses_without_end_denies() -> None:
    """A RecursionError is a fault like any other."""

    class Endless:
        @hookimpl
        def on_tool_call(self) -> None:
            deep(1)()

    decision = PolicyEngine([Endless()]).on_tool_call(ToolCall(name="a"), toolset("a"), USER)
    (verdict,) = decision.verdicts
    assert verdict.error is not None
    assert verdict.error.startswith("RecursionError: maximum recursion depth exceeded")


def test_a_rule_that_keeps_what_it_was_given_sees_no_more() -> None:
    """The values it kept are frozen, and so are those of later questions."""
    kept: list[ToolCall] = []

    class Keeping:
        @hookimpl
        def on_tool_call(self, call: ToolCall) -> None:
            kept.append(call)

    engine, tools = PolicyEngine([Keeping()]), toolset("a")
    arguments = {"paths": ["x"]}
    engine.on_tool_call(ToolCall(name="a", arguments=arguments), tools, USER)
    arguments["paths"].append("y")
    assert kept[0].arguments == {"paths": ["x"]}


def test_the_model_providers_tools_can_only_be_withheld() -> None:
    """They are listed and withheld like others; a call is decided if one comes."""
    tools = Toolset([Tool(name="search", provider=MODEL, availability=Availability.USER_CHATS)])
    assert list(PolicyEngine().filter_tools(tools, USER)) == list(tools)
    assert list(PolicyEngine().filter_tools(tools, WORKER)) == []


def test_observers_can_be_told_of_a_decision_that_counts_instead() -> None:
    """Of that very one; an observer that asks in turn is refused, and afterwards all is as it was.

    What tells is a hook's question too: it is refused inside of one.
    """
    told: list[object] = []
    refused: list[str] = []

    class Noting:
        name = "noting"

        @hookimpl
        def on_decision(self, outcome: Decision | Listing) -> None:
            told.append(outcome)
            if isinstance(outcome, Decision):
                for again in (
                    lambda: engine.tell(outcome),
                    lambda: engine.filter_tools(TOOLS, WORKER),
                    lambda: engine.on_tool_call(outcome.call, TOOLS, WORKER),
                    engine.reload,
                ):
                    with pytest.raises(RecursionRefused) as caught:
                        again()
                    refused.append(str(caught.value))

    engine = PolicyEngine([Noting()])
    decision = PolicyEngine().on_tool_call(ToolCall(name="shell"), TOOLS, USER)
    for _ in range(2):
        engine.tell(decision)
    assert [one is decision for one in told] == [True, True]
    assert (
        refused
        == ["a hook asked the engine that is asking it; decide from the hook's own arguments"] * 8
    )
    assert engine.on_tool_call(ToolCall(name="shell"), TOOLS, USER).effect is Effect.ALLOW
    assert isinstance(engine.reload(), PolicyEngine)
    PolicyEngine().tell(decision)


def test_the_preference_counts_for_calls_however_they_are_asked_about() -> None:
    """Sync and async: the client that started the turn has the name."""
    tools = Toolset([DESK, PHONE])
    call = ToolCall(name="copy")
    engine = PolicyEngine()
    for prefer, tool_ in (("phone", PHONE), (None, DESK)):
        assert engine.on_tool_call(call, tools, USER, prefer).tool is tool_
        assert asyncio.run(engine.on_tool_call_async(call, tools, USER, prefer)).tool is tool_


class Sync:
    """Asks about ``shell`` in a chat that is here, and keeps what it is asked."""

    name = "sync"

    def __init__(self) -> None:
        self.asked: list[object] = []

    @hookimpl
    def on_tool_call(self, call: ToolCall, tool: Tool, scope: Scope) -> Verdict | None:
        self.asked.append((call, tool, scope))
        return ask("it may cost") if tool.name == "shell" else None


class Awaited:
    """Has no opinion, once it may go on."""

    name = "awaited"

    def __init__(self) -> None:
        self.go = asyncio.Event()

    @hookimpl
    async def on_tool_call(self) -> None:
        await self.go.wait()


class Told:
    """Keeps the decisions that it is told of."""

    name = "told"

    def __init__(self) -> None:
        self.decisions: list[Decision] = []

    @hookimpl
    def on_decision(self, outcome: Decision | Listing) -> None:
        if isinstance(outcome, Decision):
            self.decisions.append(outcome)


SHELL = ToolCall(name="shell", id="c1", chat="main")


def test_an_awaited_decision_is_a_whole_one() -> None:
    """Sync and awaited rules count, approvals count, and whoever is to be told is told."""

    async def main() -> None:
        sync, awaited, told = Sync(), Awaited(), Told()
        awaited.go.set()
        engine = PolicyEngine([sync, awaited, told])
        asking = await engine.on_tool_call_async(SHELL, TOOLS, USER)
        of_sync = PluginVerdict(plugin="sync", verdict=ask("it may cost"))
        assert asking == Decision(
            effect=Effect.ASK,
            call=SHELL,
            tool=TOOLS[3],
            scope=USER,
            verdicts=(of_sync,),
            provider=HOST,
        )
        assert sync.asked == [(SHELL, TOOLS[3], USER)]
        grant = grant_for(TOOLS[3], chat="main", reach=Reach.CHAT, arguments=AnyArguments.ANY)
        allowed = await engine.on_tool_call_async(SHELL, TOOLS, USER, approvals=[grant])
        assert (allowed.effect, allowed.approvals) == (Effect.ALLOW, (grant,))
        await engine.on_tool_call_async(SHELL, TOOLS, USER, tell=False)
        engine.on_tool_call(SHELL, TOOLS, USER, tell=False)
        assert told.decisions == [asking, allowed]

    asyncio.run(main())


def test_a_cancelled_decision_is_told_whole() -> None:
    """A deny of the plugins that had not answered; approvals were of no use."""

    async def main() -> None:
        told = Told()
        engine = PolicyEngine([Sync(), Awaited(), told])
        grant = grant_for(TOOLS[3], chat="main", reach=Reach.CHAT, arguments=AnyArguments.ANY)
        asking = asyncio.create_task(
            engine.on_tool_call_async(SHELL, TOOLS, USER, approvals=[grant])
        )
        await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        (decision,) = told.decisions
        (verdict,) = decision.verdicts
        assert (verdict.plugin, verdict.error) == (
            "awaited",
            "the decision was cancelled before on_tool_call answered",
        )
        assert decision.failure is not None
        assert decision == Decision(
            effect=Effect.DENY,
            call=SHELL,
            tool=TOOLS[3],
            scope=USER,
            verdicts=(verdict,),
            failure=decision.failure,
            unused_approvals=("an approval was not used: it lifts no deny",),
        )
        assert decision.failure.message == (
            "The policy failed to decide about 'shell', so the call was not run: the rule of "
            "plugin 'awaited' gave no decision, and no decision is no permission; go on without "
            "this tool and say so."
        )

    asyncio.run(main())


def test_while_a_decision_waits_its_context_may_ask_on() -> None:
    """Tasks that share one context ask the engine at the same time, and after one another."""

    async def main() -> None:
        awaited = Awaited()
        engine = PolicyEngine([awaited])
        context = contextvars.copy_context()

        def asking(name: str) -> "asyncio.Task[Decision]":
            question = engine.on_tool_call_async(ToolCall(name=name), TOOLS, USER)
            return asyncio.create_task(question, context=context)

        first = asking("shell")
        await asyncio.sleep(0.01)
        second = asking("read_file")
        await asyncio.sleep(0.01)
        awaited.go.set()
        for one in (first, second, asking("shell")):
            assert (await one).effect is Effect.ALLOW

    asyncio.run(main())


@pytest.mark.parametrize("arguments", ["[", "[]", '{"a": 1, "a": 2}'])
def test_a_call_with_invalid_arguments_is_a_whole_denial(arguments: str) -> None:
    """Of the tool that it is about, in its scope; no rule is asked."""
    sync = Sync()
    call = ToolCall(name="shell", arguments=arguments)
    decision = PolicyEngine([sync]).on_tool_call(call, TOOLS, USER)
    assert isinstance(call.arguments, InvalidArguments)
    assert decision == decide_invalid(call, TOOLS[3], USER, call.arguments)
    assert sync.asked == []


def test_a_call_of_an_unlisted_tool_is_a_whole_denial() -> None:
    """In its scope, with what the listing knows of it."""
    engine, call = PolicyEngine(), ToolCall(name="none")
    unlisted = engine.filter_tools(TOOLS, USER).lookup("none")
    assert isinstance(unlisted, Unlisted)
    assert engine.on_tool_call(call, TOOLS, USER) == decide_unlisted(call, unlisted, USER)


def test_an_engine_that_cannot_be_built_says_why() -> None:
    """All of the faults, under one title."""

    class Empty:
        name = "empty"

    with pytest.raises(ConfigurationError) as caught:
        PolicyEngine([Empty()])
    assert str(caught.value) == (
        "the policy cannot be loaded: plugin 'empty': it has no hookimpl; mark at least one of "
        "filter_tools, on_tool_call, on_decision with @hookimpl"
    )


@pytest.mark.parametrize("wrong", ["user", 5, None, {}])
def test_a_scope_is_a_scope(wrong: Any) -> None:
    """The error names what was given instead."""
    with pytest.raises(TypeError) as caught:
        PolicyEngine().filter_tools(toolset("a"), wrong)
    assert str(caught.value) == f"scope is a {type(wrong).__name__}, not a Scope"
