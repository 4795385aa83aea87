"""Keeping new work off a node, noticing when somebody lifts that, and undoing only what we did."""

from __future__ import annotations

import asyncio

from temporalio import activity

from activities.heartbeat import heartbeating
from domain.errors import NotOursError, TransientError
from domain.model import Message
from domain.nodes import NodeRef
from domain.ports import Scheduler
from domain.repair import StepProgress
from domain.scheduling import Mark, SchedulingState
from domain.workloads import Workload

MARK_POLL_SECONDS = 15.0
"""How often a held node's mark is looked at, in seconds: one call for one node, far below what Slurm minds."""


class QuarantineInput(Message):
    """The node and the mark to leave on it."""

    node: NodeRef
    mark: Mark


class QuarantineResult(Message):
    """What was found: who else holds the node back, and what runs on it."""

    foreign_holds: tuple[str, ...] = ()
    workloads: tuple[Workload, ...] = ()


class MarkResult(Message):
    """How the mark stands.

    Attributes:
        ours: whether the node still carries our mark.
    """

    ours: bool
    detail: str = ""


class QuarantineActivities:
    """Cordon, taint or drain flag, whatever the scheduler calls it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    @activity.defn(name="quarantine")
    async def quarantine(self, order: QuarantineInput) -> QuarantineResult:
        """Keep new work off the node; idempotent by the mark."""
        state = await self._scheduler.quarantine(order.node, order.mark)
        workloads = await self._scheduler.workloads(order.node)
        return QuarantineResult(foreign_holds=state.foreign_holds, workloads=tuple(workloads))

    @activity.defn(name="release_quarantine")
    async def release(self, order: QuarantineInput) -> MarkResult:
        """Undo our quarantine; a node that somebody else has taken over is left alone."""
        try:
            await self._scheduler.release(order.node, order.mark)
        except NotOursError as error:
            return MarkResult(ours=False, detail=str(error))
        return MarkResult(ours=True)

    @activity.defn(name="confirm_mark")
    async def confirm_mark(self, order: QuarantineInput) -> MarkResult:
        """Look whether the node is still ours, at the moment of acting on it."""
        return _judge(await self._scheduler.scheduling_state(order.node), order)

    @activity.defn(name="watch_mark")
    async def watch_mark(self, order: QuarantineInput) -> MarkResult:
        """Return once the node no longer carries our mark: a person has given it back by hand."""
        async with heartbeating() as heartbeat:
            while True:
                try:
                    state = await self._scheduler.scheduling_state(order.node)
                except TransientError as error:
                    # Not being able to look proves nothing.
                    heartbeat.report(StepProgress(message=f"cannot look at the mark: {error}"))
                else:
                    found = _judge(state, order)
                    if not found.ours:
                        return found
                await asyncio.sleep(MARK_POLL_SECONDS)


def _judge(state: SchedulingState, order: QuarantineInput) -> MarkResult:
    if state.our_mark is not None and state.our_mark.repair_id == order.mark.repair_id:
        return MarkResult(ours=True)
    return MarkResult(ours=False, detail=f"our mark on {order.node.name} was removed by hand")
