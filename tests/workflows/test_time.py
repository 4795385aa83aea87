"""What the passing of hours and days does, on the time-skipping server."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

from domain.policy import Policy
from domain.pool import PoolView
from domain.repair import Outcome
from tests.workflows.lab import Lab, automatic, laboratory
from workflows import search_attributes

BAD = "gpu-01"


@pytest.fixture
async def skipping() -> AsyncIterator[WorkflowEnvironment]:
    """A Temporal server whose clock runs ahead whenever nothing but timers is awaited."""
    command = shutil.which("temporal-test-server") or str(Path(sys.executable).with_name("temporal-test-server"))
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=command, data_converter=pydantic_data_converter
    ) as env:
        # This server can add search attributes but not list them.
        await env.client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(
                namespace=env.client.namespace,
                search_attributes={
                    key.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD for key in search_attributes.ALL
                },
            )
        )
        yield env


def asking(no_answer: str) -> Policy:
    """Return a policy that asks before the quarantine, for an hour."""
    rule = {"match": {"action": "quarantine"}, "decide": "approve", "answer_within": "1h", "no_answer": no_answer}
    return automatic(rules=[{"name": "ask first", **rule}, {"name": "rest", "decide": "auto"}])


@asynccontextmanager
async def small(env: WorkflowEnvironment, directory: Path, policy: Policy) -> AsyncIterator[Lab]:
    """Run a lab of two nodes without work."""
    async with laboratory(env.client, directory, policy, nodes=2, spares=0, job_nodes=0, searchable=False) as lab:
        yield lab


async def test_nobody_answers_and_the_policy_proceeds(skipping: WorkflowEnvironment, tmp_path: Path) -> None:
    async with small(skipping, tmp_path, asking("proceed")) as lab:
        await lab.fault(BAD)
        await lab.waits_for(BAD, "quarantine")
        await skipping.sleep(timedelta(minutes=61))
        result = await lab.result(BAD)
        assert result.outcome is Outcome.RETURNED
        quarantine = (await lab.state(BAD)).step("quarantine")
        assert quarantine is not None
        assert "nobody answered in time; policy: ask first" in quarantine.decided_by


async def test_nobody_answers_and_the_repair_holds_for_days(skipping: WorkflowEnvironment, tmp_path: Path) -> None:
    async with small(skipping, tmp_path, asking("hold")) as lab:
        await lab.fault(BAD)
        await lab.waits_for(BAD, "quarantine")
        await skipping.sleep(timedelta(days=3))
        state = await lab.waits_for(BAD, "quarantine")
        assert state.outcome is None
        assert (await lab.truth()).node(BAD).schedulable


async def test_nobody_answers_and_people_are_told_each_time(skipping: WorkflowEnvironment, tmp_path: Path) -> None:
    async with small(skipping, tmp_path, asking("escalate")) as lab:
        await lab.fault(BAD)
        await lab.waits_for(BAD, "quarantine")
        for hour in range(1, 4):
            await skipping.sleep(timedelta(minutes=61))

            async def told(so_often: int = hour) -> bool:
                return sum("still waits" in notice.title for notice in lab.told.notices) >= so_often

            await lab.until(told, f"people are told {hour} times")
        assert (await lab.state(BAD)).outcome is None


async def test_a_silent_node_is_believed_lost_only_after_the_grace_time(
    skipping: WorkflowEnvironment, tmp_path: Path
) -> None:
    policy = automatic(pools={"*": {"budget": {"max_nodes": 2, "max_percent": 100}, "lost_grace": "10m"}})
    async with small(skipping, tmp_path, policy) as lab:
        await lab.lost(BAD)

        async def heard() -> bool:
            view = await lab.pool.query("get_pool", result_type=PoolView)
            return any(node.health == "lost" for node in view.nodes)

        await lab.until(heard, "the pool has heard of the silence")
        await skipping.sleep(timedelta(minutes=9))
        view = await lab.pool.query("get_pool", result_type=PoolView)
        assert all(not node.repair_id for node in view.nodes)
        await skipping.sleep(timedelta(minutes=2))
        state = await lab.state(BAD)
        assert state.input.incident.lead.fault_class == "node.unreachable"


async def test_a_repair_that_was_only_observed_is_looked_at_again_after_the_cool_down(
    skipping: WorkflowEnvironment, tmp_path: Path
) -> None:
    async with small(skipping, tmp_path, Policy()) as lab:
        await lab.fault(BAD)
        assert (await lab.result(BAD)).outcome is Outcome.OBSERVED
        await skipping.sleep(timedelta(minutes=11))
        await lab.fault(BAD)
        assert (await lab.result(BAD, number=2)).outcome is Outcome.OBSERVED
