"""Bringing saved work back to life away from the bad node, never twice."""

from __future__ import annotations

import asyncio

from temporalio import activity

from activities.heartbeat import Heartbeat, heartbeating
from domain.errors import PermanentError
from domain.model import Message
from domain.nodes import NodeRef
from domain.ports import Power, Scheduler
from domain.repair import StepProgress
from domain.workloads import MovedWork, SavedWork, WorkloadStatus

LOOK_SECONDS = 0.5
"""Pause between two looks at a workload that is coming back, in seconds."""


class RecoverInput(Message):
    """The saved work, the node it must have left, and the spare that takes over (empty: requeue).

    Attributes:
        stopped_seconds: GPU work has stood still for so long already, in seconds.
        deadline_seconds: bound on the whole recovery, in seconds.
    """

    node: NodeRef
    saved: tuple[SavedWork, ...]
    spare: str = ""
    stopped_seconds: float = 0.0
    deadline_seconds: float = 900.0


class RecoverResult(Message):
    """How each workload came out."""

    moved: tuple[MovedWork, ...]


class RecoverActivities:
    """Recovery of work onto a spare."""

    def __init__(self, scheduler: Scheduler, power: Power) -> None:
        self._scheduler = scheduler
        self._power = power

    @activity.defn(name="recover")
    async def recover(self, order: RecoverInput) -> RecoverResult:
        """Start each workload without the bad node, once it is proven to have stopped there; see it make progress.

        Raises:
            PermanentError: nothing proves that the old node has stopped the work; nothing was started.
        """
        moved = []
        async with heartbeating() as heartbeat:
            for saved in order.saved:
                heartbeat.report(StepProgress(message=f"proving that {saved.workload.id} has stopped on the old node"))
                await self._prove_stopped(order.node, saved)
                moved.append(await self._resume(order, saved, heartbeat))
        return RecoverResult(moved=tuple(moved))

    async def _prove_stopped(self, node: NodeRef, saved: SavedWork) -> None:
        if await self._scheduler.confirm_stopped(node, saved.workload.id):
            return
        if await self._power.is_off(node):
            return
        raise PermanentError(
            f"nothing proves that {saved.workload.id} has stopped on {node.name}: it is not started a second time."
            " Fence the node (power off) or drain it by hand, then override with proceed."
        )

    async def _resume(self, order: RecoverInput, saved: SavedWork, heartbeat: Heartbeat) -> MovedWork:
        loop = asyncio.get_running_loop()
        began = loop.time()
        status = await self._scheduler.resume_workload(saved, order.node, order.spare)
        first_step = status.step
        detail = ""
        try:
            async with asyncio.timeout(order.deadline_seconds):
                while not _makes_progress(status, first_step, order.node.name):
                    await asyncio.sleep(LOOK_SECONDS)
                    status = await self._scheduler.workload_status(order.node.cluster, saved.workload.id)
                    if first_step < 0 and status.running:
                        first_step = status.step
                    heartbeat.report(StepProgress(message=_says(saved, status)))
                    if not order.spare and not status.running:
                        # Requeued without a spare: it waits for its turn in the scheduler's own queue.
                        detail = f"requeued, waits for nodes: {status.detail}"
                        break
        except TimeoutError:
            detail = f"started again, but no progress seen within {order.deadline_seconds:.0f} s: {status.detail}"
        lost = _steps_lost(saved)
        stood_still = order.stopped_seconds + loop.time() - began
        gpus = saved.workload.gpus_per_node * max(len(saved.workload.nodes), 1)
        return MovedWork(
            workload=saved.workload,
            spare=order.spare,
            resumed_from_step=saved.step,
            steps_lost=lost,
            gpu_seconds_lost=round(stood_still * gpus, 1),
            detail=detail or f"runs on {', '.join(status.nodes)} from step {saved.step}",
        )


def _makes_progress(status: WorkloadStatus, first_step: int, bad_node: str) -> bool:
    return status.running and bad_node not in status.nodes and (status.step < 0 or status.step > first_step >= 0)


def _says(saved: SavedWork, status: WorkloadStatus) -> str:
    where = f" on {', '.join(status.nodes)}" if status.nodes else ""
    return f"{saved.workload.name or saved.workload.id}{where}: step {status.step}, {status.detail or 'coming back'}"


def _steps_lost(saved: SavedWork) -> int:
    if saved.step < 0 or saved.workload.step < 0:
        return -1
    return max(saved.workload.step - saved.step, 0)
