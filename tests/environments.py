"""Throw-away environments for tests of what is built, and the processes that run in them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
"""The root of the repository."""

_LEFT_OUT = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "TOOLSCOPE_CONFIG", "FORCE_COLOR")


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path = ROOT,
    given: bytes = b"",
    environment: Mapping[str, str] | None = None,
    seconds: float = 600,
) -> subprocess.CompletedProcess[str]:
    """Runs a process at 80 columns without a terminal; its output is text."""
    variables = {key: value for key, value in os.environ.items() if key not in _LEFT_OUT}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        input=given,
        env={**variables, "COLUMNS": "80", **(environment or {})},
        capture_output=True,
        timeout=seconds,
        check=False,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8")
    )


def succeed(command: Sequence[str | Path], *, cwd: Path = ROOT, seconds: float = 600) -> str:
    """Runs a process that must succeed, and returns its standard output."""
    done = run(command, cwd=cwd, seconds=seconds)
    if done.returncode:
        shown = " ".join(map(str, command))
        pytest.fail(f"{shown} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def uv() -> str:
    """The uv that runs the tests, else the one on the path."""
    found = os.environ.get("UV") or shutil.which("uv")
    if not found:
        pytest.fail("uv is not installed; pip install uv")
    return found


def make_environment(folder: Path, *requirements: str | Path, python: str | Path = "") -> Path:
    """Makes an environment that holds these requirements; returns the folder of its commands."""
    succeed([uv(), "venv", "--quiet", "--no-project", "--python", python or sys.executable, folder])
    commands = folder / ("Scripts" if os.name == "nt" else "bin")
    if requirements:
        install: list[str | Path] = [
            uv(),
            "pip",
            "install",
            "--quiet",
            "--python",
            commands / "python",
        ]
        succeed([*install, *requirements])
    return commands
