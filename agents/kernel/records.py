"""A record of the kernel log, and what a source of them promises."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

KERNEL_FACILITY = 0
"""``LOG_KERN`` of syslog(3). The kernel gives it to its own records only: what a process writes to
``/dev/kmsg`` gets ``LOG_USER`` (1) unless the process names another one, and 0 is not accepted from it
(``devkmsg_write`` in ``kernel/printk/printk.c``)."""


@dataclass(frozen=True)
class KernelRecord:
    """One record of the kernel log.

    Attributes:
        sequence: number of the record within its boot, from 0, without gaps.
        facility: who wrote it; 0 is the kernel, anything else a process.
        level: 0 (emergency) to 7 (debug).
        at: when it was written (UTC), computed from the kernel's monotonic time.
        text: the message, escapes decoded, without the continuation lines.
        lost_before: records between the previous one and this one that nobody can read any more.
    """

    sequence: int
    facility: int
    level: int
    at: datetime
    text: str
    lost_before: int = 0

    @property
    def by_kernel(self) -> bool:
        """Whether the kernel itself wrote it."""
        return self.facility == KERNEL_FACILITY


class KernelRecordSource(Protocol):
    """A kernel log that goes on growing."""

    def records(self, after: int) -> AsyncIterator[tuple[KernelRecord, ...]]:
        """Yield what is there in batches, then what is added, as it is added.

        Args:
            after: last sequence that is done on this boot; -1 to start with the oldest record there is.

        Raises:
            OSError: the log cannot be read.
        """
