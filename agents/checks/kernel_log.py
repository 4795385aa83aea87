"""The kernel log as a check: each record that tells of a fault becomes an observation."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable

from agents.checks.base import Batch, KernelPosition
from agents.kernel.records import KernelRecord, KernelRecordSource
from domain.kernel_log import KernelFinding, KernelKind, MessageJoiner
from domain.nodes import Inventory
from domain.observations import MAX_TEXT, Component, ComponentKind, Observation, Source

log = logging.getLogger(__name__)

_QUIET_POSITION_SECONDS = 5.0
"""How often the position is told while nothing is found: lines without a finding may be read twice."""
_BY_PROCESS = " [written by a process, not the kernel]"
_ACCEPTED = " [written by a process, accepted by setting]"


class KernelLogReading:
    """Turns records into observations, in the order of the log.

    Args:
        boot_id: the boot whose log it is.
        inventory: hardware known now: a line names a PCI address, a fault names a UUID.
        accept_injected: trust records that a process wrote. They stay marked in the text.
    """

    def __init__(self, boot_id: str, inventory: Callable[[], Inventory], accept_injected: bool) -> None:
        self._boot_id = boot_id
        self._inventory = inventory
        self._accept_injected = accept_injected
        # What the kernel and what processes wrote must not complete each other's messages.
        self._kernel_lines = MessageJoiner()
        self._process_lines = MessageJoiner()

    def observations(self, records: Iterable[KernelRecord]) -> tuple[Observation, ...]:
        """Return what the records tell; most tell nothing."""
        found = []
        for record in records:
            if record.lost_before:
                found.append(_gap(record, self._boot_id))
            joiner = self._kernel_lines if record.by_kernel else self._process_lines
            finding = joiner.parse(record.text)
            if finding is not None:
                found.append(self.observation(record, finding))
        return tuple(found)

    def observation(self, record: KernelRecord, finding: KernelFinding) -> Observation:
        """Return what one record with a finding tells."""
        by_kernel = record.by_kernel and finding.by_kernel
        mark = "" if by_kernel else (_ACCEPTED if self._accept_injected else _BY_PROCESS)
        return Observation(
            source=Source.KERNEL_LOG,
            kind=finding.kind.value,
            at=record.at,
            boot_id=self._boot_id,
            component=self._component(finding),
            code=finding.code,
            trusted=by_kernel or self._accept_injected,
            text=record.text[: MAX_TEXT - len(mark)] + mark,
            values={} if finding.pid is None else {"pid": finding.pid},
        )

    def _component(self, finding: KernelFinding) -> Component:
        if not finding.pci:
            return Component(kind=ComponentKind.NODE)
        if finding.kind is KernelKind.SXID:
            return Component(kind=ComponentKind.SWITCH, id=finding.pci)
        return Component(kind=ComponentKind.GPU, id=self._inventory().uuid_at(finding.pci) or finding.pci)


def _gap(record: KernelRecord, boot_id: str) -> Observation:
    lost = record.lost_before
    return Observation(
        source=Source.AGENT,
        kind="kernel_log_gap",
        at=record.at,
        boot_id=boot_id,
        component=Component(kind=ComponentKind.NODE),
        text=f"{lost} kernel log records before number {record.sequence} were overwritten before they were read",
        values={"lost_records": lost},
    )


class KernelLogCheck:
    """Follows the kernel log. Implements ``Check``.

    Args:
        source: the log.
        boot_id: this boot.
        after: last sequence that is done on this boot; -1 to start with the oldest record there is.
        inventory: hardware known now.
        accept_injected: trust records that a process wrote (tests and drills).
    """

    name = "kernel-log"
    expected_seconds: float | None = None

    def __init__(
        self,
        source: KernelRecordSource,
        boot_id: str,
        after: int,
        inventory: Callable[[], Inventory],
        accept_injected: bool,
    ) -> None:
        self._source = source
        self._boot_id = boot_id
        self._after = after
        self._reading = KernelLogReading(boot_id, inventory, accept_injected)

    async def batches(self) -> AsyncIterator[Batch]:
        """Yield what is found, with the position behind it; a position alone from time to time.

        Raises:
            OSError: the log cannot be read.
        """
        told_at: float | None = None
        first = self._after < 0
        async for records in self._source.records(self._after):
            if not records:
                continue
            if first and records[0].lost_before:
                # Nobody promised to have read these: the log wrapped round before we ever looked.
                log.info("the kernel log of this boot starts at record %d", records[0].sequence)
                records = (_without_loss(records[0]), *records[1:])
            first = False
            observations = self._reading.observations(records)
            now = time.monotonic()
            if observations or told_at is None or now - told_at >= _QUIET_POSITION_SECONDS:
                told_at = now
                yield Batch(observations, KernelPosition(self._boot_id, records[-1].sequence))


def _without_loss(record: KernelRecord) -> KernelRecord:
    return KernelRecord(record.sequence, record.facility, record.level, record.at, record.text)
