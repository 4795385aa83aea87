"""Faults that can be injected: what each does to the node, and what heals it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pydantic import Field

from domain.faults import Rung
from domain.model import Word


class FaultKind(StrEnum):
    """What can go wrong with a simulated node."""

    FALLEN_OFF_BUS = "fallen_off_bus"
    ECC_ROW_REMAP = "ecc_row_remap"
    ROW_REMAP_FAILURE = "row_remap_failure"
    APPLICATION_XID = "application_xid"
    THERMAL = "thermal"
    HOST_HANG = "host_hang"
    AGENT_DEATH = "agent_death"
    BURN_IN_FAILURE = "burn_in_failure"
    GPU_MISSING_AFTER_BOOT = "gpu_missing_after_boot"
    BOOT_FAILURE = "boot_failure"
    BMC_UNREACHABLE = "bmc_unreachable"


@dataclass(frozen=True)
class FaultEffect:
    """What a kind of fault means.

    Attributes:
        heals_at: lightest rung that heals it; None when no rung does (it clears by itself or is cleared).
        on_gpu: whether it sits on one GPU.
        stalls: whether work on that GPU (or node) stands still.
        speed: factor on the speed of work on the node.
        dormant: whether it shows itself only at the next boot.
        unsound: whether giving the node back with it would be wrong.
    """

    heals_at: Rung | None
    on_gpu: bool = True
    stalls: bool = False
    speed: float = 1.0
    dormant: bool = False
    unsound: bool = True


EFFECTS: dict[FaultKind, FaultEffect] = {
    FaultKind.FALLEN_OFF_BUS: FaultEffect(Rung.POWER_CYCLE, stalls=True),
    FaultKind.ECC_ROW_REMAP: FaultEffect(Rung.RESET_GPU),
    FaultKind.ROW_REMAP_FAILURE: FaultEffect(Rung.REPLACE),
    FaultKind.APPLICATION_XID: FaultEffect(None, unsound=False),
    FaultKind.THERMAL: FaultEffect(Rung.REPLACE, speed=0.5),
    FaultKind.HOST_HANG: FaultEffect(Rung.POWER_CYCLE, on_gpu=False, stalls=True),
    FaultKind.AGENT_DEATH: FaultEffect(Rung.REBOOT, on_gpu=False, unsound=False),
    FaultKind.BURN_IN_FAILURE: FaultEffect(Rung.REPLACE, on_gpu=False, unsound=False),
    FaultKind.GPU_MISSING_AFTER_BOOT: FaultEffect(Rung.POWER_CYCLE, stalls=True, dormant=True),
    FaultKind.BOOT_FAILURE: FaultEffect(Rung.POWER_CYCLE, on_gpu=False, dormant=True, unsound=False),
    FaultKind.BMC_UNREACHABLE: FaultEffect(None, on_gpu=False, unsound=False),
}

HEALING_ORDER = (Rung.RESET_GPU, Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPROVISION, Rung.REPLACE)
"""What was done to a node, the lightest first; a heavier one heals all that a lighter one does."""


class Injection(Word):
    """A fault to inject.

    Attributes:
        gpu: index of the GPU, from 0; ignored for faults of the whole node.
        after: delay in simulated seconds.
        heals_at: lightest rung that heals it, in place of the kind's own.
        clears_after: it goes away by itself after so many simulated seconds; None for never.
        times: how many burn-ins fail or boots get stuck.
        xid: code of an application Xid.
    """

    node: str
    kind: FaultKind
    gpu: int = Field(0, ge=0)
    after: float = Field(0.0, ge=0)
    heals_at: Rung | None = None
    clears_after: float | None = Field(None, gt=0)
    times: int = Field(1, ge=1)
    xid: int = 31


@dataclass
class LiveFault:
    """A fault that a node has now. ``gpu_uuid`` is empty for a fault of the whole node."""

    kind: FaultKind
    number: int
    gpu_uuid: str
    heals_at: Rung | None
    dormant: bool
    times: int

    def healed_by(self, rung: Rung) -> bool:
        """Return whether doing this to the whole node heals it."""
        if self.heals_at is None:
            return False
        return HEALING_ORDER.index(rung) >= HEALING_ORDER.index(self.heals_at)
