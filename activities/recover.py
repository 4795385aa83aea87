"""Bringing saved work back to life away from the bad node, never twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

from temporalio import activity

from activities.heartbeat import Heartbeat, heartbeating
from domain.errors import AmbiguousError, KintsugiError, PermanentError, TransientError
from domain.model import Message
from domain.nodes import NodeRef
from domain.ports import Power, Scheduler
from domain.repair import StepProgress
from domain.workloads import MovedWork, SavedWork, WorkloadStatus

LOOK_SECONDS = 0.5
"""Pause between two looks at a workload that is coming back, in seconds."""

RETRY_SECONDS = 2.0
"""Pause before a scheduler or BMC that is away is asked again, in seconds."""

REPORT_SECONDS = 10.0
"""What a later attempt keeps of the time that is left, to report how each workload came out, in seconds."""

Answer = TypeVar("Answer")


class RecoverInput(Message):
    """The saved work, the node it must have left, and the spare that takes over (empty: requeue).

    Attributes:
        stopped_seconds: GPU work has stood still for so long already, in seconds.
        deadline_seconds: bound on the recovery of each workload, in seconds.
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

        A workload that cannot be brought back holds up none of the others: it comes out as one that does not run,
        with what a person must do. An attempt after a killed worker finds what the earlier one started.
        """
        began = asyncio.get_running_loop().time()
        moved: list[MovedWork] = []
        async with heartbeating() as heartbeat:
            for saved in order.saved:
                patience = _patience(order, len(order.saved) - len(moved))
                recovery = _Recovery(self._scheduler, self._power, order, saved, heartbeat, began, patience)
                moved.append(await recovery.run())
        return RecoverResult(moved=tuple(moved))


def _patience(order: RecoverInput, left: int) -> float:
    """Return how long one of the workloads that are left may take, in seconds: a later attempt has less time."""
    info = activity.info()
    if info.attempt == 1 or not info.schedule_to_close_timeout:
        return order.deadline_seconds
    rest = info.schedule_to_close_timeout - (datetime.now(UTC) - info.scheduled_time)
    return max(min(order.deadline_seconds, (rest.total_seconds() - REPORT_SECONDS) / left), 0.0)


class _Recovery:
    """The recovery of one workload.

    Args:
        began: when the work of all workloads began to be brought back, on the loop's clock.
        patience: how long this one may take, in seconds.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        power: Power,
        order: RecoverInput,
        saved: SavedWork,
        heartbeat: Heartbeat,
        began: float,
        patience: float,
    ) -> None:
        self._scheduler = scheduler
        self._power = power
        self._order = order
        self._saved = saved
        self._heartbeat = heartbeat
        self._began = began
        self._deadline = asyncio.get_running_loop().time() + patience
        self._patience = patience
        self._name = saved.workload.name or saved.workload.id
        self._refusal = ""
        self._took = ""

    async def run(self) -> MovedWork:
        """Bring the workload back, or say why it does not run. Raises no ``KintsugiError``."""
        node = self._order.node.name
        try:
            self._say(f"proving that {self._name} has stopped on the old node")
            if not await self._has_stopped():
                return self._does_not_run(
                    f"nothing proves that it has stopped on {node}, and it is not started a second time. Make sure"
                    f" that it has stopped there (switch {node} off, or drain it by hand), then override with proceed"
                    " when the repair asks, or start it yourself"
                )
            return await self._see_progress(await self._start())
        except AmbiguousError as error:
            # The spare counts as used: work may be starting there.
            return self._does_not_run(
                f"nobody knows whether it was started again ({error}). Look at it in the scheduler, and start it"
                f" away from {node} if it does not run",
                spare=self._order.spare,
            )
        except KintsugiError as error:
            source = self._saved.image or "its own newest checkpoint"
            return self._does_not_run(
                f"the scheduler did not start it again{self._refusal}: {error}. Start it yourself from {source},"
                f" away from {node}"
            )

    async def _has_stopped(self) -> bool:
        node, workload = self._order.node, self._saved.workload.id
        for ask in (lambda: self._scheduler.confirm_stopped(node, workload), lambda: self._power.is_off(node)):
            try:
                if await self._insist(ask):
                    return True
            except KintsugiError as error:
                activity.logger.warning("no proof that %s has stopped on %s: %s", workload, node, error)
        return False

    async def _start(self) -> WorkloadStatus:
        """Start it on the spare; requeue it without one when the spare is refused."""
        try:
            return await self._resume(self._order.spare)
        except PermanentError as error:
            if not self._order.spare:
                raise
            self._refusal = f" ({self._order.spare} was refused: {error})"
            return await self._resume("")

    async def _resume(self, spare: str) -> WorkloadStatus:
        while True:
            # An earlier attempt may have started it, or a call whose answer was lost.
            there = await self._running_elsewhere()
            if there is not None:
                self._took = self._order.spare if self._order.spare in there.nodes else ""
                return there
            try:
                status = await self._insist(
                    lambda: self._scheduler.resume_workload(self._saved, self._order.node, spare)
                )
            except AmbiguousError as error:
                if self._is_over:
                    raise
                await self._pause(f"looking whether {self._name} was started: {error}", RETRY_SECONDS)
            else:
                self._took = spare
                return status

    async def _running_elsewhere(self) -> WorkloadStatus | None:
        try:
            status = await self._insist(self._look)
        except KintsugiError:
            # Work that a drain has deleted is not known any more.
            return None
        away = status.running and bool(status.nodes) and self._order.node.name not in status.nodes
        return status if away else None

    async def _see_progress(self, status: WorkloadStatus) -> MovedWork:
        queued = not self._order.spare or bool(self._refusal)
        first_step = status.step
        while not _makes_progress(status, first_step, self._order.node.name):
            if self._is_over:
                return self._without_progress(status, queued)
            await self._pause(_says(self._saved, status), LOOK_SECONDS)
            try:
                status = await self._insist(self._look)
            except KintsugiError as error:
                return self._moved(f"started again, but the scheduler cannot say how it is: {error}")
            if first_step < 0 and status.running:
                first_step = status.step
            if queued and not status.running:
                return self._without_progress(status, queued)
        return self._moved(f"runs on {', '.join(status.nodes)} from step {self._saved.step}{self._refusal}")

    def _without_progress(self, status: WorkloadStatus, queued: bool) -> MovedWork:
        if queued and not status.running:
            # It waits for its turn in the scheduler's own queue.
            return self._moved(f"requeued{self._refusal}, waits for nodes: {status.detail}")
        ask = "" if status.running else f". {self._name} does NOT run: look at it in the scheduler"
        detail = f"started again, but no progress seen within {self._patience:.0f} s: {status.detail}{ask}"
        return self._moved(detail, running=status.running)

    def _look(self) -> Awaitable[WorkloadStatus]:
        return self._scheduler.workload_status(self._order.node.cluster, self._saved.workload.id)

    async def _insist(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Ask until there is an answer or the time is over, at least once.

        Raises:
            KintsugiError: the last answer, when it was no.
        """
        while True:
            try:
                return await ask()
            except TransientError as error:
                if self._is_over:
                    raise
                await self._pause(f"{self._name}: asking again: {error}", RETRY_SECONDS)

    @property
    def _is_over(self) -> bool:
        return asyncio.get_running_loop().time() >= self._deadline

    async def _pause(self, why: str, seconds: float) -> None:
        self._say(why)
        await asyncio.sleep(max(min(seconds, self._deadline - asyncio.get_running_loop().time()), 0.0))

    def _say(self, message: str) -> None:
        self._heartbeat.report(StepProgress(message=message))

    def _does_not_run(self, why: str, spare: str = "") -> MovedWork:
        return self._came_out(f"{self._name} does NOT run: {why}.", running=False, spare=spare)

    def _moved(self, detail: str, running: bool = True) -> MovedWork:
        return self._came_out(detail, running=running, spare=self._took)

    def _came_out(self, detail: str, running: bool, spare: str) -> MovedWork:
        stood_still = self._order.stopped_seconds + asyncio.get_running_loop().time() - self._began
        workload = self._saved.workload
        gpus = workload.gpus_per_node * max(len(workload.nodes), 1)
        return MovedWork(
            workload=workload,
            running=running,
            spare=spare,
            resumed_from_step=self._saved.step,
            steps_lost=_steps_lost(self._saved),
            gpu_seconds_lost=round(stood_still * gpus, 1),
            detail=detail,
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
