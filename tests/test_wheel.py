"""What is published: the wheel and the source distribution, not the tree."""

import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.environments import ROOT, make_environment, run, succeed

pytestmark = pytest.mark.slow


def package_files() -> set[str]:
    """Every file of the package in the tree."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "toolscope").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """Every file of the package is in the wheel, the rest is its metadata."""
    names = set(zipfile.ZipFile(wheel).namelist())
    metadata = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    assert names - metadata == package_files()
    assert {"toolscope/py.typed", "toolscope/cli/sample_session.json"} <= names
    assert {Path(name).name for name in metadata} == {
        "METADATA",
        "WHEEL",
        "RECORD",
        "LICENSE",
        "entry_points.txt",
    }


def test_the_source_distribution_holds_what_builds_the_wheel(dist: Path) -> None:
    """No caches, plugins or tests: the package, and the files that pyproject.toml names."""
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.split("/", 1)[1] for name in opened.getnames()}
    beside = {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "PKG-INFO", ".gitignore"}
    assert names == package_files() | beside


def test_the_main_job_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    """In an environment that holds the wheel alone, the command lists the sample session."""
    done = run([installed / "toolscope", "tools", "--sample", "--json"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    chats = {chat["chat"]: chat for chat in json.loads(done.stdout)["chats"]}
    assert "pick_file" in chats["ahp-chat:/main"]["listed"]
    assert "pick_file" not in chats["ahp-chat:/worker"]["listed"]


def test_the_environment_holds_no_plugin(installed: Path, tmp_path: Path) -> None:
    """What the README shows is what the distribution does by itself."""
    done = run([installed / "toolscope", "plugins", "--json"], cwd=tmp_path)
    names = [one["name"] for one in json.loads(done.stdout)["plugins"]]
    assert names == ["allowlist", "availability"]


def test_without_the_extra_the_command_says_how_to_get_it(wheel: Path, tmp_path: Path) -> None:
    """The wheel alone is a library; its command then says what to install, and exits with 2."""
    commands = make_environment(tmp_path / "venv", wheel)
    done = run([commands / "toolscope", "tools", "--sample"], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "toolscope: the command needs cyclopts and rich, which are not installed; install its "
        "extra: pip install 'toolscope-policy[cli]'\n"
    )
    succeed([commands / "python", "-c", "import toolscope; toolscope.PolicyEngine()"], cwd=tmp_path)
