"""Configuration: one file, strict values, and every fault at once with its place and its cure."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest

from toolscope._config import Configuration, read_configuration, structure_settings
from toolscope.engine import PolicyEngine
from toolscope.errors import ConfigurationError
from toolscope.hookspecs import hookimpl


def faults_of(config: Mapping[str, Any]) -> list[str]:
    """Every fault of a top table given in code."""
    with pytest.raises(ConfigurationError) as caught:
        read_configuration(table=config)
    assert caught.value.title == "the configuration is wrong"
    return [str(fault) for fault in caught.value.faults]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Inner:
    deep: bool = False


@attrs.frozen
class Everything:
    """A settings class with a field of each kind."""

    flag: bool = False
    count: int = 0
    share: float = 0.5
    word: str = ""
    words: frozenset[str] = frozenset()
    row: tuple[str, ...] = ()
    items: Sequence[int] = ()
    numbers: list[float] = attrs.field(factory=list)
    anything: list[Any] = attrs.field(factory=list)
    mode: Literal["strict", "lenient"] = "strict"
    level: Literal[1, 2] = 1
    colour: Colour = Colour.RED
    file: Path = Path("/")
    inner: Inner = Inner()
    table: Mapping[str, int] = attrs.field(factory=dict)
    tables: dict[str, Inner] = attrs.field(factory=dict)
    maybe: str | None = None


def structured(table: object, folder: Path | None = None) -> Everything:
    settings, faults = structure_settings(
        Everything, table, at="plugins.all", source=None, folder=folder
    )
    assert faults == []
    assert settings is not None
    return settings


def fault(table: object, folder: Path | None = None) -> str:
    """The one fault in a table of settings."""
    settings, faults = structure_settings(
        Everything, table, at="plugins.all", source=None, folder=folder
    )
    assert settings is None
    (one,) = faults
    return str(one)


def test_every_kind_of_value_is_read() -> None:
    """As it is written, into the types of the settings."""
    assert structured(
        {
            "flag": True,
            "count": 2,
            "share": 1,
            "word": "a",
            "words": ["x", "y"],
            "row": ["a"],
            "items": [1],
            "numbers": [1, 1.5],
            "anything": [1, "a", {}],
            "mode": "lenient",
            "level": 2,
            "colour": "blue",
            "file": "rules.txt",
            "inner": {"deep": True},
            "table": {"a": 1},
            "tables": {"x": {"deep": True}},
            "maybe": "so",
        },
        Path("/etc/acme"),
    ) == Everything(
        flag=True,
        count=2,
        share=1.0,
        word="a",
        words=frozenset({"x", "y"}),
        row=("a",),
        items=[1],
        numbers=[1.0, 1.5],
        anything=[1, "a", {}],
        mode="lenient",
        level=2,
        colour=Colour.BLUE,
        file=Path("/etc/acme/rules.txt"),
        inner=Inner(deep=True),
        table={"a": 1},
        tables={"x": Inner(deep=True)},
        maybe="so",
    )


NOT = "is not allowed; allowed is"


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"flag": "false"}, "flag: 'false' is not allowed; allowed is true or false"),
        ({"flag": 0}, "flag: 0 is not allowed; allowed is true or false"),
        ({"count": True}, "count: True is not allowed; allowed is a whole number"),
        ({"count": 1.0}, "count: 1.0 is not allowed; allowed is a whole number"),
        ({"share": "1"}, "share: '1' is not allowed; allowed is a number"),
        ({"share": True}, "share: True is not allowed; allowed is a number"),
        ({"word": 1}, "word: 1 is not allowed; allowed is text"),
        ({"words": "abc"}, "words: 'abc' is not allowed; allowed is a list"),
        ({"words": {"a": 1}}, "words: {'a': 1} is not allowed; allowed is a list"),
        ({"row": ["a", 2]}, "row[1]: 2 is not allowed; allowed is text"),
        (
            {"mode": "Strickt"},
            f"mode: 'Strickt' {NOT} 'strict' or 'lenient' (did you mean 'strict'?)",
        ),
        ({"mode": 7}, "mode: 7 is not allowed; allowed is 'strict' or 'lenient'"),
        ({"level": True}, "level: True is not allowed; allowed is 1 or 2"),
        (
            {"colour": "rd"},
            "colour: 'rd' is not allowed; allowed is 'red' or 'blue' (did you mean 'red'?)",
        ),
        ({"file": 7}, "file: 7 is not allowed; allowed is the path of a file"),
        ({"file": ""}, "file: '' is not allowed; allowed is the path of a file"),
        (
            {"file": "rules.txt"},
            f"file: 'rules.txt' {NOT} an absolute path: there is no file it could be relative to",
        ),
        ({"inner": True}, "inner: True is not allowed; allowed is a table"),
        ({"inner": {"deeep": True}}, "inner.deeep: unknown key; did you mean 'deep'?"),
        ({"inner": {"deep": 1}}, "inner.deep: 1 is not allowed; allowed is true or false"),
        ({"table": ["a"]}, "table: ['a'] is not allowed; allowed is a table"),
        ({"table": {"a": "b"}}, "table.a: 'b' is not allowed; allowed is a whole number"),
        ({"table": {1: 2}}, "table: 1 is not allowed; allowed is a table whose keys are text"),
        (
            {"tables": {"x": {"deep": 1}}},
            "tables.x.deep: 1 is not allowed; allowed is true or false",
        ),
        ({"maybe": 3}, "maybe: 3 is not allowed; allowed is text"),
        ({"wrods": []}, "wrods: unknown key; did you mean 'words'?"),
        (
            {"word": ["x" * 100]},
            f"word: {['x' * 100]!r:.77}... is not allowed; allowed is text",
        ),
    ],
)
def test_a_value_of_another_kind_is_a_fault(table: object, problem: str) -> None:
    """With its path, what was written, what is allowed, and the nearest known name."""
    assert fault(table) == f"plugins.all.{problem}"


def test_settings_are_a_table() -> None:
    """And nothing else; a settings class with no field says that nothing can be set."""

    @attrs.frozen
    class Nothing:
        pass

    @attrs.frozen
    class Needed:
        name: str
        other: int = 1

    assert fault([]) == "plugins.all: [] is not allowed; allowed is a table"
    _, faults = structure_settings(Nothing, {"a": 1}, at="p", source=None, folder=None)
    assert [str(one) for one in faults] == ["p.a: unknown key; nothing can be set here"]
    _, faults = structure_settings(Needed, {"zzz": 1}, at="p", source="f", folder=None)
    assert [str(one) for one in faults] == [
        "f: p.name: it is missing; it has no default: set it",
        "f: p.zzz: unknown key; known here are 'name', 'other'",
    ]


def test_what_a_settings_class_refuses_is_a_fault() -> None:
    """Its own checks, also those that raise without a text, and classes that cannot be read."""

    @attrs.frozen
    class Checked:
        most: int = attrs.field(default=1, validator=attrs.validators.ge(1))

    @attrs.frozen
    class Silent:
        most: int = 1

        def __attrs_post_init__(self) -> None:
            raise ValueError

    @attrs.frozen
    class Unreadable:
        what: Callable[[], int] = int

    def problems(cls: type, table: Mapping[str, Any]) -> list[str]:
        settings, faults = structure_settings(cls, table, at="p", source=None, folder=None)
        assert settings is None
        return [str(one) for one in faults]

    assert problems(Checked, {"most": 0}) == ["p: 'most' must be >= 1: 0"]
    assert problems(Silent, {}) == ["p: ValueError"]
    (one,) = problems(Unreadable, {"what": 1})
    assert one.startswith("p: the settings class cannot be read: ")


# --------------------------------------------------------------------------------------------
# The top table
# --------------------------------------------------------------------------------------------


def test_an_empty_configuration_has_the_defaults() -> None:
    """Every plugin, five seconds; absent and empty ``enable`` are two things."""
    assert read_configuration(table={}) == Configuration(
        enable=None, async_timeout=5.0, plugins={}, path=None
    )
    assert read_configuration(table={"enable": []}).enable == ()


def test_all_faults_of_the_top_table_are_reported_at_once() -> None:
    """An unknown key among them, with the nearest known one."""
    assert faults_of(
        {"enable": "abc", "async_timeout": "5", "plugin": {}, "plugins": {"a": [], "b": {}}}
    ) == [
        "enable: 'abc' is not allowed; allowed is a list",
        "async_timeout: '5' is not allowed; allowed is a number",
        "plugins.a: [] is not allowed; allowed is a table",
        "plugin: unknown key; did you mean 'plugins'?",
    ]


@pytest.mark.parametrize("seconds", [0, -1.5, float("inf"), float("nan")])
def test_a_waiting_time_is_above_nought(seconds: float) -> None:
    """And it ends."""
    assert faults_of({"async_timeout": seconds}) == [
        f"{float(seconds)!r} is no waiting time; allowed is a number of seconds above 0"
    ]


def test_several_faults_are_listed_below_a_title() -> None:
    """One is on the line of the title."""
    with pytest.raises(ConfigurationError) as one:
        read_configuration(table={"enabel": []})
    assert str(one.value) == (
        "the configuration is wrong: enabel: unknown key; did you mean 'enable'?"
    )
    with pytest.raises(ConfigurationError) as two:
        read_configuration(table={"enabel": [], "async_timeout": True})
    assert str(two.value) == (
        "the configuration is wrong: 2 faults\n"
        "  async_timeout: True is not allowed; allowed is a number\n"
        "  enabel: unknown key; did you mean 'enable'?"
    )


# --------------------------------------------------------------------------------------------
# The file
# --------------------------------------------------------------------------------------------


def write(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8")
    return file


def file_fault(file: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read_configuration(file)
    return str(caught.value)


def test_a_toolscope_toml_is_the_top_table(tmp_path: Path) -> None:
    """With the path it came from."""
    file = write(tmp_path / "toolscope.toml", "async_timeout = 2\n[plugins.x]\na = 1\n")
    assert read_configuration(file) == Configuration(
        async_timeout=2.0, plugins={"x": {"a": 1}}, path=file
    )
    assert read_configuration(str(file)).folder == tmp_path


def test_a_pyproject_has_a_table_for_it(tmp_path: Path) -> None:
    """``[tool.toolscope]``; without one, naming the file is a fault."""
    file = write(tmp_path / "pyproject.toml", "[tool.toolscope]\nenable = ['a']\n")
    assert read_configuration(file).enable == ("a",)
    for text in ("", "[tool.other]\n", "[tool]\ntoolscope = 1\n", "tool = 3\n"):
        assert file_fault(write(file, text)) == (
            f"the configuration cannot be read: {file}: it has no table [tool.toolscope]; add one, "
            "or name a toolscope.toml"
        )


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    """A missing one, a folder, what is no TOML and what is no text."""
    cannot = "the configuration cannot be read: "
    missing = tmp_path / "missing.toml"
    assert file_fault(missing) == f"{cannot}{missing}: No such file or directory"
    assert file_fault(tmp_path) == f"{cannot}{tmp_path}: Is a directory"
    broken = write(tmp_path / "broken.toml", "enable = [\n")
    assert file_fault(broken).startswith(f"{cannot}{broken}: it is no TOML: ")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    assert file_fault(binary).startswith(f"{cannot}{binary}: it is no TOML: ")
    deep = write(tmp_path / "deep.toml", "a = " + "[" * 100_000)
    assert file_fault(deep).startswith(f"{cannot}{deep}: it is no TOML: ")


def test_faults_name_the_file(tmp_path: Path) -> None:
    """Before the path inside it."""
    file = write(tmp_path / "t.toml", "async_timeout = 'x'\n")
    assert file_fault(file) == (
        f"the configuration is wrong: {file}: async_timeout: 'x' {NOT} a number"
    )


class Reading:
    """A plugin that is told of a file."""

    name = "reading"

    @attrs.frozen
    class Settings:
        rules: Path

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @hookimpl
    def on_decision(self) -> None: ...


def test_paths_in_settings_are_relative_to_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to the current folder, also where the file itself was named by a relative path."""
    from toolscope._plugins import assemble

    folder = tmp_path / "etc"
    folder.mkdir()
    write(folder / "t.toml", "[plugins.reading]\nrules = 'rules.txt'\n")
    monkeypatch.chdir(tmp_path)
    read: list[Path] = []

    class Noting(Reading):
        def __init__(self, settings: Reading.Settings) -> None:
            read.append(settings.rules)

    assert assemble(read_configuration("etc/t.toml"), [Noting]).faults == ()
    assert read == [folder / "rules.txt"]


def test_the_variable_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An explicit path goes first; an empty variable names nothing."""
    named = write(tmp_path / "named.toml", "async_timeout = 1\n")
    explicit = write(tmp_path / "explicit.toml", "async_timeout = 2\n")
    monkeypatch.setenv("TOOLSCOPE_CONFIG", str(named))
    assert read_configuration().path == named
    assert read_configuration(explicit).path == explicit
    assert read_configuration(table={}).path is None
    monkeypatch.setenv("TOOLSCOPE_CONFIG", "")
    assert read_configuration() == Configuration()
    monkeypatch.setenv("TOOLSCOPE_CONFIG", str(tmp_path / "missing.toml"))
    with pytest.raises(ConfigurationError, match="No such file or directory"):
        PolicyEngine.load()


def test_the_current_folder_is_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents write there, and clones bring files: a broken one there changes nothing."""
    monkeypatch.delenv("TOOLSCOPE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "toolscope.toml", "enable = 'broken'\n")
    write(tmp_path / "pyproject.toml", "[tool.toolscope]\nenable = 'broken'\n")
    assert read_configuration() == Configuration()
    assert PolicyEngine.load().plugins
    assert PolicyEngine().plugins


def test_an_engine_in_code_reads_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the one that the variable names."""
    monkeypatch.setenv("TOOLSCOPE_CONFIG", str(tmp_path / "missing.toml"))
    assert [one.name for one in PolicyEngine().plugins] == ["allowlist", "availability"]


def test_a_built_in_is_configured_by_its_table() -> None:
    """With the same strictness as any other."""
    with pytest.raises(ConfigurationError) as caught:
        PolicyEngine(config={"plugins": {"availability": {"absent_origin": "tools"}}})
    assert str(caught.value) == (
        "the policy cannot be loaded: plugins.availability.absent_origin: 'tools' is not allowed; "
        "allowed is 'user' or 'tool' (did you mean 'tool'?)"
    )
    with pytest.raises(ConfigurationError, match=r"plugins\.allowlist: this plugin has no sett"):
        PolicyEngine(config={"plugins": {"allowlist": {"a": 1}}})


class Word(StrEnum):
    """An enum of text."""

    RED = "red"


class Level(IntEnum):
    """An enum of numbers."""

    HIGH = 1


@pytest.mark.parametrize("kind", [Colour, Word, Level])
def test_every_kind_of_enum_gives_its_members(kind: type[Enum]) -> None:
    """Also of enums that are text or numbers, which older cattrs reads as what they derive from."""

    @attrs.frozen
    class Choosing:
        one: kind  # type: ignore[valid-type]

    (member, *_) = kind
    given = {"one": member.value}
    settings, faults = structure_settings(Choosing, given, at="p", source=None, folder=None)
    assert (settings, faults) == (Choosing(one=member), [])
    assert settings is not None
    assert type(settings.one) is kind
    _, (fault,) = structure_settings(Choosing, {"one": 9}, at="p", source=None, folder=None)
    assert str(fault).startswith("p.one: 9 is not allowed; allowed is ")
