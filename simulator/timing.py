"""How long things take in the simulated cluster."""

from __future__ import annotations

from pydantic import Field

from domain.model import Word


class Timing(Word):
    """Durations in simulated seconds. The defaults are short, so that a whole repair can be watched.

    Attributes:
        shutdown: from the order to reboot until the node is down.
        boot: from power-on until the agent starts again.
        power: from an order to the BMC until the power is off.
        fault_returns: delay before a fault that survived a boot shows itself again.
        burn_in: a quick one. Longer than an agent takes to believe a reading that a state is over (5 s), as every
            real burn-in is.
        job_start: from the scheduler's decision to start a gang until its first step.
    """

    shutdown: float = Field(0.5, ge=0)
    boot: float = Field(3.5, ge=0)
    power: float = Field(0.5, ge=0)
    fault_returns: float = Field(0.3, ge=0)
    checkpoint: float = Field(2.0, ge=0)
    restore: float = Field(1.0, ge=0)
    clean_up: float = Field(0.5, ge=0)
    reset_gpu: float = Field(1.5, ge=0)
    burn_in: float = Field(7.5, ge=0)
    drain: float = Field(1.5, ge=0)
    job_start: float = Field(1.0, ge=0)
    reprovision: float = Field(8.0, ge=0)
    replace: float = Field(10.0, ge=0)
