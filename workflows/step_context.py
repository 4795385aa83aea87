"""What all steps of a repair share: its live state, our mark, where the agent is, what a failed activity means."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.node_operations import NodeOperationActivities, OperationInput, OperationResult
    from activities.quarantine import QuarantineActivities, QuarantineInput
    from domain.narrate import mark_reason
    from domain.observations import ComponentKind
    from domain.operations import OperationKind, OperationRequest
    from domain.repair import Phase, RepairState, StepState
    from domain.runbook import Step, StepResult
    from domain.scheduling import Mark
    from workflows import options
    from workflows.at_the_agent import at_the_agent
    from workflows.ids import cluster_task_queue

Result = TypeVar("Result")


class StepContext:
    """One repair as its steps see it: the state changes under them, by signals."""

    def __init__(self, state: Callable[[], RepairState]) -> None:
        self.state = state
        self.step = Step(step_id="", phase=Phase.DETECTED)

    @property
    def queue(self) -> str:
        """Task queue of the activities that need this cluster's credentials."""
        return cluster_task_queue(self.state().identity.node.cluster)

    @property
    def mark(self) -> Mark:
        """Our mark on the node: the same in every attempt."""
        state = self.state()
        return Mark(repair_id=state.repair_id, reason=mark_reason(state.input.incident, state.repair_id))

    @property
    def marked(self) -> QuarantineInput:
        """The node with our mark, as the quarantine's activities take it."""
        return QuarantineInput(node=self.state().identity.node, mark=self.mark)

    @property
    def token(self) -> str:
        """Identity of this step's effect: the same in every retry, another in the next try."""
        return f"{self.state().repair_id}/{self.step.step_id}"

    async def taken_over(self) -> StepResult | None:
        """Look, at the moment of acting, whether the node is still ours; None when it is."""
        marked = await workflow.execute_activity_method(
            QuarantineActivities.confirm_mark,
            self.marked,
            **options.SCHEDULER_CALL,
            task_queue=self.queue,
            summary="is the node still ours?",
        )
        return None if marked.ours else StepResult(state=StepState.FAILED, detail=marked.detail, taken_over=True)

    def operation(self, kind: OperationKind, limit: timedelta) -> OperationRequest:
        """Return the request for an operation of this step, bounded by its limit."""
        state = self.state()
        gpus = [f.component.id for f in state.faults if f.component.kind is ComponentKind.GPU and f.component.id]
        return OperationRequest(
            operation_id=self.token,
            kind=kind,
            boot_id=state.identity.boot_id,
            gpu_uuids=tuple(dict.fromkeys(gpus)) if kind is OperationKind.RESET_GPU else (),
            burn_in_level=state.input.policy.burn_in.level,
            deadline_seconds=limit.total_seconds(),
        )

    async def run_operation(self, request: OperationRequest, bounds: options.Options, summary: str) -> OperationResult:
        """Run an operation at the agent to its end, wherever the agent is by then."""
        return await self.asking(
            lambda address: workflow.start_activity_method(
                NodeOperationActivities.run_operation,
                OperationInput(address=address, request=request),
                **bounds,
                task_queue=self.queue,
                summary=summary,
            )
        )

    async def asking(self, ask: Callable[[str], workflow.ActivityHandle[Result]]) -> Result:
        """Run an activity that speaks to the agent; see ``at_the_agent``."""
        result = await at_the_agent(ask, self.address, over=lambda: False)
        assert result is not None
        return result

    def address(self) -> str:
        """Return where the agent was last seen."""
        return self.state().identity.operations_address


def not_done(step: Step, error: ActivityError) -> StepResult:
    """Return how a step ended whose activity failed: what the error says about the node, and what it does not.

    An outage of ours (the scheduler's API, the worker, a certificate) is no evidence against the node: it must not
    lead to a fence or a heavier rung. A rung that this node's agent or site cannot do was not run.
    """
    kind = error_type(error)
    says_nothing = step.step_id.partition("-")[0] in ("drain", "burn_in", "return")
    return StepResult(
        state=StepState.FAILED,
        detail=_reason(error),
        taken_over=kind == "NotOursError",
        could_not=says_nothing or (step.rung is not None and error.activity_type == "confirm_mark"),
        began=kind != "UnsupportedError",
    )


def error_type(error: ActivityError) -> str:
    """Return the class name of the error that an activity raised; empty for a time-out or a cancellation."""
    cause = error.cause
    return cause.type or "" if isinstance(cause, ApplicationError) else ""


def _reason(error: ActivityError) -> str:
    cause: BaseException | None = error.cause
    while cause is not None and cause.__cause__ is not None:
        cause = cause.__cause__
    return str(cause or error)
