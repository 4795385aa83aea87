from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from adapters.ledger import SqliteLedger
from domain.errors import PermanentError, TransientError
from domain.ledger import EntryKind, LedgerEntry
from domain.nodes import NodeRef

ROOT = Path(__file__).parents[2]
NODE = NodeRef(cluster="c", pool="p", name="gpu-0")
BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def entry(number: int, repair: str = "repair/c/gpu-0/1", text: str = "done") -> LedgerEntry:
    return LedgerEntry(
        entry_id=f"{repair}/{number}",
        at=BEGAN + timedelta(seconds=number),
        kind=EntryKind.STEP,
        repair_id=repair,
        node=NODE,
        who="ana",
        text=text,
        data='{"step": "reboot"}',
    )


async def test_what_is_recorded_is_there_in_order_and_unchanged(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "below" / "ledger.db")
    written = [entry(1), entry(2), entry(3, repair="repair/c/gpu-1/1")]

    await ledger.record(written)

    assert SqliteLedger(tmp_path / "below" / "ledger.db", create=False).entries() == tuple(written)
    assert ledger.entries("repair/c/gpu-1/1") == (written[2],)
    assert ledger.entries(limit=1) == (written[2],)


async def test_the_same_id_again_changes_nothing(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    await ledger.record([entry(1, text="first")])

    await ledger.record([entry(1, text="second"), entry(2)])
    await ledger.record([])

    assert [found.text for found in ledger.entries()] == ["first", "done"]


BATCH = 300
WRITER = """
import asyncio, sys
from datetime import UTC, datetime
from pathlib import Path
from adapters.ledger import SqliteLedger
from domain.ledger import EntryKind, LedgerEntry
from domain.nodes import NodeRef

async def main():
    ledger = SqliteLedger(Path(sys.argv[1]))
    node = NodeRef(cluster="c", pool="p", name="gpu-0")
    batches = [
        [
            LedgerEntry(entry_id=f"{sys.argv[2]}/{number}/{part}", at=datetime.now(UTC), kind=EntryKind.STEP,
                        repair_id=sys.argv[2], node=node, text="x")
            for part in range(int(sys.argv[4]))
        ]
        for number in range(int(sys.argv[3]))
    ]
    for number, batch in enumerate(batches):
        await ledger.record(batch)
        print(number, flush=True)

asyncio.run(main())
"""


def writer(path: Path, repair: str, count: int, batch: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), repair, str(count), str(batch)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_several_processes_write_at_once_and_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    writers = [writer(path, f"repair/c/gpu-{n}/1", 40, 2) for n in range(3)]

    for process in writers:
        process.communicate(timeout=60)
    assert [process.returncode for process in writers] == [0, 0, 0]
    assert len(SqliteLedger(path).entries(limit=1000)) == 3 * 40 * 2


@pytest.mark.parametrize(("lines", "later"), [(1, 0.0), (2, 0.002), (3, 0.01), (5, 0.03)])
def test_a_killed_writer_leaves_all_it_acknowledged_and_no_half(tmp_path: Path, lines: int, later: float) -> None:
    path = tmp_path / "ledger.db"
    process = writer(path, "r", 40, BATCH)
    assert process.stdout is not None
    acknowledged = [int(process.stdout.readline()) for _ in range(lines)]
    time.sleep(later)  # so that the next write is caught at different points
    process.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in process.stdout.read().split()]
    process.wait(timeout=10)
    process.stdout.close()

    found = [e.entry_id for e in SqliteLedger(path).entries(limit=1_000_000)]
    assert {f"r/{n}/{half}" for n in acknowledged for half in range(BATCH)} <= set(found)
    assert len(found) == len(set(found))
    assert len(found) % BATCH == 0, "a record call is written whole or not at all"


async def test_a_file_that_is_no_ledger_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"no database at all, but long enough to look at" * 50)

    with pytest.raises(PermanentError, match=r"ledger\.db"):
        SqliteLedger(path)


def test_looking_never_makes_a_ledger(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="no ledger at"):
        SqliteLedger(tmp_path / "ledger.db", create=False)
    assert list(tmp_path.iterdir()) == []


async def test_a_busy_file_is_worth_another_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.ledger.sqlite.BUSY_SECONDS", 0.05)
    path = tmp_path / "ledger.db"
    ledger = SqliteLedger(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(TransientError, match="locked"):
        await ledger.record([entry(1)])
    other.execute("ROLLBACK")
    other.close()
    await ledger.record([entry(1)])
    assert len(ledger.entries()) == 1
