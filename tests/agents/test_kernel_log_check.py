"""The kernel log check: which records become observations, on which component, and whether they are trusted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from agents.checks.base import Batch, KernelPosition
from agents.checks.kernel_log import KernelLogCheck
from agents.kernel.records import KernelRecord
from domain.classify import classify
from domain.nodes import Gpu, Inventory
from domain.observations import MAX_TEXT, Component, ComponentKind, Observation

AT = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
INVENTORY = Inventory(gpus=(Gpu(uuid="GPU-a", pci_bus_id="00000000:1b:00.0"),))
XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=python3, GPU has fallen off the bus."


def record(sequence: int, text: str, facility: int = 0, lost: int = 0) -> KernelRecord:
    return KernelRecord(sequence, facility, 3, AT, text, lost)


class Log:
    """Records in the batches in which a source yields them. Implements ``KernelRecordSource``."""

    def __init__(self, *batches: tuple[KernelRecord, ...]) -> None:
        self._batches = batches
        self.after: list[int] = []

    async def records(self, after: int) -> AsyncIterator[tuple[KernelRecord, ...]]:
        self.after.append(after)
        for batch in self._batches:
            yield batch


async def run(*batches: tuple[KernelRecord, ...], accept: bool = False, after: int = -1) -> list[Batch]:
    check = KernelLogCheck(Log(*batches), "boot-1", after, lambda: INVENTORY, accept)
    return [batch async for batch in check.batches()]


async def observe(*records: KernelRecord, accept: bool = False) -> list[Observation]:
    return [observation for batch in await run(records, accept=accept) for observation in batch.observations]


async def test_xid_names_the_gpu_by_its_uuid() -> None:
    (seen,) = await observe(record(7, XID))
    assert (seen.kind, seen.code, seen.at, seen.boot_id) == ("xid", 79, AT, "boot-1")
    assert seen.component == Component(kind=ComponentKind.GPU, id="GPU-a")
    assert seen.trusted
    assert seen.text == XID
    assert seen.values == {"pid": 1234}
    assert not seen.stateful


@pytest.mark.parametrize(
    ("text", "kind", "component"),
    [
        ("NVRM: Xid (PCI:0000:99:00): 13, Graphics", "xid", Component(kind=ComponentKind.GPU, id="0000:99:00")),
        (
            "NVRM: Xid (PCI:0000:1b:00 GPU-I:05 GPU-CI:00): 31, pid=1, MMU Fault",
            "xid",
            Component(kind=ComponentKind.GPU, id="GPU-a"),
        ),
        (
            "NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.",
            "gpu_fallen_off_bus",
            Component(kind=ComponentKind.GPU, id="GPU-a"),
        ),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            "sxid",
            Component(kind=ComponentKind.SWITCH, id="0000:c4:00.0"),
        ),
        ("NVRM: Xid (???): 79, GPU has fallen off the bus.", "xid", Component(kind=ComponentKind.NODE)),
    ],
)
async def test_component_of_a_line(text: str, kind: str, component: Component) -> None:
    (seen,) = await observe(record(1, text))
    assert (seen.kind, seen.component) == (kind, component)


async def test_message_over_three_records_keeps_its_address() -> None:
    lines = (
        "NVRM: The NVIDIA GPU 0000:1b:00.0",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    (seen,) = await observe(*(record(number, line) for number, line in enumerate(lines)))
    assert seen.component.id == "GPU-a"


async def test_process_cannot_complete_a_message_of_the_kernel() -> None:
    seen = await observe(
        record(1, "NVRM: The NVIDIA GPU 0000:1b:00.0", facility=1),
        record(2, "NVRM: fallen off the bus and is not responding to commands."),
    )
    assert [o.component.kind for o in seen] == [ComponentKind.NODE]


async def test_what_a_process_wrote_is_told_and_not_trusted() -> None:
    (seen,) = await observe(record(1, XID, facility=1))
    assert not seen.trusted
    assert "written by a process" in seen.text


async def test_drill_trusts_it_and_says_so() -> None:
    (seen,) = await observe(record(1, XID, facility=1), accept=True)
    assert seen.trusted
    assert "written by a process" in seen.text
    judged = classify(seen)
    assert judged is not None
    assert judged.fault_class == "gpu.fallen_off_bus"


async def test_mark_hides_no_word_of_the_driver() -> None:
    """The judging reads the line again: the mark must not change what it says."""
    line = "NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    judged = [classify(seen) for seen in await observe(record(1, line), record(2, line, facility=1), accept=True)]
    assert judged[0] == judged[1]
    assert judged[0] is not None
    assert not judged[0].opens


async def test_long_text_is_cut_and_keeps_its_mark() -> None:
    (seen,) = await observe(record(1, XID + "x" * 5000, facility=1))
    assert len(seen.text) == MAX_TEXT
    assert seen.text.endswith("not the kernel]")


async def test_device_name_with_driver_words_is_no_finding() -> None:
    assert await observe(record(1, f"usb 1-1: Product: stick {XID}")) == []
    assert await observe(record(1, f"usb 1-1: Product: stick\n{XID}")) == []


async def test_position_goes_with_the_observations() -> None:
    batches = await run((record(5, "noise"), record(6, XID), record(7, "noise")))
    assert [(len(b.observations), b.position) for b in batches] == [(1, KernelPosition("boot-1", 7))]


async def test_noise_advances_the_position_now_and_then_only() -> None:
    batches = await run(*((record(number, "noise"),) for number in range(100)), (record(100, XID),))
    assert [(len(b.observations), b.position) for b in batches] == [
        (0, KernelPosition("boot-1", 0)),
        (1, KernelPosition("boot-1", 100)),
    ]


async def test_source_is_asked_from_the_position() -> None:
    log = Log()
    check = KernelLogCheck(log, "boot-1", 41, lambda: INVENTORY, False)
    assert [batch async for batch in check.batches()] == []
    assert log.after == [41]


async def test_lost_records_are_an_observation() -> None:
    (batch,) = await run((record(100, "noise", lost=58),), after=41)
    (seen,) = batch.observations
    assert (seen.kind, seen.values) == ("kernel_log_gap", {"lost_records": 58})
    judged = classify(seen)
    assert judged is not None
    assert judged.fault_class == "node.kernel_log_gap"


async def test_log_that_wrapped_before_the_first_look_lost_nothing_of_ours() -> None:
    batches = await run((record(100, "noise", lost=100), record(101, XID)), (record(110, "noise", lost=8),))
    assert [o.kind for b in batches for o in b.observations] == ["xid", "kernel_log_gap"]
