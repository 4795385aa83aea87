"""Which way a workload is saved before its node is taken."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from domain.faults import Fault
from domain.model import Message
from domain.workloads import SavedWork, SaveMethod, Workload

UNREACHABLE = "node.unreachable"
GPU_GONE = ("gpu.fallen_off_bus", "gpu.missing")
"""Classes under which the state in GPU memory is lost: nothing can be copied off the device any more."""


class SaveChoice(Message):
    """The method chosen, and why.

    Attributes:
        method: ``none`` means: rely on the newest checkpoint that the application made by itself.
    """

    method: SaveMethod
    explanation: str


def choose_save(workload: Workload, faults: Iterable[Fault]) -> SaveChoice:
    """Return how to save a workload, from what the workload allows and what the faults leave possible."""
    classes = {fault.fault_class for fault in faults}
    own = (
        f"its own checkpoint of step {workload.last_checkpoint_step}"
        if workload.last_checkpoint_step >= 0
        else "a start from the beginning, since it has made no checkpoint"
    )
    if UNREACHABLE in classes:
        return SaveChoice(method=SaveMethod.NONE, explanation=f"the node cannot be reached: {own}")
    gone = sorted(classes.intersection(GPU_GONE))
    if gone:
        return SaveChoice(method=SaveMethod.NONE, explanation=f"GPU memory is lost with the GPU ({gone[0]}): {own}")
    if workload.save_method is SaveMethod.NONE:
        return SaveChoice(method=SaveMethod.NONE, explanation=f"the workload cannot be asked to save: {own}")
    return SaveChoice(
        method=workload.save_method,
        explanation=f"the GPUs still answer and the workload can be saved by {workload.save_method}",
    )


def stopped_at(faults: Iterable[Fault], drained_at: datetime) -> datetime:
    """Return since when work stands still: from the fault on if it took the GPU or the node, else from the drain."""
    deadly = [fault.first_seen for fault in faults if fault.fault_class in (UNREACHABLE, *GPU_GONE)]
    return min([*deadly, drained_at])


def own_checkpoint(workload: Workload, why: str) -> SavedWork:
    """Return what is left when nothing can be saved now: the newest checkpoint that the workload made by itself."""
    return SavedWork(workload=workload, method=SaveMethod.NONE, step=workload.last_checkpoint_step, explanation=why)


def work_to_recover(
    workloads: Iterable[Workload], saved: Iterable[SavedWork], running: Collection[str]
) -> tuple[SavedWork, ...]:
    """Return what is to be started again: all work that was on the node and does not run elsewhere by now.

    Work of which nothing was saved is not forgotten: it goes on from what it had saved by itself.
    """
    by_id = {entry.workload.id: entry for entry in saved}
    return tuple(
        by_id.get(workload.id) or own_checkpoint(workload, "nothing could be saved")
        for workload in workloads
        if workload.id not in running
    )
