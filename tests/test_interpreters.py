"""The core on every supported interpreter that is here, and with the oldest dependencies."""

import os
import sys
import tomllib
from pathlib import Path

import pytest

from tests.environments import ROOT, make_environment, run, succeed, uv

pytestmark = pytest.mark.slow

SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
TEST_TOOLS = ("pytest>=8.3", "pytest-xdist", "coverage", "hypothesis", "trio", "jsonschema")

ELSEWHERE = (
    *("hosts", "test_cases.py", "test_cli_policy.py", "test_docs.py", "test_example_ahp_host.py"),
    *("benchmarks", "reliability", "test_ahp_fuzz.py", "test_exhaustive.py", "test_house.py"),
)
"""What needs hosts or plugins, is about the tree, or tries many cases on one interpreter."""


def find_interpreter(version: str) -> Path | None:
    """An interpreter of this version: one that uv finds, else one that pyenv installed."""
    found = run([uv(), "python", "find", "--no-project", "--no-python-downloads", version])
    if found.returncode == 0:
        return Path(found.stdout.strip())
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    installed = sorted((pyenv / "versions").glob(f"{version}.*/bin/python"))
    return installed[-1] if installed else None


def run_core_tests(commands: Path) -> None:
    """Runs the quick tests in an environment that has neither hosts nor plugins."""
    python: list[str | Path] = [commands / "python", "-m", "pytest", "-q", "-n", "auto"]
    ignored = [f"--ignore=tests/{name}" for name in ELSEWHERE]
    succeed([*python, "-p", "no:cacheprovider", "-m", "not slow", *ignored, "tests"], seconds=1800)


def test_the_metadata_names_the_supported_interpreters() -> None:
    """What is tested here is what the distribution promises."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    prefix = "Programming Language :: Python :: 3."
    named = {one.rsplit(" ", 1)[1] for one in project["classifiers"] if one.startswith(prefix)}
    assert named == set(SUPPORTED)
    assert project["requires-python"] == f">={SUPPORTED[0]}"


@pytest.mark.parametrize("version", SUPPORTED)
def test_the_core_runs_on(version: str, wheel: Path, tmp_path: Path) -> None:
    """The core's tests pass on this interpreter, in an environment of their own."""
    if version == RUNNING:
        pytest.skip(f"this run is on {version}")
    interpreter = find_interpreter(version)
    if interpreter is None:
        pytest.skip(f"there is no Python {version} on this machine")
    commands = make_environment(tmp_path / "venv", f"{wheel}[cli]", *TEST_TOOLS, python=interpreter)
    shown = succeed([commands / "python", "-c", "import sys; print(sys.version)"])
    assert shown.startswith(f"{version}.")
    run_core_tests(commands)


def test_the_core_runs_with_its_oldest_dependencies(wheel: Path, tmp_path: Path) -> None:
    """The lower bounds in pyproject.toml are true."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["cli"]]
    oldest = [one.replace(">=", "==") for one in requirements]
    commands = make_environment(tmp_path / "venv", f"{wheel}[cli]", *oldest, *TEST_TOOLS)
    shown = succeed([uv(), "pip", "freeze", "--python", commands / "python"])
    for one in oldest:
        name, version = one.split("==")
        assert f"{name}=={version}" in shown
    run_core_tests(commands)
