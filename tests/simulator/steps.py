"""Steps of a repair on a world in memory."""

from __future__ import annotations

from domain.nodes import NodeRef
from domain.operations import OperationKind, OperationProgress, OperationRequest
from domain.scheduling import Mark
from domain.workloads import SavedWork, SaveMethod
from simulator import injection, scheduling
from simulator.faults import FaultKind, Injection
from simulator.machine import Machine, Phase
from simulator.node_work import NodeWork
from simulator.states import ViolationKind
from simulator.world import World

MARK = Mark(repair_id="repair/local/gpu-03/1", reason="kintsugi: [gpu.fallen_off_bus] test")
OTHER = Mark(repair_id="repair/local/gpu-03/2", reason="kintsugi: another")
BAD = NodeRef(cluster="local", pool="h100", name="gpu-03")


def strike(world: World, kind: FaultKind, **more: object) -> None:
    injection.inject(world, Injection.model_validate({"node": "gpu-03", "kind": kind, **more}))


def saved(world: World) -> SavedWork:
    (workload,) = scheduling.workloads(world, BAD)
    return SavedWork(workload=workload, method=SaveMethod.NONE, step=workload.last_checkpoint_step)


def violations(world: World) -> list[ViolationKind]:
    return [violation.kind for violation in world.violations]


def run(world: World, work: NodeWork, kind: OperationKind, name: str = "op", **more: object) -> OperationProgress:
    request = OperationRequest.model_validate({"operation_id": name, "kind": kind, **more})
    work.start("gpu-03", request)
    for _ in range(1000):
        progress = work.progress("gpu-03", name)
        if progress.state.final:
            return progress
        world.advance(0.1)
    raise AssertionError(f"{kind} does not end")


def phase(machine: Machine) -> Phase:
    return machine.phase


def drain(world: World) -> None:
    scheduling.quarantine(world, BAD, MARK)
    scheduling.begin_drain(world, BAD, MARK)
    world.advance(world.timing.drain)
    assert scheduling.drain_progress(world, BAD).done
