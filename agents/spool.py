"""The agent's memory on disk: faults not yet acknowledged, the kernel log position, and what is open.

What was found and how far the log was read become durable in one transaction: after a crash the agent neither
misses a line nor reports one twice.
"""

from __future__ import annotations

import logging
import sqlite3
import uuid
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from agents.checks.base import KernelPosition
from agents.database import Database, transact
from agents.spool_rows import (
    ROW_OVERHEAD,
    SCHEMA,
    VERSION,
    fault_json,
    make_room,
    meta,
    open_key,
    row_bytes,
    set_meta,
    store_position,
)
from domain.faults import Fault, FaultEvent, Transition
from domain.nodes import Inventory

log = logging.getLogger(__name__)

_KEPT_REFUSED = 100
_MAX_BYTES_IN_MEMORY = 4 * 1024 * 1024


class Spool:
    """Fault events in the order in which they happened, until the gateway has them.

    Numbers, totals and the cache of open faults are changed on the database's thread only.
    """

    def __init__(self, database: Database, max_bytes: int) -> None:
        self._database = database
        self._max_bytes = max_bytes
        self._spool_id = ""
        self._last_sequence = 0
        self._backlog = 0
        self._bytes = 0
        self._dropped = 0
        self._stored_open: dict[str, Fault] = {}
        self._in_memory = False

    @classmethod
    async def open(cls, path: Path, max_bytes: int) -> Spool:
        """Open or create the spool.

        Args:
            path: the SQLite file.
            max_bytes: bound on what is kept for the gateway, in bytes.

        Raises:
            StartError: the file cannot be created or written.
        """
        spool = cls(await Database.open(path, SCHEMA, VERSION), max_bytes)
        try:
            await spool._database.call(spool._load)
        except BaseException:
            spool.close()
            raise
        return spool

    @property
    def spool_id(self) -> str:
        """Identity within which sequence numbers compare."""
        return self._spool_id

    @property
    def set_aside(self) -> Path | None:
        """Where a damaged predecessor was moved at the opening, None when there was none."""
        return self._database.set_aside

    @property
    def last_sequence(self) -> int:
        """Highest sequence number ever given, 0 for none."""
        return self._last_sequence

    @property
    def backlog(self) -> int:
        """Events not yet acknowledged."""
        return self._backlog

    @property
    def dropped(self) -> int:
        """Events dropped since the opening because the spool was full."""
        return self._dropped

    @property
    def in_memory(self) -> bool:
        """Whether the disk could not be written and what is recorded ends with this process."""
        return self._in_memory

    def close(self) -> None:
        """Close the file. What was recorded stays."""
        self._database.close()

    async def record(
        self,
        events: Sequence[tuple[Transition, Fault]],
        position: KernelPosition | None,
        open_faults: Sequence[Fault],
    ) -> None:
        """Make events, the kernel log position and the set of open faults durable, all of it or nothing.

        Without events it is not written through: after a power cut the boot is another one, the position means
        nothing, and what is open is found again.

        When the spool is full, the oldest repeats make room; only when there are none left, the oldest others.

        Raises:
            sqlite3.Error: it could not be written (disk full, failing); nothing has changed.
        """
        await self._database.call(lambda connection: self._record(connection, events, position, open_faults))

    async def unacked(self, after: int, limit: int) -> list[FaultEvent]:
        """Return the next events after a sequence number, oldest first, at most ``limit``."""
        return await self._database.call(lambda connection: self._unacked(connection, after, limit))

    async def acknowledge(self, sequence: int) -> None:
        """Delete all events up to and including ``sequence``.

        It is not written through: what comes back after a power cut is sent again and the gateway drops it.
        """
        await self._database.call(lambda connection: self._acknowledge(connection, sequence))

    async def refuse(self, sequence: int) -> None:
        """Move one event out of the way that the gateway will never take; the last hundred are kept for people."""
        await self._database.call(lambda connection: self._refuse(connection, sequence))

    async def position(self, boot_id: str) -> int:
        """Return the last kernel record done in this boot, -1 when none was."""

        def work(connection: sqlite3.Connection) -> int:
            row = connection.execute("SELECT sequence FROM position WHERE boot_id = ?", (boot_id,)).fetchone()
            return -1 if row is None else int(row[0])

        return await self._database.call(work)

    async def open_faults(self) -> tuple[Fault, ...]:
        """Return the faults that were open when last recorded."""
        return await self._database.call(lambda _: tuple(self._stored_open.values()))

    async def known_inventory(self, boot_id: str) -> Inventory:
        """Return the hardware that was seen in this boot; empty when none was."""
        text = await self._database.call(lambda connection: meta(connection, "inventory"))
        boot, _, body = (text or "").partition("\n")
        if boot != boot_id or not body:
            return Inventory()
        try:
            return Inventory.model_validate_json(body)
        except ValidationError:
            return Inventory()

    async def remember_inventory(self, boot_id: str, inventory: Inventory) -> None:
        """Keep the hardware seen in this boot: a GPU that is lost later is missed even after an agent's restart."""
        text = f"{boot_id}\n{inventory.model_dump_json()}"
        await self._database.call(lambda c: transact(c, lambda t: set_meta(t, "inventory", text), durable=False))

    async def renew_identity(self) -> None:
        """Take a new spool id. For a spool that was copied or restored and whose numbers the gateway knows already."""

        def work(connection: sqlite3.Connection) -> None:
            fresh = str(uuid.uuid4())
            transact(connection, lambda t: set_meta(t, "spool_id", fresh), durable=True)
            self._spool_id = fresh

        await self._database.call(work)

    async def leave_disk(self) -> None:
        """Go on in memory, since the disk cannot be written: a fault that is told beats one that is only kept.

        The spool takes a new identity: the numbers it gives from here on are unknown to the file, and would come
        again after a restart.
        """

        def work(_: sqlite3.Connection) -> None:
            memory = self._database.leave_disk(SCHEMA)
            self._in_memory = True
            self._max_bytes = min(self._max_bytes, _MAX_BYTES_IN_MEMORY)
            set_meta(memory, "spool_id", str(uuid.uuid4()))
            self._stored_open = {}
            self._load(memory)

        await self._database.call(work)

    def _load(self, connection: sqlite3.Connection) -> None:
        spool_id = meta(connection, "spool_id")
        if spool_id is None:
            spool_id = str(uuid.uuid4())
            fresh = spool_id
            transact(connection, lambda t: set_meta(t, "spool_id", fresh), durable=True)
        self._spool_id = spool_id
        row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        self._last_sequence = 0 if row is None else int(row[0])
        count, size = connection.execute(
            "SELECT count(*), coalesce(sum(length(CAST(fault AS BLOB))), 0) FROM events"
        ).fetchone()
        self._backlog = int(count)
        self._bytes = int(size) + ROW_OVERHEAD * self._backlog
        for key, text in connection.execute("SELECT key, fault FROM open_faults ORDER BY key"):
            try:
                self._stored_open[key] = Fault.model_validate_json(text)
            except ValidationError as error:
                log.error(
                    "the open fault %s in %s cannot be read and is forgotten: %s",
                    key,
                    self._database.path,
                    error,
                )

    def _record(
        self,
        connection: sqlite3.Connection,
        events: Sequence[tuple[Transition, Fault]],
        position: KernelPosition | None,
        open_faults: Sequence[Fault],
    ) -> None:
        rows = [(transition.value, fault_json(fault)) for transition, fault in events]
        opened = {open_key(fault): fault for fault in open_faults}
        size = sum(row_bytes(text) for _, text in rows)

        def work(transaction: sqlite3.Connection) -> tuple[int, list[int]]:
            transaction.executemany("INSERT INTO events (transition, fault) VALUES (?, ?)", rows)
            self._store_open(transaction, opened)
            if position is not None:
                store_position(transaction, position)
            row = transaction.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
            last = self._last_sequence if row is None else int(row[0])
            return last, make_room(transaction, self._bytes + size - self._max_bytes)

        last, freed = transact(connection, work, durable=bool(rows))
        self._last_sequence = last
        self._stored_open = opened
        self._bytes += size - sum(freed)
        self._backlog += len(rows) - len(freed)
        if freed:
            if self._dropped == 0:
                log.error(
                    "the spool is full (%d bytes): the oldest repeats are dropped and counted",
                    self._max_bytes,
                )
            self._dropped += len(freed)

    def _store_open(self, transaction: sqlite3.Connection, opened: dict[str, Fault]) -> None:
        gone = [(key,) for key in self._stored_open if key not in opened]
        changed = [(key, fault_json(fault)) for key, fault in opened.items() if self._stored_open.get(key) != fault]
        transaction.executemany("DELETE FROM open_faults WHERE key = ?", gone)
        transaction.executemany("INSERT OR REPLACE INTO open_faults (key, fault) VALUES (?, ?)", changed)

    def _unacked(self, connection: sqlite3.Connection, after: int, limit: int) -> list[FaultEvent]:
        found = []
        rows = connection.execute(
            "SELECT sequence, transition, fault FROM events WHERE sequence > ? ORDER BY sequence LIMIT ?",
            (after, limit),
        ).fetchall()
        for sequence, transition, text in rows:
            try:
                event = FaultEvent(
                    spool_id=self._spool_id,
                    sequence=sequence,
                    transition=Transition(transition),
                    fault=Fault.model_validate_json(text),
                )
            except ValueError as error:
                log.error("event %d of the spool cannot be read and is set aside: %s", sequence, error)
                self._refuse(connection, sequence)
                continue
            found.append(event)
        if rows and not found:
            return self._unacked(connection, rows[-1][0], limit)
        return found

    def _acknowledge(self, connection: sqlite3.Connection, sequence: int) -> None:
        condition = "FROM events WHERE sequence <= ?"

        def work(transaction: sqlite3.Connection) -> tuple[int, int]:
            count, size = transaction.execute(
                f"SELECT count(*), coalesce(sum(length(CAST(fault AS BLOB))), 0) {condition}", (sequence,)
            ).fetchone()
            if count:
                transaction.execute(f"DELETE {condition}", (sequence,))
            return int(count), int(size)

        count, size = transact(connection, work, durable=False)
        self._backlog -= count
        self._bytes -= size + ROW_OVERHEAD * count

    def _refuse(self, connection: sqlite3.Connection, sequence: int) -> None:
        def work(transaction: sqlite3.Connection) -> int | None:
            row = transaction.execute("SELECT fault FROM events WHERE sequence = ?", (sequence,)).fetchone()
            if row is None:
                return None
            transaction.execute(
                "INSERT OR REPLACE INTO refused SELECT sequence, transition, fault FROM events WHERE sequence = ?",
                (sequence,),
            )
            transaction.execute("DELETE FROM events WHERE sequence = ?", (sequence,))
            transaction.execute(
                "DELETE FROM refused WHERE sequence NOT IN"
                " (SELECT sequence FROM refused ORDER BY sequence DESC LIMIT ?)",
                (_KEPT_REFUSED,),
            )
            return row_bytes(row[0])

        freed = transact(connection, work, durable=True)
        if freed is not None:
            self._backlog -= 1
            self._bytes -= freed
