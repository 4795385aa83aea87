"""What reached a pool, read from its history in Temporal."""

from __future__ import annotations

from temporalio.client import Client

from domain.reports import NodeEvent, PoolReport
from workflows.ids import REPORT_SIGNAL, pool_workflow_id


async def reported(client: Client, cluster: str, pool: str) -> list[NodeEvent]:
    """Return what stands in the pool's history, in order."""
    handle = client.get_workflow_handle(pool_workflow_id(cluster, pool))
    events: list[NodeEvent] = []
    async for entry in handle.fetch_history_events():
        if entry.HasField("workflow_execution_signaled_event_attributes"):
            signalled = entry.workflow_execution_signaled_event_attributes
            assert signalled.signal_name == REPORT_SIGNAL
            (report,) = await client.data_converter.decode(signalled.input.payloads, [PoolReport])
            events.extend(report.events)
    return events
