"""Operations that the node's agent carries out: followed to their end, joined again after any interruption."""

from __future__ import annotations

import asyncio

from temporalio import activity

from activities.heartbeat import Heartbeat, earlier_progress, heartbeating
from domain.errors import PermanentError, TransientError, UnsupportedError
from domain.model import Message
from domain.operations import OperationProgress, OperationRequest, OperationState
from domain.ports import NodeAgent
from domain.repair import StepProgress

REJOIN_SECONDS = 1.0
"""Pause before a lost stream is joined again, in seconds."""


class OperationInput(Message):
    """Where the agent listens, and what it is to do."""

    address: str
    request: OperationRequest


class OperationResult(Message):
    """The last progress that the agent reported."""

    progress: OperationProgress


class NodeOperationActivities:
    """One activity for operations that end on this boot, one for the reboot, which the agent does not survive."""

    def __init__(self, agents: NodeAgent) -> None:
        self._agents = agents

    @activity.defn(name="run_operation")
    async def run_operation(self, order: OperationInput) -> OperationResult:
        """Run an operation to its end. The operation id makes a retry join what is running.

        Raises:
            UnsupportedError: this agent cannot do that.
            PermanentError: it failed or was cancelled, with the agent's own words.
            TransientError: the agent could not be reached before the deadline.
        """
        async with heartbeating() as heartbeat:
            progress = await follow(self._agents, order, heartbeat)
        return OperationResult(progress=must_succeed(progress))

    @activity.defn(name="reboot")
    async def reboot(self, order: OperationInput) -> OperationResult:
        """Start the reboot. Done when the agent has gone down with it; that the node is back is proven elsewhere."""
        request = order.request
        before = earlier_progress()
        accepted = before is not None and before.cursor == request.operation_id
        going_down = OperationProgress(
            operation_id=request.operation_id,
            kind=request.kind,
            state=OperationState.RUNNING,
            message="going down",
        )
        async with heartbeating() as heartbeat:
            try:
                progress = await self._agents.start(order.address, request)
                accepted = True
                heartbeat.report(as_step_progress(progress))
                async for progress in self._agents.watch(order.address, request.operation_id):
                    heartbeat.report(as_step_progress(progress))
            except TransientError:
                if not accepted:
                    raise
                return OperationResult(progress=going_down)
        return OperationResult(progress=must_succeed(progress))


async def follow(agents: NodeAgent, order: OperationInput, heartbeat: Heartbeat) -> OperationProgress:
    """Start or join an operation and follow it until it is final; a lost stream is joined again.

    Raises:
        TransientError: the agent was away when the operation's own deadline had passed.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + order.request.deadline_seconds
    while True:
        try:
            progress = await agents.start(order.address, order.request)
            heartbeat.report(as_step_progress(progress))
            if progress.state.final:
                return progress
            async for progress in agents.watch(order.address, order.request.operation_id):
                heartbeat.report(as_step_progress(progress))
            if progress.state.final:
                return progress
        except TransientError as error:
            if loop.time() >= deadline:
                raise
            heartbeat.report(StepProgress(message=f"the agent is away, joining again: {error}"))
        await asyncio.sleep(REJOIN_SECONDS)


def must_succeed(progress: OperationProgress) -> OperationProgress:
    """Return the progress of an operation that succeeded; raise what its end means otherwise."""
    if progress.state is OperationState.UNSUPPORTED:
        raise UnsupportedError(progress.message or f"the agent cannot {progress.kind}")
    if progress.state in (OperationState.FAILED, OperationState.CANCELLED):
        raise PermanentError(progress.message or f"{progress.kind} {progress.state}")
    return progress


def as_step_progress(progress: OperationProgress) -> StepProgress:
    """Return an operation's progress as the heartbeat that people see."""
    return StepProgress(fraction=progress.fraction, message=progress.message, cursor=progress.operation_id)
