"""Small notes in the folder of the cache, in a database of SQLite: notes that may be lost.

- Choices: the best candidates of autotuning, by name, shared by all processes.
- Events: the last hits, misses and bypasses of the cache, with reasons, for `ctk cache why`.
- Hits: the number of uses of each entry.

A program never fails for them: a database that is damaged or owned by another user is removed and
started again, and if nothing can be written (a full disk, a read-only home) one warning is logged.
SQLite itself undoes the transaction of a killed process. A choice has a checksum, so that a flipped
byte is noticed. `synchronous` is off: a crash of the machine may damage the notes, which are then
removed.
"""

import contextlib
import json
import os
import sqlite3
import time
import zlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ctk.compiler.cache_folder.folder import cache_folder, warn_once
from ctk.compiler.posix import NEW_FILE

FILE = "notes.sqlite3"
MOST_EVENTS, MOST_CHOICES = 500, 20_000

_PATIENCE_SECONDS = 2.0  # for other writers: only a stopped one takes longer
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
_TABLES = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS choices (name TEXT PRIMARY KEY, value TEXT, crc INTEGER);
CREATE TABLE IF NOT EXISTS hits (entry TEXT PRIMARY KEY, count INTEGER);
CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY, seconds REAL, kind TEXT, entry TEXT, why TEXT, parts TEXT
);
PRAGMA user_version = 1;
COMMIT;
"""

Row = tuple[str | int | float, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the cache.

    Attributes:
        seconds: Its time, since the epoch.
        kind: `hit`, `miss`, `stored`, `dropped`, `evicted` or `bypassed`.
        entry: The digest of the key; empty if there was none.
        parts: The parts of the key, of a miss.
    """

    seconds: float
    kind: str
    entry: str
    why: str = ""
    parts: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes in one folder, which `cache_folder()` has checked."""

    root: Path

    @property
    def path(self) -> Path:
        """The database."""
        return self.root / FILE

    def choice(self, name: str) -> str | None:
        """Return the choice of a name; None if there is none, or it is damaged."""
        rows = self._run(("SELECT value, crc FROM choices WHERE name = ?", (name,)))
        value, crc = rows[0] if rows else (None, None)
        return value if isinstance(value, str) and crc == _crc(name, value) else None

    def choose(self, name: str, value: str) -> None:
        """Store a choice; the oldest ones are removed when there are many."""
        self._run(
            ("INSERT OR REPLACE INTO choices VALUES (?, ?, ?)", (name, value, _crc(name, value))),
            (
                "DELETE FROM choices WHERE rowid <= (SELECT max(rowid) FROM choices) - ?",
                (MOST_CHOICES,),
            ),
        )

    def tell(
        self, kind: str, entry: str, why: str = "", parts: Mapping[str, str] | None = None
    ) -> None:
        """Note an event; see `Event`. The oldest events are removed when there are many."""
        counted: list[tuple[str, Row]] = []
        if kind == "hit":
            add = (
                "INSERT INTO hits VALUES (?, 1) ON CONFLICT (entry) DO UPDATE SET count = count + 1"
            )
            counted = [(add, (entry,))]
        elif kind in ("dropped", "evicted"):
            counted = [("DELETE FROM hits WHERE entry = ?", (entry,))]
        told = (time.time(), kind, entry, why, json.dumps(dict(parts or {})))
        self._run(
            *counted,
            ("INSERT INTO events VALUES (NULL, ?, ?, ?, ?, ?)", told),
            (
                "DELETE FROM events WHERE number <= (SELECT max(number) FROM events) - ?",
                (MOST_EVENTS,),
            ),
        )

    def events(self) -> list[Event]:
        """Return the recent events, newest first."""
        rows = self._run(
            ("SELECT seconds, kind, entry, why, parts FROM events ORDER BY number DESC", ())
        )
        return [event for row in rows if (event := _event(row)) is not None]

    def hits(self) -> dict[str, int]:
        """Return the number of uses of each entry."""
        rows = self._run(("SELECT entry, count FROM hits", ()))
        return {
            entry: count
            for entry, count in rows
            if isinstance(entry, str) and isinstance(count, int)
        }

    def clear(self) -> None:
        """Remove the database, after the files from which SQLite would restore it."""
        with contextlib.suppress(OSError):
            for ending in ("-journal", "-wal", "-shm", ""):
                self.path.with_name(FILE + ending).unlink(missing_ok=True)

    def _run(self, *steps: tuple[str, Row]) -> list[Row]:
        """Run statements as one transaction; return the rows of the last, none if it fails."""
        for is_first in (True, False):
            try:
                with self._connection() as connection:
                    return _transaction(connection, steps)
            except (sqlite3.Error, OSError) as error:
                damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED
                if not (is_first and damaged):
                    warn_once(self.root, f"no notes are kept in {self.path}: {error}")
                    return []
                self.clear()
        return []

    @contextlib.contextmanager
    def _connection(self) -> Generator[sqlite3.Connection]:
        """Open the database, which is made if it is missing: private from its first moment on."""
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, NEW_FILE, 0o600))
        if self.path.is_symlink():
            raise OSError("a link is in its place; next: remove it")
        with contextlib.closing(
            sqlite3.connect(self.path, timeout=_PATIENCE_SECONDS, isolation_level=None)
        ) as connection:
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA trusted_schema = OFF")
            if connection.execute("PRAGMA user_version").fetchone() != (1,):
                connection.executescript(_TABLES)
            yield connection


def notes() -> Notes | None:
    """Return the notes of the cache of the `CTK_CACHE*` variables; None if it cannot be used."""
    root = cache_folder()
    return None if root is None else Notes(root)


def _transaction(connection: sqlite3.Connection, steps: Sequence[tuple[str, Row]]) -> list[Row]:
    """Run statements, all of them or none; return the rows of the last."""
    connection.execute("BEGIN" if steps[0][0].startswith("SELECT") else "BEGIN IMMEDIATE")
    rows: list[Row] = []
    for statement, values in steps:
        rows = connection.execute(statement, values).fetchall()
    connection.execute("COMMIT")
    return rows


def _crc(name: str, value: str) -> int:
    return zlib.crc32(f"{name}\n{value}".encode())


def _event(row: Row) -> Event | None:
    """Return the event in a row; None if the row is damaged."""
    seconds, kind, entry, why, parts = row
    try:
        found = json.loads(str(parts))
        texts = {str(name): str(value) for name, value in found.items()}
        return Event(float(seconds), str(kind), str(entry), str(why), texts)
    except (AttributeError, ValueError, RecursionError):
        return None
