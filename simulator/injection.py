"""Injecting faults, letting them show themselves, and clearing them."""

from __future__ import annotations

from domain.errors import PermanentError
from domain.faults import Rung
from simulator import gangs
from simulator.faults import EFFECTS, HEALING_ORDER, FaultKind, Injection, LiveFault
from simulator.kernel_text import line_after_reset, lines_of
from simulator.machine import Machine
from simulator.world import World


def inject(world: World, order: Injection) -> None:
    """Inject a fault, now or later.

    Raises:
        PermanentError: there is no such node or GPU, or the rung given cannot heal anything.
    """
    machine = world.machine(order.node)
    effect = EFFECTS[order.kind]
    if effect.on_gpu and order.gpu >= len(machine.gpus):
        raise PermanentError(f"{order.node} has no GPU {order.gpu}: it has 0 to {len(machine.gpus) - 1}")
    if order.heals_at is not None and order.heals_at not in HEALING_ORDER:
        raise PermanentError(f"{order.heals_at} heals nothing: choose one of {', '.join(HEALING_ORDER)}")
    if order.after:
        world.after(order.after, lambda: _strike(world, order))
    else:
        _strike(world, order)
        world.changed()


def _strike(world: World, order: Injection) -> None:
    machine = world.machines[order.node]
    effect = EFFECTS[order.kind]
    gpu_uuid = machine.gpus[order.gpu].uuid if effect.on_gpu else ""
    fault = LiveFault(
        kind=order.kind,
        number=world.next_number(),
        gpu_uuid=gpu_uuid,
        heals_at=order.heals_at or effect.heals_at,
        dormant=effect.dormant,
        times=order.times,
    )
    if order.kind is FaultKind.APPLICATION_XID:
        show(world, machine, fault, xid=order.xid)
        for rank in world.busy(machine):
            if gpu_uuid in rank.gpu_uuids:
                gangs.crash(world, world.jobs[rank.job])
        return
    machine.faults.append(fault)
    machine.reset_in_boot.discard(gpu_uuid)
    if not fault.dormant:
        show(world, machine, fault)
    if order.clears_after is not None:
        world.after(order.clears_after, lambda: _remove(world, machine, fault))


def show(world: World, machine: Machine, fault: LiveFault, xid: int = 0) -> None:
    """Let a fault write what it writes to the kernel log."""
    gpu = next((gpu for gpu in machine.gpus if gpu.uuid == fault.gpu_uuid), None)
    if gpu is None or not machine.responsive:
        return
    pid = next((rank.pid_on(gpu.uuid) for rank in world.ranks_on(machine) if gpu.uuid in rank.gpu_uuids), 0)
    for text in lines_of(fault.kind, gpu, pid, xid):
        world.log(machine, text)


def clear(world: World, node: str, kind: FaultKind) -> None:
    """Take all faults of a kind away from a node, as if they had never been."""
    machine = world.machine(node)
    machine.faults = [fault for fault in machine.faults if fault.kind is not kind]
    world.changed()


def heal_by_reset(world: World, machine: Machine, gpu_uuids: set[str]) -> None:
    """Take away what a reset of these GPUs heals; the driver says of a GPU that it wanted reset that all is well."""
    healed = [f for f in machine.faults if f.gpu_uuid in gpu_uuids and f.healed_by(Rung.RESET_GPU)]
    machine.faults = [fault for fault in machine.faults if fault not in healed]
    wanted = {fault.gpu_uuid for fault in healed if fault.kind is FaultKind.ECC_ROW_REMAP}
    for gpu in machine.gpus:
        if gpu.uuid in wanted and gpu.uuid not in machine.dead_gpus():
            world.log(machine, line_after_reset(gpu))


def _remove(world: World, machine: Machine, fault: LiveFault) -> None:
    if fault in machine.faults:
        machine.faults.remove(fault)
