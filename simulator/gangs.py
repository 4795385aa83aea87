"""How work starts, stops and is killed."""

from __future__ import annotations

from collections.abc import Sequence

from domain.errors import PermanentError
from simulator.jobs import Job, JobSpec, JobState, Rank
from simulator.machine import Machine
from simulator.states import ViolationKind
from simulator.world import World

FIRST_PID = 20_000
PIDS_PER_RANK = 16


def submit(world: World, spec: JobSpec) -> None:
    """Start a new gang on its nodes, from step 0.

    Raises:
        PermanentError: the id is taken, or a node does not exist or is not free.
    """
    if spec.id in world.jobs:
        raise PermanentError(f"job {spec.id} exists already: choose another id")
    for name in spec.nodes:
        machine = world.machine(name)
        if len(_free_gpus(world, machine)) < spec.gpus_per_node:
            raise PermanentError(f"{name} has not {spec.gpus_per_node} free GPUs for {spec.id}: choose another node")
    job = Job(spec=spec, nodes=spec.nodes, wanted=len(spec.nodes))
    world.jobs[spec.id] = job
    _start(world, job, 0)
    world.changed()


def stop(world: World, job: Job, why: str) -> None:
    """Tell all processes of a gang to go. Those on a hung host cannot hear it, stubborn ones do not listen."""
    job.settle(world.now, 0.0)
    job.state = JobState.STOPPING
    job.held = True
    job.detail = why
    start = job.start
    for rank in world.ranks:
        if rank.job == job.spec.id:
            rank.leaving = True

    def leave() -> None:
        if job.spec.stubborn:
            return
        for rank in list(world.ranks):
            if rank.job == job.spec.id and rank.start <= start and world.machines[rank.node].responsive:
                world.ranks.remove(rank)
        _after_leaving(world)
        if any(rank.job == job.spec.id and rank.start <= start for rank in world.ranks):
            world.after(world.timing.drain, leave)

    world.after(world.timing.drain, leave)
    world.changed()


def kill_ranks(world: World, machine: Machine, job_id: str = "") -> None:
    """End the processes on a node at once (power gone, or killed by the operating system)."""
    for rank in world.ranks_on(machine, job_id):
        world.ranks.remove(rank)
    _after_leaving(world)


def _after_leaving(world: World) -> None:
    for job in world.jobs.values():
        if job.state is JobState.STOPPING and not any(rank.job == job.spec.id for rank in world.ranks):
            job.state = JobState.PENDING
    start_waiting(world)


def crash(world: World, job: Job) -> None:
    """Let the application die of its own error; its launcher starts it in place, from its own checkpoint."""
    if job.state not in (JobState.RUNNING, JobState.STALLED):
        return
    job.settle(world.now, 0.0)
    job.state = JobState.RESTARTING
    job.crashes += 1
    job.start_step = max(job.own_checkpoint, 0)
    job.base_step = float(job.start_step)
    job.detail = "the application crashed and is started again where it was"
    crashes = job.crashes

    def go_on() -> None:
        if job.state is JobState.RESTARTING and job.crashes == crashes:
            job.settle(world.now, 0.0)
            job.state = JobState.RUNNING
            job.detail = ""

    world.after(world.timing.job_start, go_on)


def queue(world: World, job: Job, nodes: Sequence[str], step: int, detail: str) -> None:
    """Let a gang start from a step on these nodes, or on any free ones when none are named, once they are free."""
    job.settle(world.now, 0.0)
    job.state = JobState.PENDING
    job.held = False
    job.nodes = tuple(nodes)
    job.start_step = step
    job.base_step = float(step)
    job.detail = detail
    start_waiting(world)


def start_waiting(world: World) -> None:
    """Start what waits and can start now, most important first."""
    waiting = [job for job in world.jobs.values() if job.state is JobState.PENDING and not job.held]
    for job in sorted(waiting, key=lambda job: -job.spec.priority):
        if any(rank.job == job.spec.id and world.machines[rank.node].responsive for rank in world.ranks):
            # A scheduler waits for the processes that it can hear of. Those on a silent host it cannot.
            continue
        if not job.nodes:
            free = _free_nodes(world, job)
            if len(free) < job.wanted:
                job.detail = f"waits for {job.wanted} free nodes, {len(free)} are free"
                continue
            job.nodes = tuple(free[: job.wanted])
        if all(_can_start_on(world, job, world.machines[name]) for name in job.nodes):
            _begin(world, job)


def _can_start_on(world: World, job: Job, machine: Machine) -> bool:
    return machine.schedulable and len(_free_gpus(world, machine)) >= job.spec.gpus_per_node


def _free_nodes(world: World, job: Job) -> list[str]:
    before = set(job.spec.nodes)
    free = [
        machine.name
        for machine in world.machines.values()
        if machine.schedulable
        and not machine.spare
        and machine.name not in job.avoid
        and len(_free_gpus(world, machine)) >= job.spec.gpus_per_node
    ]
    return sorted(free, key=lambda name: (name not in before, name))


def _free_gpus(world: World, machine: Machine) -> list[str]:
    used = {uuid for rank in world.ranks_on(machine) for uuid in rank.gpu_uuids}
    promised = sum(
        job.spec.gpus_per_node
        for job in world.jobs.values()
        if job.state is JobState.STARTING and machine.name in job.nodes
    )
    free = [gpu.uuid for gpu in machine.gpus if gpu.uuid not in used | machine.missing_gpus()]
    return free[promised:]


def _begin(world: World, job: Job) -> None:
    job.state = JobState.STARTING
    job.detail = "starting"
    nodes = job.nodes

    def go() -> None:
        if job.state is not JobState.STARTING or job.nodes != nodes:
            return
        if all(world.machines[name].responsive for name in nodes):
            job.state = JobState.PENDING  # gives the promised GPUs free for its own ranks
            _start(world, job, job.start_step)
        else:
            job.state = JobState.PENDING
            job.detail = "one of its nodes went down before it started"

    world.after(world.timing.job_start, go)


def _start(world: World, job: Job, step: int) -> None:
    for rank in world.ranks:
        if rank.job == job.spec.id:
            world.violate(
                ViolationKind.TWO_COPIES,
                rank.node,
                f"{job.spec.id} was started on {', '.join(job.nodes)} while its processes can still run on {rank.node}",
            )
    job.start += 1
    job.start_step = step
    for name in job.nodes:
        machine = world.machines[name]
        gpus = tuple(_free_gpus(world, machine)[: job.spec.gpus_per_node])
        pid = FIRST_PID + PIDS_PER_RANK * world.next_number()
        world.ranks.append(Rank(job.spec.id, job.start, name, pid, gpus))
        machine.spare = False
        machine.leased_to = ""
    job.base_step = float(step)
    job.base_time = world.now
    job.speed = 0.0
    job.state = JobState.RUNNING
    job.detail = ""
