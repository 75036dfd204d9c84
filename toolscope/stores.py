"""Where a `toolscope.calls.CallLedger` keeps what it remembers.

A store holds JSON records under keys, and changes a record only if it is still what the caller saw
(compare and swap). That is all it takes for two threads, or two processes, never to run a call
twice.
"""

import json
import threading
from collections.abc import Iterator, Mapping
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
        """Every record of one kind, in the order in which the keys first appeared."""


class MemoryStore:
    """Keeps up to ``limit`` records of each kind in memory, and forgets the oldest final ones.

    What was forgotten is unknown again: a call id that comes back after ``limit`` newer ones is
    decided anew. A host that needs longer memory keeps a `SQLiteStore`.

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
        oldest = [key for key, record in kept.items() if record.get("final")][:wanted]
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
    """Keeps all records in an SQLite file, across restarts and between processes.

    Raises:
        LedgerError: The file is no such store, or of a later version.
    """

    def __init__(self, path: str) -> None:
        import sqlite3

        self._lock = threading.Lock()
        self._connection = sqlite3.connect(
            path, timeout=30.0, isolation_level=None, check_same_thread=False
        )
        try:
            self._connection.execute("PRAGMA journal_mode=WAL")
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                raise LedgerError(  # noqa: TRY301  (the connection is closed below)
                    f"{path!r} is a ledger of version {version}; this one is {_VERSION}"
                )
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS records"
                " (place INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL UNIQUE,"
                " record TEXT NOT NULL)"
            )
            self._connection.execute("CREATE INDEX IF NOT EXISTS kinds ON records (kind, place)")
            self._connection.execute(f"PRAGMA user_version={_VERSION}")
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise LedgerError(f"{path!r} is no ledger: {error}") from error
        except LedgerError:
            self._connection.close()
            raise

    def get(self, key: Key) -> Record | None:
        """The record under this key, or None."""
        with self._lock:
            row = self._connection.execute(
                "SELECT record FROM records WHERE key = ?", (_text(key),)
            ).fetchone()
        return None if row is None else json.loads(row[0])

    def swap(self, key: Key, old: Record | None, new: Record | None) -> bool:
        """Replaces ``old`` by ``new`` if it is still there; says whether it was."""
        named = _text(key)
        with self._lock:
            if old is None and new is None:
                return self._count("SELECT 1 FROM records WHERE key = ?", named) == 0
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
        with self._lock:
            rows = self._connection.execute(
                "SELECT key, record FROM records WHERE kind = ? ORDER BY place", (kind,)
            ).fetchall()
        return ((tuple(json.loads(key)), json.loads(record)) for key, record in rows)

    def close(self) -> None:
        """Closes the file. The store cannot be used afterwards."""
        with self._lock:
            self._connection.close()

    def _changed(self, statement: str, *values: object) -> bool:
        return self._connection.execute(statement, values).rowcount == 1

    def _count(self, statement: str, *values: object) -> int:
        return len(self._connection.execute(statement, values).fetchall())


_VERSION: Final = 1


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
