"""What is shown at one moment of the demonstration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from domain.pool import PoolView
from domain.repair import RepairState, StepProgress
from simulator.scenarios import Scenario
from simulator.states import WorldState


@dataclass(frozen=True)
class Picture:
    """One moment.

    Attributes:
        link: web UI, at the repair's own page once there is one.
        answers_in: seconds until the demonstration answers by itself; None when it will not.
    """

    scenario: Scenario
    link: str
    address: str
    now: datetime
    repair: RepairState | None
    progress: Sequence[StepProgress]
    world: WorldState | None
    pool: PoolView | None
    told: Sequence[str]
    answers_in: float | None
