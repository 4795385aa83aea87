"""What a check is: a source of observations that the agent runs until it stops.

A check looks and tells; it never judges and never disturbs the workload. Judging is ``domain.classify`` and
``domain.fault_tracker``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from domain.observations import Observation


@dataclass(frozen=True)
class KernelPosition:
    """How far the kernel log was read: records up to ``sequence`` of this boot are done."""

    boot_id: str
    sequence: int


@dataclass(frozen=True)
class Batch:
    """What one look found; an empty batch says that the check looked and all was well.

    Attributes:
        position: for the kernel log: made durable in the same transaction as the faults of this batch.
    """

    observations: tuple[Observation, ...] = ()
    position: KernelPosition | None = None


class Check(Protocol):
    """One source of observations."""

    @property
    def name(self) -> str:
        """Short name, such as ``kernel-log``."""

    @property
    def expected_seconds(self) -> float | None:
        """Longest time between two batches of a check that works, in seconds; None for an event source."""

    def batches(self) -> AsyncIterator[Batch]:
        """Yield batches until cancelled. An exception ends the check; the agent starts it again with back-off."""
