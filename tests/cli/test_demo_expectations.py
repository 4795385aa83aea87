"""The demonstration's judge: it must find fault with a world in which the wrong thing happened."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cli.demo.expectations import EXPECTATIONS, Ending, objections
from domain.faults import Fault, Scope, Severity
from domain.incident import Incident
from domain.nodes import NodeIdentity, NodeRef
from domain.observations import Component, ComponentKind, Source
from domain.policy import Policy
from domain.repair import Outcome, RepairInput, RepairState
from simulator.jobs import JobState
from simulator.machine import Phase
from simulator.scenarios import VICTIM
from simulator.states import JobView, NodeState, Violation, ViolationKind, WorldState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODE = NodeRef(cluster="demo", pool="train", name=VICTIM)


def world(node: dict[str, object] | None = None, job: dict[str, object] | None = None, **more: object) -> WorldState:
    victim = NodeState(
        name=VICTIM, phase=Phase.UP, hung=False, agent_up=True, boot_id="b", gpu_uuids=(), faults=(), schedulable=True
    ).model_copy(update=node or {})
    training = JobView(
        id="train-1", name="llm", state=JobState.RUNNING, nodes=(VICTIM,), step=20, steps_per_second=2.0,
        own_checkpoint=10, started_from_step=0, starts=1,
    ).model_copy(update=job or {})  # fmt: skip
    state = WorldState(cluster="demo", pool="train", now=1.0, nodes=(victim,), jobs=(training,))
    return state.model_copy(update=more)


def repair(outcome: Outcome | None) -> RepairState:
    fault = Fault(
        fault_class="gpu.fallen_off_bus", node=NODE, component=Component(kind=ComponentKind.NODE),
        severity=Severity.FATAL, scope=Scope.NODE, source=Source.KERNEL_LOG, boot_id="b", first_seen=NOW, last_seen=NOW,
    )  # fmt: skip
    identity = NodeIdentity(node=NODE, boot_id="b")
    incident = Incident(incident_id="i", node=NODE, opened_at=NOW, faults=(fault,))
    given = RepairInput(identity=identity, incident=incident, policy=Policy())
    return RepairState(
        input=given, repair_id=f"repair/demo/{VICTIM}/1", identity=identity, started_at=NOW, outcome=outcome
    )


MOVED = {"nodes": ("spare-01",), "starts": 2}
MENDED = world({"reboots": 1, "burn_ins": 1}, MOVED)


def ending(after: WorldState, state: RepairState | None, told: tuple[str, ...] = ("told",)) -> Ending:
    return Ending(before=world(), after=after, repair=state, told=told)


@pytest.mark.parametrize(
    ("scenario", "after", "outcome"),
    [
        ("fallen-off-bus", MENDED, Outcome.RETURNED),
        ("ecc-row-remap", world({"resets": 1, "burn_ins": 1}, MOVED), Outcome.RETURNED),
        ("failed-burn-in", world({"reboots": 1, "power_cycles": 1, "burn_ins": 2}, MOVED), Outcome.RETURNED),
        ("silent-node", world({"fences": 1, "power_cycles": 1, "burn_ins": 1}, MOVED), Outcome.RETURNED),
        ("thermal", world({"burn_ins": 1}, MOVED), Outcome.RETURNED),
        ("reject", world({"schedulable": False, "mark": "m"}, MOVED), Outcome.ABORTED),
        ("application-xid", world(), None),
    ],
)
def test_what_should_happen_is_accepted(scenario: str, after: WorldState, outcome: Outcome | None) -> None:
    state = repair(outcome) if outcome else None
    assert objections(EXPECTATIONS[scenario], ending(after, state)) == []


@pytest.mark.parametrize(
    ("scenario", "after", "state", "says"),
    [
        ("fallen-off-bus", MENDED, None, "no repair was started"),
        ("fallen-off-bus", MENDED, repair(Outcome.ABORTED), "ended aborted"),
        ("fallen-off-bus", MENDED, repair(None), "not at all"),
        ("fallen-off-bus", world({"burn_ins": 1}, MOVED), repair(Outcome.RETURNED), "reboots: 0"),
        ("fallen-off-bus", world({"reboots": 1}, MOVED), repair(Outcome.RETURNED), "without burn-in"),
        (
            "fallen-off-bus",
            world({"reboots": 1, "burn_ins": 1, "schedulable": False}, MOVED),
            repair(Outcome.RETURNED),
            "not back in service",
        ),
        (
            "fallen-off-bus",
            world({"reboots": 1, "burn_ins": 1}, {**MOVED, "state": JobState.STALLED}),
            repair(Outcome.RETURNED),
            "train-1 is stalled",
        ),
        (
            "ecc-row-remap",
            world({"resets": 1, "reboots": 1, "burn_ins": 1}, MOVED),
            repair(Outcome.RETURNED),
            "reboots: 1",
        ),
        ("reject", world({"reboots": 1, "schedulable": False}, MOVED), repair(Outcome.ABORTED), "a person had said no"),
        ("reject", world(None, MOVED), repair(Outcome.ABORTED), "takes work again"),
        ("application-xid", world(), repair(Outcome.RETURNED), "a repair was started"),
        ("application-xid", world({"schedulable": False}), None, "taken out of service"),
        ("application-xid", world({"reboots": 1}), None, "taken down"),
        ("application-xid", world(None, {"starts": 2}), None, "started again"),
    ],
)
def test_what_should_not_happen_is_named(
    scenario: str, after: WorldState, state: RepairState | None, says: str
) -> None:
    assert says in " / ".join(objections(EXPECTATIONS[scenario], ending(after, state)))


def test_a_broken_rule_and_silence_are_always_named() -> None:
    broken = Violation(kind=ViolationKind.TWO_COPIES, at=1.0, node=VICTIM, text="two copies of rank 3")
    after = MENDED.model_copy(update={"violations": (broken,)})
    assert "two copies of rank 3" in " ".join(
        objections(EXPECTATIONS["fallen-off-bus"], ending(after, repair(Outcome.RETURNED)))
    )
    assert objections(EXPECTATIONS["application-xid"], ending(world(), None, told=())) == ["nobody was told"]
