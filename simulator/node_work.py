"""What an agent can have done on its node: checkpoint, restore, clean-up, reset, reboot, burn-in."""

from __future__ import annotations

from dataclasses import dataclass

from domain.operations import (
    BurnInLevel,
    OperationKind,
    OperationProgress,
    OperationRequest,
    OperationState,
    TestResult,
    Verdict,
)
from domain.workloads import SaveMethod
from simulator import gangs, injection, life
from simulator.faults import FaultKind
from simulator.jobs import Job, JobState
from simulator.machine import Machine
from simulator.states import ViolationKind
from simulator.world import World

LEVEL_FACTOR = {BurnInLevel.QUICK: 1.0, BurnInLevel.STANDARD: 2.0, BurnInLevel.DEEP: 4.0}
"""How much longer than a quick one a burn-in of this level takes here."""

STOPPABLE = (OperationKind.CHECKPOINT, OperationKind.RESTORE, OperationKind.BURN_IN)


@dataclass
class Work:
    """One operation on one node, kept for as long as the world lives."""

    request: OperationRequest
    node: str
    boot_id: str
    began: float
    seconds: float
    end: OperationProgress | None = None


class NodeWork:
    """The operations of all nodes, each carried out once an id."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._work: dict[tuple[str, str], Work] = {}

    def start(self, node: str, request: OperationRequest) -> OperationProgress:
        """Start an operation, or return how the one with this id is."""
        world = self._world
        machine = world.machine(node)
        key = (node, request.operation_id)
        if key not in self._work:
            work = Work(request, node, machine.boot_id, world.now, self._duration(request))
            self._work[key] = work
            work.end = self._refusal(machine, request)
            if work.end is None:
                world.after(work.seconds, lambda: self._finish(work))
            world.changed()
        return self.progress(node, request.operation_id)

    def progress(self, node: str, operation_id: str) -> OperationProgress:
        """Return how an operation is; KeyError when it was never started."""
        work = self._work[(node, operation_id)]
        if work.end is not None:
            return work.end
        done = (self._world.now - work.began) / work.seconds if work.seconds else 1.0
        return _said(work.request, OperationState.RUNNING, _under_way(work.request), min(done, 0.99))

    def cancel(self, node: str, operation_id: str) -> None:
        """Stop an operation that can be stopped and is not over; others go on."""
        work = self._work.get((node, operation_id))
        if work is not None and work.end is None and work.request.kind in STOPPABLE:
            work.end = _said(work.request, OperationState.CANCELLED, "cancelled")
            self._world.changed()

    def _duration(self, request: OperationRequest) -> float:
        timing = self._world.timing
        return {
            OperationKind.INSPECT: 0.0,
            OperationKind.CLEAN_UP: timing.clean_up,
            OperationKind.CHECKPOINT: timing.checkpoint,
            OperationKind.RESTORE: timing.restore,
            OperationKind.RESET_GPU: timing.reset_gpu,
            OperationKind.REBOOT: 0.0,
            OperationKind.BURN_IN: timing.burn_in * LEVEL_FACTOR[request.burn_in_level],
        }[request.kind]

    def _refusal(self, machine: Machine, request: OperationRequest) -> OperationProgress | None:
        """Return how an operation ends that cannot even begin, None when it can."""
        kind = request.kind
        if request.boot_id and request.boot_id != machine.boot_id and kind is not OperationKind.RESTORE:
            return _failed(request, f"meant for boot {request.boot_id}, but {machine.name} has rebooted since")
        if kind is OperationKind.INSPECT:
            return _said(request, OperationState.UNSUPPORTED, "the agent itself inspects")
        if kind is OperationKind.CHECKPOINT:
            return self._checkpoint_refusal(machine, request)
        if kind is OperationKind.RESET_GPU:
            return self._reset_refusal(machine, request)
        if kind is OperationKind.BURN_IN and (ranks := self._world.ranks_on(machine)):
            self._world.violate(
                ViolationKind.BURN_IN_ON_BUSY_NODE, machine.name, f"burn-in while {ranks[0].job} is on it"
            )
            return _failed(request, f"{ranks[0].job} still holds GPUs of {machine.name}: drain it first")
        return None

    def _checkpoint_refusal(self, machine: Machine, request: OperationRequest) -> OperationProgress | None:
        job = self._world.jobs.get(request.workload_id)
        if job is None or not self._world.ranks_on(machine, request.workload_id):
            return _failed(request, f"{request.workload_id} has no process on {machine.name}")
        if job.spec.save_method is SaveMethod.NONE:
            return _said(request, OperationState.UNSUPPORTED, f"{request.workload_id} cannot be asked to save")
        if job.state is not JobState.RUNNING:
            return _failed(request, f"{request.workload_id} is {job.state}: its memory cannot be copied")
        return None

    def _reset_refusal(self, machine: Machine, request: OperationRequest) -> OperationProgress | None:
        targets = _targets(machine, request)
        for rank in self._world.ranks_on(machine):
            if targets.intersection(rank.gpu_uuids):
                return _failed(request, f"{rank.job} (pid {rank.pid}) holds the GPU: a GPU in use cannot be reset")
        lost = targets & machine.dead_gpus()
        if lost:
            return _failed(request, f"{', '.join(sorted(lost))} does not answer and cannot be reset: reboot the node")
        return None

    def _finish(self, work: Work) -> None:
        world = self._world
        machine = world.machines[work.node]
        if work.end is not None:
            return
        if work.request.kind is not OperationKind.REBOOT and (
            machine.boot_id != work.boot_id or not machine.responsive
        ):
            work.end = _failed(work.request, f"{machine.name} went down while it was at it")
            return
        match work.request.kind:
            case OperationKind.CHECKPOINT:
                work.end = self._checkpointed(machine, work.request)
            case OperationKind.RESTORE:
                work.end = _said(work.request, OperationState.SUCCEEDED, "restored", 1.0)
            case OperationKind.CLEAN_UP:
                work.end = self._cleaned(machine, work.request)
            case OperationKind.RESET_GPU:
                work.end = self._reset(machine, work.request)
            case OperationKind.BURN_IN:
                work.end = self._burned_in(machine, work.request)
            case OperationKind.REBOOT if machine.responsive and machine.boot_id == work.boot_id:
                life.reboot(world, machine)
                self._await_boot(work)
            case _:
                work.end = _failed(work.request, f"{machine.name} went down before it could be rebooted")

    def _await_boot(self, work: Work) -> None:
        machine = self._world.machines[work.node]
        if machine.boot_id != work.boot_id:
            work.end = _said(
                work.request, OperationState.SUCCEEDED, f"rebooted: boot {work.boot_id} → {machine.boot_id}", 1.0
            )
            return
        self._world.after(max(self._world.timing.boot, 0.5), lambda: self._await_boot(work))

    def _checkpointed(self, machine: Machine, request: OperationRequest) -> OperationProgress:
        job: Job = self._world.jobs[request.workload_id]
        if job.state is not JobState.RUNNING:
            return _failed(request, f"{job.spec.id} became {job.state} while it was being saved")
        step = job.step(self._world.now)
        image = f"checkpoint/{job.spec.id}/start-{job.start}/step-{step}"
        job.images[image] = step
        machine.counts.checkpoints += 1
        return _said(request, OperationState.SUCCEEDED, f"saved at step {step}", 1.0).model_copy(
            update={"image": image, "step": step}
        )

    def _cleaned(self, machine: Machine, request: OperationRequest) -> OperationProgress:
        ranks = [
            rank
            for rank in self._world.ranks_on(machine, request.workload_id)
            if request.workload_id or rank.leaving or rank.start < self._world.jobs[rank.job].start
        ]
        for job_id in {rank.job for rank in ranks}:
            gangs.kill_ranks(self._world, machine, job_id)
        return _said(request, OperationState.SUCCEEDED, f"{len(ranks)} leftover processes ended", 1.0)

    def _reset(self, machine: Machine, request: OperationRequest) -> OperationProgress:
        targets = _targets(machine, request)
        again = sorted(targets & machine.reset_in_boot)
        if again:
            self._world.violate(
                ViolationKind.REPEATED_ACTION, machine.name, f"{again[0]} was reset twice in one boot with no new fault"
            )
        machine.reset_in_boot |= targets
        machine.counts.resets += 1
        injection.heal_by_reset(self._world, machine, targets)
        return _said(request, OperationState.SUCCEEDED, f"{len(targets)} GPU(s) reset", 1.0)

    def _burned_in(self, machine: Machine, request: OperationRequest) -> OperationProgress:
        machine.counts.burn_ins += 1
        tests = burn_in_tests(machine, self._duration(request))
        bad = [test for test in tests if test.verdict is not Verdict.PASS]
        message = f"{len(tests)} tests passed" if not bad else f"{len(bad)} of {len(tests)} failed: {bad[0].detail}"
        return _said(request, OperationState.SUCCEEDED, message, 1.0).model_copy(update={"tests": tests})


def burn_in_tests(machine: Machine, seconds: float) -> tuple[TestResult, ...]:
    """Return what a burn-in finds; uses up one failure of an injected ``burn_in_failure``."""
    flaw = next((fault for fault in machine.faults if fault.kind is FaultKind.BURN_IN_FAILURE), None)
    if flaw is not None:
        flaw.times -= 1
        if flaw.times <= 0:
            machine.faults.remove(flaw)
    gone = machine.dead_gpus() | machine.missing_gpus()
    memory = machine.has(FaultKind.ECC_ROW_REMAP) or machine.has(FaultKind.ROW_REMAP_FAILURE)
    found = (
        ("gpu_presence", not gone, f"{len(machine.gpus) - len(gone)} of {len(machine.gpus)} GPUs answer"),
        ("memory", not gone and not memory, "uncorrected ECC errors" if memory else "no ECC error under load"),
        ("all_reduce", not gone and flaw is None, "NCCL all-reduce under its floor" if flaw else "NCCL all-reduce"),
        ("thermal", not machine.has(FaultKind.THERMAL), "clocks under sustained load"),
    )
    return tuple(
        TestResult(name=name, verdict=Verdict.PASS if good else Verdict.FAIL, detail=detail, seconds=seconds / 4)
        for name, good, detail in found
    )


def _targets(machine: Machine, request: OperationRequest) -> set[str]:
    present = {gpu.uuid for gpu in machine.gpus}
    return present.intersection(request.gpu_uuids) if request.gpu_uuids else present


def _under_way(request: OperationRequest) -> str:
    match request.kind:
        case OperationKind.CHECKPOINT:
            return f"saving {request.workload_id}"
        case OperationKind.BURN_IN:
            return f"burn-in, {request.burn_in_level}"
        case OperationKind.REBOOT:
            return "going down"
        case kind:
            return str(kind).replace("_", " ")


def _said(request: OperationRequest, state: OperationState, message: str, fraction: float = 0.0) -> OperationProgress:
    return OperationProgress(
        operation_id=request.operation_id, kind=request.kind, state=state, fraction=fraction, message=message
    )


def _failed(request: OperationRequest, message: str) -> OperationProgress:
    return _said(request, OperationState.FAILED, message)
