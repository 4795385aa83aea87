"""All activities that act on a cluster, over the ports that the worker wires."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from activities.checkpoint import CheckpointActivities
from activities.drain import DrainActivities
from activities.give_back import GiveBackActivities
from activities.node_operations import NodeOperationActivities
from activities.power import PowerActivities
from activities.provision import ProvisionActivities
from activities.quarantine import QuarantineActivities
from activities.record import RecordActivities
from activities.recover import RecoverActivities
from activities.spares import SpareActivities
from domain.ports import Ledger, NodeAgent, Notifier, PolicySource, Power, Provisioner, Scheduler


class World(NamedTuple):
    """Everything outside, behind the ports."""

    scheduler: Scheduler
    power: Power
    provisioner: Provisioner
    agents: NodeAgent
    ledger: Ledger
    notifier: Notifier
    policy: PolicySource


def effects(world: World) -> list[Callable[..., object]]:
    """Return every activity that acts on a cluster."""
    drain, quarantine = DrainActivities(world.scheduler), QuarantineActivities(world.scheduler)
    operations, power = NodeOperationActivities(world.agents), PowerActivities(world.power)
    provision, spares = ProvisionActivities(world.provisioner), SpareActivities(world.scheduler)
    return [
        quarantine.quarantine,
        quarantine.release,
        quarantine.confirm_mark,
        quarantine.watch_mark,
        drain.drain,
        drain.let_finish,
        CheckpointActivities(world.agents).checkpoint,
        RecoverActivities(world.scheduler, world.power).recover,
        operations.run_operation,
        operations.reboot,
        power.fence,
        power.power_cycle,
        provision.reprovision,
        provision.replace,
        GiveBackActivities(world.scheduler, world.agents).give_back,
        spares.lease,
        spares.give_back,
        RecordActivities(world.ledger, world.notifier).record,
    ]
