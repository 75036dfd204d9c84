"""Swaps a host's engine when a file changes (extra ``watch``).

::

    engines = WatchedEngine(PolicyEngine.load(path), files=[path, path.parent / "policy.toml"])
    stop = threading.Event()
    threading.Thread(target=engines.watch, args=[stop], daemon=True).start()
    ledger = CallLedger(engines)    # whatever takes an engine, or a callable that returns one

The plugin never reloads itself: an engine is immutable, and a decision in flight ends on the one it
began with. A broken file keeps the engine that is in force, and is reported.
"""

import hashlib
import logging
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Generic, Protocol, Self, TypeVar

from toolscope.errors import ToolscopeError

__all__ = ["Reloadable", "WatchedEngine"]

logger = logging.getLogger("toolscope.rules")

LOOK_EVERY: Final = 1.0
"""Seconds after which the files are looked at even if nobody said that they changed."""


class Reloadable(Protocol):
    """What an engine is to the watcher."""

    def reload(self) -> Self:
        """A new one from the same source, or a `ToolscopeError`."""


E = TypeVar("E", bound=Reloadable)


class WatchedEngine(Generic[E]):
    """A callable that returns the engine in force.

    Args:
        engine: The engine to begin with.
        files: The files it was made from: the configuration, and the policies it names.
    """

    def __init__(self, engine: E, files: Iterable[Path]) -> None:
        self._engine = engine
        self._files = tuple(files)
        self._seen = self._contents()
        self.failure: ToolscopeError | None = None
        """Why the files as they are now could not be taken; None where they are in force."""

    def __call__(self) -> E:
        """The engine in force."""
        return self._engine

    def refresh(self) -> bool:
        """Takes the files as they are now, if they changed; whether a new engine is in force."""
        contents = self._contents()
        if contents == self._seen:
            return False
        self._seen = contents
        try:
            engine = self._engine.reload()
        except ToolscopeError as error:
            self.failure = error
            logger.error("the changed policy is not taken, the old one stays: %s", error)  # noqa: TRY400
            return False
        self._engine = engine  # one assignment, so everybody sees the old one or the new one
        self.failure = None
        logger.info("the changed policy is in force")
        return True

    def watch(self, stop: threading.Event) -> None:
        """Refreshes at every change until ``stop`` is set. It blocks: give it a thread.

        Raises:
            ImportError: The extra ``watch`` is not installed.
        """
        from watchfiles import watch

        # Editors replace files, and mounted folders swap links: folders are watched, not files.
        folders = {file.absolute().parent for file in self._files}
        for _ in watch(
            *folders,
            watch_filter=None,
            stop_event=stop,
            recursive=False,
            yield_on_timeout=True,
            rust_timeout=int(LOOK_EVERY * 1000),
            debounce=200,
            step=20,
            raise_interrupt=False,
        ):
            self.refresh()

    def _contents(self) -> tuple[str | None, ...]:
        return tuple(map(_digest, self._files))


def _digest(file: Path) -> str | None:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError:
        return None
