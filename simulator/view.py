"""The truth about a world, as words."""

from __future__ import annotations

from dataclasses import asdict

from simulator.jobs import Job
from simulator.machine import Machine
from simulator.states import FaultState, JobView, KernelRecordView, NodeLife, NodeState, WorldState
from simulator.world import World


def state_of(world: World) -> WorldState:
    """Return everything as it is now."""
    return WorldState(
        cluster=world.layout.cluster,
        pool=world.layout.pool,
        now=world.now,
        nodes=tuple(_node(world, machine) for machine in world.machines.values()),
        jobs=tuple(_job(world, job) for job in world.jobs.values()),
        violations=tuple(world.violations),
    )


def _node(world: World, machine: Machine) -> NodeState:
    return NodeState(
        name=machine.name,
        phase=machine.phase,
        hung=machine.hung,
        agent_up=machine.agent_up,
        boot_id=machine.boot_id,
        gpu_uuids=tuple(gpu.uuid for gpu in machine.gpus),
        faults=tuple(
            FaultState(kind=fault.kind, gpu_uuid=fault.gpu_uuid, heals_at=fault.heals_at or "", dormant=fault.dormant)
            for fault in machine.faults
        ),
        schedulable=machine.schedulable,
        mark=machine.mark.repair_id if machine.mark else "",
        holds=tuple(f"{who}: {reason}" for who, reason in machine.holds.items()),
        spare=machine.spare,
        leased_to=machine.leased_to,
        busy=tuple(dict.fromkeys(rank.job for rank in world.ranks_on(machine))),
        **asdict(machine.counts),
    )


def _job(world: World, job: Job) -> JobView:
    return JobView(
        id=job.spec.id,
        name=job.spec.name,
        state=job.state,
        nodes=job.nodes,
        step=job.step(world.now),
        steps_per_second=job.speed,
        own_checkpoint=job.newest_own_checkpoint(world.now),
        started_from_step=job.start_step,
        starts=job.start,
        crashes=job.crashes,
        detail=job.detail,
    )


def lives_of(world: World) -> tuple[NodeLife, ...]:
    """Return of each node whether its agent can run."""
    return tuple(
        NodeLife(
            node=machine.name,
            agent_up=machine.agent_up,
            boot_id=machine.boot_id,
            machine_id=machine.machine_id,
            disk_id=machine.disk_id,
            topology=machine.topology,
        )
        for machine in world.machines.values()
    )


def kernel_records_of(world: World, machine: Machine, after: int) -> tuple[KernelRecordView, ...]:
    """Return the kernel log records of this boot with a larger sequence number."""
    first = max(after + 1, 0)
    return tuple(
        KernelRecordView(
            sequence=line.sequence,
            facility=line.facility,
            level=line.level,
            at=world.calendar(line.at),
            text=line.text,
        )
        for line in machine.kernel[first:]
    )
