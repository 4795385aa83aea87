"""Power, boots and new machines: how a node goes down and comes back, and what that heals."""

from __future__ import annotations

from domain.errors import TransientError
from domain.faults import Rung
from simulator import gangs, injection
from simulator.faults import FaultKind, LiveFault
from simulator.kernel_text import BOOT_LINES, LEVEL_INFO
from simulator.machine import Machine, Phase, new_gpus, new_uuid
from simulator.states import ViolationKind
from simulator.world import World

ACCEPTANCE_HOLD = "new machine, not accepted yet: burn it in and take it into service"


def reboot(world: World, machine: Machine) -> None:
    """Reboot through the operating system."""
    _check_sole(world, machine, Rung.REBOOT)
    _check_idle(world, machine, "rebooted")
    machine.counts.reboots += 1
    _take_down(world, machine, Rung.REBOOT, world.timing.shutdown, world.timing.boot)


def power_cycle(world: World, machine: Machine, token: str) -> None:
    """Switch off and on through the BMC; once a token.

    Raises:
        TransientError: the BMC does not answer.
    """
    if _done_before(machine, f"power_cycle {token}"):
        return
    _reach_bmc(machine)
    _check_sole(world, machine, Rung.POWER_CYCLE)
    if not machine.hung:
        _check_idle(world, machine, "power cycled")
    machine.tokens[f"power_cycle {token}"] = machine.boot_id
    machine.counts.power_cycles += 1
    _take_down(world, machine, Rung.POWER_CYCLE, world.timing.power, world.timing.boot)


def power_off(world: World, machine: Machine, token: str) -> None:
    """Order the power off (fencing); it is off a moment later. Once a token.

    Raises:
        TransientError: the BMC does not answer.
    """
    _reach_bmc(machine)
    if machine.phase is Phase.OFF or _done_before(machine, f"fence {token}"):
        return
    machine.tokens[f"fence {token}"] = machine.boot_id
    machine.counts.fences += 1
    _take_down(world, machine, None, world.timing.power, None)


def is_off(machine: Machine) -> bool:
    """Return whether the BMC confirms that the node is off; TransientError when it does not answer."""
    _reach_bmc(machine)
    return machine.phase is Phase.OFF


def reprovision(world: World, machine: Machine, token: str) -> None:
    """Reinstall the node on an empty disk; once a token."""
    if _done_before(machine, f"reprovision {token}"):
        return
    _reach_bmc(machine)
    _check_sole(world, machine, Rung.REPROVISION)
    _check_idle(world, machine, "reprovisioned")
    machine.tokens[f"reprovision {token}"] = machine.boot_id
    machine.counts.reprovisions += 1
    _take_down(world, machine, Rung.REPROVISION, world.timing.shutdown, world.timing.reprovision)


def replace(world: World, machine: Machine, token: str) -> str:
    """Take the machine out and put a new one in its place some time later; returns the ticket, one a token."""
    known = machine.tokens.get(f"replace {token}")
    if known is not None:
        return known
    _check_sole(world, machine, Rung.REPLACE)
    _check_idle(world, machine, "replaced")
    ticket = f"RMA-{len(machine.tickets) + 1:04d}-{machine.name}"
    machine.tickets.append(ticket)
    machine.tokens[f"replace {token}"] = ticket
    machine.counts.replacements += 1
    _take_down(world, machine, Rung.REPLACE, world.timing.shutdown, world.timing.replace)
    return ticket


def _done_before(machine: Machine, action: str) -> bool:
    return action in machine.tokens


def _reach_bmc(machine: Machine) -> None:
    if machine.has(FaultKind.BMC_UNREACHABLE):
        raise TransientError(f"the BMC of {machine.name} does not answer: check its network, then try again")


def _check_sole(world: World, machine: Machine, rung: Rung) -> None:
    """A second order for what is under way already is one action done twice."""
    if machine.down_for is rung and machine.phase in (Phase.GOING_DOWN, Phase.BOOTING):
        world.violate(ViolationKind.REPEATED_ACTION, machine.name, f"{rung} was ordered again while one was under way")


def _check_idle(world: World, machine: Machine, what: str) -> None:
    if machine.phase is not Phase.UP:
        return
    for rank in world.busy(machine):
        world.violate(
            ViolationKind.BUSY_NODE_TAKEN_DOWN, machine.name, f"{machine.name} was {what} with {rank.job} at work on it"
        )


def _take_down(world: World, machine: Machine, rung: Rung | None, off_in: float, back_in: float | None) -> None:
    machine.life += 1
    life = machine.life
    machine.down_for = rung
    if machine.phase is not Phase.OFF:
        machine.phase = Phase.GOING_DOWN

    def off() -> None:
        if machine.life != life:
            return
        gangs.kill_ranks(world, machine)
        if back_in is None:
            machine.phase = Phase.OFF
            return
        machine.phase = Phase.BOOTING
        world.after(back_in, up)

    def up() -> None:
        if machine.life == life and rung is not None:
            _boot(world, machine, rung)

    world.after(off_in, off)
    world.changed()


def _boot(world: World, machine: Machine, rung: Rung) -> None:
    if rung is Rung.REPLACE:
        _put_in_new(world, machine)
    elif rung is Rung.REPROVISION:
        machine.disk_id = new_uuid(world.random)
    machine.faults = [fault for fault in machine.faults if not fault.healed_by(rung)]
    stuck = _wakes(machine, FaultKind.BOOT_FAILURE)
    if stuck is not None:
        machine.phase = Phase.STUCK
        return
    for fault in machine.faults:
        fault.dormant = False
    machine.phase = Phase.UP
    machine.down_for = None
    machine.boot_id = new_uuid(world.random)
    machine.kernel.clear()
    machine.reset_in_boot.clear()
    for line in BOOT_LINES:
        world.log(machine, line, level=LEVEL_INFO)
    life = machine.life

    def show_again() -> None:
        if machine.life == life:
            for fault in machine.faults:
                injection.show(world, machine, fault)

    if machine.faults:
        world.after(world.timing.fault_returns, show_again)
    gangs.start_waiting(world)


def _wakes(machine: Machine, kind: FaultKind) -> LiveFault | None:
    fault = next((fault for fault in machine.faults if fault.kind is kind), None)
    if fault is not None:
        fault.times -= 1
        if fault.times <= 0:
            machine.faults.remove(fault)
    return fault


def _put_in_new(world: World, machine: Machine) -> None:
    machine.gpus = new_gpus(world.random, len(machine.gpus))
    machine.machine_id = new_uuid(world.random)
    machine.disk_id = new_uuid(world.random)
    machine.faults.clear()
    machine.mark = None
    machine.spare = False
    machine.leased_to = ""
    machine.holds = {"provisioner": ACCEPTANCE_HOLD}
