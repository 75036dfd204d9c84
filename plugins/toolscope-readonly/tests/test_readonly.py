"""The plugin as a host gets it: found by its entry point, set up by a configuration file."""

from itertools import product
from pathlib import Path

import pytest

from toolscope import (
    HOST,
    MODEL,
    Agent,
    Annotations,
    ConfigurationError,
    Effect,
    Origin,
    PolicyEngine,
    Provider,
    Scope,
    Tool,
    ToolCall,
    Toolset,
)

GITHUB = Provider.mcp("github")
DESK = Provider.client("desk-1")


def load(folder: Path, settings: str = "") -> PolicyEngine:
    """The engine of a configuration file that enables this plugin alone."""
    file = folder / "toolscope.toml"
    file.write_text(f'enable = ["readonly"]\n[plugins.readonly]\n{settings}\n', encoding="utf-8")
    return PolicyEngine.load(file)


def tool(name: str, provider: Provider = HOST, *, read_only: bool | None = True) -> Tool:
    """A tool with the hint, or with no hint at all (None)."""
    hints = Annotations() if read_only is None else Annotations(read_only=read_only)
    return Tool(name=name, provider=provider, annotations=hints)


TOOLS = Toolset(
    [
        tool("read"),
        tool("write", read_only=False),
        tool("silent", read_only=None),
        tool("issues", GITHUB),
        tool("merge", GITHUB, read_only=False),
        tool("screen", DESK),
        tool("search", MODEL),
    ]
)
READERS = ["read", "issues", "screen", "search"]


def listed(engine: PolicyEngine, origin: Origin | str | None) -> list[str]:
    """The names that a chat of this origin is shown."""
    return [tool.name for tool in engine.filter_tools(TOOLS, Scope(origin=origin))]


def test_the_entry_point_loads_it(tmp_path: Path) -> None:
    """An installed plugin is found by its entry point, with its distribution."""
    record = next(one for one in load(tmp_path).plugins if one.name == "readonly")
    assert (record.distribution, record.hooks, record.active) == (
        "toolscope-readonly",
        ("filter_tools",),
        True,
    )


def test_by_default_the_host_is_trusted(tmp_path: Path) -> None:
    """Without settings, a worker gets the host's own read-only tools."""
    assert listed(load(tmp_path), Origin.TOOL) == ["read"]


@pytest.mark.parametrize(
    ("trusted", "expected"),
    [
        ("[]", []),
        ('["host", "mcp:github"]', ["read", "issues"]),
        ('["client:desk-1", "model"]', ["screen", "search"]),
        ('["mcp:desk-1", "client:github"]', []),
    ],
)
def test_only_trusted_providers_count(tmp_path: Path, trusted: str, expected: list[str]) -> None:
    """A read-only hint counts from a trusted provider alone; the kind of provider counts too."""
    assert listed(load(tmp_path, f"trusted = {trusted}"), Origin.TOOL) == expected


@pytest.mark.parametrize("origin", [Origin.USER, Origin.FORK, Origin.SIDE_CHAT, None])
def test_chats_of_people_are_not_touched(tmp_path: Path, origin: Origin | None) -> None:
    """Where no tool started the chat, the plugin has no opinion."""
    assert listed(load(tmp_path, "trusted = []"), origin) == [tool.name for tool in TOOLS]


def test_an_unknown_origin_counts_as_a_tool(tmp_path: Path) -> None:
    """A kind of chat that a later protocol adds is not known to be a person's."""
    assert listed(load(tmp_path), "schedule") == ["read"]


def test_an_absent_origin_counts_as_the_settings_say(tmp_path: Path) -> None:
    """``absent_origin = "tool"`` narrows chats without an origin."""
    assert listed(load(tmp_path, 'absent_origin = "tool"'), None) == ["read"]


def test_both_conditions_must_hold(tmp_path: Path) -> None:
    """Over every hint and trust, a worker's tool is listed exactly where both are given."""
    for number, (hint, trusted) in enumerate(product([True, False, None], [True, False])):
        folder = tmp_path / str(number)
        folder.mkdir()
        engine = load(folder, f"trusted = {['mcp:github'] if trusted else []}")
        tools = Toolset([tool("one", GITHUB, read_only=hint)])
        listing = engine.filter_tools(tools, Scope(origin=Origin.TOOL))
        assert bool(listing) is (hint is True and trusted)


def test_a_call_of_a_withheld_tool_is_denied_with_the_reason(tmp_path: Path) -> None:
    """A model that calls it anyway reads the cause and what to do instead."""
    engine = load(tmp_path)
    scope = Scope(origin=Origin.TOOL, agent=Agent(name="worker"))
    decision = engine.on_tool_call(ToolCall(name="write"), TOOLS, scope)
    assert decision.effect is Effect.DENY
    assert decision.failure is not None
    assert decision.failure.code == "tool_not_available"
    assert "may only read; report what should be changed" in decision.failure.message
    decision = engine.on_tool_call(ToolCall(name="issues"), TOOLS, scope)
    assert decision.failure is not None
    assert "its provider is not trusted" in decision.failure.message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('trusted = ["github"]', "'github' is no provider; allowed are 'host', 'client:ID'"),
        ('trusted = "host"', "plugins.readonly.trusted: 'host' is not allowed; allowed is a list"),
        ('trust = ["host"]', "plugins.readonly.trust: unknown key; did you mean 'trusted'?"),
        ('absent_origin = "fork"', "plugins.readonly.absent_origin: 'fork' is not allowed"),
    ],
)
def test_wrong_settings_say_what_is_allowed(tmp_path: Path, settings: str, message: str) -> None:
    """A wrong setting is refused when the engine is made, with its place and the cure."""
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, settings)
    assert message in str(caught.value)


def test_the_settings_in_the_readme_are_accepted(tmp_path: Path) -> None:
    """The example of README.md is a valid configuration."""
    readme = Path(__file__).parents[1] / "README.md"
    (block,) = readme.read_text(encoding="utf-8").split("```toml\n")[1:]
    file = tmp_path / "toolscope.toml"
    file.write_text('enable = ["readonly"]\n' + block.split("```")[0], encoding="utf-8")
    assert listed(PolicyEngine.load(file), Origin.TOOL) == ["read", "issues"]


def test_it_imports_public_names_only() -> None:
    """A plugin builds on hookspecs, model and verdicts."""
    import toolscope_readonly

    source = Path(str(toolscope_readonly.__file__)).read_text(encoding="utf-8")
    imported = [
        line.split()[1] for line in source.splitlines() if line.startswith("from toolscope")
    ]
    assert imported == ["toolscope.hookspecs", "toolscope.model", "toolscope.verdicts"]
