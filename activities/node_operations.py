"""Operations that the node's agent carries out: followed to their end, joined again after any interruption."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.heartbeat import Heartbeat, earlier_progress, heartbeating
from domain.errors import KintsugiError, PermanentError, TransientError, UnsupportedError
from domain.model import Message
from domain.operations import OperationKind, OperationProgress, OperationRequest, OperationState
from domain.ports import NodeAgent
from domain.repair import StepProgress

REJOIN_SECONDS = 1.0
"""Pause before a lost stream is joined again, in seconds."""

CANCEL_SECONDS = 5.0
"""How long an agent may take to hear that an operation is not wanted any more, in seconds."""

STOPPABLE = (OperationKind.CHECKPOINT, OperationKind.BURN_IN)
"""Operations that leave nothing half done on the node when they are stopped."""


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

    When somebody calls the activity off, an operation that can be stopped does not go on on the node either.

    Raises:
        TransientError: the agent was away when the operation's own deadline had passed.
    """
    contact = _Contact()
    try:
        return await _followed(agents, order, heartbeat, contact)
    except asyncio.CancelledError:
        # An agent that is away may be back at another address, where the same operation is joined anew.
        if contact.there and order.request.kind in STOPPABLE and await _called_off():
            await _stop(agents, order)
        raise


@dataclass
class _Contact:
    """Whether the agent answered when it was last spoken to."""

    there: bool = False


async def _followed(
    agents: NodeAgent, order: OperationInput, heartbeat: Heartbeat, contact: _Contact
) -> OperationProgress:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + order.request.deadline_seconds
    while True:
        try:
            # From here on it may have begun.
            contact.there = True
            progress = await agents.start(order.address, order.request)
            heartbeat.report(as_step_progress(progress))
            if progress.state.final:
                return progress
            async for progress in agents.watch(order.address, order.request.operation_id):
                heartbeat.report(as_step_progress(progress))
            if progress.state.final:
                return progress
        except TransientError as error:
            contact.there = False
            if loop.time() >= deadline:
                raise
            heartbeat.report(StepProgress(message=f"the agent is away, joining again: {error}"))
        await asyncio.sleep(REJOIN_SECONDS)


async def _called_off() -> bool:
    """Return whether nobody wants the operation any more: the repair cancelled the activity, or is over.

    A worker that shuts down, or whose attempt Temporal has given up, leaves the operation to whoever joins it next.
    """
    details = activity.cancellation_details()
    if details is None or details.cancel_requested or not details.not_found:
        return details is not None and details.cancel_requested
    # Temporal does not know this attempt any more: another one follows the operation, unless the repair has ended.
    info = activity.info()
    repair = activity.client().get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
    try:
        described = await repair.describe(rpc_timeout=timedelta(seconds=CANCEL_SECONDS))
    except RPCError as error:
        return error.status is RPCStatusCode.NOT_FOUND
    return described.status is not WorkflowExecutionStatus.RUNNING


async def _stop(agents: NodeAgent, order: OperationInput) -> None:
    """Ask the agent to stop the operation. What goes wrong is logged: the activity ends all the same."""
    operation = order.request.operation_id
    asking = asyncio.create_task(_ask_to_stop(agents, order))
    # Not ``wait_for``: a second cancellation must not take the request back.
    done, _ = await asyncio.wait((asking,), timeout=CANCEL_SECONDS)
    if not done:
        asking.cancel()
        activity.logger.warning(
            "the agent at %s did not say within %g s that it stops %s", order.address, CANCEL_SECONDS, operation
        )


async def _ask_to_stop(agents: NodeAgent, order: OperationInput) -> None:
    try:
        await agents.cancel(order.address, order.request.operation_id)
    except KintsugiError as error:
        activity.logger.warning("%s may go on on the node: %s", order.request.operation_id, error)


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
