"""A kernel log in a plain file: the output of ``dmesg``, journalctl or syslog, or a copy of ``/dev/kmsg``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from agents.kernel.records import KERNEL_FACILITY, KernelRecord
from domain.kernel_log import MAX_LINE, KernelFinding
from domain.kernel_scan import scan

_CHUNK = 1 << 20
_PROCESS_FACILITY = 1
_INFO = 6
_ISO_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?(?:Z|[+-]\d\d:?\d\d)?")


def findings_in(path: Path) -> Iterator[tuple[KernelRecord, KernelFinding]]:
    """Yield the lines that tell of a fault, in the order of the file, in one pass.

    The sequence of a record is the position of its line in bytes. Its time is the line's own where it is a full
    date (``dmesg --time-format=iso``, ``journalctl -o short-iso``, RFC 5424); else that of the file's last change:
    seconds since some boot say nothing about the day.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as lines, path.open("rb") as again:
        changed = last_change(path)
        for hit in scan(_chunks(lines)):
            again.seek(hit.offset)
            text = again.readline(MAX_LINE).decode("utf-8", "replace").rstrip("\r\n")
            facility = KERNEL_FACILITY if hit.finding.by_kernel else _PROCESS_FACILITY
            yield KernelRecord(hit.offset, facility, _INFO, _time_of(text, changed), text), hit.finding


def last_change(path: Path) -> datetime:
    """Return when a file was last written.

    Raises:
        OSError: there is no such file.
    """
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


def _time_of(text: str, otherwise: datetime) -> datetime:
    found = _ISO_TIME.search(text, 0, 64)
    if found is None:
        return otherwise
    try:
        at = datetime.fromisoformat(found[0].replace(",", "."))
    except ValueError:
        return otherwise
    return at.astimezone(UTC)  # without a zone it is this machine's local time, as dmesg prints it
