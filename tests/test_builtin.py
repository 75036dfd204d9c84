"""The built-in plugins: where a tool may be used (AHP #446), and what an agent is scoped to."""

import pytest

from toolscope.builtin import BUILTINS, AllowlistPlugin, AvailabilityPlugin
from toolscope.engine import PolicyEngine
from toolscope.model import Agent, Provider, Scope, Tool, ToolCall, Toolset
from toolscope.testing import assert_order_irrelevant, assert_pure, tool, toolset
from toolscope.verdicts import Effect

CLIPBOARD = tool("clipboard", "client:desk", availability="userChats")
SEARCH = tool("search", "client:desk")
LATER = tool("lamp", "client:desk", availability="devicesOnly")
TOOLS = Toolset([CLIPBOARD, SEARCH, LATER])


def listed(scope: Scope, tools: Toolset = TOOLS, absent_origin: str = "user") -> list[str]:
    """The names that may be shown."""
    config = {"plugins": {"availability": {"absent_origin": absent_origin}}}
    return [one.name for one in PolicyEngine(config=config).filter_tools(tools, scope)]


# --------------------------------------------------------------------------------------------
# availability
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["user", "fork", "sideChat"])
def test_every_tool_is_shown_in_chats_that_no_tool_started(origin: str) -> None:
    """The user drives them, forks and side chats as well."""
    assert listed(Scope(origin=origin)) == ["clipboard", "search", "lamp"]


@pytest.mark.parametrize("origin", ["tool", "delegation", "User", ""])
def test_p1_a_user_chat_tool_is_not_shown_in_a_chat_that_a_tool_started(origin: str) -> None:
    """Nor where the origin is of an unknown kind; an unknown availability is as narrow."""
    assert listed(Scope(origin=origin)) == ["search"]


def test_p2_a_call_that_is_produced_anyway_names_no_client() -> None:
    """The host ends it: a deny with a failure that says the true cause and what to do."""
    decision = PolicyEngine().on_tool_call(
        ToolCall(name="clipboard"), TOOLS, Scope(origin="tool", can_ask=True)
    )
    assert (decision.effect, decision.provider, decision.tool) == (Effect.DENY, None, CLIPBOARD)
    assert [(one.plugin, one.verdict.rule) for one in decision.verdicts] == [
        ("availability", "userChats")
    ]
    assert decision.failure is not None
    assert (decision.failure.code, decision.failure.final) == ("tool_not_available", True)
    assert decision.failure.message == (
        "The tool 'clipboard' is not available in this chat: it is only available in chats that "
        "the user drives, and this chat was started by a tool; do the task without it, or report "
        "to the chat that started this one that the user has to do it. The same call cannot "
        "succeed here; do not repeat it."
    )


@pytest.mark.parametrize("origin", [None, "user", "tool", "delegation"])
def test_p3_a_tool_without_the_mark_is_not_affected(origin: str | None) -> None:
    """Absent is ``session``, in every chat."""
    tools = Toolset([SEARCH, tool("explicit", availability="session")])
    assert listed(Scope(origin=origin), tools) == ["search", "explicit"]


def test_an_absent_origin_counts_as_the_setting_says() -> None:
    """As the user's by default; hosts that detach work say ``tool``."""
    assert listed(Scope()) == ["clipboard", "search", "lamp"]
    assert listed(Scope(), absent_origin="tool") == ["search"]
    assert listed(Scope(origin="user"), absent_origin="tool") == ["clipboard", "search", "lamp"]


def test_only_the_chats_own_origin_counts() -> None:
    """A fork of a worker is the user's; what is above it changes nothing."""
    worker = Scope(origin="user").child()
    fork = Scope(origin="fork", ancestry=worker.ancestry)
    assert listed(worker) == ["search"]
    assert listed(fork) == ["clipboard", "search", "lamp"]


# --------------------------------------------------------------------------------------------
# allowlist
# --------------------------------------------------------------------------------------------

GITHUB = Provider.mcp("github")
MANY = Toolset(
    [
        tool("read"),
        tool("write"),
        Tool(name="create_issue", own_name="issues/create", provider=GITHUB),
        Tool(name="list_issues", own_name="issues/list", provider=GITHUB),
        tool("paste", "client:desk"),
        tool("browse", "model"),
    ]
)
ALL = [one.name for one in MANY]


def allowed(*entries: str, tools: Toolset = MANY) -> list[str]:
    """The tools that an agent with this allowlist may be shown."""
    return listed(Scope(agent=Agent(name="coder", tools=entries)), tools)


def test_no_agent_and_no_allowlist_restrict_nothing() -> None:
    """Which is something else than an empty one."""
    assert listed(Scope(), MANY) == ALL
    assert listed(Scope(agent=Agent(name="coder")), MANY) == ALL
    assert allowed() == []


@pytest.mark.parametrize(
    ("entries", "names"),
    [
        (["*"], ALL),
        (["*", "none"], ALL),
        (["read"], ["read"]),
        (["write", "read", "none"], ["read", "write"]),
        (["host/*"], ["read", "write"]),
        (["host/read"], ["read"]),
        (["mcp:github/*"], ["create_issue", "list_issues"]),
        (["mcp:github/issues/list"], ["list_issues"]),
        (["list_issues"], ["list_issues"]),
        (["client:desk/*", "read"], ["read", "paste"]),
        (["client:desk/paste"], ["paste"]),
        (["model/*"], ["browse"]),
        (["model/browse"], ["browse"]),
    ],
)
def test_an_entry_names_a_tool_a_provider_or_all(entries: list[str], names: list[str]) -> None:
    """By the model-facing name, or by provider and the name the provider gives it."""
    assert allowed(*entries) == names


@pytest.mark.parametrize(
    "entry",
    [
        "Read",
        "read ",
        "re*",
        "rea?",
        "host",
        "host/",
        "HOST/*",
        "host/READ",
        "github",
        "github/*",
        "mcp:github",
        "mcp:github/",
        "mcp:github/list_issues",
        "mcp:github/issues/*",
        "mcp:Github/*",
        "mcp:*/*",
        "mcp:/*",
        "mcp:",
        "client:github/*",
        "client:/paste",
        "client:desk",
        "",
    ],
)
def test_entries_are_exact(entry: str) -> None:
    """No case folding, no patterns, no half of a name, no other provider."""
    assert allowed(entry) == []


def test_a_client_cannot_pass_for_a_server() -> None:
    """By the name it gives its tool, or by the name it gives itself."""
    impostors = Toolset(
        [
            tool("mcp:github/create", "client:desk"),
            tool("create", "client:github"),
            tool("mcp:github/*", "client:desk"),
            tool("host/create", "client:desk"),
            tool("model/create", "client:mcp:github"),
        ]
    )
    assert (
        allowed(
            "mcp:github/*",
            "mcp:github/create",
            "host/*",
            "host/create",
            "model/create",
            "mcp:github",
            tools=impostors,
        )
        == []
    )


@pytest.mark.parametrize("entry", ["mcp:github", "client:desk", "host/", "model/"])
def test_half_of_an_entry_is_no_name(entry: str) -> None:
    """What begins with a provider is about that provider alone, also where no tool is named."""
    assert allowed(entry, tools=Toolset([tool(entry, "client:desk"), tool(entry, "host")])) == []


def test_an_entry_of_a_provider_that_cannot_be_spoils_no_other() -> None:
    """Wherever it stands among them."""
    good = [f"host/t{place}" for place in range(20)]
    bad = [f"mcp:/t{place}" for place in range(20)]
    tools = toolset(*(f"t{place}" for place in range(20)))
    assert allowed(*good, *bad, tools=tools) == [one.name for one in tools]


def test_an_id_with_a_slash_is_written_with_an_escape() -> None:
    """In entries as everywhere."""
    tools = Toolset([Tool(name="x", own_name="a/b", provider=Provider.mcp("org/repo%"))])
    assert allowed("mcp:org%2Frepo%25/a/b", tools=tools) == ["x"]
    assert allowed("mcp:org%2Frepo%25/*", tools=tools) == ["x"]
    assert allowed("mcp:org/repo%/a/b", tools=tools) == []


def test_an_allowlist_is_the_agents_own() -> None:
    """A chat that its agent spawns has the allowlist of its own agent, or none."""
    parent = Scope(agent=Agent(name="lead", tools=["read"]))
    assert listed(parent.child(), MANY) == ALL
    assert listed(parent.child(Scope(agent=Agent(name="w", tools=["write"]))), MANY) == ["write"]


def test_the_reason_names_the_agent() -> None:
    """Briefly, also where its name is very long."""
    scope = Scope(agent=Agent(name="coder", tools=()))
    tools = toolset("read")
    (verdict,) = PolicyEngine().filter_tools(tools, scope).withheld[tools[0]]
    assert (verdict.plugin, verdict.verdict.rule) == ("allowlist", "agent.tools")
    assert verdict.verdict.reason == (
        "it is not among the tools of the agent 'coder'; use the tools this agent has, or leave "
        "the task to another agent"
    )
    whole = Scope(agent=Agent(name="x" * 100, tools=()))
    (verdict,) = PolicyEngine().filter_tools(tools, whole).withheld[tools[0]]
    assert f"'{'x' * 100}'" in verdict.verdict.reason
    long = Scope(agent=Agent(name="x" * 1_000_000, tools=()))
    (verdict,) = PolicyEngine().filter_tools(tools, long).withheld[tools[0]]
    assert f"'{'x' * 100}...'" in verdict.verdict.reason
    assert len(verdict.verdict.reason) < 300


# --------------------------------------------------------------------------------------------
# Both
# --------------------------------------------------------------------------------------------


def test_the_built_ins_are_plugins_like_any_other() -> None:
    """They always run, under their own names; a tool may be withheld by both."""
    assert {"allowlist": AllowlistPlugin, "availability": AvailabilityPlugin} == BUILTINS
    scope = Scope(origin="tool", agent=Agent(name="coder", tools=["search"]))
    withheld = PolicyEngine().filter_tools(TOOLS, scope).withheld
    assert [one.plugin for one in withheld[CLIPBOARD]] == ["allowlist", "availability"]
    assert SEARCH not in withheld


def test_the_built_ins_pass_the_checks_for_plugins() -> None:
    """As a stranger's plugin would: here under another name."""

    class Stranger(AvailabilityPlugin):
        name = "stranger"
        Settings = None  # type: ignore[assignment]

    class Other(AllowlistPlugin):
        name = "other"

    scope = Scope(origin="tool", agent=Agent(name="coder", tools=["search", "client:desk/lamp"]))
    for plugin in (Stranger, Other):
        assert_pure(plugin, TOOLS, scope)
    assert_order_irrelevant([Stranger, Other], TOOLS, scope, [ToolCall(name="lamp")])
