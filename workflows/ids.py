"""Workflow ids, each beside its inverse, and the names that a client needs to reach a workflow.

The names are pinned: a renamed class must not orphan a running repair.
"""

from __future__ import annotations

from typing import NamedTuple

WORKFLOW_TASK_QUEUE = "kintsugi"
"""Workflows of all clusters; their activities run on ``cluster_task_queue(cluster)``."""

POOL_WORKFLOW = "PoolWorkflow"
REPAIR_WORKFLOW = "RepairWorkflow"
REPORT_SIGNAL = "report"


class PoolId(NamedTuple):
    """What a pool's workflow id says."""

    cluster: str
    pool: str


class RepairId(NamedTuple):
    """What a repair's workflow id says; ``number`` counts the repairs of this node from 1."""

    cluster: str
    node: str
    number: int


def cluster_task_queue(cluster: str) -> str:
    """Return the task queue of the activities that need this cluster's credentials."""
    return f"cluster-{cluster}"


def pool_workflow_id(cluster: str, pool: str) -> str:
    """Return ``pool/<cluster>/<pool>``."""
    return f"pool/{cluster}/{pool}"


def parse_pool_workflow_id(workflow_id: str) -> PoolId:
    """Return the parts of a pool's workflow id; ValueError when it is none."""
    parts = workflow_id.split("/")
    if len(parts) != 3 or parts[0] != "pool":
        raise ValueError(f"{workflow_id!r} is no pool workflow id (pool/<cluster>/<pool>)")
    return PoolId(parts[1], parts[2])


def repair_workflow_id(cluster: str, node: str, number: int) -> str:
    """Return ``repair/<cluster>/<node>/<number>``."""
    return f"repair/{cluster}/{node}/{number}"


def parse_repair_workflow_id(workflow_id: str) -> RepairId:
    """Return the parts of a repair's workflow id; ValueError when it is none."""
    parts = workflow_id.split("/")
    if len(parts) != 4 or parts[0] != "repair" or not parts[3].isdigit():
        raise ValueError(f"{workflow_id!r} is no repair workflow id (repair/<cluster>/<node>/<number>)")
    return RepairId(parts[1], parts[2], int(parts[3]))
