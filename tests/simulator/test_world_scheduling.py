"""What the simulated scheduler does with nodes, spares and work."""

from __future__ import annotations

import pytest

from domain.errors import NotOursError, PermanentError
from domain.nodes import NodeRef
from domain.workloads import SavedWork, SaveMethod
from simulator import gangs, injection, life, scheduling
from simulator.faults import FaultKind, Injection
from simulator.jobs import JobState
from simulator.machine import Phase
from simulator.scenarios import training_job
from simulator.view import state_of
from simulator.world import World
from tests.simulator.steps import BAD, MARK, OTHER, drain, saved, strike, violations


def test_replaced_hardware_is_new_and_waits_for_acceptance(world: World) -> None:
    drain(world)
    machine = world.machine("gpu-03")
    before = {gpu.uuid for gpu in machine.gpus}, {gpu.serial for gpu in machine.gpus}, machine.machine_id
    ticket = life.replace(world, machine, "t")
    assert life.replace(world, machine, "t") == ticket
    world.advance(15)
    assert machine.phase is Phase.UP
    assert before[0].isdisjoint(gpu.uuid for gpu in machine.gpus)
    assert before[1].isdisjoint(gpu.serial for gpu in machine.gpus)
    assert before[2] != machine.machine_id
    assert not scheduling.scheduling_state(world, BAD).schedulable
    assert machine.counts.replacements == 1


def test_only_our_own_mark_is_ever_lifted(world: World) -> None:
    scheduling.hold(world, "gpu-03", "alice", "cabling")
    scheduling.quarantine(world, BAD, MARK)
    with pytest.raises(NotOursError):
        scheduling.release(world, BAD, OTHER)
    state = scheduling.release(world, BAD, MARK)
    assert state.foreign_holds == ("alice: cabling",)
    assert not state.schedulable
    assert scheduling.release(world, BAD, MARK) == state
    scheduling.quarantine(world, BAD, MARK)
    scheduling.unmark(world, "gpu-03")
    with pytest.raises(NotOursError):
        scheduling.release(world, BAD, MARK)


def test_a_spare_is_leased_to_one_repair(world: World) -> None:
    spare = NodeRef(cluster="local", pool="h100", name="spare-01")
    scheduling.lease_spare(world, spare, "a")
    assert scheduling.lease_spare(world, spare, "a").leased_to == "a"
    with pytest.raises(NotOursError):
        scheduling.lease_spare(world, spare, "b")
    scheduling.return_spare(world, spare, "b")
    scheduling.return_spare(world, spare, "a")
    assert scheduling.lease_spare(world, spare, "b").leased_to == "b"


def test_a_repeated_resume_starts_nothing_twice(world: World) -> None:
    strike(world, FaultKind.FALLEN_OFF_BUS)
    work = saved(world)
    drain(world)
    for _ in range(3):
        scheduling.resume_workload(world, work, BAD, "spare-01")
        world.advance(3)
    assert state_of(world).job("train-1").starts == 2
    assert violations(world) == []


def test_without_a_spare_work_is_requeued_on_free_nodes(world: World) -> None:
    strike(world, FaultKind.FALLEN_OFF_BUS)
    work = saved(world)
    drain(world)
    scheduling.resume_workload(world, work, BAD, "")
    world.advance(3)
    job = state_of(world).job("train-1")
    assert job.state is JobState.RUNNING
    assert "gpu-03" not in job.nodes
    assert "spare-01" not in job.nodes


def test_work_that_finds_no_nodes_waits_and_starts_when_there_are_some() -> None:
    world = World()
    gangs.submit(world, training_job(8))
    strike(world, FaultKind.FALLEN_OFF_BUS)
    work = saved(world)
    drain(world)
    status = scheduling.resume_workload(world, work, BAD, "")
    assert (status.running, status.detail) == (False, "waits for 8 free nodes, 7 are free")
    life.power_cycle(world, world.machine("gpu-03"), "t")
    world.advance(10)
    assert not scheduling.workload_status(world, "train-1").running
    scheduling.release(world, BAD, MARK)
    world.advance(3)
    assert scheduling.workload_status(world, "train-1").running


def test_two_nodes_of_one_gang_are_repaired_at_once() -> None:
    world = World(seed=3)
    world.machine("gpu-05").spare = True
    gangs.submit(world, training_job())
    other = BAD.model_copy(update={"name": "gpu-04"})
    strike(world, FaultKind.FALLEN_OFF_BUS)
    strike(world, FaultKind.FALLEN_OFF_BUS, node="gpu-04")
    scheduling.quarantine(world, other, OTHER)
    first = saved(world)
    (second,) = scheduling.workloads(world, other)
    drain(world)
    scheduling.resume_workload(world, first, BAD, "spare-01")
    world.advance(5)
    assert not scheduling.workload_status(world, "train-1").running
    scheduling.begin_drain(world, other, OTHER)
    assert scheduling.drain_progress(world, other).done
    scheduling.resume_workload(world, SavedWork(workload=second, method=SaveMethod.NONE), other, "gpu-05")
    world.advance(5)
    status = scheduling.workload_status(world, "train-1")
    assert status.running
    assert status.nodes == ("gpu-01", "gpu-02", "spare-01", "gpu-05")
    assert world.violations == []


@pytest.mark.parametrize(
    "order",
    [
        {"node": "gpu-99", "kind": "thermal"},
        {"node": "gpu-03", "kind": "thermal", "gpu": 8},
        {"node": "gpu-03", "kind": "thermal", "heals_at": "inspect"},
    ],
)
def test_what_cannot_be_injected_is_refused_in_words(world: World, order: dict[str, object]) -> None:
    with pytest.raises(PermanentError, match=r"gpu-03|gpu-01|choose"):
        injection.inject(world, Injection.model_validate(order))


def test_a_drain_waits_for_its_patience_before_it_tells_work_to_go(world: World) -> None:
    scheduling.quarantine(world, BAD, MARK)
    scheduling.begin_drain(world, BAD, MARK, patience=20)
    world.advance(19)
    assert state_of(world).job("train-1").state is JobState.RUNNING
    world.advance(1 + world.timing.drain)
    assert scheduling.drain_progress(world, BAD).done


def test_a_drain_without_our_mark_is_refused(world: World) -> None:
    with pytest.raises(NotOursError, match="quarantine it"):
        scheduling.begin_drain(world, BAD, MARK)
