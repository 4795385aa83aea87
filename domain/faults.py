"""Faults: what observations amount to. A fault opens, repeats and clears."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from domain.model import Message
from domain.nodes import NodeRef
from domain.observations import Component, Source


class Severity(StrEnum):
    """How bad a fault is for the node, worst last.

    ``application`` is the fault of the job, not of the node: it is told to the job's owner and never takes a
    node away. ``unknown`` is a code that no table has: observed and told, never acted on without a person.
    """

    INFO = "info"
    APPLICATION = "application"
    UNKNOWN = "unknown"
    DEGRADED = "degraded"
    FATAL = "fatal"


class Scope(StrEnum):
    """How far the damage of a fault reaches."""

    WORKLOAD = "workload"
    GPU = "gpu"
    FABRIC = "fabric"
    NODE = "node"


class Rung(StrEnum):
    """A step of the repair ladder. The order is the order of escalation."""

    NONE = "none"
    INSPECT = "inspect"
    RESTART_WORKLOAD = "restart_workload"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    POWER_CYCLE = "power_cycle"
    REPROVISION = "reprovision"
    REPLACE = "replace"


class Fault(Message):
    """A class from the catalog on one component of one node.

    Attributes:
        fault_class: a name from the catalog, such as ``gpu.fallen_off_bus``.
        boot_id: the boot in which it was last seen.
        count: how often it was seen since it opened.
        trusted: False when only a process said so (see ``Observation.trusted``).
        suggested_rung: the driver's own verdict where it gave one (Xid 154, NVML recovery action).
        evidence: the latest observations in words, at most five.
        xid: the code, when an Xid opened it.
    """

    fault_class: str
    node: NodeRef
    component: Component
    severity: Severity
    scope: Scope
    source: Source
    boot_id: str
    first_seen: datetime
    last_seen: datetime
    count: int = 1
    trusted: bool = True
    suggested_rung: Rung | None = None
    evidence: tuple[str, ...] = ()
    xid: int | None = None

    @property
    def key(self) -> str:
        """Identity of the fault on its node: equal keys are the same fault seen again.

        What only a process said never merges with what the kernel said, nor clears it.
        """
        return f"{self.fault_class}@{self.component}" + ("" if self.trusted else ":untrusted")


class Transition(StrEnum):
    """What happened to a fault."""

    OPENED = "opened"
    REPEATED = "repeated"
    CLEARED = "cleared"


class FaultEvent(Message):
    """A transition of a fault, numbered by the agent that saw it.

    Attributes:
        spool_id: identity of the agent's spool; sequence numbers are comparable within one spool only.
        sequence: strictly increasing within a spool, from 1; 0 for events that the gateway made itself.
    """

    spool_id: str
    sequence: int
    transition: Transition
    fault: Fault
