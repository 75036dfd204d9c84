"""The documentation's examples run, each in a process of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environments import ROOT

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_EXPECTED = re.compile(r"^# (.*)$", re.MULTILINE)


def blocks() -> list[tuple[str, str]]:
    return [
        (f"{path.relative_to(ROOT)}-{number}", block)
        for path in sorted((ROOT / "docs").rglob("*.md"))
        for number, block in enumerate(_BLOCK.findall(path.read_text(encoding="utf-8")), 1)
    ]


@pytest.mark.parametrize("block", [pytest.param(code, id=name) for name, code in blocks()])
def test_the_example_runs(block: str, tmp_path: Path) -> None:
    """Each python block runs; where comments end it, they are what it prints."""
    run = subprocess.run(
        [sys.executable, "-c", block],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    tail = re.search(r"((?:^# .*\n)+)\Z", block, re.MULTILINE)
    if tail is not None:
        assert run.stdout.splitlines() == _EXPECTED.findall(tail.group(1))
