"""An operation that nobody wants any more does not go on on the node; one that is only left alone does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.client import Client, WorkflowHandle
from temporalio.testing import ActivityEnvironment

from activities import node_operations
from activities.node_operations import NodeOperationActivities, OperationInput
from domain.errors import TransientError
from domain.operations import NodeInspection, OperationKind, OperationProgress, OperationRequest, OperationState

CALLED_OFF = ActivityCancellationDetails(cancel_requested=True)
SHUT_DOWN = ActivityCancellationDetails(worker_shutdown=True)
UNKNOWN = ActivityCancellationDetails(not_found=True)


class Node:
    """An agent with one operation that runs until it is cancelled."""

    def __init__(self) -> None:
        self.state = OperationState.RUNNING
        self.under_way = asyncio.Event()
        self.away = False
        self.deaf = False
        self.asked = asyncio.Event()
        self._kind = OperationKind.BURN_IN

    def _progress(self, operation_id: str) -> OperationProgress:
        return OperationProgress(operation_id=operation_id, kind=self._kind, state=self.state)

    async def start(self, address: str, request: OperationRequest) -> OperationProgress:
        if self.away:
            raise TransientError("away")
        self._kind = request.kind
        self.state = OperationState.RUNNING
        return self._progress(request.operation_id)

    async def watch(self, address: str, operation_id: str) -> AsyncIterator[OperationProgress]:
        self.under_way.set()
        while True:
            yield self._progress(operation_id)
            await asyncio.sleep(0.01)
            if self.away:
                raise TransientError("away")

    async def cancel(self, address: str, operation_id: str) -> OperationProgress:
        self.asked.set()
        if self.deaf:
            await asyncio.Event().wait()
        if self.away:
            raise TransientError("away")
        self.state = OperationState.CANCELLED
        return self._progress(operation_id)

    async def inspect(self, address: str) -> NodeInspection:
        raise NotImplementedError


async def cancelled(
    node: Node,
    kind: OperationKind,
    why: ActivityCancellationDetails,
    lost: bool = False,
    of: WorkflowHandle[object, object] | None = None,
    client: Client | None = None,
) -> None:
    """Run an operation, cancel the activity while it is under way, and wait until the activity has ended so."""
    environment = ActivityEnvironment(client)
    if of is not None:
        environment.info = replace(environment.info, workflow_id=of.id, workflow_run_id=of.first_execution_run_id)
    away = asyncio.Event()

    def hear(beat: object) -> None:
        if "away" in getattr(beat, "message", ""):
            away.set()

    environment.on_heartbeat = hear
    order = OperationInput(
        address="a:1", request=OperationRequest(operation_id="r/1", kind=kind, boot_id="b", deadline_seconds=60)
    )
    running = asyncio.create_task(environment.run(NodeOperationActivities(node).run_operation, order))
    async with asyncio.timeout(20):
        await node.under_way.wait()
        if lost:
            node.away = True
            await away.wait()
        environment.cancel(why)
        with pytest.raises(asyncio.CancelledError):
            await running


@pytest.mark.parametrize("kind", [OperationKind.BURN_IN, OperationKind.CHECKPOINT])
async def test_what_is_called_off_stops_on_the_node(kind: OperationKind) -> None:
    node = Node()
    await cancelled(node, kind, CALLED_OFF)
    assert node.state is OperationState.CANCELLED


async def test_a_worker_that_shuts_down_leaves_the_operation_to_be_joined_again() -> None:
    node = Node()
    await cancelled(node, OperationKind.BURN_IN, SHUT_DOWN)
    assert node.state is OperationState.RUNNING


@pytest.mark.parametrize(
    ("over", "state"), [(True, OperationState.CANCELLED), (False, OperationState.RUNNING)], ids=["over", "goes_on"]
)
async def test_an_attempt_that_temporal_has_forgotten_stops_only_what_belongs_to_a_repair_that_is_over(
    temporal_client: Client, over: bool, state: OperationState
) -> None:
    repair = await temporal_client.start_workflow("nobody-runs-it", id=f"repair-{over}", task_queue="nobody-listens")
    if over:
        await repair.terminate()
    node = Node()

    await cancelled(node, OperationKind.BURN_IN, UNKNOWN, of=repair, client=temporal_client)

    assert node.state is state
    if not over:
        await repair.terminate()


async def test_a_reset_is_never_stopped_half_way() -> None:
    node = Node()
    await cancelled(node, OperationKind.RESET_GPU, CALLED_OFF)
    assert node.state is OperationState.RUNNING


async def test_an_agent_that_is_away_is_not_asked_it_may_go_on_at_another_address() -> None:
    node = Node()
    await cancelled(node, OperationKind.BURN_IN, CALLED_OFF, lost=True)
    assert not node.asked.is_set()


async def test_an_agent_that_does_not_answer_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node_operations, "CANCEL_SECONDS", 0.05)
    node = Node()
    node.deaf = True
    await cancelled(node, OperationKind.BURN_IN, CALLED_OFF)
    assert node.asked.is_set()
    assert "did not say" in caplog.text
