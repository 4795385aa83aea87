"""What a repair does to the simulated cluster, asserted on the cluster."""

from __future__ import annotations

import pytest

from domain.errors import TransientError
from domain.faults import Rung
from domain.nodes import NodeRef
from domain.operations import OperationKind, OperationRequest, OperationState, Verdict
from domain.workloads import SavedWork, SaveMethod
from simulator import gangs, life, scheduling
from simulator.faults import FaultKind
from simulator.jobs import JobState
from simulator.machine import Phase
from simulator.node_work import NodeWork
from simulator.scenarios import training_job
from simulator.states import ViolationKind
from simulator.view import state_of
from simulator.world import World
from tests.simulator.steps import BAD, MARK, drain, phase, run, saved, strike, violations


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
    assert state_of(world).job("train-1").steps_per_second == 0
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
