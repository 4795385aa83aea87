"""One look at the node on request: who it is, what is open, who holds the GPUs, and what cannot be seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from agents.identity import Identity, LearningReader
from agents.probe.reader import ProbeError
from domain.faults import Fault
from domain.gpu_snapshot import GpuSnapshot
from domain.operations import GpuProcess, NodeInspection

_MAX_OPEN_FAULTS = 1024
_MAX_PROCESSES = 4096
_MAX_BLIND_SPOTS = 64
"""What fits into the message (``wire.convert_operations``); the first ones are kept."""


class Inspector:
    """Looks at the node now, without disturbing it.

    Args:
        identity: who the node is.
        gpus: the way to the GPUs.
        open_faults: returns what is open.
        blind_spots: returns what else cannot be seen, in words.
        processes: the folder of processes (proc(5)).
    """

    def __init__(
        self,
        identity: Identity,
        gpus: LearningReader,
        open_faults: Callable[[], Iterable[Fault]],
        blind_spots: Callable[[], Iterable[str]],
        processes: Path = Path("/proc"),
    ) -> None:
        self._identity = identity
        self._gpus = gpus
        self._open_faults = open_faults
        self._blind_spots = blind_spots
        self._processes = processes

    async def inspect(self) -> NodeInspection:
        """Return what is there now. A driver that does not answer is a blind spot, not an error."""
        try:
            processes = tuple(self._gpu_processes(await self._gpus.read()))
        except ProbeError:
            processes = ()
        return NodeInspection(
            identity=self._identity.present,
            taken_at=datetime.now(UTC),
            open_faults=tuple(fault.key for fault in self._open_faults())[:_MAX_OPEN_FAULTS],
            processes=processes[:_MAX_PROCESSES],
            blind_spots=(*self._gpus.blind_spots, *self._blind_spots())[:_MAX_BLIND_SPOTS],
        )

    def _gpu_processes(self, snapshot: GpuSnapshot) -> Iterable[GpuProcess]:
        for reading in snapshot.readings:
            for process in reading.processes if reading.uuid else ():
                yield GpuProcess(
                    gpu_uuid=reading.uuid,
                    pid=process.pid,
                    name=self._name(process.pid),
                    used_bytes=-1 if process.used_memory_bytes is None else process.used_memory_bytes,
                )

    def _name(self, pid: int) -> str:
        try:
            return (self._processes / str(pid) / "comm").read_text(errors="replace").strip()
        except OSError:
            return ""  # it has ended, or is in a namespace that we do not see
