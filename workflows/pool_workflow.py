"""PoolWorkflow: the one durable place where decisions across the nodes of a pool are made."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import NamedTuple

from temporalio import workflow
from temporalio.common import RawValue, SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import ActivityError, ApplicationError, WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from activities.current_policy import PolicyActivities
    from activities.quarantine import QuarantineActivities, QuarantineInput
    from activities.record import RecordActivities, RecordInput
    from activities.spares import LeaseInput, ReturnSpareInput, SpareActivities
    from domain.ledger import Notice
    from domain.model import Message
    from domain.narrate import details, pool_details, summary
    from domain.nodes import NodeRef
    from domain.policy import Policy
    from domain.pool import Admit, CloseBreaker, PoolState, PoolView
    from domain.pool_decisions import (
        Command,
        Decided,
        admit_by_person,
        close_breaker,
        hold_is_over,
        next_look,
        repair_ended,
        repair_gone,
        repair_started,
        take_in,
        time_passed,
    )
    from domain.pool_view import unfit_spares, view
    from domain.repair import Answer, RepairEnded, RepairInput, SpareAnswer, SpareRequest
    from domain.reports import NodeEvent, PoolInput, PoolReport, Unread
    from domain.runbook import begin
    from domain.scheduling import Mark
    from workflows import options, search_attributes
    from workflows.hearing import NotUnderstoodError, understand
    from workflows.ids import POOL_WORKFLOW, cluster_task_queue, repair_workflow_id
    from workflows.repair_workflow import RepairWorkflow


class HoldOver(NamedTuple):
    """A node that an aborted repair had left to a person carries its mark no more."""

    node: str


SIGNALS: dict[str, type[Message]] = {
    "report": PoolReport,
    "repair_ended": RepairEnded,
    "request_spare": SpareRequest,
    "close_breaker": CloseBreaker,
    "admit": Admit,
}


@workflow.defn(name=POOL_WORKFLOW)
class PoolWorkflow:
    """Takes in what happens to the pool's nodes, admits repairs, leases spares. Runs for ever, in bounded runs.

    Every decision is a call into ``domain.pool_decisions``; here they are only carried out, one after the other.
    """

    @workflow.init
    def __init__(self, pool: PoolInput) -> None:
        self._state = pool.state or PoolState(cluster=pool.cluster, pool=pool.pool)
        self._policy = Policy()
        self._events: list[NodeEvent] = list(pool.unread.events)
        self._inbox: list[RepairEnded | CloseBreaker | Admit | HoldOver] = [
            *pool.unread.ended,
            *pool.unread.closed,
            *pool.unread.admitted,
        ]
        self._requests: list[SpareRequest] = list(pool.unread.spares)
        self._leasing = asyncio.Lock()
        self._background: list[asyncio.Task[None]] = []
        self._watched: dict[str, asyncio.Task[None]] = {}

    @workflow.run
    async def run(self, pool: PoolInput) -> None:
        """Decide until the history is long, then go on in a new run with the same state."""
        while not self._may_start_afresh():
            self._policy = await workflow.execute_local_activity_method(
                PolicyActivities.current,
                start_to_close_timeout=options.POLICY_TIMEOUT,
                retry_policy=options.PERSISTENT,
            )
            await self._decide_all()
            self._show()
            await self._wait_for_news()
        for watching in self._watched.values():
            watching.cancel()
        workflow.continue_as_new(
            PoolInput(cluster=pool.cluster, pool=pool.pool, state=self._state, unread=self._unread())
        )

    def _may_start_afresh(self) -> bool:
        """Return whether the history is long and nothing is under way that a new run could not take over.

        News that was not read goes along. What runs in the background is bounded in time, and no more of it begins.
        Looked at last before the run ends, without an await in between: news may come in with every await.
        """
        return (
            workflow.info().is_continue_as_new_suggested()
            and all(task.done() for task in self._background)
            and workflow.all_handlers_finished()
        )

    def _unread(self) -> Unread:
        return Unread(
            events=tuple(self._events),
            ended=tuple(message for message in self._inbox if isinstance(message, RepairEnded)),
            closed=tuple(message for message in self._inbox if isinstance(message, CloseBreaker)),
            admitted=tuple(message for message in self._inbox if isinstance(message, Admit)),
            spares=tuple(self._requests),
        )

    async def _wait_for_news(self) -> None:
        now = workflow.now()
        due = next_look(self._state, self._policy, now)
        timeout = None if due is None else max((due - now).total_seconds(), 0)
        try:
            await workflow.wait_condition(
                lambda: bool(self._events or self._inbox or self._requests) or self._may_start_afresh(),
                timeout=timeout,
                timeout_summary="a grace time ends",
            )
        except TimeoutError:
            return

    async def _decide_all(self) -> None:
        requests, self._requests = self._requests, []
        for request in requests:
            self._in_background(self._lease(request))
        events, self._events = tuple(self._events), []
        inbox, self._inbox = self._inbox, []
        for message in inbox:
            match message:
                case RepairEnded():
                    await self._carry_out(repair_ended(self._state, message, self._policy, workflow.now()))
                case HoldOver():
                    await self._carry_out(hold_is_over(self._state, message.node, self._policy, workflow.now()))
                case CloseBreaker():
                    await self._carry_out(close_breaker(self._state, message.by, self._policy, workflow.now()))
                case Admit():
                    now = workflow.now()
                    await self._carry_out(admit_by_person(self._state, message.node, message.by, self._policy, now))
        if events:
            await self._carry_out(take_in(self._state, events, self._policy, workflow.now()))
        await self._carry_out(time_passed(self._state, self._policy, workflow.now()))
        self._watch_holds()

    async def _carry_out(self, decided: Decided) -> None:
        self._state = decided.state
        notices = tuple(command.tell for command in decided.commands if command.tell is not None)
        if notices:
            self._in_background(self._tell(notices))
        for command in decided.commands:
            if command.start is not None:
                await self._start(command.node, command.number, command.start)
            elif command.forward_fault is not None or command.forward_seen is not None:
                await self._forward(command)
            elif command.return_spare:
                self._in_background(self._return_spare(command.return_spare, command.repair_id))

    async def _start(self, node: str, number: int, repair: RepairInput) -> None:
        """Start the repair as a child that outlives this run; one that already runs is this node's repair."""
        ref = repair.identity.node
        repair_id = repair_workflow_id(ref.cluster, ref.name, number)
        try:
            await workflow.start_child_workflow(
                RepairWorkflow.run,
                repair,
                id=repair_id,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                search_attributes=TypedSearchAttributes(
                    [
                        SearchAttributePair(search_attributes.CLUSTER, ref.cluster),
                        SearchAttributePair(search_attributes.POOL, ref.pool),
                        SearchAttributePair(search_attributes.NODE, ref.name),
                        SearchAttributePair(search_attributes.FAULT_CLASS, repair.incident.lead.fault_class),
                    ]
                ),
                static_summary=summary(repair.incident),
                static_details=details(begin(repair, repair_id, workflow.now())),
            )
        except WorkflowAlreadyStartedError:
            workflow.logger.warning("%s already runs", repair_id)
        self._state = repair_started(self._state, node, repair_id)

    async def _forward(self, command: Command) -> None:
        """Pass news on to a running repair. A repair that is gone without a word no longer holds its node."""
        record = self._state.nodes[command.node]
        repair = workflow.get_external_workflow_handle(record.repair_id or command.repair_id)
        try:
            if command.forward_fault is not None:
                await repair.signal("fault_reported", command.forward_fault)
            elif command.forward_seen is not None:
                await repair.signal("node_seen", command.forward_seen)
        except ApplicationError as error:
            workflow.logger.warning("%s cannot be told: %s", command.repair_id, error)
            if record.repair_id and "not found" in str(error).lower():
                self._inbox.append(repair_gone(command.node, record, workflow.now()))

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        self._background = [task for task in self._background if not task.done()]
        self._background.append(asyncio.create_task(work))

    async def _tell(self, notices: tuple[Notice, ...]) -> None:
        try:
            await workflow.execute_activity_method(
                RecordActivities.record,
                RecordInput(notices=notices),
                **options.IN_BACKGROUND,
                task_queue=self._queue,
                summary=notices[0].title[:100],
            )
        except ActivityError as error:
            workflow.logger.error("people could not be told: %s", error)

    async def _lease(self, request: SpareRequest) -> None:
        """Answer a repair's request for a spare; one lease at a time, so that no spare is given twice."""
        async with self._leasing:
            taken = unfit_spares(self._state, request.repair_id)
            order = LeaseInput(cluster=self._state.cluster, pool=self._state.pool, request=request, taken=taken)
            try:
                answer = await workflow.execute_activity_method(
                    SpareActivities.lease,
                    order,
                    **options.IN_BACKGROUND,
                    task_queue=self._queue,
                    summary=f"lease a spare for {request.node}",
                )
            except ActivityError as error:
                answer = SpareAnswer(detail=f"no spare could be leased: {error.cause or error}")
            if answer.spare:
                leased = {**self._state.leased, answer.spare: request.repair_id}
                self._state = self._state.model_copy(update={"leased": leased})
        try:
            await workflow.get_external_workflow_handle(request.repair_id).signal("spare_answer", answer)
        except ApplicationError as error:
            workflow.logger.warning("%s does not wait for its spare any more: %s", request.repair_id, error)
            if answer.spare:
                leased = {spare: lease for spare, lease in self._state.leased.items() if spare != answer.spare}
                self._state = self._state.model_copy(update={"leased": leased})
                await self._return_spare(answer.spare, request.repair_id)

    async def _return_spare(self, spare: str, repair_id: str) -> None:
        node = NodeRef(cluster=self._state.cluster, pool=self._state.pool, name=spare)
        try:
            await workflow.execute_activity_method(
                SpareActivities.give_back,
                ReturnSpareInput(spare=node, repair_id=repair_id),
                **options.IN_BACKGROUND,
                task_queue=self._queue,
                summary=f"{spare} was not used",
            )
        except ActivityError as error:
            workflow.logger.error("%s could not be given back: %s", spare, error)

    def _watch_holds(self) -> None:
        """Notice when a person gives back a node that an aborted repair had left in their hands."""
        for name, record in self._state.nodes.items():
            if record.held_by and name not in self._watched:
                self._watched[name] = asyncio.create_task(self._watch_hold(record.identity.node, record.held_mark))

    async def _watch_hold(self, node: NodeRef, mark: str) -> None:
        try:
            await workflow.execute_activity_method(
                QuarantineActivities.watch_mark,
                QuarantineInput(node=node, mark=Mark(repair_id=mark, reason="")),
                **options.WATCH_MARK,
                task_queue=self._queue,
                summary=f"notice when {node.name} is given back by hand",
            )
        except ActivityError as error:
            # Still held, as far as anybody knows; `admit` starts its next repair all the same.
            workflow.logger.warning("the hold of %s cannot be watched: %s", node.name, error)
            return
        del self._watched[node.name]
        self._inbox.append(HoldOver(node=node.name))

    @property
    def _queue(self) -> str:
        return cluster_task_queue(self._state.cluster)

    def _show(self) -> None:
        workflow.set_current_details(pool_details(view(self._state, self._policy)))

    # What others say.

    @workflow.signal(dynamic=True)
    def heard(self, name: str, args: Sequence[RawValue]) -> None:
        """Take any signal; what cannot be understood is logged and changes nothing."""
        try:
            message = understand(name, args, SIGNALS)
        except NotUnderstoodError as error:
            workflow.logger.warning("pool %s: %s", self._state.pool, error)
            return
        match message:
            case PoolReport():
                self._events += message.events
            case SpareRequest():
                self._requests.append(message)
            case RepairEnded() | CloseBreaker() | Admit():
                self._inbox.append(message)

    @workflow.update(name="close_breaker_update")
    async def close_breaker_update(self, said: CloseBreaker) -> Answer:
        """Let repairs start again."""
        self._inbox.append(said)
        return Answer(accepted=True, message="the breaker closes; waiting repairs may start")

    @close_breaker_update.validator
    def _check_close_breaker(self, said: CloseBreaker) -> None:
        if not self._state.breaker.open:
            raise ApplicationError("the breaker is not open", type="Refused", non_retryable=True)

    @workflow.update(name="admit_update")
    async def admit_update(self, said: Admit) -> Answer:
        """Let a waiting repair start."""
        self._inbox.append(said)
        return Answer(accepted=True, message=f"the repair of {said.node} starts")

    @admit_update.validator
    def _check_admit(self, said: Admit) -> None:
        waiting = [entry.incident.node.name for entry in self._state.waiting]
        if said.node not in waiting:
            raise ApplicationError(
                f"no repair of {said.node!r} waits; waiting: {', '.join(waiting) or 'none'}",
                type="Refused",
                non_retryable=True,
            )

    @workflow.query(name="get_pool")
    def get_pool(self) -> PoolView:
        """Return the pool as people see it."""
        return view(self._state, self._policy)
