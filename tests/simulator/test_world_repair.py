"""What a repair does to the simulated cluster, asserted on the cluster."""

from __future__ import annotations

import pytest

from domain.errors import NotOursError, PermanentError, TransientError
from domain.faults import Rung
from domain.nodes import NodeRef
from domain.operations import OperationKind, OperationProgress, OperationRequest, OperationState, Verdict
from domain.scheduling import Mark
from domain.workloads import SavedWork, SaveMethod
from simulator import gangs, injection, life, scheduling
from simulator.faults import FaultKind, Injection
from simulator.jobs import JobState
from simulator.machine import Machine, Phase
from simulator.node_work import NodeWork
from simulator.scenarios import training_job
from simulator.states import ViolationKind
from simulator.view import state_of
from simulator.world import World

MARK = Mark(repair_id="repair/local/gpu-03/1", reason="kintsugi: [gpu.fallen_off_bus] test")
OTHER = Mark(repair_id="repair/local/gpu-03/2", reason="kintsugi: another")
BAD = NodeRef(cluster="local", pool="h100", name="gpu-03")


@pytest.fixture
def world() -> World:
    world = World(seed=7)
    gangs.submit(world, training_job())
    world.advance(30.5)
    return world


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


def test_a_gang_stalls_with_its_gpu_and_goes_on_from_its_own_checkpoint_on_the_spare(world: World) -> None:
    strike(world, FaultKind.FALLEN_OFF_BUS)
    world.advance(10)
    job = state_of(world).job("train-1")
    assert (job.state, job.step, job.own_checkpoint) == (JobState.STALLED, 61, 50)

    work = saved(world)
    drain(world)
    assert scheduling.confirm_stopped(world, BAD, "train-1")
    spare = scheduling.lease_spare(world, NodeRef(cluster="local", pool="h100", name="spare-01"), MARK.repair_id)
    scheduling.resume_workload(world, work, BAD, spare.node.name)
    world.advance(11)

    job = state_of(world).job("train-1")
    assert job.state is JobState.RUNNING
    assert job.nodes == ("gpu-01", "gpu-02", "spare-01", "gpu-04")
    assert (job.started_from_step, job.step) == (50, 70)
    assert violations(world) == []


def test_a_repaired_node_is_the_new_spare(world: World) -> None:
    strike(world, FaultKind.FALLEN_OFF_BUS)
    work = saved(world)
    drain(world)
    scheduling.resume_workload(world, work, BAD, "spare-01")
    world.advance(5)
    life.power_cycle(world, world.machine("gpu-03"), "t1")
    world.advance(5)
    assert run(world, NodeWork(world), OperationKind.BURN_IN).tests[0].verdict is Verdict.PASS
    state = scheduling.release(world, BAD, MARK)
    assert (state.schedulable, state.our_mark) == (True, None)
    assert [spare.node.name for spare in scheduling.spares(world, "local", "h100")] == ["gpu-03"]
    assert violations(world) == []


def test_work_resumed_while_a_hung_host_may_still_run_it_is_two_copies(world: World) -> None:
    strike(world, FaultKind.HOST_HANG)
    work = saved(world)
    scheduling.quarantine(world, BAD, MARK)
    scheduling.begin_drain(world, BAD, MARK)
    world.advance(60)
    left = scheduling.drain_progress(world, BAD)
    assert not left.done
    assert "does not answer" in left.blocked_by
    assert not scheduling.confirm_stopped(world, BAD, "train-1")
    scheduling.resume_workload(world, work, BAD, "spare-01")
    world.advance(5)
    assert violations(world) == [ViolationKind.TWO_COPIES]


def test_a_fenced_host_has_stopped(world: World) -> None:
    strike(world, FaultKind.HOST_HANG)
    work = saved(world)
    scheduling.quarantine(world, BAD, MARK)
    scheduling.begin_drain(world, BAD, MARK)
    machine = world.machine("gpu-03")
    life.power_off(world, machine, "f")
    assert not life.is_off(machine)
    world.advance(world.timing.power)
    assert life.is_off(machine)
    assert scheduling.drain_progress(world, BAD).done
    assert scheduling.confirm_stopped(world, BAD, "train-1")
    scheduling.resume_workload(world, work, BAD, "spare-01")
    world.advance(5)
    assert state_of(world).job("train-1").state is JobState.RUNNING
    assert violations(world) == []


def test_stubborn_work_blocks_the_drain_and_says_which_budget() -> None:
    world = World()
    gangs.submit(world, training_job().model_copy(update={"stubborn": True}))
    scheduling.quarantine(world, BAD, MARK)
    scheduling.begin_drain(world, BAD, MARK)
    world.advance(600)
    progress = scheduling.drain_progress(world, BAD)
    assert (progress.done, progress.blocked_by) == (False, "disruption budget train-1-pdb")


@pytest.mark.parametrize(
    ("kind", "healed_by"),
    [
        (FaultKind.ECC_ROW_REMAP, Rung.RESET_GPU),
        (FaultKind.AGENT_DEATH, Rung.REBOOT),
        (FaultKind.FALLEN_OFF_BUS, Rung.POWER_CYCLE),
        (FaultKind.ROW_REMAP_FAILURE, Rung.REPLACE),
    ],
)
def test_each_fault_is_healed_by_its_rung_and_by_no_lighter_one(kind: FaultKind, healed_by: Rung) -> None:
    world = World()
    strike(world, kind)
    machine = world.machine("gpu-03")
    work = NodeWork(world)
    healed = []
    for rung in (Rung.RESET_GPU, Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPROVISION, Rung.REPLACE):
        match rung:
            case Rung.RESET_GPU:
                run(world, work, OperationKind.RESET_GPU, "reset")
            case Rung.REBOOT:
                run(world, work, OperationKind.REBOOT, "reboot")
            case Rung.POWER_CYCLE:
                life.power_cycle(world, machine, "t")
            case Rung.REPROVISION:
                life.reprovision(world, machine, "t")
            case _:
                life.replace(world, machine, "t")
        world.advance(30)
        if not machine.faults:
            healed.append(rung)
    assert healed[0] is healed_by


def test_a_reboot_gives_a_new_boot_id_and_an_empty_kernel_log(world: World) -> None:
    strike(world, FaultKind.ECC_ROW_REMAP)
    drain(world)
    machine = world.machine("gpu-03")
    before = machine.boot_id
    progress = run(world, NodeWork(world), OperationKind.REBOOT, boot_id=before)
    assert progress.state is OperationState.SUCCEEDED
    assert machine.boot_id != before
    assert [line.sequence for line in machine.kernel] == list(range(len(machine.kernel)))
    assert not any("Xid" in line.text for line in machine.kernel)
    assert machine.counts.reboots == 1


def test_a_fault_that_outlives_a_reboot_shows_itself_again(world: World) -> None:
    strike(world, FaultKind.FALLEN_OFF_BUS)
    drain(world)
    run(world, NodeWork(world), OperationKind.REBOOT)
    world.advance(1)
    assert any("Xid (PCI:0000:1b:00): 79" in line.text for line in world.machine("gpu-03").kernel)


def test_an_operation_is_carried_out_once_an_id(world: World) -> None:
    drain(world)
    work = NodeWork(world)
    first = run(world, work, OperationKind.REBOOT, "same")
    assert run(world, work, OperationKind.REBOOT, "same") == first
    assert world.machine("gpu-03").counts.reboots == 1


def test_a_power_cycle_is_done_once_a_token(world: World) -> None:
    drain(world)
    machine = world.machine("gpu-03")
    life.power_cycle(world, machine, "t1")
    life.power_cycle(world, machine, "t1")
    world.advance(10)
    assert machine.counts.power_cycles == 1
    assert violations(world) == []
    life.power_cycle(world, machine, "t2")
    life.power_cycle(world, machine, "t3")
    assert violations(world) == [ViolationKind.REPEATED_ACTION]


def test_taking_a_busy_node_down_is_a_violation(world: World) -> None:
    run(world, NodeWork(world), OperationKind.REBOOT)
    assert violations(world) == [ViolationKind.BUSY_NODE_TAKEN_DOWN]
    assert state_of(world).job("train-1").state is JobState.STALLED


def test_a_burn_in_on_a_busy_node_is_refused_and_a_violation(world: World) -> None:
    progress = run(world, NodeWork(world), OperationKind.BURN_IN)
    assert progress.state is OperationState.FAILED
    assert violations(world) == [ViolationKind.BURN_IN_ON_BUSY_NODE]


def test_releasing_a_node_with_a_live_fault_is_a_violation(world: World) -> None:
    strike(world, FaultKind.ECC_ROW_REMAP)
    drain(world)
    scheduling.release(world, BAD, MARK)
    assert violations(world) == [ViolationKind.RELEASED_WITH_FAULT]


def test_a_burn_in_fails_as_often_as_was_injected_and_then_passes(world: World) -> None:
    strike(world, FaultKind.BURN_IN_FAILURE, times=2)
    drain(world)
    work = NodeWork(world)
    verdicts = [{test.verdict for test in run(world, work, OperationKind.BURN_IN, f"b{n}").tests} for n in range(3)]
    assert [Verdict.FAIL in found for found in verdicts] == [True, True, False]


def test_a_checkpoint_is_where_the_job_goes_on(world: World) -> None:
    strike(world, FaultKind.ECC_ROW_REMAP)
    progress = run(world, NodeWork(world), OperationKind.CHECKPOINT, workload_id="train-1")
    assert progress.state is OperationState.SUCCEEDED
    (workload,) = scheduling.workloads(world, BAD)
    work = SavedWork(workload=workload, method=SaveMethod.TRANSPARENT, image=progress.image, step=progress.step)
    drain(world)
    scheduling.resume_workload(world, work, BAD, "spare-01")
    world.advance(5)
    assert state_of(world).job("train-1").started_from_step == progress.step > 60


def test_a_dead_gang_cannot_be_checkpointed(world: World) -> None:
    strike(world, FaultKind.FALLEN_OFF_BUS)
    progress = run(world, NodeWork(world), OperationKind.CHECKPOINT, workload_id="train-1")
    assert progress.state is OperationState.FAILED
    assert "stalled" in progress.message


def test_an_application_xid_restarts_the_job_where_it_was_and_leaves_the_node_alone(world: World) -> None:
    strike(world, FaultKind.APPLICATION_XID)
    assert state_of(world).job("train-1").state is JobState.RESTARTING
    world.advance(3)
    job = state_of(world).job("train-1")
    assert (job.state, job.started_from_step, job.step) == (JobState.RUNNING, 50, 54)
    assert (job.starts, job.crashes) == (1, 1)
    assert world.machine("gpu-03").faults == []
    assert any("): 31, pid=2" in line.text for line in world.machine("gpu-03").kernel)
    assert violations(world) == []


def test_a_hot_gpu_slows_the_gang_until_it_cools(world: World) -> None:
    strike(world, FaultKind.THERMAL, clears_after=10)
    assert state_of(world).job("train-1").steps_per_second == 1.0
    world.advance(10)
    assert state_of(world).job("train-1").steps_per_second == 2.0


def test_a_boot_that_never_comes_back_is_helped_by_a_power_cycle(world: World) -> None:
    strike(world, FaultKind.BOOT_FAILURE)
    drain(world)
    machine = world.machine("gpu-03")
    NodeWork(world).start("gpu-03", OperationRequest(operation_id="r", kind=OperationKind.REBOOT))
    world.advance(600)
    assert phase(machine) is Phase.STUCK
    life.power_cycle(world, machine, "t")
    world.advance(10)
    assert phase(machine) is Phase.UP
    assert violations(world) == []


def test_a_gpu_missing_after_a_reboot_is_back_after_a_power_cycle(world: World) -> None:
    strike(world, FaultKind.GPU_MISSING_AFTER_BOOT)
    drain(world)
    assert scheduling.capacity(world, BAD).gpus == 8
    run(world, NodeWork(world), OperationKind.REBOOT)
    assert scheduling.capacity(world, BAD).gpus == 7
    life.power_cycle(world, world.machine("gpu-03"), "t")
    world.advance(10)
    assert scheduling.capacity(world, BAD).gpus == 8


def test_an_unreachable_bmc_says_so_until_it_is_back(world: World) -> None:
    strike(world, FaultKind.BMC_UNREACHABLE, clears_after=5)
    machine = world.machine("gpu-03")
    with pytest.raises(TransientError, match="BMC of gpu-03"):
        life.power_off(world, machine, "t")
    with pytest.raises(TransientError, match="BMC of gpu-03"):
        life.is_off(machine)
    world.advance(5)
    life.power_off(world, machine, "t")
    world.advance(1)
    assert life.is_off(machine)


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
        scheduling.quarantine(world, BAD, OTHER)
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
