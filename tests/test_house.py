"""The rules of this house: format, lint, types, direction of imports, and what is public."""

import ast
import importlib
import inspect
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.environments import ROOT, run

PACKAGE = ROOT / "toolscope"
PLUGINS = sorted((ROOT / "plugins").glob("toolscope-*/toolscope_*/**/*.py"))


def module_name(file: Path) -> str:
    """``toolscope/ahp/wire.py`` is ``toolscope.ahp.wire``."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(file): file for file in sorted(PACKAGE.rglob("*.py"))}
OPEN_TO_PLUGINS = {
    f"toolscope.{name}" for name in ("errors", "hookspecs", "listings", "model", "verdicts")
}
PUBLIC = [name for name in MODULES if not any(part.startswith("_") for part in name.split("."))]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "format", "--check", "."],
        ["ruff", "check", "."],
        ["mypy"],
        ["lint-imports"],
    ],
    ids=["format", "lint", "types", "imports"],
)
def test_the_tree_is_clean(command: list[str]) -> None:
    """Format, lint, types and import contracts hold for package, plugins and tests."""
    done = run([Path(sys.executable).parent / command[0], *command[1:]])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_module_says_exactly_what_it_offers(name: str) -> None:
    """``__all__`` is sorted, and everything in it exists and has a docstring."""
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    offered = getattr(module, "__all__", [])
    assert offered or not defines_anything(module), f"{name} has no __all__"
    assert offered == sorted(set(offered), key=by_kind), f"sort {name}.__all__"
    for public in offered:
        value = getattr(module, public)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, f"{name}.{public} has no docstring"


def defines_anything(module: ModuleType) -> bool:
    """Whether a class or function is defined in this very module."""
    return any(
        getattr(value, "__module__", None) == module.__name__ for value in vars(module).values()
    )


def by_kind(name: str) -> tuple[int, str]:
    """The order of ruff's RUF022: constants, then classes, then the rest."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_methods_have_docstrings(name: str) -> None:
    """Every public method and property of a public class says what it does."""
    module = importlib.import_module(name)
    classes = [getattr(module, public) for public in getattr(module, "__all__", [])]
    missing = [
        f"{name}.{cls.__name__}.{attribute}"
        for cls in filter(inspect.isclass, classes)
        for attribute, value in vars(cls).items()
        if not attribute.startswith("_")
        and defined_in_package(value)
        and not any(getattr(vars(base).get(attribute), "__doc__", None) for base in cls.__mro__)
    ]
    assert missing == []


def defined_in_package(value: object) -> bool:
    """Whether this is a method or property that somebody here wrote."""
    function = value.fget if isinstance(value, property) else value
    function = getattr(function, "__func__", function)
    return inspect.isfunction(function) and function.__module__.startswith("toolscope")


def test_the_package_root_offers_what_its_modules_offer() -> None:
    """Each name of the root is the very object of a public module."""
    root = importlib.import_module("toolscope")
    homes = [importlib.import_module(name) for name in PUBLIC if name != "toolscope"]
    for public in root.__all__:
        assert any(getattr(home, public, None) is getattr(root, public) for home in homes), public


def test_importing_the_package_imports_nothing_heavy() -> None:
    """``import toolscope`` leaves hosts, command-line libraries, anyio and cattrs alone."""
    heavy = ["anyio", "cattrs", "cyclopts", "rich", "pydantic", "mcp", "fastmcp", "asyncio"]
    code = f"import sys, toolscope; print([one for one in {heavy} if one in sys.modules])"
    assert run([sys.executable, "-c", code]).stdout == "[]\n"


def imports(file: Path) -> Iterator[str]:
    """The full name of everything a file imports, wherever in it: ``package.module.name``."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{one.name}" for one in node.names)


def importers(prefix: str) -> set[str]:
    """The modules of the package that import something of this name."""
    return {
        name
        for name, file in MODULES.items()
        if any(f"{one}.".startswith(f"{prefix}.") for one in imports(file))
    }


def test_only_the_modules_of_the_design_look_outside() -> None:
    """What is installed, the environment, files and cattrs are touched in few places."""
    command = {name for name in MODULES if name.startswith("toolscope.cli")}
    assert importers("importlib.metadata") - command == {"toolscope._plugins"}
    assert importers("cattrs") == {"toolscope._config"}
    # The proxy starts a server, and hands it the environment that it was started with itself.
    command.add("toolscope.hosts._fastmcp_proxy")
    assert importers("os") - command <= {
        "toolscope._config",
        "toolscope._plugins",
        "toolscope.engine",
    }
    above = ("calls", "ahp", "hosts", "testing", "cli")
    assert {one for one in importers("time") if one.split(".")[1] not in above} == set()
    reading = re.compile(r"(?<![\w.])open\(|\.read_(text|bytes)\(|\benviron\b|\bgetenv\(")
    readers = {
        name for name, file in MODULES.items() if reading.search(file.read_text(encoding="utf-8"))
    }
    assert readers - command <= {"toolscope._config", "toolscope._plugins"}


def test_nobody_inside_imports_the_package_root() -> None:
    """Inside the package, names come from the module that defines them."""
    root = importlib.import_module("toolscope")
    public = {f"toolscope.{name}" for name in root.__all__ if not is_module(root, name)}
    for name, file in MODULES.items():
        if name != "toolscope":
            assert public.isdisjoint(imports(file)), name


def is_module(root: ModuleType, name: str) -> bool:
    """Whether the root's attribute is a submodule."""
    return isinstance(getattr(root, name), ModuleType)


@pytest.mark.parametrize("file", PLUGINS, ids=lambda file: file.parent.name)
def test_a_plugin_imports_public_names_only(file: Path) -> None:
    """Plugins build on the hooks, values and verdicts that are public, as strangers have to."""
    for one in imports(file):
        if one.split(".")[0] == "toolscope":
            module = one.rsplit(".", 1)[0]
            assert module in OPEN_TO_PLUGINS
            assert one.rsplit(".", 1)[1] in importlib.import_module(module).__all__


def test_the_contract_on_plugins_is_complete() -> None:
    """The import contract ``plugins`` knows every plugin, and every private module."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    linter = settings["tool"]["importlinter"]
    assert {"toolscope", *(file.parent.name for file in PLUGINS)} <= set(linter["root_packages"])
    (contract,) = (one for one in linter["contracts"] if one["id"] == "plugins")
    private = {f"toolscope.{file.stem}" for file in PACKAGE.glob("_[!_]*.py")}
    assert private <= set(contract["protected_modules"])


@pytest.mark.slow
def test_the_import_contracts_hold_only_what_they_name(tmp_path: Path) -> None:
    """A contract that is broken on purpose is reported: a plugin that imports the engine."""
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    before = 'allowed_importers = ["toolscope._config", "toolscope.ahp.wire"]'
    assert before in settings
    broken = tmp_path / "pyproject.toml"
    broken.write_text(settings.replace(before, "allowed_importers = []"), encoding="utf-8")
    done = run([Path(sys.executable).parent / "lint-imports", "--config", broken, "--no-cache"])
    assert done.returncode == 1
    assert "only _config and ahp.wire import cattrs BROKEN" in done.stdout
