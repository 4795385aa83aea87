"""Workloads: what runs on a node, how it can be saved, and where it went."""

from __future__ import annotations

from enum import StrEnum

from domain.model import Message


class SaveMethod(StrEnum):
    """How the state of a workload can be saved."""

    TRANSPARENT = "transparent"
    SIGNAL = "signal"
    EXEC = "exec"
    NONE = "none"


class Workload(Message):
    """A job or a pod on a node. A gang is one workload.

    Attributes:
        id: the scheduler's own id.
        nodes: names of all nodes it runs on, this one included.
        gpus_per_node: GPUs that it holds on each of its nodes.
        priority: larger is more important.
        last_checkpoint_step: step of the newest checkpoint that the application made by itself, -1 for none.
        step: how far it is in its own steps, -1 when unknown.
    """

    id: str
    name: str = ""
    owner: str = ""
    nodes: tuple[str, ...] = ()
    gpus_per_node: int = 0
    priority: int = 0
    save_method: SaveMethod = SaveMethod.NONE
    last_checkpoint_step: int = -1
    step: int = -1


class WorkloadStatus(Message):
    """What the scheduler says about a workload now.

    Attributes:
        running: whether all its ranks run.
        step: its progress in its own steps, -1 when unknown.
        detail: why it does not run, in words.
    """

    id: str
    running: bool
    nodes: tuple[str, ...] = ()
    step: int = -1
    detail: str = ""


class SavedWork(Message):
    """What was saved of a workload before its node was taken.

    Attributes:
        image: checkpoint to restore from; empty means the application's own newest checkpoint.
        step: step to which a restore goes back, -1 when unknown.
        explanation: why this method, in words.
    """

    workload: Workload
    method: SaveMethod
    image: str = ""
    step: int = -1
    explanation: str = ""


class MovedWork(Message):
    """How a workload came out of the repair.

    Attributes:
        spare: node that took over; empty when it was requeued without one.
        steps_lost: steps it has to do again, -1 when unknown.
        gpu_seconds_lost: GPU time that was spent for nothing or stood still, in GPU-seconds.
        running: False when nothing brings it back by itself: ``detail`` says what a person must do. Work that waits
            for its turn in the scheduler's queue counts as running.
    """

    workload: Workload
    running: bool = True
    spare: str = ""
    resumed_from_step: int = -1
    steps_lost: int = -1
    gpu_seconds_lost: float = 0.0
    detail: str = ""
