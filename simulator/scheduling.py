"""What a scheduler offers: quarantine, drain, spares, and starting work again."""

from __future__ import annotations

from domain.errors import NotOursError, PermanentError
from domain.nodes import NodeRef
from domain.scheduling import Capacity, DrainProgress, Mark, SchedulingState, Spare
from domain.workloads import SavedWork, Workload, WorkloadStatus
from simulator import gangs
from simulator.jobs import Job, JobState
from simulator.machine import MODEL, Machine
from simulator.states import ViolationKind
from simulator.world import World


def scheduling_state(world: World, node: NodeRef) -> SchedulingState:
    """Return who holds the node back."""
    machine = world.at(node)
    holds = tuple(f"{who}: {reason}" if reason else who for who, reason in machine.holds.items())
    return SchedulingState(
        node=node,
        schedulable=machine.mark is None and not machine.holds,
        our_mark=machine.mark,
        foreign_holds=holds,
    )


def quarantine(world: World, node: NodeRef, mark: Mark) -> SchedulingState:
    """Leave our mark; NotOursError when another repair's mark is there."""
    machine = world.at(node)
    if machine.mark is not None and machine.mark.repair_id != mark.repair_id:
        # An earlier repair left the node in a person's hands: that person's hold now, not ours to undo.
        machine.holds[machine.mark.repair_id] = machine.mark.reason
    machine.mark = mark
    machine.tokens.pop("released", None)
    world.changed()
    return scheduling_state(world, node)


def release(world: World, node: NodeRef, mark: Mark) -> SchedulingState:
    """Take our mark away and nothing else; NotOursError when it is gone or another's."""
    machine = world.at(node)
    if machine.mark is None:
        if machine.tokens.get("released") == mark.repair_id:
            return scheduling_state(world, node)
        raise NotOursError(f"{node.name} does not carry the mark of {mark.repair_id} any more")
    if machine.mark.repair_id != mark.repair_id:
        raise NotOursError(f"{node.name} is marked by {machine.mark.repair_id}, not by {mark.repair_id}")
    for fault in machine.unsound:
        world.violate(ViolationKind.RELEASED_WITH_FAULT, machine.name, f"released with {fault.kind} {fault.gpu_uuid}")
    machine.mark = None
    machine.tokens["released"] = mark.repair_id
    for job in world.jobs.values():
        job.avoid -= {machine.name}
    gangs.start_waiting(world)
    _refill_spares(world, machine)
    world.changed()
    return scheduling_state(world, node)


def _refill_spares(world: World, machine: Machine) -> None:
    """Hold a mended node back as the new hot spare, when one was used up and nobody waits for it."""
    spares = sum(other.spare for other in world.machines.values())
    promised = any(job.state is JobState.STARTING and machine.name in job.nodes for job in world.jobs.values())
    if spares < world.spares_wanted and not world.ranks_on(machine) and not promised:
        machine.spare = True


def unmark(world: World, name: str) -> None:
    """Take our mark away as a person does by hand."""
    world.machine(name).mark = None
    gangs.start_waiting(world)
    world.changed()


def hold(world: World, name: str, who: str, reason: str) -> None:
    """Hold a node back as somebody else does (a cordon, a drain reason of theirs)."""
    world.machine(name).holds[who] = reason
    world.changed()


def unhold(world: World, name: str, who: str) -> None:
    """Lift somebody else's hold."""
    world.machine(name).holds.pop(who, None)
    gangs.start_waiting(world)
    world.changed()


def workloads(world: World, node: NodeRef) -> tuple[Workload, ...]:
    """Return what has processes on the node."""
    machine = world.at(node)
    ids = dict.fromkeys(rank.job for rank in world.ranks_on(machine))
    return tuple(_workload(world, world.jobs[job_id]) for job_id in ids)


def _workload(world: World, job: Job) -> Workload:
    return Workload(
        id=job.spec.id,
        name=job.spec.name,
        owner=job.spec.owner,
        nodes=job.nodes,
        gpus_per_node=job.spec.gpus_per_node,
        priority=job.spec.priority,
        save_method=job.spec.save_method,
        last_checkpoint_step=job.newest_own_checkpoint(world.now),
        step=job.step(world.now),
    )


def begin_drain(world: World, node: NodeRef, mark: Mark, patience: float = 0.0) -> None:
    """Tell everything on the node to go once the patience is over, gangs as a whole; a second call joins the first.

    Raises:
        NotOursError: the node does not carry our mark.
    """
    machine = world.at(node)
    if not _marked_by(machine, mark.repair_id):
        raise NotOursError(f"{node.name} does not carry the mark of {mark.repair_id}: quarantine it before a drain")
    if patience > 0:
        world.after(patience, lambda: _tell_to_go(world, machine, mark.repair_id))
    else:
        _tell_to_go(world, machine, mark.repair_id)


def _marked_by(machine: Machine, repair_id: str) -> bool:
    return machine.mark is not None and machine.mark.repair_id == repair_id


def _tell_to_go(world: World, machine: Machine, repair_id: str) -> None:
    if not _marked_by(machine, repair_id):
        return
    there = {rank.job for rank in world.busy(machine)}
    for job in list(world.jobs.values()):
        if job.spec.id in there or (job.state is JobState.STARTING and machine.name in job.nodes):
            gangs.stop(world, job, f"drained from {machine.name}, waits to be resumed")


def drain_progress(world: World, node: NodeRef) -> DrainProgress:
    """Return what is left on the node and why."""
    machine = world.at(node)
    jobs = [world.jobs[job_id] for job_id in {rank.job: None for rank in world.ranks_on(machine)}]
    left = tuple(f"{job.spec.name or job.spec.id} ({job.spec.id})" for job in jobs)
    blocked = ""
    if left and not machine.responsive:
        blocked = f"{machine.name} does not answer, nothing on it can be told to stop"
    elif any(job.spec.stubborn for job in jobs):
        blocked = "disruption budget " + ", ".join(f"{job.spec.id}-pdb" for job in jobs if job.spec.stubborn)
    return DrainProgress(left=left, blocked_by=blocked, done=not left)


def confirm_stopped(world: World, node: NodeRef, workload_id: str) -> bool:
    """Return whether it is proven that no process of the workload can still run on the node.

    Its processes are known to be gone when they left a node that answers, when the power is off or when the node
    has booted since: only then does the world take their ranks off the list.
    """
    return not world.ranks_on(world.at(node), workload_id)


def capacity(world: World, node: NodeRef) -> Capacity:
    """Return the GPUs that the device plugin counts: those that the driver lists and that compute."""
    machine = world.at(node)
    return Capacity(gpus=len({gpu.uuid for gpu in machine.gpus} - machine.missing_gpus() - machine.dead_gpus()))


def spares(world: World, cluster: str, pool: str) -> tuple[Spare, ...]:
    """Return the pool's hot spares that no work has taken."""
    if (cluster, pool) != (world.layout.cluster, world.layout.pool):
        return ()
    return tuple(_spare(world, machine) for machine in world.machines.values() if machine.spare)


def _spare(world: World, machine: Machine) -> Spare:
    return Spare(
        node=world.ref(machine),
        model=MODEL,
        gpus=len(machine.gpus),
        leased_to=machine.leased_to,
        topology=machine.topology,
        validated=machine.schedulable and not machine.faults,
    )


def lease_spare(world: World, node: NodeRef, repair_id: str) -> Spare:
    """Lease a spare to a repair; NotOursError when it cannot have it."""
    machine = world.at(node)
    if not machine.spare:
        raise NotOursError(f"{node.name} is no hot spare (any more)")
    if machine.leased_to not in ("", repair_id):
        raise NotOursError(f"{node.name} is leased to {machine.leased_to}")
    if not machine.schedulable:
        raise NotOursError(f"{node.name} takes no work now (it is {machine.phase}, marked or held back)")
    machine.leased_to = repair_id
    world.changed()
    return _spare(world, machine)


def return_spare(world: World, node: NodeRef, repair_id: str) -> None:
    """End a lease; nothing happens when the spare took work over or is leased to another."""
    machine = world.at(node)
    if machine.leased_to == repair_id:
        machine.leased_to = ""
        world.changed()


def resume_workload(world: World, saved: SavedWork, away_from: NodeRef, spare: str) -> WorkloadStatus:
    """Start a gang again without the bad node; the same call again changes nothing.

    Raises:
        PermanentError: the checkpoint does not exist, or the spare is not there for this.
    """
    job = world.job(saved.workload.id)
    bad = world.at(away_from)
    call = f"{bad.name} {bad.machine_id} {spare} {saved.image} {saved.step} {saved.workload.step}"
    if job.resumed_by == call:
        return workload_status(world, job.spec.id)
    step = _restore_step(job, saved)
    nodes: list[str] = []
    if spare:
        machine = world.machine(spare)
        if not machine.schedulable or world.ranks_on(machine):
            raise PermanentError(f"{spare} cannot take {job.spec.id}: it is busy or takes no work; name another spare")
        before = job.nodes or saved.workload.nodes
        if bad.name not in before:
            raise PermanentError(f"{job.spec.id} does not run on {bad.name}: there is nothing to move to {spare}")
        if spare in before:
            raise PermanentError(f"{spare} is one of {job.spec.id}'s own nodes already: name another spare")
        nodes = [spare if name == bad.name else name for name in before]
    if job.state not in (JobState.PENDING, JobState.STOPPING):
        gangs.stop(world, job, "requeued")
    job.resumed_by = call
    job.avoid = frozenset({bad.name})
    gangs.queue(world, job, nodes, step, f"resumes from step {step}")
    world.changed()
    return workload_status(world, job.spec.id)


def _restore_step(job: Job, saved: SavedWork) -> int:
    if not saved.image:
        return max(job.own_checkpoint, 0)
    if saved.image not in job.images:
        raise PermanentError(f"there is no checkpoint {saved.image} of {job.spec.id}: resume from its own newest one")
    return job.images[saved.image]


def workload_status(world: World, workload_id: str) -> WorkloadStatus:
    """Return how a gang is."""
    job = world.job(workload_id)
    running = job.state is JobState.RUNNING
    detail = job.detail or ("" if running else str(job.state))
    if job.state is JobState.STALLED:
        detail = "stands still: a rank does not answer"
    nodes = job.nodes if job.state is not JobState.PENDING else ()
    return WorkloadStatus(id=job.spec.id, running=running, nodes=nodes, step=job.step(world.now), detail=detail)
