"""A simulated node: its hardware, its power, its kernel log and how the scheduler holds it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from domain.faults import Rung
from domain.nodes import Gpu
from domain.scheduling import Mark
from simulator.faults import EFFECTS, FaultKind, LiveFault

MODEL = "NVIDIA H100 80GB HBM3"
PCI_BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
"""Buses of the eight GPUs of an HGX H100 board, as ``nvidia-smi`` lists them on a DGX H100."""


class Phase(StrEnum):
    """Where a node is between off and up. A hung node is up: that is what makes it dangerous."""

    UP = "up"
    GOING_DOWN = "going_down"
    OFF = "off"
    BOOTING = "booting"
    STUCK = "stuck"


@dataclass(frozen=True)
class KernelLine:
    """One record of the kernel log; ``at`` in simulated seconds."""

    sequence: int
    facility: int
    level: int
    at: float
    text: str


@dataclass
class Counts:
    """How often each action was carried out on a node."""

    resets: int = 0
    reboots: int = 0
    power_cycles: int = 0
    fences: int = 0
    reprovisions: int = 0
    replacements: int = 0
    burn_ins: int = 0
    checkpoints: int = 0


@dataclass
class Machine:
    """One node.

    Attributes:
        disk_id: changes when the disk is emptied.
        down_for: rung that takes or keeps it down now; it heals what it heals at the next boot.
        life: counts power changes, so that a late event of an earlier life is recognised.
        reset_in_boot: GPUs reset since the boot or their latest fault.
    """

    name: str
    gpus: list[Gpu]
    topology: dict[str, str]
    boot_id: str
    machine_id: str
    disk_id: str
    spare: bool = False
    leased_to: str = ""
    phase: Phase = Phase.UP
    down_for: Rung | None = None
    life: int = 0
    mark: Mark | None = None
    holds: dict[str, str] = field(default_factory=dict)
    faults: list[LiveFault] = field(default_factory=list)
    kernel: list[KernelLine] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    tokens: dict[str, str] = field(default_factory=dict)
    reset_in_boot: set[str] = field(default_factory=set)
    tickets: list[str] = field(default_factory=list)

    def has(self, kind: FaultKind, gpu_uuid: str = "") -> bool:
        """Return whether a fault of this kind is active, on this GPU when one is named."""
        return any(
            fault.kind is kind and not fault.dormant and gpu_uuid in ("", fault.gpu_uuid) for fault in self.faults
        )

    @property
    def hung(self) -> bool:
        """Whether the host is up and answers nobody."""
        return self.phase is Phase.UP and self.has(FaultKind.HOST_HANG)

    @property
    def responsive(self) -> bool:
        """Whether its operating system answers."""
        return self.phase is Phase.UP and not self.hung

    @property
    def agent_up(self) -> bool:
        """Whether the agent on it can run."""
        return self.responsive and not self.has(FaultKind.AGENT_DEATH)

    @property
    def schedulable(self) -> bool:
        """Whether new work may start there."""
        return self.responsive and self.mark is None and not self.holds

    @property
    def unsound(self) -> list[LiveFault]:
        """Active faults with which it must not go back to work."""
        return [fault for fault in self.faults if not fault.dormant and EFFECTS[fault.kind].unsound]

    def dead_gpus(self) -> set[str]:
        """Return the UUIDs of GPUs that compute nothing."""
        return {f.gpu_uuid for f in self.faults if not f.dormant and EFFECTS[f.kind].stalls and f.gpu_uuid}

    def missing_gpus(self) -> set[str]:
        """Return the UUIDs of GPUs that the driver does not list."""
        kind = FaultKind.GPU_MISSING_AFTER_BOOT
        return {f.gpu_uuid for f in self.faults if f.kind is kind and not f.dormant}

    @property
    def stalls(self) -> bool:
        """Whether work on it stands still."""
        return any(not fault.dormant and EFFECTS[fault.kind].stalls for fault in self.faults)

    @property
    def speed(self) -> float:
        """Factor on the speed of work on it, 0 to 1."""
        return min((EFFECTS[fault.kind].speed for fault in self.faults if not fault.dormant), default=1.0)


def new_uuid(random: Random) -> str:
    """Return a random UUID from a seeded source."""
    return str(uuid.UUID(bytes=random.randbytes(16), version=4))


def new_gpus(random: Random, count: int) -> list[Gpu]:
    """Return new GPUs with their own UUIDs and serials."""
    return [
        Gpu(
            uuid=f"GPU-{new_uuid(random)}",
            serial=f"165{random.randrange(10**10):010d}",
            pci_bus_id=f"0000:{_bus(index)}:00.0",
            model=MODEL,
            index=index,
        )
        for index in range(count)
    ]


def _bus(index: int) -> str:
    return PCI_BUSES[index] if index < len(PCI_BUSES) else f"{index:02x}"
