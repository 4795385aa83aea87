"""The kernel log reader: the format, and the real ring buffer of the machine that runs the tests."""

from __future__ import annotations

import asyncio
import errno
import os
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agents.kernel.kmsg import DEVICE, KmsgReader, KmsgSource, booted_at, parse_record
from agents.kernel.log_file import findings_in
from agents.kernel.records import KernelRecord

ZERO = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("data", "sequence", "facility", "level", "text"),
    [
        (b"6,339,5140900,-;NET: Registered protocol family 10\n", 339, 0, 6, "NET: Registered protocol family 10"),
        (
            b"4,340,5690716,-;udevd[80]: starting version 181\n SUBSYSTEM=acpi\n DEVICE=+acpi:PNP0A03:00\n",
            340,
            0,
            4,
            "udevd[80]: starting version 181",
        ),
        (b"12,7,1,-;from a process\n", 7, 1, 4, "from a process"),
        (b"3,8,1,c,caller=T12;with more fields\n", 8, 0, 3, "with more fields"),
        (b"3,8,1,+;cut off in the mid", 8, 0, 3, "cut off in the mid"),
        (b"3,8,1,-;", 8, 0, 3, ""),
        (b"3,8,1,-;a\\x5cb \\xc2\\xb0 line\\x0aline\n", 8, 0, 3, "a\\b ° line\nline"),
        (b"3,8,1,-;half an escape \\x4", 8, 0, 3, "half an escape \\x4"),
        (b"3,8,1,-;no such text \\xff\n", 8, 0, 3, "no such text \ufffd"),
        (b"191,8,1,-;local7\n", 8, 23, 7, "local7"),
    ],
)
def test_record_is_read(data: bytes, sequence: int, facility: int, level: int, text: str) -> None:
    """Forms of ``Documentation/ABI/testing/dev-kmsg``, and what is left of a record that was cut off."""
    record = parse_record(data, ZERO)
    assert record is not None
    assert (record.sequence, record.facility, record.level, record.text) == (sequence, facility, level, text)
    assert record.by_kernel is (facility == 0)


def test_time_is_computed_from_the_boot() -> None:
    record = parse_record(b"6,339,5140900,-;x\n", ZERO)
    assert record is not None
    assert record.at == ZERO + timedelta(microseconds=5140900)


@pytest.mark.parametrize("data", [b"", b"6,339", b"6,339,51", b"6,339,51,-", b";x", b"x,1,1,-;x", b"-1,1,1,-;x"])
def test_prefix_that_cannot_be_read(data: bytes) -> None:
    assert parse_record(data, ZERO) is None


def test_time_out_of_range_does_not_break_the_reader() -> None:
    record = parse_record(b"6,339,99999999999999999999,-;x\n", ZERO)
    assert record is not None
    assert record.at == ZERO


class Device:
    """Answers of a kernel log device, one per read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path, answers: list[bytes | int]) -> None:
        path.write_bytes(b"")
        self._answers = answers
        real = os.read
        self.reader: KmsgReader | None = None

        def read(descriptor: int, size: int) -> bytes:
            if self.reader is None or descriptor != self.reader.fileno():
                return real(descriptor, size)
            answer = self._answers.pop(0) if self._answers else errno.EAGAIN
            if isinstance(answer, int):
                raise OSError(answer, os.strerror(answer))
            return answer

        monkeypatch.setattr("agents.kernel.kmsg.os.read", read)
        self._path = path

    def read(self, after: int = -1) -> list[tuple[int, str, int]]:
        """Return what the reader makes of the answers: sequence, text, records lost before."""
        self.reader = KmsgReader(self._path, after)
        try:
            return [(record.sequence, record.text, record.lost_before) for record in self.reader.read_all()]
        finally:
            self.reader.close()


def test_overwritten_records_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    device = Device(monkeypatch, tmp_path / "k", [b"6,5,1,-;a\n", errno.EPIPE, b"6,9,1,-;b\n", b"6,10,1,-;c\n"])
    assert device.read(after=4) == [(5, "a", 0), (9, "b", 3), (10, "c", 0)]
    assert "3 records" in caplog.text


def test_what_was_overwritten_while_nobody_read_is_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert Device(monkeypatch, tmp_path / "k", [b"6,100,1,-;a\n"]).read(after=49) == [(100, "a", 50)]


def test_done_records_are_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers: list[bytes | int] = [f"6,{number},1,-;r{number}\n".encode() for number in range(6)]
    assert Device(monkeypatch, tmp_path / "k", answers).read(after=3) == [(4, "r4", 0), (5, "r5", 0)]


def test_record_that_does_not_fit_is_loud_and_the_next_shows_the_gap(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    device = Device(monkeypatch, tmp_path / "k", [b"6,0,1,-;a\n", errno.EINVAL, b"6,2,1,-;c\n"])
    assert device.read() == [(0, "a", 0), (2, "c", 1)]
    assert "is lost" in caplog.text


def test_unreadable_record_is_nobodys_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    device = Device(monkeypatch, tmp_path / "k", [b"6,0,1,-;a\n", b"NVRM: Xid (PCI:0000:1b:00): 79,", b"6,2,1,-;c\n"])
    device.reader = KmsgReader(tmp_path / "k")
    records = device.reader.read_all()
    device.reader.close()
    assert [(record.sequence, record.by_kernel) for record in records] == [(0, True), (1, False), (2, True)]


def test_other_errors_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Input/output error"):
        Device(monkeypatch, tmp_path / "k", [errno.EIO]).read()


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero"])
def test_device_that_is_no_kernel_log(path: str) -> None:
    reader = KmsgReader(Path(path))
    try:
        with pytest.raises(OSError, match="no kernel log"):
            reader.read_all()
    finally:
        reader.close()


def test_file_in_any_form(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(
        b"[  100.5] usb 1-1: new device\n"
        b"[  101.5] NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=x, GPU has fallen off the bus.\r\n"
        b"2026-11-30T23:00:00,5+01:00 n1 kernel: NVRM: Xid (PCI:0000:1c:00): 13, pid=2, Graphics Exception\n"
        b"<13>NVRM: Xid (PCI:0000:1d:00): 31, pid=2, cut of"
    )
    os.utime(path, (ZERO.timestamp(), ZERO.timestamp()))
    found = list(findings_in(path))
    assert [(finding.code, record.by_kernel) for record, finding in found] == [(79, True), (13, True), (31, False)]
    assert [record.at for record, _ in found] == [ZERO, datetime(2026, 11, 30, 22, 0, 0, 500000, UTC), ZERO]
    assert found[0][0].text.endswith("fallen off the bus.")
    assert [record.sequence for record, _ in found] == sorted(record.sequence for record, _ in found)


@pytest.fixture
def kernel() -> str:
    """A mark that no other line of this machine's log has."""
    if os.geteuid() != 0 or not os.access(DEVICE, os.R_OK | os.W_OK):
        pytest.skip("only root may write to the kernel log")
    return f"kintsugi-test-{uuid.uuid4()}"


def write(text: str, priority: str = "") -> None:
    descriptor = os.open(DEVICE, os.O_WRONLY)
    try:
        os.write(descriptor, f"{priority}{text}\n".encode())
    finally:
        os.close(descriptor)


async def marked(mark: str, count: int, after: int = -1) -> list[KernelRecord]:
    """Return the first records with a mark, as the source yields them."""
    found: list[KernelRecord] = []
    async with asyncio.timeout(20), aclosing(_source(after)) as batches:
        async for batch in batches:
            found += [record for record in batch if mark in record.text]
            if len(found) >= count:
                break
    return found


async def _source(after: int) -> AsyncGenerator[tuple[KernelRecord, ...]]:
    async for batch in KmsgSource().records(after):
        yield batch


@pytest.mark.kmsg
async def test_line_of_a_process_is_seen_as_such(kernel: str) -> None:
    before = datetime.now(UTC)
    write(f"{kernel} NVRM: Xid", "<3>")
    (record,) = await marked(kernel, 1)
    assert not record.by_kernel
    assert (record.facility, record.level) == (1, 3)
    assert abs(record.at - before) < timedelta(seconds=5)


@pytest.mark.kmsg
async def test_process_cannot_speak_for_the_kernel(kernel: str) -> None:
    """``devkmsg_write`` turns facility 0 into LOG_USER: rule 10 of the design rests on this."""
    for priority in ("<0>", "<3>", "<7>", "<2147483648>", "<-8>", "< 3>"):
        write(kernel, priority)
    records = await marked(kernel, 6)
    assert len(records) == 6
    assert not any(record.by_kernel for record in records)


@pytest.mark.kmsg
async def test_what_was_written_before_the_start_is_read_and_what_comes_later_too(kernel: str) -> None:
    write(f"{kernel} before")
    later = asyncio.create_task(marked(kernel, 2))
    await marked(kernel, 1)  # what waits has been read by now: the other reader waits for more, or soon will
    write(f"{kernel} after")
    assert [record.text for record in await later] == [f"{kernel} before", f"{kernel} after"]


@pytest.mark.kmsg
async def test_restart_from_a_position_replays_nothing(kernel: str) -> None:
    write(f"{kernel} one")
    (one,) = await marked(kernel, 1)
    write(f"{kernel} two")
    (two,) = await marked(kernel, 1, after=one.sequence)
    assert two.text == f"{kernel} two"
    assert two.sequence > one.sequence


@pytest.mark.kmsg
async def test_escapes_of_the_real_kernel(kernel: str) -> None:
    text = f"{kernel} tab\there back\\slash ümlaut"
    write(text)
    assert [record.text for record in await marked(kernel, 1)] == [text]


@pytest.mark.kmsg
async def test_kernels_own_lines_are_its_own(kernel: str) -> None:
    reader = KmsgReader(DEVICE)
    records = reader.read_all()
    reader.close()
    assert any(record.by_kernel for record in records)
    sequences = [record.sequence for record in records]
    assert sequences == sorted(set(sequences))
    assert all(booted_at() - timedelta(seconds=5) <= record.at for record in records)


async def test_log_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        async for _ in KmsgSource(Path("/dev/there-is-no-such-log")).records(-1):
            pass
