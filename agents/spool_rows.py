"""The rows of the spool: its tables, what a row costs, and what gives way when it is full."""

from __future__ import annotations

import sqlite3

from pydantic_core import PydanticSerializationError

from agents.checks.base import KernelPosition
from domain.faults import Fault

VERSION = 1
# AUTOINCREMENT keeps the highest number ever used, so that none comes again after all were acknowledged
# (https://sqlite.org/autoinc.html).
SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT, transition TEXT NOT NULL, fault TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS repeats ON events (sequence) WHERE transition = 'repeated';
CREATE TABLE IF NOT EXISTS refused (sequence INTEGER PRIMARY KEY, transition TEXT NOT NULL, fault TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS position (boot_id TEXT PRIMARY KEY, sequence INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS open_faults (key TEXT PRIMARY KEY, fault TEXT NOT NULL) WITHOUT ROWID;
"""
ROW_OVERHEAD = 48
"""Bytes that a row costs beside its text: key, header and its share of the index, rounded up."""


def open_key(fault: Fault) -> str:
    """Return under which key an open fault is kept: what a process wrote never hides what the kernel said."""
    return fault.key if fault.trusted else f"{fault.key} (untrusted)"


def fault_json(fault: Fault) -> str:
    """Return a fault as text that can always be stored."""
    try:
        return fault.model_dump_json()
    except PydanticSerializationError:
        # Half a UTF-16 pair in a line that some process wrote: the fault counts, not the character.
        evidence = tuple(text.encode("utf-8", "replace").decode() for text in fault.evidence)
        return fault.model_copy(update={"evidence": evidence}).model_dump_json()


def row_bytes(text: str) -> int:
    """Return what an event with this text costs, in bytes."""
    return len(text.encode()) + ROW_OVERHEAD


def make_room(transaction: sqlite3.Connection, excess: int) -> list[int]:
    """Delete the least valuable events until ``excess`` bytes are free; return the size of each deleted one."""
    freed: list[int] = []
    for condition in ("WHERE transition = 'repeated'", ""):
        while excess > 0:
            oldest = transaction.execute(f"SELECT sequence, fault FROM events {condition} ORDER BY sequence LIMIT 256")
            victims: list[tuple[int]] = []
            for sequence, text in oldest.fetchall():
                victims.append((sequence,))
                freed.append(row_bytes(text))
                excess -= freed[-1]
                if excess <= 0:
                    break
            if not victims:
                break
            transaction.executemany("DELETE FROM events WHERE sequence = ?", victims)
    return freed


def store_position(transaction: sqlite3.Connection, position: KernelPosition) -> None:
    """Keep how far the kernel log of this boot was read; an earlier boot's log is gone for good."""
    transaction.execute("DELETE FROM position WHERE boot_id <> ?", (position.boot_id,))
    transaction.execute(
        "INSERT INTO position (boot_id, sequence) VALUES (?, ?)"
        " ON CONFLICT (boot_id) DO UPDATE SET sequence = max(sequence, excluded.sequence)",
        (position.boot_id, position.sequence),
    )


def meta(connection: sqlite3.Connection, name: str) -> str | None:
    """Return a value by name, None when it was never set."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def set_meta(transaction: sqlite3.Connection, name: str, value: str) -> None:
    """Keep a value under a name."""
    transaction.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))
