"""Nodes and faults between protobuf and domain words."""

from __future__ import annotations

from typing import Final

from domain.faults import Fault, FaultEvent, Rung, Scope, Severity, Transition
from domain.nodes import Gpu, Inventory, NodeIdentity, NodeRef
from domain.observations import MAX_TEXT, Component, ComponentKind, Source
from wire import checked
from wire.checked import EnumTable, sendable
from wire.v1 import health_pb2

MAX_GPUS: Final = 128
MAX_EVIDENCE: Final = 5
MAX_TOPOLOGY: Final = 32

_COMPONENT_KINDS = EnumTable(ComponentKind, health_pb2.ComponentKind.items(), "COMPONENT_KIND")
_SEVERITIES = EnumTable(Severity, health_pb2.Severity.items(), "SEVERITY")
_SCOPES = EnumTable(Scope, health_pb2.Scope.items(), "SCOPE")
_SOURCES = EnumTable(Source, health_pb2.Source.items(), "SOURCE")
_RUNGS = EnumTable(Rung, health_pb2.Rung.items(), "RUNG")
_TRANSITIONS = EnumTable(Transition, health_pb2.Transition.items(), "TRANSITION")


@sendable
def node_to_pb(node: NodeRef) -> health_pb2.NodeRef:
    """Return the message of a node's place."""
    return health_pb2.NodeRef(cluster=node.cluster, pool=node.pool, name=node.name)


def node_from_pb(pb: health_pb2.NodeRef) -> NodeRef:
    """Return a node's place; raises ``MalformedError``."""
    return NodeRef(
        cluster=checked.name("node.cluster", pb.cluster),
        pool=checked.name("node.pool", pb.pool),
        name=checked.name("node.name", pb.name),
    )


@sendable
def identity_to_pb(identity: NodeIdentity) -> health_pb2.NodeIdentity:
    """Return the message of a node's identity; raises ``MalformedError``."""
    inventory = identity.inventory
    return health_pb2.NodeIdentity(
        node=node_to_pb(identity.node),
        boot_id=identity.boot_id,
        machine_id=identity.machine_id,
        operations_address=identity.operations_address,
        agent_version=identity.agent_version,
        inventory=health_pb2.Inventory(
            gpus=[
                health_pb2.Gpu(
                    uuid=gpu.uuid,
                    serial=gpu.serial,
                    pci_bus_id=gpu.pci_bus_id,
                    model=gpu.model,
                    index=gpu.index,
                )
                for gpu in inventory.gpus
            ],
            driver_version=inventory.driver_version,
            kernel_release=inventory.kernel_release,
        ),
        topology=identity.topology,
    )


def identity_from_pb(pb: health_pb2.NodeIdentity) -> NodeIdentity:
    """Return a node's identity; raises ``MalformedError``."""
    checked.present("identity.node", pb.HasField("node"))
    gpus = checked.items("identity.inventory.gpus", pb.inventory.gpus, len(pb.inventory.gpus), MAX_GPUS)
    topology = checked.items("identity.topology", pb.topology.items(), len(pb.topology), MAX_TOPOLOGY)
    return NodeIdentity(
        node=node_from_pb(pb.node),
        boot_id=checked.label("identity.boot_id", pb.boot_id, required=True),
        machine_id=checked.label("identity.machine_id", pb.machine_id),
        operations_address=checked.label("identity.operations_address", pb.operations_address),
        agent_version=checked.label("identity.agent_version", pb.agent_version),
        inventory=Inventory(
            gpus=tuple(_gpu_from_pb(f"identity.inventory.gpus[{n}]", gpu) for n, gpu in enumerate(gpus)),
            driver_version=checked.label("identity.inventory.driver_version", pb.inventory.driver_version),
            kernel_release=checked.label("identity.inventory.kernel_release", pb.inventory.kernel_release),
        ),
        topology={
            checked.label("a key of identity.topology", key, required=True): checked.label(
                f"identity.topology[{checked.shown(key)}]", value
            )
            for key, value in topology
        },
    )


def _gpu_from_pb(field: str, pb: health_pb2.Gpu) -> Gpu:
    return Gpu(
        uuid=checked.label(f"{field}.uuid", pb.uuid, required=True),
        serial=checked.label(f"{field}.serial", pb.serial),
        pci_bus_id=checked.label(f"{field}.pci_bus_id", pb.pci_bus_id),
        model=checked.label(f"{field}.model", pb.model),
        index=pb.index,
    )


@sendable
def fault_to_pb(fault: Fault) -> health_pb2.Fault:
    """Return the message of a fault, its evidence cut to what the wire allows; raises ``MalformedError``.

    The node is not in it: the stream speaks for one node only.
    """
    rung = fault.suggested_rung
    return health_pb2.Fault(
        fault_class=fault.fault_class,
        component=health_pb2.Component(
            kind=_COMPONENT_KINDS.pb_name(fault.component.kind),
            id=fault.component.id,
        ),
        severity=_SEVERITIES.pb_name(fault.severity),
        scope=_SCOPES.pb_name(fault.scope),
        source=_SOURCES.pb_name(fault.source),
        boot_id=fault.boot_id,
        first_seen=checked.time_to_pb(fault.first_seen),
        last_seen=checked.time_to_pb(fault.last_seen),
        count=fault.count,
        trusted=fault.trusted,
        suggested_rung=_RUNGS.pb_name(rung) if rung is not None else None,
        evidence=[checked.cut(line, MAX_TEXT) for line in fault.evidence[-MAX_EVIDENCE:]],
        xid=fault.xid or 0,
    )


def fault_from_pb(pb: health_pb2.Fault, node: NodeRef) -> Fault:
    """Return a fault on this node; raises ``MalformedError``."""
    checked.present("fault.component", pb.HasField("component"))
    checked.present("fault.first_seen", pb.HasField("first_seen"))
    checked.present("fault.last_seen", pb.HasField("last_seen"))
    evidence = checked.items("fault.evidence", pb.evidence, len(pb.evidence), MAX_EVIDENCE)
    return Fault(
        fault_class=checked.name("fault.fault_class", pb.fault_class),
        node=node,
        component=Component(
            kind=_COMPONENT_KINDS.word("fault.component.kind", pb.component.kind),
            id=checked.label("fault.component.id", pb.component.id),
        ),
        severity=_SEVERITIES.word("fault.severity", pb.severity),
        scope=_SCOPES.word("fault.scope", pb.scope),
        source=_SOURCES.word("fault.source", pb.source),
        boot_id=checked.label("fault.boot_id", pb.boot_id, required=True),
        first_seen=checked.time_from_pb("fault.first_seen", pb.first_seen),
        last_seen=checked.time_from_pb("fault.last_seen", pb.last_seen),
        count=checked.integer("fault.count", pb.count, 1),
        trusted=pb.trusted,
        suggested_rung=_RUNGS.optional("fault.suggested_rung", pb.suggested_rung),
        evidence=tuple(checked.text(f"fault.evidence[{n}]", line, MAX_TEXT) for n, line in enumerate(evidence)),
        xid=pb.xid or None,
    )


@sendable
def fault_event_to_pb(event: FaultEvent) -> health_pb2.FaultEvent:
    """Return the message of a fault event; the spool's id goes with the hello. Raises ``MalformedError``."""
    return health_pb2.FaultEvent(
        sequence=event.sequence,
        transition=_TRANSITIONS.pb_name(event.transition),
        fault=fault_to_pb(event.fault),
    )


def fault_event_from_pb(pb: health_pb2.FaultEvent, node: NodeRef, spool_id: str) -> FaultEvent:
    """Return a fault event of this node and spool; raises ``MalformedError``."""
    checked.present("fault", pb.HasField("fault"))
    return FaultEvent(
        spool_id=spool_id,
        sequence=checked.integer("sequence", pb.sequence, 1),
        transition=_TRANSITIONS.word("transition", pb.transition),
        fault=fault_from_pb(pb.fault, node),
    )
