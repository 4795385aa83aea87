"""RepairWorkflow: one incident on one node, from the fault to the node's return."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.quarantine import QuarantineActivities
    from activities.record import RecordActivities, RecordInput
    from domain.approvals import Said, hear, nobody_answered, only_observes, permission, refusal, waiting
    from domain.chronicle import Chronicle
    from domain.model import Message
    from domain.narrate import details, would_do
    from domain.repair import (
        Abort,
        Answer,
        Approve,
        FaultReported,
        NodeSeen,
        Outcome,
        Override,
        Pause,
        Phase,
        Reject,
        RepairEnded,
        RepairInput,
        RepairResult,
        RepairState,
        RepairView,
        Resume,
        SpareAnswer,
        StepState,
        Wait,
    )
    from domain.repair_news import fault_reported, node_seen
    from domain.runbook import Step, StepResult, begin, ended, latest, next_step, open_faults, started
    from workflows import options, search_attributes
    from workflows.hearing import NotUnderstoodError, understand
    from workflows.ids import REPAIR_WORKFLOW, cluster_task_queue, pool_workflow_id
    from workflows.repair_steps import RepairSteps, can_be_cut_short

SIGNALS: dict[str, type[Message]] = {
    "approve": Approve,
    "reject": Reject,
    "pause": Pause,
    "resume": Resume,
    "abort": Abort,
    "override": Override,
    "fault_reported": FaultReported,
    "node_seen": NodeSeen,
    "spare_answer": SpareAnswer,
}


@workflow.defn(name=REPAIR_WORKFLOW)
class RepairWorkflow:
    """Quarantine, save the work, drain, recover it on a spare, climb the ladder, burn in, give back.

    Which step comes next is decided by ``domain.runbook``, who may let it run by ``domain.approvals``.
    """

    @workflow.init
    def __init__(self, repair: RepairInput) -> None:
        self._state = begin(repair, workflow.info().workflow_id, workflow.now())
        self._steps = RepairSteps(lambda: self._state)
        self._chronicle = Chronicle.of(self._state)
        self._recording: list[asyncio.Task[None]] = []
        self._shown: tuple[str, str] = ("", "")
        self._released = False

    @workflow.run
    async def run(self, repair: RepairInput) -> RepairResult:
        """Run the repair to its end; cancelling it is an abort that leaves the node out."""
        try:
            if only_observes(self._state):
                self._end(Outcome.OBSERVED, would_do(self._state))
            while (step := await self._next()) is not None:
                if await self._permitted(step):
                    await self._perform(step)
        except asyncio.CancelledError:
            self._cancelled()
        # From here on a cancel request changes nothing: the pool must hear how it ended.
        return await _to_the_end(self._finish())

    def _cancelled(self) -> None:
        """A cancel request (Temporal's own button) is an abort by nobody in particular."""
        self._hear(Abort(by="a cancel request"))

    async def _next(self) -> Step | None:
        """Return the next step once nobody pauses the repair; None when it is over or aborted."""
        await workflow.wait_condition(lambda: not self._state.paused_by or self._state.abort is not None)
        if self._state.abort is not None:
            return None
        if self._state.step("quarantine") is None and not open_faults(self._state):
            self._end(Outcome.CLEARED, "the fault cleared before anything was done")
        return next_step(self._state)

    async def _permitted(self, step: Step) -> bool:
        """Return whether the step may run; otherwise wait until something has changed and let the plan be read anew."""
        if permission(self._state, step).allowed:
            return True
        before = self._state.wait
        self._change(waiting(self._state, step, workflow.now()))
        wait = self._state.wait
        assert wait is not None
        if before is None or (before.step_id, before.digest) != (wait.step_id, wait.digest):
            again = before is not None and before.step_id == wait.step_id
            self._chronicle.asked(wait, workflow.now(), again=again)
        self._record_soon()
        watching = self._watch_mark()
        timeout = None if wait.until is None else wait.until - workflow.now()
        try:
            await workflow.wait_condition(
                lambda: self._answered(step) or _mark_gone(watching),
                timeout=timeout,
                timeout_summary=f"answer to {step.step_id}",
            )
        except TimeoutError:
            self._unanswered(step, wait)
        if watching is not None:
            self._judge_mark(watching)
        return False

    def _unanswered(self, step: Step, wait: Wait) -> None:
        if self._answered(step):
            # The answer came in the very moment in which its time was over.
            return
        state, urgent = nobody_answered(self._state, workflow.now())
        if state != self._state:
            self._change(state)
            self._chronicle.unanswered(wait, urgent, workflow.now())

    def _answered(self, step: Step) -> bool:
        """Return whether the plan must be read anew: allowed, ordered, aborted, changed or paused."""
        state = self._state
        if state.abort is not None or state.outcome is not None or state.paused_by:
            return True
        following = next_step(state)
        if following is None or following != step or permission(state, step).allowed:
            return True
        return waiting(state, step, workflow.now()) != state

    def _watch_mark(self) -> workflow.ActivityHandle | None:  # type: ignore[type-arg]
        """While people think, notice that somebody gives the node back by hand."""
        if not self._state.quarantined:
            return None
        return workflow.start_activity_method(
            QuarantineActivities.watch_mark,
            self._steps.marked,
            **options.WATCH_MARK,
            task_queue=self._queue,
            summary="notice if somebody takes the node over",
        )

    def _judge_mark(self, watching: workflow.ActivityHandle) -> None:  # type: ignore[type-arg]
        if not watching.done():
            # Looked at when it ends, or asyncio complains that nobody did.
            watching.add_done_callback(lambda task: task.cancelled() or task.exception())
            watching.cancel()
            return
        if watching.cancelled() or watching.exception() is not None:
            return
        result = watching.result()
        if not result.ours:
            self._end(Outcome.TAKEN_OVER, result.detail)

    async def _perform(self, step: Step) -> None:
        by = permission(self._state, step).by
        self._change(started(self._state, step, by, workflow.now()))
        running = asyncio.create_task(self._steps.run(step))

        def settled() -> bool:
            return running.done() or (self._state.abort is not None and can_be_cut_short(step))

        try:
            await workflow.wait_condition(settled)
        except asyncio.CancelledError:
            self._cancelled()
            await workflow.wait_condition(settled)
        if not running.done():
            running.cancel()
            result = StepResult(state=StepState.SKIPPED, detail="cut short by an abort")
        else:
            result = running.result()
        if step.step_id == "recover" and self._steps.spare_answer is not None:
            self._state = self._state.model_copy(update={"spare": self._steps.spare_answer.spare})
        self._change(ended(self._state, step, result, workflow.now()))
        self._chronicle.stepped(step, result, by, workflow.now())

    async def _give_up(self) -> None:
        """End an aborted repair: undo what is safe to undo, leave a node that is not proven in a person's hands."""
        abort = self._state.abort
        assert abort is not None
        safe = not self._state.rungs_run and not self._state.fenced and not open_faults(self._state)
        kept = "the node stays out, with our mark, in that person's hands"
        touched = self._state.step("quarantine") is not None
        if touched and (abort.give_back or safe):
            kept = await self._undo_quarantine()
        elif not touched:
            kept = "nothing had been done yet"
        running = {moved.workload.id for moved in self._state.moved if moved.running}
        stopped = [w.name or w.id for w in self._state.workloads if w.id not in running]
        if stopped and latest(self._state, "drain") is not None:
            kept += f"; taken off the node and NOT running again: {', '.join(stopped)}"
        why = f": {abort.reason}" if abort.reason else ""
        self._end(Outcome.ABORTED, f"by {abort.by}{why}; {kept}")

    async def _undo_quarantine(self) -> str:
        try:
            result = await workflow.execute_activity_method(
                QuarantineActivities.release,
                self._steps.marked,
                **options.SCHEDULER_CALL,
                task_queue=self._queue,
                summary="undo our quarantine",
            )
        except ActivityError as error:
            return f"our quarantine could not be undone ({error.cause or error}): lift it by hand"
        self._released = True
        return "our quarantine is undone" if result.ours else result.detail

    async def _finish(self) -> RepairResult:
        """Undo what is left to undo, tell the pool, write the record, end when every message has been handled."""
        if self._state.outcome is None:
            await self._give_up()
        state = self._state
        assert state.outcome is not None
        kept = state.abort is not None and state.quarantined and not self._released
        result = RepairResult(
            outcome=state.outcome,
            detail=state.outcome_detail,
            rungs=state.rungs_run,
            moved=state.moved,
            handled=tuple(fault.key for fault in state.faults) if state.vouched_by else state.cleared,
            held_by=state.abort.by if kept and state.abort is not None else "",
        )
        self._chronicle.over(state, workflow.now())
        self._record_soon()
        node = state.identity.node
        message = RepairEnded(
            repair_id=state.repair_id,
            node=node.name,
            at=workflow.now(),
            result=result,
            identity=state.identity,
        )
        try:
            pool = workflow.get_external_workflow_handle(pool_workflow_id(node.cluster, node.pool))
            await pool.signal("repair_ended", message)
        except ApplicationError as error:
            workflow.logger.warning("the pool of %s does not run, it is not told: %s", state.repair_id, error)
        for task in self._recording:
            await task
        await workflow.wait_condition(workflow.all_handlers_finished)
        return result

    def _end(self, outcome: Outcome, detail: str) -> None:
        self._change(
            self._state.model_copy(
                update={"outcome": outcome, "outcome_detail": detail, "phase": Phase.ENDED, "wait": None}
            )
        )

    @property
    def _queue(self) -> str:
        return cluster_task_queue(self._state.identity.node.cluster)

    def _change(self, state: RepairState) -> None:
        """Take over a new state and show it."""
        if state.outcome is not None and state.phase is not Phase.ENDED:
            state = state.model_copy(update={"phase": Phase.ENDED, "wait": None})
        self._state = state
        workflow.set_current_details(details(state))
        waiting_for = state.wait.step_id if state.wait is not None else search_attributes.NOBODY
        shown = (str(state.phase), waiting_for)
        if shown != self._shown:
            self._shown = shown
            workflow.upsert_search_attributes(
                [
                    search_attributes.PHASE.value_set(shown[0]),
                    search_attributes.WAITING_FOR.value_set(shown[1]),
                ]
            )

    def _record_soon(self) -> None:
        """Write what has happened so far, without holding the repair up."""
        entries, notices = self._chronicle.take()
        order = RecordInput(entries=entries, notices=notices)
        self._recording = [task for task in self._recording if not task.done()]
        self._recording.append(asyncio.create_task(self._record(order)))

    async def _record(self, order: RecordInput) -> None:
        try:
            await workflow.execute_activity_method(
                RecordActivities.record,
                order,
                **options.RECORD,
                task_queue=self._queue,
                summary="write the record",
            )
        except ActivityError as error:
            workflow.logger.error("the record could not be written: %s", error)

    # What others say. Signals may carry anything; updates are checked before they are accepted.

    @workflow.signal(dynamic=True)
    def heard(self, name: str, args: Sequence[RawValue]) -> None:
        """Take any signal; one that cannot be understood is told in the details, and the repair goes on waiting."""
        try:
            message = understand(name, args, SIGNALS)
        except NotUnderstoodError as error:
            self._change(self._state.model_copy(update={"last_refusal": str(error)}))
            return
        match message:
            case FaultReported():
                self._change(fault_reported(self._state, message.event, workflow.now()))
                self._chronicle.reported(message.event, workflow.now())
            case NodeSeen():
                self._change(node_seen(self._state, message.identity))
            case SpareAnswer():
                self._steps.spare_answer = message
            case Approve() | Reject() | Pause() | Resume() | Abort() | Override():
                self._hear(message)

    def _hear(self, said: Said) -> Answer:
        heard = hear(self._state, said, workflow.now())
        self._chronicle.heard(said, heard.answer, workflow.now())
        self._change(heard.state)
        return heard.answer

    def _refuse(self, said: Said) -> None:
        reason = refusal(self._state, said)
        if reason:
            raise ApplicationError(reason, type="Refused", non_retryable=True)

    @workflow.update(name="approve_update")
    async def approve_update(self, said: Approve) -> Answer:
        """Approve what the repair waits for."""
        return self._hear(said)

    @workflow.update(name="reject_update")
    async def reject_update(self, said: Reject) -> Answer:
        """Say no to what the repair waits for."""
        return self._hear(said)

    @workflow.update(name="pause_update")
    async def pause_update(self, said: Pause) -> Answer:
        """Let no further step begin."""
        return self._hear(said)

    @workflow.update(name="resume_update")
    async def resume_update(self, said: Resume) -> Answer:
        """Go on after a pause."""
        return self._hear(said)

    @workflow.update(name="abort_update")
    async def abort_update(self, said: Abort) -> Answer:
        """Stop the repair."""
        return self._hear(said)

    @workflow.update(name="override_update")
    async def override_update(self, said: Override) -> Answer:
        """Order what comes next."""
        return self._hear(said)

    @approve_update.validator
    def _check_approve(self, said: Approve) -> None:
        self._refuse(said)

    @reject_update.validator
    def _check_reject(self, said: Reject) -> None:
        self._refuse(said)

    @pause_update.validator
    def _check_pause(self, said: Pause) -> None:
        self._refuse(said)

    @resume_update.validator
    def _check_resume(self, said: Resume) -> None:
        self._refuse(said)

    @abort_update.validator
    def _check_abort(self, said: Abort) -> None:
        self._refuse(said)

    @override_update.validator
    def _check_override(self, said: Override) -> None:
        self._refuse(said)

    @workflow.query(name="get_repair")
    def get_repair(self) -> RepairView:
        """Return everything the repair knows."""
        return RepairView(repair_id=self._state.repair_id, state=self._state)


def _mark_gone(watching: workflow.ActivityHandle | None) -> bool:  # type: ignore[type-arg]
    """Return whether the watch has seen our mark disappear; a watch that broke has seen nothing."""
    if watching is None or not watching.done() or watching.cancelled() or watching.exception() is not None:
        return False
    return not watching.result().ours


async def _to_the_end(work: Coroutine[None, None, RepairResult]) -> RepairResult:
    """Run to its end what a cancel request must not interrupt."""
    running = asyncio.ensure_future(work)
    while not running.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(running)
    return running.result()
