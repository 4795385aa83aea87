"""What must have happened at the end of each scenario. Judged on the simulated world, not on what was said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from domain.repair import Outcome, RepairState
from simulator.jobs import JobState
from simulator.scenarios import VICTIM
from simulator.states import NodeState, WorldState


@dataclass(frozen=True)
class Ending:
    """How it ended.

    Attributes:
        repair: the victim's repair, None when none was started.
        told: notices that people got.
    """

    before: WorldState
    after: WorldState
    repair: RepairState | None
    told: Sequence[str]

    @property
    def victim(self) -> NodeState:
        """The node on which the fault was injected."""
        return self.after.node(VICTIM)


@dataclass(frozen=True)
class Expectation:
    """What a scenario is judged by.

    Attributes:
        repaired: whether a repair is started at all.
        outcome: how it must end.
        says_no: whether the person of the demonstration refuses the first thing that is asked.
        patience_seconds: how long the whole story may take, in seconds.
        also: further objections in words, none when all is well.
    """

    repaired: bool = True
    outcome: Outcome = Outcome.RETURNED
    says_no: bool = False
    patience_seconds: float = 180.0
    also: Callable[[Ending], list[str]] = lambda _ending: []


def objections(expectation: Expectation, ending: Ending) -> list[str]:
    """Return in words what was not as expected; empty when the scenario's expectation held."""
    said = [f"rule broken on {violation.node}: {violation.text}" for violation in ending.after.violations]
    if not expectation.repaired:
        return said + _untouched(ending)
    if ending.repair is None:
        return [*said, "no repair was started"]
    if ending.repair.outcome is not expectation.outcome:
        said.append(f"the repair ended {ending.repair.outcome or 'not at all'}, expected was {expectation.outcome}")
    return said + expectation.also(ending)


def _untouched(ending: Ending) -> list[str]:
    said = []
    if ending.repair is not None:
        said.append(f"a repair was started: {ending.repair.repair_id}")
    if not ending.victim.schedulable or ending.victim.mark:
        said.append(f"{VICTIM} was taken out of service")
    if _taken_down(ending):
        said.append(f"{VICTIM} was taken down")
    if not ending.told:
        said.append("nobody was told")
    for job in ending.before.jobs:
        if ending.after.job(job.id).starts != job.starts:
            said.append(f"{job.id} was started again")
    return said


def _taken_down(ending: Ending) -> int:
    victim, before = ending.victim, ending.before.node(VICTIM)
    return sum(
        getattr(victim, name) - getattr(before, name)
        for name in ("resets", "reboots", "power_cycles", "fences", "reprovisions", "replacements")
    )


def _back_in_service(ending: Ending) -> list[str]:
    victim = ending.victim
    said = []
    if not victim.schedulable or victim.mark:
        said.append(f"{VICTIM} is not back in service")
    if not victim.burn_ins:
        said.append(f"{VICTIM} came back without burn-in")
    return said


def _job_goes_on(ending: Ending) -> list[str]:
    said = []
    for job in ending.after.jobs:
        if job.state is not JobState.RUNNING:
            said.append(f"{job.id} is {job.state} at the end: {job.detail}")
        if VICTIM in ending.before.job(job.id).nodes and VICTIM in job.nodes and job.starts > 1:
            said.append(f"{job.id} was started again on the bad node")
    return said


def _mended_by(**counts: int) -> Callable[[Ending], list[str]]:
    def check(ending: Ending) -> list[str]:
        said = _back_in_service(ending) + _job_goes_on(ending)
        for name, least in counts.items():
            found = int(getattr(ending.victim, name))
            if (found < least) if least else found:
                said.append(f"{name.replace('_', ' ')}: {found}, expected {least}")
        return said

    return check


def _left_alone(ending: Ending) -> list[str]:
    said = _job_goes_on(ending)
    if _taken_down(ending):
        said.append(f"{VICTIM} was taken down although a person had said no")
    if ending.victim.schedulable:
        said.append(f"{VICTIM} takes work again although nobody repaired it")
    return said


EXPECTATIONS: dict[str, Expectation] = {
    "fallen-off-bus": Expectation(also=_mended_by(reboots=1)),
    "ecc-row-remap": Expectation(also=_mended_by(resets=1, reboots=0, power_cycles=0)),
    "application-xid": Expectation(repaired=False, patience_seconds=60),
    "thermal": Expectation(also=_mended_by(resets=0, reboots=0, power_cycles=0), patience_seconds=300),
    "silent-node": Expectation(also=_mended_by(fences=1)),
    "failed-burn-in": Expectation(also=_mended_by(burn_ins=2)),
    "reject": Expectation(outcome=Outcome.ABORTED, says_no=True, also=_left_alone),
}
"""By the names of ``simulator.scenarios``."""
