"""What can be shown: named faults on the default layout, and what an operator may expect to happen."""

from __future__ import annotations

from domain.faults import Rung
from domain.model import Word
from simulator.faults import FaultKind, Injection
from simulator.jobs import JobSpec

VICTIM = "gpu-03"
"""Node on which the scenarios strike: one of those on which the training job runs."""

TRAINING_NODES = 4


class Scenario(Word):
    """A story.

    Attributes:
        faults: what is injected, with its delays.
        expectation: what should happen, in a sentence.
    """

    name: str
    title: str
    faults: tuple[Injection, ...]
    expectation: str


def training_job(nodes: int = TRAINING_NODES, gpus: int = 8) -> JobSpec:
    """Return the training job that runs at the start on ``gpu-01`` and the nodes after it."""
    return JobSpec(
        id="train-1",
        name="llm-pretraining",
        owner="research",
        nodes=tuple(f"gpu-{n:02d}" for n in range(1, nodes + 1)),
        gpus_per_node=gpus,
    )


_FALLEN = Injection(node=VICTIM, kind=FaultKind.FALLEN_OFF_BUS, gpu=0)

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="fallen-off-bus",
            title="A GPU falls off the PCIe bus under a training job",
            faults=(_FALLEN.model_copy(update={"heals_at": Rung.REBOOT}),),
            expectation="The job goes on from its own checkpoint on the spare; the node waits for approval, is"
            " restarted, proven by burn-in and returned.",
        ),
        Scenario(
            name="ecc-row-remap",
            title="An uncorrectable memory error leaves a row remap pending",
            faults=(Injection(node=VICTIM, kind=FaultKind.ECC_ROW_REMAP, gpu=2),),
            expectation="The job is checkpointed and moved; a GPU reset activates the spare row.",
        ),
        Scenario(
            name="application-xid",
            title="The application makes a bad memory access (Xid 31)",
            faults=(Injection(node=VICTIM, kind=FaultKind.APPLICATION_XID, gpu=1, xid=31),),
            expectation="The job's owner is told. Nothing happens to the node.",
        ),
        Scenario(
            name="thermal",
            title="A GPU slows down because it is too hot, and cools again",
            faults=(Injection(node=VICTIM, kind=FaultKind.THERMAL, gpu=5, clears_after=20.0),),
            expectation="Nothing is repaired blindly: the fault may clear by itself, else a person inspects the"
            " cooling; the node passes burn-in before it is used again.",
        ),
        Scenario(
            name="silent-node",
            title="A host hangs: its agent is silent, its processes may still run",
            faults=(Injection(node=VICTIM, kind=FaultKind.HOST_HANG),),
            expectation="The node is fenced by its BMC before the job starts on the spare, then power cycled,"
            " proven and returned.",
        ),
        Scenario(
            name="failed-burn-in",
            title="A GPU falls off the bus, and the node fails its burn-in once",
            faults=(
                _FALLEN.model_copy(update={"heals_at": Rung.REBOOT}),
                Injection(node=VICTIM, kind=FaultKind.BURN_IN_FAILURE, times=1),
            ),
            expectation="The first rung does not hold; the repair climbs the ladder.",
        ),
        Scenario(
            name="reject",
            title="A GPU falls off the bus, and a person says no",
            faults=(_FALLEN,),
            expectation="Nothing destructive happens: the node stays quarantined until a person decides.",
        ),
    )
}
