"""Discovery: what pluggy would accept in silence is refused, and every message says the cure."""

import sys
import types
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attrs
import pytest

from toolscope._config import read_configuration
from toolscope._inventory import PluginRecord
from toolscope._plugins import assemble
from toolscope.engine import PolicyEngine
from toolscope.errors import ConfigurationError, PluginError
from toolscope.hookspecs import hookimpl
from toolscope.model import Scope, ToolCall, Toolset
from toolscope.testing import toolset
from toolscope.verdicts import Effect, Verdict, deny

OWN = version("toolscope-policy")
ALLOWLIST = PluginRecord(
    name="allowlist", distribution="toolscope-policy", version=OWN, hooks=("filter_tools",)
)
AVAILABILITY = attrs.evolve(ALLOWLIST, name="availability")


def refusal(*plugins: object, config: Mapping[str, Any] | None = None) -> str:
    """What the engine says when it is made of these plugins."""
    with pytest.raises(ConfigurationError) as caught:
        PolicyEngine(plugins, config=config)
    return str(caught.value).removeprefix("the policy cannot be loaded: ")


Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a distribution: a real dist-info folder and its modules, on ``sys.path``."""
    monkeypatch.syspath_prepend(tmp_path)

    def installed(distribution: str, entry_points: Mapping[str, str], **modules: str) -> Path:
        info = tmp_path / f"{distribution.replace('-', '_')}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n", encoding="utf-8"
        )
        rows = "".join(f"{name} = {value}\n" for name, value in entry_points.items())
        (info / "entry_points.txt").write_text(f"[toolscope]\n{rows}", encoding="utf-8")
        for module, text in modules.items():
            (tmp_path / f"{module}.py").write_text(text, encoding="utf-8")
            monkeypatch.delitem(sys.modules, module, raising=False)
        return tmp_path

    return installed


@pytest.fixture
def configured(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a configuration file."""

    def written(text: str) -> Path:
        file = tmp_path / "toolscope.toml"
        file.write_text(text, encoding="utf-8")
        return file

    return written


RULE = """
import attrs
from toolscope import deny, hookimpl

class Rules:
    @attrs.frozen
    class Settings:
        names: frozenset[str] = frozenset({"shell"})

    def __init__(self, settings):
        self.settings = settings

    @hookimpl
    def filter_tools(self, tools):
        no = deny("the rules do not allow it")
        return {tool: no for tool in tools if tool.name in self.settings.names}
"""


# --------------------------------------------------------------------------------------------
# Given in code
# --------------------------------------------------------------------------------------------


def test_a_plugin_is_a_class_or_an_object() -> None:
    """Its name is its attribute ``name``, else that of the class; records come in name order."""

    class Named:
        name = "zeta"

        @hookimpl
        def on_tool_call(self) -> None: ...

        @hookimpl
        def filter_tools(self) -> dict[Any, Any]:
            return {}

    class Bare:
        @hookimpl
        def on_decision(self) -> None: ...

    assert PolicyEngine([Named, Bare()]).plugins == (
        PluginRecord(name="Bare", hooks=("on_decision",)),
        ALLOWLIST,
        AVAILABILITY,
        PluginRecord(name="zeta", hooks=("filter_tools", "on_tool_call")),
    )


def test_a_plugin_may_compare_by_value() -> None:
    """Rules that are attrs values, unhashable ones included, register like others."""

    @attrs.define
    class Rule:
        name: str

        @hookimpl
        def on_tool_call(self) -> Verdict | None:
            return deny("no") if self.name == "b" else None

    engine = PolicyEngine([Rule("a"), Rule("b")])
    decision = engine.on_tool_call(ToolCall(name="read"), toolset("read"), Scope())
    assert [one.plugin for one in decision.verdicts] == ["b"]


def test_a_module_is_a_plugin() -> None:
    """Functions with the marker are its hookimpls."""
    module = types.ModuleType("rules_in_a_module")

    @hookimpl
    def on_tool_call(call: ToolCall) -> Verdict:
        return deny(f"{call.id} is one too many")

    module.__dict__.update(name="module", on_tool_call=on_tool_call)
    decision = PolicyEngine([module]).on_tool_call(
        ToolCall(id="7", name="read"), toolset("read"), Scope()
    )
    assert [one.verdict.reason for one in decision.verdicts] == ["7 is one too many"]


@pytest.mark.parametrize("name", ["", 7, None])
def test_a_plugin_has_a_name(name: object) -> None:
    """A text with at least one character."""

    class Odd:
        @hookimpl
        def on_tool_call(self) -> None: ...

    plugin: Any = Odd()
    plugin.name = name
    with pytest.raises(PluginError) as caught:
        PolicyEngine([plugin])
    assert str(caught.value) == f"plugin 'Odd': its name is {name!r}; allowed is a text"


def test_two_plugins_of_one_name_are_refused() -> None:
    """pluggy would let the second vanish; said once, whichever came first."""

    class Rules:
        name = "rules"

        @hookimpl
        def on_tool_call(self) -> None: ...

    message = (
        "two plugins are named 'rules' (given in code, given in code), and either could run; "
        "rename or remove one"
    )
    assert refusal(Rules(), Rules()) == message
    assert refusal(Rules, Rules()) == message


def test_a_plugin_cannot_take_the_name_of_a_built_in() -> None:
    """The built-ins always run."""

    class Allowlist:
        name = "allowlist"

        @hookimpl
        def on_tool_call(self) -> None: ...

    assert refusal(Allowlist) == (
        "two plugins are named 'allowlist' (given in code, toolscope-policy), and either could "
        "run; rename or remove one"
    )


def class_with(**methods: Any) -> type:
    """A plugin class ``bad`` with these attributes."""
    return type("Bad", (), {"name": "bad", **methods})


def marked(function: Any, **options: Any) -> Any:
    """A copy of the function with the marker, which is kept in its attributes."""
    copy = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__annotations__ = function.__annotations__
    return hookimpl(**options)(copy) if options else hookimpl(copy)


def one_hook(self: object) -> dict[Any, Any]:
    """A hookimpl that can stand beside a wrong one."""
    return {}


async def an_async_hook(self: object) -> dict[Any, Any]:
    return {}


async def an_async_generator(self: object) -> Any:
    yield {}


def a_generator(self: object) -> Any:
    yield


def with_default(self: object, tools: Toolset, scope: Scope | None = None) -> dict[Any, Any]:
    return {}


def with_stars(self: object, *tools: Toolset) -> dict[Any, Any]:
    return {}


def with_keywords(self: object, *, tools: Toolset) -> dict[Any, Any]:
    return {}


def without_self() -> dict[Any, Any]:
    return {}


def misspelt_argument(self: object, tool: object) -> dict[Any, Any]:
    return {}


class Failing:
    """A descriptor that raises."""

    def __get__(self, instance: object, owner: object) -> object:
        raise OSError("no connection")


NO_HOOKIMPL = (
    "it has no hookimpl; mark at least one of filter_tools, on_tool_call, on_decision with "
    "@hookimpl"
)
GOOD = {"on_tool_call": marked(one_hook)}


@pytest.mark.parametrize(
    ("plugin", "problem"),
    [
        pytest.param(
            class_with(),
            NO_HOOKIMPL,
            id="no hookimpl",
        ),
        pytest.param(
            class_with(filter_tools=one_hook, **GOOD),
            "its method 'filter_tools' has a hook's name but no @hookimpl; mark it",
            id="a method without marker beside a marked one",
        ),
        pytest.param(
            class_with(filter_tool=marked(one_hook), **GOOD),
            "there is no hook 'filter_tool'; did you mean 'filter_tools'?",
            id="misspelt hook",
        ),
        pytest.param(
            class_with(start=marked(one_hook)),
            "there is no hook 'start'; hooks are filter_tools, on_tool_call, on_decision",
            id="a hook of another host",
        ),
        pytest.param(
            class_with(mine=marked(one_hook, specname="on_toolcall")),
            "there is no hook 'on_toolcall'; did you mean 'on_tool_call'?",
            id="misspelt specname",
        ),
        pytest.param(
            class_with(filter_tools=marked(one_hook, optionalhook=True)),
            "'filter_tools' is an optionalhook; a misspelt one would be silent",
            id="optionalhook",
        ),
        pytest.param(
            class_with(filter_tools=marked(a_generator, wrapper=True)),
            "'filter_tools' is a hook wrapper; it could see and change other plugins' verdicts",
            id="wrapper",
        ),
        pytest.param(
            class_with(filter_tools=marked(a_generator, hookwrapper=True)),
            "'filter_tools' is a hook wrapper; it could see and change other plugins' verdicts",
            id="old wrapper",
        ),
        pytest.param(
            class_with(filter_tools=marked(an_async_hook)),
            "'filter_tools' is async; filter_tools is sync (on_tool_call may be async)",
            id="async filter_tools",
        ),
        pytest.param(
            class_with(see=marked(an_async_hook, specname="on_decision")),
            "'see' is async; on_decision is sync (on_tool_call may be async)",
            id="async on_decision",
        ),
        pytest.param(
            class_with(filter_tools=marked(an_async_generator)),
            "'filter_tools' is async; filter_tools is sync (on_tool_call may be async)",
            id="async generator",
        ),
        pytest.param(
            class_with(filter_tools=marked(with_default)),
            "argument 'scope' of 'filter_tools' has a default; pluggy passes it or not, depending "
            "on its version",
            id="default",
        ),
        pytest.param(
            class_with(filter_tools=marked(with_stars)),
            "argument 'tools' of 'filter_tools' is not a plain argument",
            id="*args",
        ),
        pytest.param(
            class_with(filter_tools=marked(with_keywords)),
            "argument 'tools' of 'filter_tools' is not a plain argument",
            id="keyword-only",
        ),
        pytest.param(
            class_with(filter_tools=marked(without_self)),
            "'filter_tools' cannot be called (invalid method signature); a method takes 'self' "
            "first",
            id="no self",
        ),
        pytest.param(
            class_with(on_decision=Failing(), **GOOD),
            "its attribute 'on_decision' raises OSError: no connection",
            id="a property that raises",
        ),
        pytest.param(
            class_with(on_decision=len, **GOOD),
            "its method 'on_decision' has a hook's name but no @hookimpl; mark it",
            id="a callable that is no method",
        ),
    ],
)
def test_what_pluggy_would_accept_in_silence_is_refused(plugin: type, problem: str) -> None:
    """With the plugin, what is wrong, and what to do."""
    assert refusal(plugin) == f"plugin 'bad': {problem}"


def test_a_misspelt_argument_is_refused() -> None:
    """In pluggy's words, on one line, with our plugin named first."""
    message = refusal(class_with(filter_tools=marked(misspelt_argument)))
    assert message.startswith("plugin 'bad': Plugin 'bad' for hook 'filter_tools' hookimpl")
    assert "Argument(s) {'tool'} are declared in the hookimpl but can not be found" in message
    assert "\n" not in message


def test_a_hookimpl_may_have_another_name_than_its_hook() -> None:
    """With ``specname``; then one plugin may even answer a hook twice."""

    class Twice:
        name = "twice"

        @hookimpl(specname="on_tool_call")
        def first(self) -> Verdict:
            return deny("first")

        @hookimpl(specname="on_tool_call")
        def second(self) -> Verdict:
            return deny("second")

    engine = PolicyEngine([Twice])
    decision = engine.on_tool_call(ToolCall(name="read"), toolset("read"), Scope())
    assert [one.verdict.reason for one in decision.verdicts] == ["first", "second"]


@pytest.mark.parametrize("order", [1, -1])
def test_all_faults_are_reported_at_once(order: int) -> None:
    """Of every plugin and of the configuration, in an order of their own."""

    class Sound:
        @hookimpl
        def on_tool_call(self) -> None: ...

    given = [class_with(), type("Worse", (), {}), Sound][::order]
    message = refusal(*given, config={"enable": ["bad", "Worse", "Soun"]})
    assert message == (
        "3 faults\n"
        "  enable[2]: no plugin named 'Soun' is installed; did you mean 'Sound'?\n"
        f"  plugin 'Worse': {NO_HOOKIMPL}\n"
        f"  plugin 'bad': {NO_HOOKIMPL}"
    )


def test_a_plugin_that_cannot_be_built_is_a_fault() -> None:
    """With the error of its constructor."""

    class Demanding:
        def __init__(self, settings: object) -> None: ...

        @hookimpl
        def on_tool_call(self) -> None: ...

    class Broken:
        def __init__(self) -> None:
            raise OSError("no such file")

        @hookimpl
        def on_tool_call(self) -> None: ...

    assert refusal(Demanding).startswith("plugin 'Demanding': it cannot be built (TypeError: ")
    assert refusal(Broken) == "plugin 'Broken': it cannot be built (OSError: no such file)"


class Configured:
    """A plugin with settings."""

    name = "configured"

    @attrs.frozen
    class Settings:
        names: frozenset[str] = frozenset()
        most: int = 3

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @hookimpl
    def on_tool_call(self, call: ToolCall) -> Verdict | None:
        return deny("it is not named") if call.name not in self.settings.names else None


def test_settings_come_from_the_table_of_the_plugin() -> None:
    """A class is called with its Settings; without a table, with their defaults."""

    def effect(config: Mapping[str, Any] | None) -> Effect:
        engine = PolicyEngine([Configured], config=config)
        return engine.on_tool_call(ToolCall(name="read"), toolset("read"), Scope()).effect

    assert effect(None) is Effect.DENY
    assert effect({"plugins": {"configured": {"names": ["read"]}}}) is Effect.ALLOW


def test_wrong_settings_are_faults_with_their_path() -> None:
    """All of them, each with what is allowed."""
    assert refusal(
        Configured, config={"plugins": {"configured": {"names": "read", "mots": 1}}}
    ).splitlines()[1:] == [
        "  plugins.configured.names: 'read' is not allowed; allowed is a list",
        "  plugins.configured.mots: unknown key; did you mean 'most'?",
    ]


def test_a_table_where_there_is_nothing_to_set_is_a_fault() -> None:
    """For a class without Settings, for an object, and for Settings that are no attrs class."""

    class Plain:
        name = "plain"

        @hookimpl
        def on_tool_call(self) -> None: ...

    class Wrong(Plain):
        name = "wrong"
        Settings = dict

    tables = {"plugins": {"plain": {"a": 1}}}
    assert refusal(Plain, config=tables) == "plugins.plain: this plugin has no settings"
    assert refusal(Plain(), config=tables) == (
        "plugins.plain: the plugin was given as an object, which has its settings already; give "
        "the class, or remove the table"
    )
    assert refusal(Wrong) == "plugin 'wrong': its Settings are no attrs class"
    assert PolicyEngine([Plain], config={"plugins": {"plain": {}}}).plugins[-1].active


def test_a_plugin_that_is_named_and_missing_is_a_fault() -> None:
    """In ``enable`` and by a table; with the nearest name, else all of them."""
    assert refusal(config={"enable": ["alowlist"]}) == (
        "enable[0]: no plugin named 'alowlist' is installed; did you mean 'allowlist'?"
    )
    assert refusal(config={"plugins": {"zzz": {}}}) == (
        "plugins.zzz: no plugin named 'zzz' is installed; installed are allowlist, availability"
    )


# --------------------------------------------------------------------------------------------
# Installed
# --------------------------------------------------------------------------------------------


def test_an_installed_plugin_is_found_by_its_entry_point(
    install: Install, configured: Callable[[str], Path]
) -> None:
    """Its record says whose it is; its settings come from the file."""
    install("acme-rules", {"acme": "acme_found:Rules"}, acme_found=RULE)
    file = configured('enable = ["acme"]\n[plugins.acme]\nnames = ["read"]\n')
    engine = PolicyEngine.load(file)
    (record,) = [one for one in engine.plugins if one.name == "acme"]
    assert record == PluginRecord(
        name="acme", distribution="acme-rules", version="1.2", hooks=("filter_tools",)
    )
    listing = engine.filter_tools(toolset("read", "shell"), Scope())
    assert [tool.name for tool in listing] == ["shell"]


def test_what_is_not_selected_is_never_imported(
    install: Install, configured: Callable[[str], Path]
) -> None:
    """The record says why it is not active."""
    install("acme-rules", {"acme": "acme_bomb:Rules"}, acme_bomb="raise OSError('boom')\n")
    engine = PolicyEngine.load(configured("enable = []\n"))
    (record,) = [one for one in engine.plugins if one.name == "acme"]
    assert record == PluginRecord(
        name="acme",
        distribution="acme-rules",
        version="1.2",
        active=False,
        why_not="the configuration does not enable it",
    )
    assert "acme_bomb" not in sys.modules
    assert {one.name for one in engine.plugins if one.active} == {"allowlist", "availability"}


def load_fault(file: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        PolicyEngine.load(file)
    return str(caught.value).removeprefix("the policy cannot be loaded: ")


def test_an_entry_point_that_cannot_be_imported_is_a_fault(
    install: Install, configured: Callable[[str], Path]
) -> None:
    """With plugin, distribution, error and cure; other plugins are looked at all the same."""
    install(
        "acme-rules",
        {"bomb": "acme_bomb2:Rules", "gone": "acme_gone:Rules", "less": "acme_less:Rules"},
        acme_bomb2="raise OSError('boom')\n",
        acme_less="",
    )
    lines = load_fault(configured('enable = ["bomb", "gone", "less"]\n')).splitlines()
    cure = "mend or remove it, or leave it out of 'enable'"
    assert lines == [
        "3 faults",
        "  plugin 'bomb' of acme-rules 1.2: it cannot be imported (OSError: boom); " + cure,
        "  plugin 'gone' of acme-rules 1.2: it cannot be imported (ModuleNotFoundError: No module "
        "named 'acme_gone'); " + cure,
        "  plugin 'less' of acme-rules 1.2: it cannot be imported (AttributeError: module "
        "'acme_less' has no attribute 'Rules'); " + cure,
    ]


def test_the_records_of_a_broken_configuration_say_why(
    install: Install, configured: Callable[[str], Path]
) -> None:
    """The command shows them; no engine is made."""
    install("acme-rules", {"bomb": "acme_bomb3:Rules"}, acme_bomb3="raise OSError('boom')\n")
    assembly = assemble(read_configuration(configured('enable = ["bomb"]\n')))
    (record,) = [one for one in assembly.records if one.name == "bomb"]
    assert record.active is False
    assert record.why_not == "it cannot be imported (OSError: boom)"
    assert len(assembly.faults) == 1


def test_an_entry_point_is_a_class(install: Install, configured: Callable[[str], Path]) -> None:
    """Not an object and not a function: the loader builds it, with its settings."""
    install("acme-rules", {"acme": "acme_object:RULES"}, acme_object="RULES = object()\n")
    assert load_fault(configured('enable = ["acme"]\n')) == (
        "plugin 'acme' of acme-rules 1.2: its entry point is a object; allowed is a class"
    )


def test_two_distributions_that_bring_one_name_are_refused(
    install: Install, configured: Callable[[str], Path]
) -> None:
    """pluggy would take the first on the disk: one plugin could replace another's rule."""
    install("acme-rules", {"rules-x": "acme_twice:Rules"}, acme_twice=RULE)
    install("zeta-rules", {"rules-x": "zeta_twice:Rules"}, zeta_twice=RULE)
    file = configured('enable = ["rules-x"]\n')
    assert load_fault(file) == (
        f"{file}: two plugins are named 'rules-x' (acme-rules, zeta-rules), and either could run; "
        "rename or remove one"
    )
    assert PolicyEngine.load(configured("enable = []\n")).plugins


def test_a_fault_of_an_installed_plugin_names_its_distribution(
    install: Install, configured: Callable[[str], Path]
) -> None:
    """Of its class and of its settings, the latter with the file."""
    install(
        "acme-rules",
        {"acme": "acme_fault:Rules", "empty": "acme_fault:Empty"},
        acme_fault=RULE + "\nclass Empty: ...\n",
    )
    file = configured('enable = ["acme", "empty"]\n[plugins.acme]\nnames = "shell"\n')
    assert load_fault(file).splitlines()[1:] == [
        f"  {file}: plugins.acme.names: 'shell' is not allowed; allowed is a list",
        f"  plugin 'empty' of acme-rules 1.2: {NO_HOOKIMPL}",
    ]
