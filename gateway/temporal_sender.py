"""Reports as Temporal signals: signal-with-start of the pool's workflow, which the first report wakes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from temporalio.api.common.v1 import Payloads, WorkflowType
from temporalio.api.enums.v1 import WorkflowIdConflictPolicy, WorkflowIdReusePolicy
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import SignalWithStartWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError

from domain.reports import PoolInput, PoolReport
from gateway.hand_over import RefusedError
from workflows.ids import POOL_WORKFLOW, REPORT_SIGNAL, WORKFLOW_TASK_QUEUE, pool_workflow_id

ATTEMPT_SECONDS: Final = 10.0


class TemporalSender:
    """Sends reports through a client that may not be connected yet.

    The request is built here and not by ``Client.start_workflow``, which draws a new request id at each call:
    with our own, a report that is sent again after a time-out is recognised by the server and arrives once.

    Args:
        client: resolves when Temporal was reached.
        attempt_seconds: how long one attempt may take.
    """

    def __init__(self, client: asyncio.Future[Client], attempt_seconds: float = ATTEMPT_SECONDS) -> None:
        self._client = client
        self._attempt = timedelta(seconds=attempt_seconds)

    async def send(self, cluster: str, pool: str, report: PoolReport, request_id: str) -> None:
        """Return once Temporal has the report, waiting for the first connection; raises ``RefusedError``."""
        client = await asyncio.shield(self._client)
        workflow_id = pool_workflow_id(cluster, pool)
        encode = client.data_converter.encode
        request = SignalWithStartWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_id=workflow_id,
            workflow_type=WorkflowType(name=POOL_WORKFLOW),
            task_queue=TaskQueue(name=WORKFLOW_TASK_QUEUE),
            input=Payloads(payloads=await encode([PoolInput(cluster=cluster, pool=pool)])),
            signal_name=REPORT_SIGNAL,
            signal_input=Payloads(payloads=await encode([report])),
            identity=client.identity,
            request_id=request_id,
            workflow_id_reuse_policy=WorkflowIdReusePolicy.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
            workflow_id_conflict_policy=WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
        )
        try:
            await client.workflow_service.signal_with_start_workflow_execution(request, timeout=self._attempt)
        except RPCError as error:
            raise RefusedError(f"{error.status.name.lower()}: {error}") from error
        except RuntimeError as error:
            # The SDK's runtime raises it for connections that break in unforeseen ways.
            raise RefusedError(str(error)) from error
