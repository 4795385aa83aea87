"""Finding repairs and pools, and asking them how they are."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from cli.client import QUERY_TIMEOUT
from cli.errors import RefusedError
from domain.model import Message
from domain.pool import PoolView
from domain.repair import RepairView, StepProgress
from workflows.ids import POOL_WORKFLOW, REPAIR_WORKFLOW, parse_pool_workflow_id, pool_workflow_id

if TYPE_CHECKING:
    from temporalio.client import Client

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")


class RepairLine(Message):
    """One line of a list of repairs, from Temporal's own index.

    Attributes:
        ended_at: None while it runs.
        status: Temporal's word: ``RUNNING``, ``COMPLETED``, ``FAILED`` …
    """

    repair_id: str
    cluster: str
    pool: str
    node: str
    fault_class: str
    phase: str
    waiting_for: str
    started_at: datetime
    ended_at: datetime | None
    status: str


async def list_repairs(client: Client, all_of_them: bool, where: str = "", limit: int = 500) -> list[RepairLine]:
    """Return repairs, newest first; only running ones unless ``all_of_them``."""
    query = f"WorkflowType = '{REPAIR_WORKFLOW}'"
    if not all_of_them:
        query += " AND ExecutionStatus = 'Running'"
    lines = []
    async for found in client.list_workflows(f"{query}{where}", limit=limit, rpc_timeout=QUERY_TIMEOUT):
        said = {pair.key.name: str(pair.value) for pair in found.typed_search_attributes}
        lines.append(
            RepairLine(
                repair_id=found.id,
                cluster=said.get("KintsugiCluster", ""),
                pool=said.get("KintsugiPool", ""),
                node=said.get("KintsugiNode", ""),
                fault_class=said.get("KintsugiFaultClass", ""),
                phase=said.get("KintsugiPhase", ""),
                waiting_for=said.get("KintsugiWaitingFor", "").strip("-"),
                started_at=found.start_time,
                ended_at=found.close_time,
                status=found.status.name if found.status else "",
            )
        )
    return sorted(lines, key=lambda line: line.started_at, reverse=True)


async def find_repair(client: Client, named: str) -> str:
    """Return the workflow id of a repair named by id, by ``cluster/node/number``, by ``[cluster/]node``.

    A node stands for its running repair, else for its newest one.

    Raises:
        RefusedError: there is none, or several nodes of that name.
    """
    parts = named.removeprefix("repair/").split("/")
    if not 1 <= len(parts) <= 3 or not all(_NAME.match(part) for part in parts):
        raise RefusedError(f"{named!r} names no repair: write repair/<cluster>/<node>/<n>, <cluster>/<node> or <node>")
    if len(parts) == 3:
        return "repair/" + "/".join(parts)
    where = f" AND KintsugiNode = '{parts[-1]}'"
    if len(parts) == 2:
        where += f" AND KintsugiCluster = '{parts[0]}'"
    lines = await list_repairs(client, all_of_them=True, where=where)
    if not lines:
        raise RefusedError(f"there is no repair of {named}; `kintsugi repairs --all` lists them")
    clusters = sorted({line.cluster for line in lines})
    if len(clusters) > 1:
        raise RefusedError(
            f"several clusters have a node {named}: write one of {', '.join(f'{c}/{named}' for c in clusters)}"
        )
    return min(lines, key=lambda line: line.status != "RUNNING").repair_id


async def get_repair(client: Client, repair_id: str) -> RepairView:
    """Return how a repair stands."""
    handle = client.get_workflow_handle(repair_id)
    view: RepairView = await handle.query("get_repair", result_type=RepairView, rpc_timeout=QUERY_TIMEOUT)
    return view


async def get_pool(client: Client, cluster: str, pool: str) -> PoolView:
    """Return how a pool stands."""
    handle = client.get_workflow_handle(pool_workflow_id(cluster, pool))
    view: PoolView = await handle.query("get_pool", result_type=PoolView, rpc_timeout=QUERY_TIMEOUT)
    return view


async def list_pools(client: Client) -> list[tuple[str, str]]:
    """Return cluster and name of every pool, sorted."""
    query = f"WorkflowType = '{POOL_WORKFLOW}' AND ExecutionStatus = 'Running'"
    found = client.list_workflows(query, rpc_timeout=QUERY_TIMEOUT)
    pools = [parse_pool_workflow_id(entry.id) async for entry in found]
    return sorted((pool.cluster, pool.pool) for pool in pools)


async def find_pool(client: Client, named: str) -> tuple[str, str]:
    """Return cluster and name of a pool named ``cluster/pool`` or ``pool``.

    Raises:
        RefusedError: there is none, or several.
    """
    parts = named.split("/")
    if len(parts) > 2 or not all(_NAME.match(part) for part in parts):
        raise RefusedError(f"{named!r} names no pool: write <cluster>/<pool> or <pool>")
    if len(parts) == 2:
        return parts[0], parts[1]
    found = [pool for pool in await list_pools(client) if pool[1] == named]
    if not found:
        raise RefusedError(f"there is no pool {named}; `kintsugi pool` lists them")
    if len(found) > 1:
        raise RefusedError(
            f"several clusters have a pool {named}: write one of {', '.join('/'.join(p) for p in found)}"
        )
    return found[0]


async def progress(client: Client, repair_id: str) -> Sequence[StepProgress]:
    """Return what the steps under way report, from the heartbeats of their activities."""
    from temporalio.service import RPCError

    handle = client.get_workflow_handle(repair_id)
    try:
        described = await handle.describe(rpc_timeout=QUERY_TIMEOUT)
    except RPCError:
        return ()
    reports = []
    for pending in described.raw_description.pending_activities:
        if pending.activity_type.name == "watch_mark" or not pending.heartbeat_details.payloads:
            continue
        try:
            values = client.data_converter.payload_converter.from_payloads(
                pending.heartbeat_details.payloads, [StepProgress]
            )
        except Exception:
            # An activity of a newer worker may report something else; that is no reason to fail a picture.
            continue
        reports += [value for value in values if isinstance(value, StepProgress)]
    return reports


async def follow(client: Client, repair_id: str, every_seconds: float) -> AsyncIterator[RepairView]:
    """Yield how a repair stands, again and again until it is over."""
    import asyncio

    while True:
        view = await get_repair(client, repair_id)
        yield view
        if view.state.outcome is not None:
            return
        await asyncio.sleep(every_seconds)
