"""The agent's memory of operations: written before an operation starts, read after the agent's restart."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agents.database import Database, transact
from domain.operations import OperationProgress, OperationRequest

MAX_ENTRIES = 1000
"""Ended operations kept, the newest."""
MAX_AGE = timedelta(days=30)
"""How long an ended operation is kept."""

_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS operations (
  operation_id TEXT PRIMARY KEY, request TEXT NOT NULL, progress TEXT NOT NULL, boot_id TEXT NOT NULL,
  started_at TEXT NOT NULL, ended_at TEXT);
CREATE INDEX IF NOT EXISTS ended ON operations (ended_at);
"""
_COLUMNS = "request, progress, boot_id, started_at"


@dataclass(frozen=True)
class Entry:
    """One operation as it is written down.

    Attributes:
        progress: the last one, or the first while it runs.
        boot_id: the boot in which it was started.
        started_at: by this node's clock, UTC.
    """

    request: OperationRequest
    progress: OperationProgress
    boot_id: str
    started_at: datetime


class Journal:
    """Operations by id, in an SQLite file of their own: a damaged spool does not make a reset run twice."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    async def open(cls, path: Path) -> Journal:
        """Open or create the journal.

        Raises:
            StartError: the file cannot be created or written.
        """
        return cls(await Database.open(path, _SCHEMA, _VERSION))

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    async def find(self, operation_id: str) -> Entry | None:
        """Return what is known of an operation, None when nothing is."""

        def work(connection: sqlite3.Connection) -> Entry | None:
            row = connection.execute(
                f"SELECT {_COLUMNS} FROM operations WHERE operation_id = ?", (operation_id,)
            ).fetchone()
            return None if row is None else _entry(row)

        return await self._database.call(work)

    async def running(self) -> list[Entry]:
        """Return the operations that have not ended, oldest first."""

        def work(connection: sqlite3.Connection) -> list[Entry]:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM operations WHERE ended_at IS NULL ORDER BY started_at")
            return [_entry(row) for row in rows.fetchall()]

        return await self._database.call(work)

    async def begin(self, entry: Entry) -> None:
        """Write an operation down, before anything of it is done; forget those that are old."""
        row = (
            entry.request.operation_id,
            entry.request.model_dump_json(),
            entry.progress.model_dump_json(),
            entry.boot_id,
            entry.started_at.isoformat(),
        )
        too_old = (entry.started_at - MAX_AGE).isoformat()

        def work(transaction: sqlite3.Connection) -> None:
            transaction.execute(f"INSERT INTO operations (operation_id, {_COLUMNS}) VALUES (?, ?, ?, ?, ?)", row)
            transaction.execute("DELETE FROM operations WHERE ended_at < ?", (too_old,))
            transaction.execute(
                "DELETE FROM operations WHERE operation_id IN (SELECT operation_id FROM operations"
                " WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT -1 OFFSET ?)",
                (MAX_ENTRIES,),
            )

        await self._database.call(lambda connection: transact(connection, work, durable=True))

    async def end(self, progress: OperationProgress, at: datetime) -> None:
        """Write down how an operation ended."""

        def work(transaction: sqlite3.Connection) -> None:
            transaction.execute(
                "UPDATE operations SET progress = ?, ended_at = ? WHERE operation_id = ?",
                (progress.model_dump_json(), at.astimezone(UTC).isoformat(), progress.operation_id),
            )

        await self._database.call(lambda connection: transact(connection, work, durable=True))


def _entry(row: tuple[str, str, str, str]) -> Entry:
    request, progress, boot_id, started_at = row
    return Entry(
        request=OperationRequest.model_validate_json(request),
        progress=OperationProgress.model_validate_json(progress),
        boot_id=boot_id,
        started_at=datetime.fromisoformat(started_at),
    )
