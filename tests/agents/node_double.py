"""A node for the agent's tests: a kernel log, GPUs and a driver that the test steers.

Run as a program it is an agent process whose kernel log is a text file: one line is one record.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

from agents.agent import Agent
from agents.boot import BootFacts
from agents.kernel.records import KernelRecord
from agents.operations.inspect_only import InspectOnlyDriver
from agents.probe.reader import ProbeUnavailableError
from domain.gpu_snapshot import GpuSnapshot
from runtime.settings import AgentSettings, load

BOOT = BootFacts(boot_id="boot-1", machine_id="machine-1", kernel_release="6.1.0")


def xid_line(bus: int, code: int = 79) -> str:
    """Return what the driver prints; each bus number is another GPU."""
    return f"NVRM: Xid (PCI:0000:{bus:02x}:00): {code}, pid=1234, name=python3, GPU has fallen off the bus."


class KernelDouble:
    """A kernel log in memory. Implements ``KernelRecordSource``."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, int]] = []
        self.broken: OSError | None = None
        self.asked_after: list[int] = []
        self._more = asyncio.Event()

    def write(self, text: str, facility: int = 0) -> None:
        self.lines.append((text, facility))
        self._more.set()

    async def records(self, after: int) -> AsyncIterator[tuple[KernelRecord, ...]]:
        self.asked_after.append(after)
        if self.broken is not None:
            raise self.broken
        done = after + 1
        while True:
            self._more.clear()
            if fresh := self.lines[done:]:
                yield tuple(record(done + n, text, facility) for n, (text, facility) in enumerate(fresh))
                done += len(fresh)
            else:
                await self._more.wait()


class FileKernel:
    """A text file that grows. Implements ``KernelRecordSource``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def records(self, after: int) -> AsyncIterator[tuple[KernelRecord, ...]]:
        done = after + 1
        while True:
            lines = self._path.read_text().split("\n")[:-1]
            if fresh := lines[done:]:
                yield tuple(record(done + n, text, 0) for n, text in enumerate(fresh))
                done += len(fresh)
            else:
                await asyncio.sleep(0.01)


class GpusDouble:
    """GPUs that answer what the test says. Implements ``GpuReader``."""

    def __init__(self) -> None:
        self.answer: GpuSnapshot | Exception = ProbeUnavailableError("no driver on this machine")

    async def read(self) -> GpuSnapshot:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def record(sequence: int, text: str, facility: int) -> KernelRecord:
    return KernelRecord(sequence=sequence, facility=facility, level=3, at=datetime.now(UTC), text=text)


def settings(gateway: str, state_dir: Path, **rest: object) -> AgentSettings:
    return load(AgentSettings, gateway=gateway, state_dir=state_dir, node="n1", listen="127.0.0.1:0", **rest)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    _, address, folder, log_file = sys.argv
    agent = Agent(settings(address, Path(folder)), BOOT, FileKernel(Path(log_file)), GpusDouble(), InspectOnlyDriver())
    asyncio.run(agent.run())
