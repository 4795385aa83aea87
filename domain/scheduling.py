"""What a scheduler (Kubernetes, Slurm, …) says about a node, and the mark that we leave on it."""

from __future__ import annotations

from domain.model import Message
from domain.nodes import NodeRef


class Mark(Message):
    """Our mark on a quarantined node. Only a node that carries the mark of this repair is ever released by it.

    Attributes:
        repair_id: workflow id of the repair.
        reason: ``kintsugi: [class] cause (incident)``, under 256 characters (Slurm cuts there).
    """

    repair_id: str
    reason: str


class SchedulingState(Message):
    """Whether a node takes work, and who says it must not.

    Attributes:
        schedulable: whether new work may start there.
        our_mark: the mark we left, None when there is none.
        foreign_holds: who else holds the node back (cordon, taint, drain reason), in words.
    """

    node: NodeRef
    schedulable: bool
    our_mark: Mark | None = None
    foreign_holds: tuple[str, ...] = ()


class DrainRequest(Message):
    """How to empty a node.

    Attributes:
        patience_seconds: how long work may finish by itself before it is told to go, in seconds.
        deadline_seconds: hard bound on the whole drain, in seconds.
    """

    mark: Mark
    patience_seconds: float = 0.0
    deadline_seconds: float = 600.0


class DrainProgress(Message):
    """Where a drain is.

    Attributes:
        left: work still on the node, in words.
        blocked_by: what keeps it there (a disruption budget, a finalizer), empty when nothing does.
        done: whether the node is empty.
    """

    left: tuple[str, ...] = ()
    blocked_by: str = ""
    done: bool = False


class Spare(Message):
    """A hot spare as the scheduler holds it.

    Attributes:
        model: GPU product name; gpus: how many.
        leased_to: repair that holds it; empty when free.
        topology: labels of shared parts (``rack``, ``leaf``, ``nvlink_domain``).
        validated: whether its burn-in is within its validity.
    """

    node: NodeRef
    model: str = ""
    gpus: int = 0
    leased_to: str = ""
    topology: dict[str, str] = {}
    validated: bool = True


class Capacity(Message):
    """GPUs of a node as the scheduler counts them (allocatable ``nvidia.com/gpu``, GRES)."""

    gpus: int
