"""One pass over a large kernel log: the lines that matter are found by their bytes and read by ``parse_line``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from domain.kernel_log import MAX_LINE, KernelFinding, MessageJoiner

_NEEDLES: tuple[tuple[bytes, tuple[bytes, ...]], ...] = (
    (b"NVRM:", (b" Xid (", b" GPU", b" The NVIDIA GPU", b" fallen off", b"  ")),
    (b"nvidia-nvswitch", ()),
)
"""Every line that ``parse_line`` can read holds one of these, and right after it one of those where there are any.

Long needles that end in a rare byte are found fastest: without its space the first one is a quarter faster.
"""

_SWITCH_BYTES = 16
"""Bytes after ``nvidia-nvswitch`` within which ``SXid (`` follows: the switch's number, a colon, a space."""

_MAX_BYTES = 4 * MAX_LINE
"""Bytes of a line that are decoded: ``MAX_LINE`` characters have at most four each in UTF-8."""


@dataclass(frozen=True, slots=True)
class ScanHit:
    """A finding and where its line begins, in bytes from the beginning of the log."""

    offset: int
    finding: KernelFinding


def scan(chunks: Iterable[bytes | bytearray]) -> Iterator[ScanHit]:
    """Yield the findings of a log in their order, in one pass and bounded memory.

    Args:
        chunks: the log in pieces of any size; a line may lie across pieces. A ``bytearray`` may be used again for
            the next piece. Bytes that are no UTF-8 are replaced.
    """
    joiner = MessageJoiner()
    base = 0
    carried = b""
    carried_at = 0
    for chunk in chunks:
        last = chunk.rfind(b"\n")
        start = 0
        if carried or last < 0:
            first = chunk.find(b"\n")
            head = chunk if first < 0 else chunk[:first]
            if not carried:
                carried_at = base
            carried = (carried + bytes(head[:_MAX_BYTES]))[:_MAX_BYTES]
            if first >= 0:
                yield from _read(joiner, carried, carried_at)
                carried = b""
                start = first + 1
        if last >= 0:
            yield from _scan_lines(joiner, chunk, start, last, base)
            carried = bytes(chunk[last + 1 : last + 1 + _MAX_BYTES])
            carried_at = base + last + 1
        base += len(chunk)
    yield from _read(joiner, carried, carried_at)


def _scan_lines(joiner: MessageJoiner, chunk: bytes | bytearray, start: int, end: int, base: int) -> Iterator[ScanHit]:
    """Yield the findings of the whole lines between two positions of a piece."""
    for line_start, line_end in sorted(_candidates(chunk, start, end)):
        yield from _read(joiner, chunk[line_start : min(line_end, line_start + _MAX_BYTES)], base + line_start)


def _candidates(chunk: bytes | bytearray, start: int, end: int) -> set[tuple[int, int]]:
    """Return begin and end of the lines that may tell of a fault."""
    lines = set()
    for needle, telling in _NEEDLES:
        find_from = start
        while (at := chunk.find(needle, find_from, end)) >= 0:
            find_from = at + len(needle)
            if telling:
                if not chunk.startswith(telling, find_from):
                    continue
            elif chunk.find(b"SXid (", find_from, find_from + _SWITCH_BYTES) < 0:
                continue
            line_end = chunk.find(b"\n", find_from, end)
            if line_end < 0:
                line_end = end
            if chunk.startswith(b" GPU", find_from) and not _tells_of_gpu(chunk, find_from, line_end):
                continue
            # Looking back no further than a prefix can be long keeps the whole pass linear.
            line_start = chunk.rfind(b"\n", max(start, at - _MAX_BYTES), at) + 1
            lines.add((line_start or max(start, at - _MAX_BYTES), line_end))
            find_from = line_end
    return lines


def _tells_of_gpu(chunk: bytes | bytearray, start: int, end: int) -> bool:
    """Return whether a line about a GPU without an Xid can be one that matters; most only give its name."""
    return chunk.find(b"fallen off", start, end) >= 0 or chunk.find(b"dapter failed", start, end) >= 0


def _read(joiner: MessageJoiner, line: bytes | bytearray, offset: int) -> Iterator[ScanHit]:
    finding = joiner.parse(line.decode("utf-8", errors="replace"))
    if finding is not None:
        yield ScanHit(offset, finding)
