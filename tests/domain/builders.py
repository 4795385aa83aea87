"""Words for tests of decisions: short ways to make faults, nodes, policies and repairs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from domain.catalog import fault_class
from domain.faults import Fault, FaultEvent, Rung, Transition
from domain.incident import Incident
from domain.nodes import Gpu, Inventory, NodeIdentity, NodeRef
from domain.observations import Component, ComponentKind, Source
from domain.policy import Policy
from domain.repair import RepairInput, RepairState
from domain.runbook import StepResult, begin, ended, next_step, started

T0 = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
BOOT = "boot-1"

ACT_POLICY = {
    "rules": [
        {"name": "destructive", "match": {"action": ["reset_gpu", "reboot", "power_cycle"]}, "decide": "approve"},
        {"name": "rest", "decide": "auto"},
    ]
}


def at(seconds: float) -> datetime:
    """Return a time so many seconds after the tests' beginning."""
    return T0 + timedelta(seconds=seconds)


def policy(**changes: object) -> Policy:
    """Return a policy that acts: destructive rungs need approval, the rest runs by itself."""
    return Policy.model_validate({**ACT_POLICY, **changes}, extra="forbid")


def node(name: str = "gpu-3", pool: str = "train") -> NodeRef:
    """Return a node's place."""
    return NodeRef(cluster="c1", pool=pool, name=name)


def identity(name: str = "gpu-3", boot: str = BOOT, gpus: int = 2) -> NodeIdentity:
    """Return who a node is."""
    inventory = Inventory(
        gpus=tuple(
            Gpu(uuid=f"GPU-{name}-{i}", serial=f"s{name}{i}", model="H100", index=i, pci_bus_id=f"0000:{i:02x}:00.0")
            for i in range(gpus)
        )
    )
    return NodeIdentity(
        node=node(name), boot_id=boot, machine_id=f"m-{name}", operations_address="h:1", inventory=inventory
    )


def fault(
    name: str = "gpu.fallen_off_bus",
    on: str = "gpu-3",
    seconds: float = 0,
    component: str = "",
    boot: str = BOOT,
    **changes: object,
) -> Fault:
    """Return a fault of a class of the catalog."""
    known = fault_class(name)
    kind = ComponentKind.NODE if name.startswith("node.") else ComponentKind.GPU
    made = Fault(
        fault_class=name,
        node=node(on),
        component=Component(kind=kind, id=component or ("" if kind is ComponentKind.NODE else f"GPU-{on}-0")),
        severity=known.severity,
        scope=known.scope,
        source=Source.KERNEL_LOG,
        boot_id=boot,
        first_seen=at(seconds),
        last_seen=at(seconds),
        evidence=("a line",),
    )
    return made.model_copy(update=changes)


def event(seen: Fault, transition: Transition = Transition.OPENED, sequence: int = 0, spool: str = "s") -> FaultEvent:
    """Return a transition of a fault."""
    return FaultEvent(spool_id=spool, sequence=sequence, transition=transition, fault=seen)


def repair(*faults: Fault, under: Policy | None = None, **changes: object) -> RepairState:
    """Return the state of a repair that has just begun."""
    seen = faults or (fault(),)
    made = RepairInput(
        identity=identity(),
        incident=Incident(incident_id="gpu-3-1", node=node(), opened_at=T0, faults=seen),
        policy=under or policy(),
    ).model_copy(update=changes)
    return begin(made, "repair/c1/gpu-3/1", T0)


def do(state: RepairState, result: StepResult, seconds: float = 1, by: str = "policy") -> RepairState:
    """Return the state after its next step has ended with this result."""
    step = next_step(state)
    assert step is not None
    return ended(started(state, step, by, at(seconds)), step, result, at(seconds + 1))


def plan_of(state: RepairState, results: dict[str, StepResult], default: StepResult, limit: int = 30) -> list[str]:
    """Return the ids of the steps that a repair takes when each ends as given, until it is over or asks."""
    taken: list[str] = []
    while (step := next_step(state)) is not None and not step.step_id.startswith("ask") and len(taken) < limit:
        taken.append(step.step_id)
        result = results.get(step.step_id, default)
        state = ended(started(state, step, "policy", at(len(taken))), step, result, at(len(taken) + 1))
    taken.append(str(state.outcome) if state.outcome else (step.step_id if step else "over"))
    return taken


def rungs(*names: str) -> tuple[Rung, ...]:
    """Return rungs by name."""
    return tuple(Rung(name) for name in names)
