"""The permanent record in one SQLite file, shared by several processes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

from domain.errors import PermanentError, TransientError
from domain.ledger import EntryKind, LedgerEntry
from domain.nodes import NodeRef

BUSY_SECONDS = 20.0
"""How long a writer waits for another process's write, in seconds."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    entry_id TEXT PRIMARY KEY,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    repair_id TEXT NOT NULL,
    cluster TEXT NOT NULL,
    pool TEXT NOT NULL,
    node TEXT NOT NULL,
    who TEXT NOT NULL,
    text TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS entries_of_repair ON entries (repair_id);
"""
_COLUMNS = "entry_id, at, kind, repair_id, cluster, pool, node, who, text, data"


class SqliteLedger:
    """Port ``Ledger``. A write is on the disk when ``record`` returns (WAL, fully synchronous)."""

    def __init__(self, path: Path, create: bool = True) -> None:
        """Open the file, creating it and its directory unless ``create`` is False.

        Raises:
            PermanentError: it cannot be opened, or is no ledger.
        """
        self._path = path
        if not create and not path.is_file():
            raise PermanentError(f"there is no ledger at {path}; set KINTSUGI_WORKER_LEDGER to the worker's file")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._connection() as database:
                database.execute("PRAGMA journal_mode = WAL")
                database.executescript(_SCHEMA)
        except (OSError, sqlite3.Error, TransientError) as error:
            raise PermanentError(f"the ledger {path} cannot be opened: {error}") from None

    async def record(self, entries: Sequence[LedgerEntry]) -> None:
        """Write entries; those already there are left as they are.

        Raises:
            TransientError: the file is busy, or the disk is full or gone.
            PermanentError: the file is damaged.
        """
        if entries:
            await asyncio.to_thread(self._write, list(entries))

    def _write(self, entries: list[LedgerEntry]) -> None:
        rows = [_row(entry) for entry in entries]
        with self._connection() as database:
            # Immediate: the wait for another writer happens here, where the busy time-out applies.
            database.execute("BEGIN IMMEDIATE")
            database.executemany(
                f"INSERT INTO entries ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT (entry_id) DO NOTHING",
                rows,
            )
            database.execute("COMMIT")

    def entries(self, repair_id: str | None = None, limit: int = 200) -> tuple[LedgerEntry, ...]:
        """Return the newest entries, oldest first, of one repair or of all. Blocks: for the command line.

        Raises:
            TransientError: the file is busy.
            PermanentError: the file is damaged.
        """
        where = "WHERE repair_id = ?" if repair_id is not None else ""
        given: tuple[str | int, ...] = (repair_id, limit) if repair_id is not None else (limit,)
        with self._connection() as database:
            found = database.execute(
                f"SELECT {_COLUMNS} FROM entries {where} ORDER BY at DESC, rowid DESC LIMIT ?", given
            ).fetchall()
        return tuple(_entry(row) for row in reversed(found))

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection of this call's own: no thread or forked process ever shares one."""
        try:
            with closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)) as database:
                database.execute("PRAGMA synchronous = FULL")
                yield database
        except sqlite3.OperationalError as error:
            raise TransientError(f"the ledger {self._path}: {error}") from None
        except sqlite3.DatabaseError as error:
            raise PermanentError(f"the ledger {self._path} is damaged or no ledger: {error}") from None


def _row(entry: LedgerEntry) -> tuple[str, ...]:
    node = entry.node
    return (
        entry.entry_id,
        entry.at.isoformat(),
        entry.kind.value,
        entry.repair_id,
        node.cluster,
        node.pool,
        node.name,
        entry.who,
        entry.text,
        entry.data,
    )


def _entry(row: tuple[str, ...]) -> LedgerEntry:
    entry_id, at, kind, repair_id, cluster, pool, node, who, text, data = row
    return LedgerEntry(
        entry_id=entry_id,
        at=datetime.fromisoformat(at),
        kind=EntryKind(kind),
        repair_id=repair_id,
        node=NodeRef(cluster=cluster, pool=pool, name=node),
        who=who,
        text=text,
        data=data,
    )
