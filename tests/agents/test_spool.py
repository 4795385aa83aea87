"""The spool: nothing lost, nothing renumbered, bounded, and a damaged file never stops the agent."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agents.checks.base import KernelPosition
from agents.errors import StartError
from agents.spool import Spool
from domain.faults import Fault, Scope, Severity, Transition
from domain.nodes import Gpu, Inventory, NodeRef
from domain.observations import Component, ComponentKind, Source

NODE = NodeRef(cluster="c", pool="p", name="n1")
BIG = 10 * 1024 * 1024
AT = datetime(2026, 1, 2, tzinfo=UTC)


def fault(gpu: str = "GPU-1", count: int = 1, evidence: str = "") -> Fault:
    return Fault(
        fault_class="gpu.fallen_off_bus",
        node=NODE,
        component=Component(kind=ComponentKind.GPU, id=gpu),
        severity=Severity.FATAL,
        scope=Scope.GPU,
        source=Source.KERNEL_LOG,
        boot_id="boot-1",
        first_seen=AT,
        last_seen=AT,
        count=count,
        evidence=(evidence,) if evidence else (),
    )


Opener = Callable[..., Awaitable[Spool]]


@pytest.fixture
async def open_spool(tmp_path: Path) -> AsyncIterator[Opener]:
    opened: list[Spool] = []

    async def opener(max_bytes: int = BIG) -> Spool:
        spool = await Spool.open(tmp_path / "spool.db", max_bytes)
        opened.append(spool)
        return spool

    yield opener
    for spool in opened:
        with suppress(RuntimeError):  # closed by the test
            spool.close()


async def record(spool: Spool, *transitions: Transition) -> None:
    await spool.record([(transition, fault(count=n)) for n, transition in enumerate(transitions, 1)], None, ())


async def numbers(spool: Spool, after: int = 0) -> list[int]:
    return [event.sequence for event in await spool.unacked(after, 10_000)]


async def test_events_come_back_in_order_under_the_same_identity_after_a_restart(open_spool: Opener) -> None:
    spool = await open_spool()
    await spool.record(
        [(Transition.OPENED, fault("GPU-1")), (Transition.REPEATED, fault("GPU-1", 2))],
        KernelPosition("boot-1", 77),
        [fault("GPU-1", 2)],
    )
    identity = spool.spool_id
    spool.close()

    again = await open_spool()
    events = await again.unacked(0, 10)
    assert [(e.sequence, e.transition, e.fault.count) for e in events] == [
        (1, "opened", 1),
        (2, "repeated", 2),
    ]
    assert {event.spool_id for event in events} == {identity} == {again.spool_id}
    assert await again.position("boot-1") == 77
    assert await again.position("boot-2") == -1
    assert await again.open_faults() == (fault("GPU-1", 2),)
    assert again.backlog == 2
    assert again.last_sequence == 2


async def test_numbers_go_on_after_all_were_acknowledged_and_the_agent_restarted(open_spool: Opener) -> None:
    spool = await open_spool()
    await record(spool, *[Transition.OPENED] * 5)
    await spool.acknowledge(5)
    assert await numbers(spool) == []
    assert spool.backlog == 0
    spool.close()

    again = await open_spool()
    assert again.last_sequence == 5
    await record(again, Transition.OPENED)
    assert await numbers(again) == [6]


async def test_an_ack_deletes_only_what_it_covers(open_spool: Opener) -> None:
    spool = await open_spool()
    await record(spool, *[Transition.OPENED] * 5)
    await spool.acknowledge(3)
    assert await numbers(spool) == [4, 5]
    assert await numbers(spool, after=4) == [5]


async def test_open_faults_follow_what_is_recorded(open_spool: Opener) -> None:
    spool = await open_spool()
    await spool.record([(Transition.OPENED, fault("GPU-1"))], None, [fault("GPU-1"), fault("GPU-2")])
    await spool.record([(Transition.CLEARED, fault("GPU-1"))], None, [fault("GPU-2", 5)])
    spool.close()
    assert await (await open_spool()).open_faults() == (fault("GPU-2", 5),)


async def test_what_a_process_wrote_never_hides_what_the_kernel_said(open_spool: Opener) -> None:
    spool = await open_spool()
    injected = fault("GPU-1").model_copy(update={"trusted": False})
    await spool.record([], None, [fault("GPU-1"), injected])
    spool.close()
    assert {found.trusted for found in await (await open_spool()).open_faults()} == {True, False}


async def test_a_failed_transaction_leaves_nothing_behind(open_spool: Opener) -> None:
    spool = await open_spool()
    unwritable = fault("GPU-2").model_copy(update={"boot_id": "\ud800"})
    with pytest.raises(Exception, match="surrogates"):
        await spool.record([(Transition.OPENED, fault())], KernelPosition("boot-1", 5), [fault(), unwritable])
    assert await numbers(spool) == []
    assert await spool.position("boot-1") == -1
    assert await spool.open_faults() == ()


async def test_text_that_is_no_unicode_loses_a_character_and_not_the_fault(open_spool: Opener) -> None:
    spool = await open_spool()
    odd = fault(evidence="name=\udc80x, GPU has fallen off the bus")
    await spool.record([(Transition.OPENED, odd)], None, [odd])
    (event,) = await spool.unacked(0, 10)
    assert event.fault.evidence == ("name=?x, GPU has fallen off the bus",)


async def test_a_full_spool_drops_the_oldest_repeats_and_counts_them(open_spool: Opener) -> None:
    spool = await open_spool(max_bytes=64 * 1024)
    await record(spool, Transition.OPENED)
    for _ in range(10):
        await record(spool, *[Transition.REPEATED] * 50)
    await record(spool, Transition.CLEARED)
    events = await spool.unacked(0, 10_000)
    assert events[0].transition is Transition.OPENED
    assert events[-1].transition is Transition.CLEARED
    repeats = [event.sequence for event in events[1:-1]]
    assert repeats == list(range(repeats[0], 502)), "the newest repeats are the ones kept"
    assert spool.dropped == 502 - len(events)
    assert spool.dropped > 100
    assert spool.backlog == len(events)


async def test_openings_are_dropped_only_when_nothing_else_is_left(open_spool: Opener) -> None:
    spool = await open_spool(max_bytes=64 * 1024)
    await record(spool, Transition.REPEATED)
    await record(spool, *[Transition.OPENED] * 400)
    events = await spool.unacked(0, 10_000)
    assert all(event.transition is Transition.OPENED for event in events)
    assert events[-1].sequence == 401
    assert spool.dropped == 401 - len(events)


async def test_the_file_stays_near_its_bound(open_spool: Opener, tmp_path: Path) -> None:
    spool = await open_spool(max_bytes=256 * 1024)
    for _ in range(40):
        await record(spool, *[Transition.REPEATED] * 100)
    size = sum(entry.stat().st_size for entry in os.scandir(tmp_path))
    assert spool.dropped > 2000
    # The write-ahead log is cut back to at most 1 MiB, after up to 4 MiB (1,000 pages) before a checkpoint.
    assert size < 2 * 256 * 1024 + 5 * 1024 * 1024


def damage_file(path: Path, damage: str) -> None:
    if damage == "not a database":
        path.write_bytes(b"\x00garbage" * 4096)
    elif damage == "middle":
        content = bytearray(path.read_bytes())
        content[8192 : len(content) // 2] = os.urandom(len(content) // 2 - 8192)
        path.write_bytes(content)
    else:
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA user_version=99")
        connection.close()


@pytest.mark.parametrize("damage", ["not a database", "middle", "other layout"])
async def test_a_damaged_file_is_set_aside_and_a_fresh_one_started(
    open_spool: Opener, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    spool = await open_spool()
    await spool.record([(Transition.OPENED, fault(evidence="x" * 900))] * 300, None, ())
    identity = spool.spool_id
    spool.close()
    damage_file(tmp_path / "spool.db", damage)

    again = await open_spool()
    assert again.set_aside is not None
    assert again.set_aside.exists()
    assert again.spool_id != identity, "old numbers must not be compared with new ones"
    assert "cannot be read" in caplog.text
    await record(again, Transition.OPENED)
    assert await numbers(again) == [1]


async def test_a_folder_that_cannot_be_used_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="see that its folder exists"):
        await Spool.open(tmp_path / "missing" / "spool.db", BIG)


async def test_only_its_owner_may_read_it(open_spool: Opener, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        spool = await open_spool()
        await record(spool, Transition.OPENED)
        modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in os.scandir(tmp_path)}
    finally:
        os.umask(before)
    assert modes["spool.db"] == 0o600
    assert set(modes.values()) == {0o600}


async def test_a_refused_event_leaves_the_way(open_spool: Opener) -> None:
    spool = await open_spool()
    await record(spool, *[Transition.OPENED] * 3)
    await spool.refuse(2)
    assert await numbers(spool) == [1, 3]
    assert spool.backlog == 2


async def test_a_copied_spool_takes_a_new_identity(open_spool: Opener) -> None:
    spool = await open_spool()
    await record(spool, Transition.OPENED)
    old = spool.spool_id
    await spool.renew_identity()
    assert spool.spool_id != old
    assert {event.spool_id for event in await spool.unacked(0, 10)} == {spool.spool_id}


async def test_hardware_is_remembered_within_a_boot_only(open_spool: Opener) -> None:
    spool = await open_spool()
    inventory = Inventory(gpus=(Gpu(uuid="GPU-1"),), driver_version="580")
    await spool.remember_inventory("boot-1", inventory)
    spool.close()
    again = await open_spool()
    assert await again.known_inventory("boot-1") == inventory
    assert await again.known_inventory("boot-2") == Inventory()


_WRITER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from agents.checks.base import KernelPosition
from agents.spool import Spool
from domain.faults import Fault, Transition

async def main():
    template = Fault.model_validate_json(sys.argv[3])
    spool = await Spool.open(Path(sys.argv[1]), 10**9)
    n = await spool.position("boot-1") + 1
    while True:
        now = template.model_copy(update={"count": n + 1})
        await spool.record([(Transition.REPEATED, now)], KernelPosition("boot-1", n), [now])
        print(n, flush=True)
        n += 1

asyncio.run(main())
"""


async def test_sigkill_never_parts_the_events_from_the_position(open_spool: Opener, tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    confirmed = -1
    for lines in (40, 25):
        process = subprocess.Popen(  # noqa: ASYNC220 - starting it blocks for a moment, which is nobody's here
            [sys.executable, "-c", _WRITER, str(tmp_path / "spool.db"), root, fault().model_dump_json()],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            for _ in range(lines):
                confirmed = int(await asyncio.to_thread(process.stdout.readline))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
    spool = await open_spool()
    position = await spool.position("boot-1")
    events = await spool.unacked(0, 10_000)
    assert position >= confirmed
    assert [event.sequence for event in events] == list(range(1, position + 2))
    assert [event.fault.count for event in events] == list(range(1, position + 2))
    assert [found.count for found in await spool.open_faults()] == [position + 1]
