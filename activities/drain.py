"""Bringing work off a node."""

from __future__ import annotations

import asyncio

from temporalio import activity

from activities.heartbeat import heartbeating
from domain.model import Message
from domain.nodes import NodeRef
from domain.ports import Scheduler
from domain.repair import StepProgress
from domain.scheduling import DrainProgress, DrainRequest
from domain.workloads import Workload

FINISH_POLL_SECONDS = 5.0
"""How often work that may finish by itself is looked at, in seconds."""


class DrainInput(Message):
    """The node and how to empty it."""

    node: NodeRef
    request: DrainRequest


class DrainResult(Message):
    """Whether the node is empty, and if not, what is left and who blocks it."""

    done: bool
    left: tuple[str, ...] = ()
    blocked_by: str = ""


class LetFinishInput(Message):
    """The node, and how long its work may take to finish by itself, in seconds."""

    node: NodeRef
    patience_seconds: float


class LetFinishResult(Message):
    """What still runs after the patience is over."""

    workloads: tuple[Workload, ...] = ()


class DrainActivities:
    """Drain: watched to its end, never assumed."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    @activity.defn(name="drain")
    async def drain(self, order: DrainInput) -> DrainResult:
        """Empty the node. A drain that does not finish by its deadline says what is left; it is no success."""
        latest = DrainProgress()
        most_left = 0
        async with heartbeating() as heartbeat:
            try:
                async with asyncio.timeout(order.request.deadline_seconds):
                    async for latest in self._scheduler.drain(order.node, order.request):
                        most_left = max(most_left, len(latest.left))
                        heartbeat.report(_as_progress(latest, most_left))
            except TimeoutError:
                pass
        return DrainResult(done=latest.done, left=latest.left, blocked_by=latest.blocked_by)

    @activity.defn(name="let_finish")
    async def let_finish(self, order: LetFinishInput) -> LetFinishResult:
        """Wait until the node's work has finished by itself, at most for the patience given."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + order.patience_seconds
        async with heartbeating() as heartbeat:
            while True:
                workloads = tuple(await self._scheduler.workloads(order.node))
                left = deadline - loop.time()
                if not workloads or left <= 0:
                    return LetFinishResult(workloads=workloads)
                names = ", ".join(w.name or w.id for w in workloads)
                heartbeat.report(StepProgress(message=f"{names} may finish within {left:.0f} s"))
                await asyncio.sleep(min(FINISH_POLL_SECONDS, left))


def _as_progress(progress: DrainProgress, most_left: int) -> StepProgress:
    if progress.done:
        return StepProgress(fraction=1.0, message="empty")
    blocked = f", blocked by {progress.blocked_by}" if progress.blocked_by else ""
    fraction = 1 - len(progress.left) / most_left if most_left else -1.0
    return StepProgress(fraction=fraction, message=f"{', '.join(progress.left)} left{blocked}")
