"""SQLite files of the agent: used from one thread of their own, set aside when they are damaged."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from agents.errors import StartError

log = logging.getLogger(__name__)

T = TypeVar("T")

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_COMPANIONS = ("", "-wal", "-shm")


class _UnreadableError(Exception):
    """The file is there but is no database of ours."""


class Database:
    """One SQLite file in WAL mode. All calls run on its own thread, so that an fsync never stalls the event loop.

    Attributes:
        path: the file.
        set_aside: where a damaged predecessor was moved, None when the file was sound.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, executor: ThreadPoolExecutor, set_aside: Path | None
    ) -> None:
        self.path = path
        self.set_aside = set_aside
        self._connection = connection
        self._executor = executor

    @classmethod
    async def open(cls, path: Path, schema: str, version: int) -> Database:
        """Open or create a file with mode 0600. One that cannot be read is moved aside and a fresh one is made.

        Args:
            path: the file; its folder must exist.
            schema: SQL that creates what is missing (``CREATE TABLE IF NOT EXISTS`` …).
            version: written to ``user_version``; a file of another version cannot be read.

        Raises:
            StartError: the file cannot be created or written.
        """
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=path.stem)
        try:
            connection, set_aside = await asyncio.get_running_loop().run_in_executor(
                executor, _open_or_replace, path, schema, version
            )
        except BaseException:
            executor.shutdown(wait=True)
            raise
        return cls(path, connection, executor, set_aside)

    async def call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what ``work`` returns, run on the database's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: work(self._connection))

    def leave_disk(self, schema: str) -> sqlite3.Connection:
        """Go on in memory with a copy of what can still be read. To be called on the database's thread."""
        memory = sqlite3.connect(":memory:", isolation_level=None)
        try:
            self._connection.backup(memory)
        except sqlite3.Error as error:
            log.error("%s cannot be read either (%s): going on without what it held", self.path, error)
            memory.close()
            memory = sqlite3.connect(":memory:", isolation_level=None)
            memory.executescript(schema)
        self._connection.close()
        self._connection = memory
        return memory

    def close(self) -> None:
        """Finish what runs, close the file and end the thread."""
        try:
            self._executor.submit(lambda: self._connection.close()).result()
        finally:
            self._executor.shutdown(wait=True)


def transact(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], durable: bool) -> T:
    """Run ``work`` in one transaction: all of it happens or nothing.

    Args:
        connection: of the calling thread.
        work: what to do.
        durable: whether it must survive a power cut. A failing node is the one that gets power cycled, so what
            was found is written through (``synchronous=FULL``). What a later run can find out again only has to
            survive the death of the process, for which WAL needs no fsync (https://sqlite.org/pragma.html).
    """
    connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def prepare_state_dir(path: Path) -> int:
    """Create the state folder (mode 0700), take its lock and return the lock's file descriptor.

    Closing the descriptor, or the death of the process, frees the lock.

    Raises:
        StartError: the folder cannot be made or written, or another agent uses it.
    """
    advice = "set KINTSUGI_AGENT_STATE_DIR (or --state-dir) to a folder this user may write, or run as root"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartError(f"the state directory {path} cannot be used ({error.strerror}): {advice}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise StartError(
            f"another agent already uses the state directory {path}: stop it first, or give this one its own"
            " --state-dir"
        ) from None
    return lock


def _open_or_replace(path: Path, schema: str, version: int) -> tuple[sqlite3.Connection, Path | None]:
    try:
        try:
            return _open(path, schema, version), None
        except _UnreadableError as error:
            aside = _set_aside(path)
            log.error(
                "%s cannot be read (%s): it is kept as %s and a fresh one is started. Faults that were not yet"
                " delivered, and what the agent remembered, are in the old file only",
                path,
                error,
                aside,
            )
            return _open(path, schema, version), aside
    except (sqlite3.Error, OSError, _UnreadableError) as error:
        raise StartError(
            f"{path} cannot be opened ({error}): see that its folder exists, is writable and has space"
        ) from None


def _open(path: Path, schema: str, version: int) -> sqlite3.Connection:
    # SQLite gives the -wal and -shm files the mode of the main file.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    path.chmod(0o600)
    connection = sqlite3.connect(path, timeout=5.0, isolation_level=None)
    try:
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if not empty and found != version:
            raise _UnreadableError(f"it has layout {found}, this agent reads layout {version}")
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise _UnreadableError(verdict)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA journal_size_limit=1048576")
        # The page cache is the largest part of an SQLite connection's memory; 512 KiB is plenty for a spool.
        connection.execute("PRAGMA cache_size=-512")
        connection.executescript(schema)
        connection.execute(f"PRAGMA user_version={int(version)}")
    except sqlite3.DatabaseError as error:
        connection.close()
        if error.sqlite_errorcode & 0xFF in _DAMAGED:
            raise _UnreadableError(str(error)) from None
        raise
    except BaseException:
        connection.close()
        raise
    return connection


def _set_aside(path: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    for suffix in _COMPANIONS:
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside
