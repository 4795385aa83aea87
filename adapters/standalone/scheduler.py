"""Machines without any scheduler: marks are kept in a file, and what nobody can do is said to be so."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from domain.errors import NotOursError, PermanentError, TransientError, UnsupportedError
from domain.nodes import NodeRef
from domain.scheduling import Capacity, DrainProgress, DrainRequest, Mark, SchedulingState, Spare
from domain.workloads import SavedWork, Workload, WorkloadStatus

BUSY_SECONDS = 10.0
"""How long a writer waits for another process's write, in seconds."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS marks (
    number INTEGER PRIMARY KEY,
    node TEXT NOT NULL,
    repair_id TEXT NOT NULL,
    reason TEXT NOT NULL,
    UNIQUE (node, repair_id)
) STRICT;
CREATE TABLE IF NOT EXISTS released (
    node TEXT NOT NULL,
    repair_id TEXT NOT NULL,
    released_at TEXT NOT NULL,
    PRIMARY KEY (node, repair_id)
) STRICT;
"""

T = TypeVar("T")


class StandaloneScheduler:
    """Port ``Scheduler`` for machines that people use directly.

    A quarantine is a mark in a SQLite file and nothing else: nobody hands out work here, so there is nobody
    to stop. Each repair has its own mark; one that an earlier repair left behind (aborted, the node in a
    person's hands) is somebody else's hold and stays. What runs on the machine is unknown, so it has no
    workloads, a drain is done at once, and the last look before the return finds the processes that still
    hold a GPU.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, creating it and its directory.

        Raises:
            PermanentError: it cannot be opened.
        """
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._connection() as database:
                database.execute("PRAGMA journal_mode = WAL")
                database.executescript(_SCHEMA)
        except (OSError, TransientError) as error:
            raise PermanentError(f"the quarantine marks {path} cannot be opened: {error}") from None

    async def quarantine(self, node: NodeRef, mark: Mark) -> SchedulingState:
        """Leave our mark; a second call with the same mark changes nothing."""

        def put(database: sqlite3.Connection) -> SchedulingState:
            database.execute(
                "INSERT INTO marks (node, repair_id, reason) VALUES (?,?,?) ON CONFLICT DO NOTHING",
                (str(node), mark.repair_id, mark.reason),
            )
            # An earlier release says nothing about the mark that is there now.
            database.execute("DELETE FROM released WHERE node = ? AND repair_id = ?", (str(node), mark.repair_id))
            return _state(database, node, mark.repair_id)

        return await self._do(put)

    async def scheduling_state(self, node: NodeRef) -> SchedulingState:
        """Return who holds the node; the newest mark is ours, older ones are holds that were left behind."""
        return await self._do(lambda database: _state(database, node))

    async def release(self, node: NodeRef, mark: Mark) -> SchedulingState:
        """Remove this repair's mark and nothing else. That it did so is kept: asked again, it has happened already.

        Raises:
            NotOursError: the mark is gone, and it was not this repair that released it.
        """

        def remove(database: sqlite3.Connection) -> SchedulingState:
            key = (str(node), mark.repair_id)
            if database.execute("DELETE FROM marks WHERE node = ? AND repair_id = ?", key).rowcount:
                database.execute(
                    "INSERT OR REPLACE INTO released VALUES (?,?,?)", (*key, datetime.now(UTC).isoformat())
                )
            elif not database.execute("SELECT 1 FROM released WHERE node = ? AND repair_id = ?", key).fetchone():
                raise NotOursError(f"{node.name} no longer carries the mark of {mark.repair_id}: somebody released it")
            return _state(database, node, mark.repair_id)

        return await self._do(remove)

    async def workloads(self, node: NodeRef) -> Sequence[Workload]:
        """Return nothing: without a scheduler nobody can say which processes are one workload."""
        return ()

    async def drain(self, node: NodeRef, request: DrainRequest) -> AsyncIterator[DrainProgress]:
        """Say at once that it is done: no scheduler placed anything here that could be moved."""
        state = await self.scheduling_state(node)
        if state.our_mark is None or state.our_mark.repair_id != request.mark.repair_id:
            raise NotOursError(f"{node.name} no longer carries the mark of {request.mark.repair_id}")
        yield DrainProgress(done=True)

    async def confirm_stopped(self, node: NodeRef, workload_id: str) -> bool:
        """Return False: nothing here can prove it."""
        return False

    async def capacity(self, node: NodeRef) -> Capacity:
        """Raise ``UnsupportedError``: nobody counts GPUs here; the return check asks the driver."""
        raise UnsupportedError("without a scheduler nobody counts the GPUs of a node")

    async def spares(self, cluster: str, pool: str) -> Sequence[Spare]:
        """Return nothing: spares need a scheduler that can start work on them."""
        return ()

    async def lease_spare(self, node: NodeRef, repair_id: str) -> Spare:
        """Raise ``UnsupportedError``."""
        raise UnsupportedError(f"{node.name} cannot take work over without a scheduler: {_CONFIGURE_SCHEDULER}")

    async def return_spare(self, node: NodeRef, repair_id: str) -> None:
        """Do nothing: no spare was ever leased."""

    async def resume_workload(self, saved: SavedWork, away_from: NodeRef, spare: str) -> WorkloadStatus:
        """Raise ``UnsupportedError``."""
        raise UnsupportedError(f"{saved.workload.id} cannot be started without a scheduler: {_CONFIGURE_SCHEDULER}")

    async def workload_status(self, cluster: str, workload_id: str) -> WorkloadStatus:
        """Raise ``UnsupportedError``."""
        raise UnsupportedError(f"nobody knows {workload_id} without a scheduler: {_CONFIGURE_SCHEDULER}")

    async def _do(self, change: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.to_thread(self._in_transaction, change)

    def _in_transaction(self, change: Callable[[sqlite3.Connection], T]) -> T:
        with self._connection() as database:
            database.execute("BEGIN IMMEDIATE")
            result = change(database)
            database.execute("COMMIT")
            return result

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)) as database:
                yield database
        except sqlite3.OperationalError as error:
            raise TransientError(f"the quarantine marks {self._path}: {error}") from None
        except sqlite3.DatabaseError as error:
            raise PermanentError(f"the quarantine marks {self._path} are damaged: {error}") from None


_CONFIGURE_SCHEDULER = "set KINTSUGI_WORKER_SCHEDULER to the scheduler of this cluster"


def _state(database: sqlite3.Connection, node: NodeRef, repair_id: str | None = None) -> SchedulingState:
    rows: list[tuple[str, str]] = database.execute(
        "SELECT repair_id, reason FROM marks WHERE node = ? ORDER BY number DESC", (str(node),)
    ).fetchall()
    mine = repair_id if repair_id is not None else rows[0][0] if rows else ""
    ours = next((Mark(repair_id=found, reason=reason) for found, reason in rows if found == mine), None)
    holds = tuple(f"{found}: {reason}" for found, reason in rows if found != mine)
    return SchedulingState(node=node, schedulable=not rows, our_mark=ours, foreign_holds=holds)


class NoPower:
    """Port ``Power`` where no BMC is configured."""

    async def power_cycle(self, node: NodeRef, token: str) -> None:
        """Raise ``UnsupportedError``."""
        raise UnsupportedError(_no_power(node))

    async def fence(self, node: NodeRef, token: str) -> None:
        """Raise ``UnsupportedError``."""
        raise UnsupportedError(_no_power(node))

    async def is_off(self, node: NodeRef) -> bool:
        """Return False: nothing confirms that the node is off."""
        return False


def _no_power(node: NodeRef) -> str:
    return (
        f"no BMC is configured for {node.name}, so its power cannot be switched: this worker runs with"
        " KINTSUGI_WORKER_SCHEDULER=standalone, which has none. Switch it by hand, then override with burn_in"
    )


class NoProvisioner:
    """Port ``Provisioner`` where nothing reinstalls or replaces machines."""

    async def reprovision(self, node: NodeRef, token: str) -> None:
        """Raise ``UnsupportedError``."""
        raise UnsupportedError(_no_provisioner(node, "reinstalled"))

    async def replace(self, node: NodeRef, token: str, evidence: str) -> str:
        """Raise ``UnsupportedError``."""
        raise UnsupportedError(_no_provisioner(node, "replaced"))


def _no_provisioner(node: NodeRef, verb: str) -> str:
    return (
        f"no provisioner is configured, so {node.name} cannot be {verb}: this worker runs with"
        f" KINTSUGI_WORKER_SCHEDULER=standalone, which has none. Have it {verb} by hand, then override with"
        " burn_in"
    )
