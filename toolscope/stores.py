"""Where a `toolscope.calls.CallLedger` keeps what it remembers.

A store holds JSON records under keys, and changes a record only if it is still what the caller saw
(compare and swap). That is all it takes for two threads, or two processes, never to run a call
twice.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias

from toolscope.errors import LedgerError

__all__ = ["Key", "MemoryStore", "Record", "SQLiteStore", "Store"]

Key: TypeAlias = tuple[str | None, ...]
"""The first part is the kind of record (``call``, ``grant``, ...), the others name it."""
Record: TypeAlias = Mapping[str, Any]
"""A JSON object. ``final`` in it says that it may be forgotten when memory runs out."""


class Store(Protocol):
    """What a ledger needs of a store. Each method is atomic, and safe to call from any thread."""

    def get(self, key: Key) -> Record | None:
        """The record under this key, or None."""

    def swap(self, key: Key, old: Record | None, new: Record | None) -> bool:
        """Replaces ``old`` by ``new`` (None = no record) if it is still there; was it?"""

    def items(self, kind: str) -> Iterator[tuple[Key, Record]]:
        """Every record of one kind as it is now, in the order in which the keys first appeared.

        Records may be swapped while the caller goes through them.
        """


class MemoryStore:
    """Keeps up to ``limit`` records of each kind in memory, and forgets the oldest final ones.

    What was forgotten is unknown again: a call id that comes back after ``limit`` newer ones is
    decided anew, and a spent grant that is handed in again after as many others counts. Denied
    calls go first, so that a model that provokes denials cannot make the ledger forget what has
    run. A host that needs longer memory keeps a `SQLiteStore`.

    Raises:
        LedgerError: From ``swap``: it is full of records that are not final.
    """

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._kinds: dict[str | None, dict[Key, Record]] = {}
        self._lock = threading.Lock()

    def get(self, key: Key) -> Record | None:
        """The record under this key, or None."""
        return self._kinds.get(key[0], _NONE).get(key)

    def swap(self, key: Key, old: Record | None, new: Record | None) -> bool:
        """Replaces ``old`` by ``new`` if it is still there; says whether it was."""
        with self._lock:
            kept = self._kinds.setdefault(key[0], {})
            if kept.get(key) != old:
                return False
            if new is None:
                kept.pop(key, None)
                return True
            if key not in kept and len(kept) >= self._limit:
                self._forget(kept)
            kept[key] = new
            return True

    def _forget(self, kept: dict[Key, Record]) -> None:
        # A tenth at once, so that a full store does not look through all its records each time.
        wanted = max(1, self._limit // 10)
        final = [key for key, record in kept.items() if record.get("final")]
        denied = [key for key in final if kept[key].get("state") == "denied"]
        oldest = (denied or final)[:wanted]
        if not oldest:
            raise LedgerError(
                f"the ledger holds {len(kept):,} open records and none that may be forgotten; "
                "complete or cancel calls, or give the store a higher limit"
            )
        for key in oldest:
            del kept[key]

    def items(self, kind: str) -> Iterator[tuple[Key, Record]]:
        """Every record of one kind, oldest key first."""
        with self._lock:
            return iter(list(self._kinds.get(kind, _NONE).items()))


_NONE: Final[Mapping[Key, Record]] = {}


class SQLiteStore:
    """Keeps all records in an SQLite file, across restarts and between processes of one machine.

    Nothing in it is forgotten: keep one file as long as call ids may come back, and no longer.

    Raises:
        LedgerError: The file is no such store or of a later version. From the methods: it cannot
            be read or written.
    """

    def __init__(self, path: str) -> None:
        import sqlite3

        self._path = str(path)
        self._broken = sqlite3.Error
        self._lock = threading.Lock()
        try:
            self._connection = sqlite3.connect(
                self._path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise LedgerError(f"{self._path!r} cannot be opened: {error}") from error
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._connection.close()
            raise LedgerError(f"{self._path!r} is no ledger: {error}") from error
        except LedgerError:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        """Makes the table in an empty file, and refuses a file that is something else."""
        import sqlite3

        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        (application,) = execute("PRAGMA application_id").fetchone()
        (version,) = execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION:
            if application or version or execute("SELECT 1 FROM sqlite_schema").fetchone():
                raise LedgerError(f"{self._path!r} is another program's database; give a new path")
            execute(
                "CREATE TABLE records"
                " (place INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL UNIQUE,"
                " record TEXT NOT NULL)"
            )
            execute("CREATE INDEX kinds ON records (kind, place)")
            execute(f"PRAGMA application_id={_APPLICATION}")
            execute(f"PRAGMA user_version={_VERSION}")
        elif version != _VERSION:
            raise LedgerError(
                f"{self._path!r} is a ledger of version {version}; this program reads version "
                f"{_VERSION}: update it, or give a new path"
            )
        execute("COMMIT")
        # Halves the time of a hand-out. Where another process is at work, the next one does it.
        with suppress(sqlite3.OperationalError):
            execute("PRAGMA journal_mode=WAL")

    def get(self, key: Key) -> Record | None:
        """The record under this key, or None."""
        rows = self._rows("SELECT key, record FROM records WHERE key = ?", _text(key))
        return rows[0][1] if rows else None

    def swap(self, key: Key, old: Record | None, new: Record | None) -> bool:
        """Replaces ``old`` by ``new`` if it is still there; says whether it was."""
        named = _text(key)
        if old is None and new is None:
            return not self._rows("SELECT key, record FROM records WHERE key = ?", named)
        if old is None:
            return self._changed(
                "INSERT OR IGNORE INTO records (kind, key, record) VALUES (?, ?, ?)",
                key[0], named, _text(new),
            )  # fmt: skip
        if new is None:
            return self._changed(
                "DELETE FROM records WHERE key = ? AND record = ?", named, _text(old)
            )
        return self._changed(
            "UPDATE records SET record = ? WHERE key = ? AND record = ?",
            _text(new), named, _text(old),
        )  # fmt: skip

    def items(self, kind: str) -> Iterator[tuple[Key, Record]]:
        """Every record of one kind, oldest key first."""
        return iter(
            self._rows("SELECT key, record FROM records WHERE kind = ? ORDER BY place", kind)
        )

    def close(self) -> None:
        """Closes the file. The store cannot be used afterwards."""
        with self._lock:
            self._connection.close()

    def _rows(self, statement: str, value: str) -> list[tuple[Key, Record]]:
        try:
            with self._lock:
                rows = self._connection.execute(statement, (value,)).fetchall()
            return [(tuple(json.loads(key)), _object(record)) for key, record in rows]
        except (self._broken, TypeError, ValueError) as error:
            raise LedgerError(
                f"the ledger {self._path!r} cannot be read: {error}; treat its calls as settled"
            ) from error

    def _changed(self, statement: str, *values: str | None) -> bool:
        try:
            with self._lock:
                return self._connection.execute(statement, values).rowcount == 1
        except self._broken as error:
            raise LedgerError(
                f"the ledger {self._path!r} cannot be written: {error}; nothing was handed out"
            ) from error


_VERSION: Final = 1
_APPLICATION: Final = 0x74_6F_6F_6C
"""Marks the file as a ledger (``tool``), so that no other program's database is taken for one."""
_PATIENCE: Final = 30.0
"""Seconds to wait for another process that is writing."""


def _object(text: str) -> Record:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError(f"a record is a {type(value).__name__}")
    return value


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
