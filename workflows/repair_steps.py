"""How each step of a repair is carried out: which activity, with which bound, and what its result means."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.checkpoint import CheckpointActivities, CheckpointInput, ChosenSave
    from activities.drain import DrainActivities, DrainInput, LetFinishInput
    from activities.give_back import GiveBackActivities, GiveBackInput
    from activities.power import PowerActivities, PowerInput
    from activities.quarantine import QuarantineActivities, QuarantineInput
    from activities.recover import RecoverActivities, RecoverInput
    from domain.give_back import burn_in_failures
    from domain.operations import OperationKind
    from domain.policy import Action, WithoutSpare
    from domain.repair import RepairState, SpareAnswer, SpareRequest, StepState
    from domain.runbook import Step, StepResult, grace_of, open_faults
    from domain.saving import choose_save, own_checkpoint, stopped_at, work_to_recover
    from domain.scheduling import DrainRequest
    from domain.workloads import SaveMethod
    from workflows import options
    from workflows.ids import pool_workflow_id
    from workflows.rung_steps import RungSteps
    from workflows.step_context import StepContext, not_done

Result = TypeVar("Result")

SPARE_ANSWER_WAIT = timedelta(minutes=2)
"""How long the pool may take to answer a request for a spare."""

SPARE_RETRY = timedelta(seconds=30)
"""Pause before the pool is asked again when the policy waits for a spare."""


class RepairSteps:
    """Carries out steps for one repair. Reads the repair's state, which signals change while a step runs."""

    def __init__(self, state: Callable[[], RepairState]) -> None:
        self._context = StepContext(state)
        self._rungs = RungSteps(self._context)
        self.spare_answer: SpareAnswer | None = None

    @property
    def marked(self) -> QuarantineInput:
        """The node with our mark, as the quarantine's activities take it."""
        return self._context.marked

    async def run(self, step: Step) -> StepResult:
        """Carry out a step. What goes wrong in the world becomes a failed step, never a failed repair."""
        self._context.step = step
        try:
            if step.rung is not None:
                return await self._rungs.run(step.rung)
            by_name = {
                "quarantine": self._quarantine,
                "grace": self._grace,
                "let_finish": self._let_finish,
                "checkpoint": self._checkpoint,
                "drain": self._drain,
                "fence": self._fence,
                "recover": self._recover,
                "burn_in": self._burn_in,
                "return": self._give_back,
            }
            return await by_name[step.step_id.partition("-")[0]]()
        except ActivityError as error:
            return not_done(step, error)

    async def _quarantine(self) -> StepResult:
        found = await workflow.execute_activity_method(
            QuarantineActivities.quarantine,
            self.marked,
            **options.SCHEDULER_CALL,
            task_queue=self._context.queue,
            summary=f"keep new work off {self.marked.node.name}",
        )
        names = ", ".join(w.name or w.id for w in found.workloads) or "nothing"
        return StepResult(
            state=StepState.DONE,
            detail=f"no new work; runs there: {names}",
            workloads=found.workloads,
            foreign_holds=found.foreign_holds,
        )

    async def _grace(self) -> StepResult:
        wait = grace_of(self._context.state())
        try:
            await workflow.wait_condition(
                lambda: not open_faults(self._context.state()),
                timeout=wait,
                timeout_summary="grace: the fault may clear",
            )
        except TimeoutError:
            return StepResult(state=StepState.DONE, detail=f"did not clear within {wait.total_seconds():g} s")
        return StepResult(state=StepState.DONE, detail="the fault cleared by itself: no rung is run")

    async def _let_finish(self) -> StepResult:
        patience = self._context.state().input.policy.limits.drain_patience
        result = await workflow.execute_activity_method(
            DrainActivities.let_finish,
            LetFinishInput(node=self._context.state().identity.node, patience_seconds=patience.total_seconds()),
            **options.bounded(patience),
            task_queue=self._context.queue,
            summary="work may finish by itself",
        )
        left = ", ".join(w.name or w.id for w in result.workloads)
        detail = f"still running: {left}" if left else "all work has finished by itself"
        return StepResult(state=StepState.DONE, detail=detail, workloads=result.workloads)

    async def _checkpoint(self) -> StepResult:
        state = self._context.state()
        limit = state.input.policy.limits.checkpoint
        saves = tuple(
            ChosenSave(workload=workload, choice=choose_save(workload, open_faults(state)))
            for workload in state.workloads
        )
        if all(save.choice.method is SaveMethod.NONE for save in saves):
            saved = tuple(own_checkpoint(save.workload, save.choice.explanation) for save in saves)
        else:
            order = CheckpointInput(
                address=state.identity.operations_address,
                boot_id=state.identity.boot_id,
                token=self._context.token,
                deadline_seconds=limit.total_seconds(),
                saves=saves,
            )
            result = await self._context.asking(
                lambda address: workflow.start_activity_method(
                    CheckpointActivities.checkpoint,
                    order.model_copy(update={"address": address}),
                    **options.bounded(limit * len(saves)),
                    task_queue=self._context.queue,
                    summary=f"save {', '.join(w.name or w.id for w in state.workloads)}",
                )
            )
            saved = result.saved
        detail = "; ".join(f"{s.workload.name or s.workload.id}: step {s.step}, {s.explanation}" for s in saved)
        return StepResult(state=StepState.DONE, detail=detail, saved=saved)

    async def _drain(self) -> StepResult:
        limit = self._context.state().input.policy.limits.drain
        request = DrainRequest(mark=self._context.mark, deadline_seconds=limit.total_seconds())
        result = await workflow.execute_activity_method(
            DrainActivities.drain,
            DrainInput(node=self._context.state().identity.node, request=request),
            **options.bounded(limit),
            task_queue=self._context.queue,
            summary=f"drain {self._context.state().identity.node.name}",
        )
        if result.done:
            return StepResult(state=StepState.DONE, detail="the node is empty")
        blocked = f", blocked by {result.blocked_by}" if result.blocked_by else ""
        left = ", ".join(result.left) or "unknown work"
        return StepResult(state=StepState.FAILED, detail=f"after {limit} still there: {left}{blocked}")

    async def _fence(self) -> StepResult:
        if (taken := await self._context.taken_over()) is not None:
            return taken
        result = await workflow.execute_activity_method(
            PowerActivities.fence,
            PowerInput(node=self._context.state().identity.node, token=self._context.token),
            **options.bounded(self._context.state().input.policy.limits.power_cycle, attempts=5),
            task_queue=self._context.queue,
            summary="switch the node off: nothing may go on there",
        )
        return StepResult(state=StepState.DONE, detail=result.detail)

    async def _recover(self) -> StepResult:
        state = self._context.state()
        answer = await self._ask_for_spare()
        limit = state.input.policy.limits.recover
        running = {moved.workload.id for moved in state.moved if moved.running}
        saved = work_to_recover(state.workloads, state.saved, running)
        drained = state.step("drain")
        stopped = workflow.now() - stopped_at(state.faults, drained.started_at if drained else workflow.now())
        order = RecoverInput(
            node=state.identity.node,
            saved=saved,
            spare=answer.spare,
            stopped_seconds=stopped.total_seconds(),
            deadline_seconds=limit.total_seconds(),
        )
        result = await workflow.execute_activity_method(
            RecoverActivities.recover,
            order,
            **options.bounded(limit * max(len(saved), 1)),
            task_queue=self._context.queue,
            summary=f"bring the work back on {answer.spare}" if answer.spare else "requeue the work",
        )
        detail = "; ".join(moved.detail for moved in result.moved)
        if not answer.spare:
            detail = f"{answer.detail}; {detail}"
        moved = (*(entry for entry in state.moved if entry.running), *result.moved)
        ending = StepState.DONE if all(entry.running for entry in moved) else StepState.FAILED
        return StepResult(state=ending, detail=detail, moved=moved)

    async def _ask_for_spare(self) -> SpareAnswer:
        """Ask the pool, once or (by policy) until one is free or the wait is over."""
        state = self._context.state()
        pool = state.input.policy.for_pool(state.identity.node.pool)
        until = workflow.now() + pool.spare_wait
        while True:
            answer = await self._ask_pool_once()
            if answer.spare or pool.without_spare is WithoutSpare.REQUEUE or workflow.now() >= until:
                return answer
            await workflow.sleep(SPARE_RETRY, summary="wait for a free spare")

    async def _ask_pool_once(self) -> SpareAnswer:
        state = self._context.state()
        node = state.identity.node
        gpus = state.input.identity.inventory.gpus
        request = SpareRequest(
            repair_id=state.repair_id,
            node=node.name,
            model=gpus[0].model if gpus else "",
            gpus=max((w.gpus_per_node for w in state.workloads), default=0),
            topology=state.identity.topology,
        )
        self.spare_answer = None
        pool = workflow.get_external_workflow_handle(pool_workflow_id(node.cluster, node.pool))
        try:
            await pool.signal("request_spare", request)
            await workflow.wait_condition(
                lambda: self.spare_answer is not None, timeout=SPARE_ANSWER_WAIT, timeout_summary="spare"
            )
        except ApplicationError as error:
            return SpareAnswer(detail=f"the pool cannot be asked for a spare: {error}")
        except TimeoutError:
            return SpareAnswer(detail="the pool did not answer the request for a spare")
        assert self.spare_answer is not None
        return self.spare_answer

    async def _burn_in(self) -> StepResult:
        policy = self._context.state().input.policy
        result = await self._context.run_operation(
            self._context.operation(OperationKind.BURN_IN, policy.limits.burn_in),
            options.bounded(policy.limits.burn_in),
            summary=f"burn-in, level {policy.burn_in.level}",
        )
        tests = result.progress.tests
        failures = burn_in_failures(tests, policy.burn_in.allow_warn)
        if failures:
            return StepResult(state=StepState.FAILED, detail="; ".join(failures))
        return StepResult(state=StepState.DONE, detail=f"{len(tests)} tests passed")

    async def _give_back(self) -> StepResult:
        state = self._context.state()
        result = await self._context.asking(
            lambda address: workflow.start_activity_method(
                GiveBackActivities.give_back,
                GiveBackInput(
                    node=state.identity.node,
                    address=address,
                    mark=self._context.mark,
                    recorded=state.input.identity.inventory,
                    vouched_by=state.vouched_by,
                ),
                **options.GIVE_BACK,
                # An answer that is under way counts: a mark that is gone would be taken for somebody else's doing.
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                task_queue=self._context.queue,
                summary="give the node back",
            )
        )
        if not result.ours:
            return StepResult(state=StepState.FAILED, detail=result.detail, taken_over=True)
        if not result.returned:
            return StepResult(state=StepState.FAILED, detail="; ".join(result.objections))
        proof = f"without proof, on the word of {state.vouched_by}" if state.vouched_by else "proven by burn-in"
        holds = f"; still held back by {', '.join(result.foreign_holds)}" if result.foreign_holds else ""
        return StepResult(state=StepState.DONE, detail=f"back in pool {state.identity.node.pool}, {proof}{holds}")


def can_be_cut_short(step: Step) -> bool:
    """Return whether a step may be cut short by an abort: nothing on the node is half done by it."""
    return step.action in (None, Action.CHECKPOINT, Action.DRAIN, Action.BURN_IN)
