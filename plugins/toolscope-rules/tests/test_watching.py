"""Reloading: a changed policy is in force soon, a broken one never."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from toolscope_rules.watching import WatchedEngine

from toolscope import PolicyEngine, Scope, Tool, Toolset

TOOLS = Toolset([Tool(name="a"), Tool(name="b")])


def policy(*denied: str) -> str:
    """A policy that denies these tools."""
    return "\n".join(f'[[rules]]\neffect = "deny"\ntools = ["{name}"]' for name in denied)


def start(folder: Path) -> tuple[WatchedEngine[PolicyEngine], Path]:
    """A watched engine that denies ``a``, and its policy file."""
    configuration, file = folder / "toolscope.toml", folder / "policy.toml"
    configuration.write_text(
        'enable = ["rules"]\n[plugins.rules]\nfile = "policy.toml"\n', encoding="utf-8"
    )
    file.write_text(policy("a"), encoding="utf-8")
    engine = PolicyEngine.load(configuration)
    return WatchedEngine(engine, files=[configuration, file]), file


def listed(engines: WatchedEngine[PolicyEngine]) -> list[str]:
    """What the engine in force shows."""
    return [tool.name for tool in engines().filter_tools(TOOLS, Scope(origin="user"))]


def test_a_change_gives_a_new_engine(tmp_path: Path) -> None:
    """The old engine stays as it is, for whoever still decides on it."""
    engines, file = start(tmp_path)
    old = engines()
    assert engines.refresh() is False
    file.write_text(policy("b"), encoding="utf-8")
    assert engines.refresh() is True
    assert listed(engines) == ["a"]
    assert [tool.name for tool in old.filter_tools(TOOLS, Scope(origin="user"))] == ["b"]


def test_a_broken_file_keeps_the_old_policy_and_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Reported once, with its faults; mended, it is taken."""
    engines, file = start(tmp_path)
    before = engines()
    file.write_text("[[rules]]\neffect = 'dney'", encoding="utf-8")
    assert engines.refresh() is False
    assert engines() is before
    assert "'dney' is not allowed" in str(engines.failure)
    assert "the changed policy is not taken, the old one stays" in caplog.text
    caplog.clear()
    assert engines.refresh() is False
    assert caplog.text == ""
    file.unlink()
    assert engines.refresh() is False
    assert engines() is before
    file.write_text(policy("a", "b"), encoding="utf-8")
    assert engines.refresh() is True
    assert engines.failure is None
    assert listed(engines) == []


@contextmanager
def watching(engines: WatchedEngine[PolicyEngine]) -> Iterator[None]:
    """The watcher in a thread of its own, which ends with the block."""
    stop = threading.Event()
    thread = threading.Thread(target=engines.watch, args=[stop])
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=10)
        assert not thread.is_alive()


def soon(test: Callable[[], bool]) -> bool:
    """Whether it becomes true within ten seconds."""
    ends = time.monotonic() + 10
    while time.monotonic() < ends:
        if test():
            return True
        time.sleep(0.02)
    return False


def test_the_watcher_takes_changes_by_itself(tmp_path: Path) -> None:
    """Written in place and replaced, as editors do; a broken one in between changes nothing."""
    engines, file = start(tmp_path)
    with watching(engines):
        file.write_text(policy("b"), encoding="utf-8")
        assert soon(lambda: listed(engines) == ["a"])
        other = tmp_path / "new"
        other.write_text("broken = ", encoding="utf-8")
        other.replace(file)
        assert soon(lambda: engines.failure is not None)
        assert listed(engines) == ["a"]
        other.write_text(policy("a", "b"), encoding="utf-8")
        other.replace(file)
        assert soon(lambda: listed(engines) == [])
