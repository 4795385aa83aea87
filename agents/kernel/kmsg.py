r"""The running kernel's log, read from ``/dev/kmsg``.

One ``read`` returns one record: ``<facility * 8 + level>,<sequence>,<microseconds>,<flags>[,…];<text>\n``, then
continuation lines `` KEY=value\n``. Bytes that are not printable come as ``\xNN``. Format and error numbers:
``Documentation/ABI/testing/dev-kmsg`` of the kernel.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agents.kernel.records import KernelRecord

log = logging.getLogger(__name__)

DEVICE = Path("/dev/kmsg")

_BUFFER = 64 * 1024
"""Bytes offered to a read. The kernel prints a record into at most 8 KiB (2 KiB since 6.x)."""
_MAX_UNREADABLE = 16
"""Records in a row whose prefix cannot be read before the device is taken for something else."""
_MAX_BATCH = 512
"""Records read before others get their turn."""
_PREFIX = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;\n]{0,200};")
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")
_NOBODY_KNOWS = 1
"""Facility of a record whose prefix cannot be read (``LOG_USER``): it is not taken for the kernel's."""


def parse_record(data: bytes, booted_at: datetime) -> KernelRecord | None:
    """Return the record that one read returned, or None when its prefix cannot be read.

    A record that was cut off gives what is left of its text.

    Args:
        data: what ``read`` returned, or a line in the same form.
        booted_at: time at which the kernel's clock stood at zero.
    """
    match = _PREFIX.match(data)
    if match is None:
        return None
    priority = int(match[1])
    try:
        at = booted_at + timedelta(microseconds=int(match[3]))
    except OverflowError:
        at = booted_at
    return KernelRecord(
        sequence=int(match[2]),
        facility=priority >> 3,
        level=priority & 7,
        at=at,
        text=_text(data[match.end() :]),
    )


def _text(body: bytes) -> str:
    end = body.find(b"\n")
    message = body if end < 0 else body[:end]
    if b"\\x" in message:
        message = _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), message)
    return message.decode("utf-8", "replace")


def booted_at() -> datetime:
    """Return the wall clock time at which the kernel's log clock stood at zero.

    Computed anew for each batch: the wall clock may be set meanwhile. The log's clock does not run while the
    machine is suspended, nor does ``CLOCK_MONOTONIC``.
    """
    return datetime.fromtimestamp(time.time() - time.clock_gettime(time.CLOCK_MONOTONIC), UTC)


class KmsgReader:
    """An open kernel log, at its oldest record.

    Args:
        path: the device.
        after: records up to this sequence are skipped; -1 for none.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path, after: int = -1) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._path = path
        self._last = after
        self._unreadable = 0

    def fileno(self) -> int:
        """Return the descriptor, readable while records wait."""
        return self._descriptor

    def close(self) -> None:
        """Close the device."""
        os.close(self._descriptor)

    def read_waiting(self, most: int = _MAX_BATCH) -> tuple[KernelRecord, ...]:
        """Return the records that wait, at most ``most``; none when nothing waits.

        Raises:
            OSError: the log cannot be read.
        """
        zero = booted_at()
        records: list[KernelRecord] = []
        for _ in range(most):
            try:
                data = os.read(self._descriptor, _BUFFER)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.EPIPE:
                    continue  # overwritten; the next record's number says how many
                if error.errno == errno.EINVAL:
                    # The kernel skips a record that does not fit; the next number shows the gap.
                    log.error("a record of %s is longer than %d bytes and is lost", self._path, _BUFFER)
                    continue
                raise
            parsed = parse_record(data, zero)
            self._unreadable = 0 if parsed else self._unreadable + 1
            if not data or self._unreadable > _MAX_UNREADABLE:
                raise OSError(errno.EINVAL, "This is no kernel log", str(self._path))
            record = self._numbered(parsed, data)
            if record is not None:
                records.append(record)
        return tuple(records)

    def read_all(self) -> tuple[KernelRecord, ...]:
        """Return every record that waits.

        Raises:
            OSError: the log cannot be read.
        """
        everything: list[KernelRecord] = []
        while batch := self.read_waiting():
            everything += batch
        return tuple(everything)

    def _numbered(self, record: KernelRecord | None, data: bytes) -> KernelRecord | None:
        """Return the record with what was lost before it, or None when it is done already."""
        if record is None:
            log.warning("a record of %s cannot be read: %r", self._path, data[:80])
            text = data[:1024].decode("utf-8", "replace")
            record = KernelRecord(self._last + 1, _NOBODY_KNOWS, 6, datetime.now(UTC), text)
        if record.sequence <= self._last:
            return None
        lost = record.sequence - self._last - 1
        self._last = record.sequence
        if not lost:
            return record
        log.warning("%d records of %s before number %d were overwritten", lost, self._path, record.sequence)
        return KernelRecord(record.sequence, record.facility, record.level, record.at, record.text, lost)


class KmsgSource:
    """The kernel log as it grows. Implements ``KernelRecordSource``.

    Args:
        path: the device.
    """

    def __init__(self, path: Path = DEVICE) -> None:
        self._path = path

    async def records(self, after: int) -> AsyncIterator[tuple[KernelRecord, ...]]:
        """Yield what is there in batches, then what is added.

        Raises:
            OSError: the log cannot be opened or read.
        """
        reader = KmsgReader(self._path, after)
        loop = asyncio.get_running_loop()
        more = asyncio.Event()
        try:
            loop.add_reader(reader.fileno(), more.set)
            while True:
                # Before the read: what arrives during it sets the event again.
                more.clear()
                if batch := reader.read_waiting():
                    yield batch
                    await asyncio.sleep(0)
                else:
                    await more.wait()
        finally:
            loop.remove_reader(reader.fileno())
            reader.close()
