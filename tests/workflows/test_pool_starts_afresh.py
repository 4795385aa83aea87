"""A pool whose history grew long goes on in a new run, and nothing is lost on the way.

The server itself suggests it, at a length set low here, so that the real condition is met.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from domain.faults import Rung
from domain.pool import PoolView
from domain.repair import Approve, Outcome, Phase
from simulator.faults import FaultKind, Injection
from tests.conftest import TemporalServer
from tests.workflows.lab import POOL, Lab, acting, automatic, laboratory
from workflows.ids import pool_workflow_id

AFTER_EVENTS = 30
NODES = tuple(f"gpu-{number:02d}" for number in range(1, 7))
PLENTY = {"*": {"budget": {"max_nodes": 9, "max_percent": 100}, "breaker": {"nodes": 50}}}
ONE = {"*": {"budget": {"max_nodes": 1, "max_percent": 100}, "breaker": {"nodes": 50}}}


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server that suggests a new run after few events."""
    knob = {"limit.historyCount.suggestContinueAsNew": str(AFTER_EVENTS)}
    server = TemporalServer(tmp_path_factory.mktemp("hasty") / "server.log", dynamic_config=knob)
    yield server.address
    server.stop()


@pytest.fixture
async def client(hasty: str) -> Client:
    """A client of that server."""
    return await Client.connect(hasty, data_converter=pydantic_data_converter)


async def runs(lab: Lab) -> int:
    """How many runs the pool has had: its chain is walked from the first one."""
    pool = pool_workflow_id(lab.cluster, POOL)
    described = await lab.client.get_workflow_handle(pool).describe()
    run_id = described.raw_description.workflow_execution_info.first_run_id
    count = 0
    while run_id:
        count += 1
        history = await lab.client.get_workflow_handle(pool, run_id=run_id).fetch_history()
        run_id = history.events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return count


async def afresh(lab: Lab, more_than: int) -> None:
    """Wait until the pool has had more runs than so many, giving it news that change nothing."""

    async def so_often() -> bool:
        await lab.fault(NODES[-1], "application.memory_fault", xid=31)
        return await runs(lab) > more_than

    await lab.until(so_often, f"the pool has had more than {more_than} runs")


async def view(lab: Lab) -> PoolView:
    seen: PoolView = await lab.pool.query("get_pool", result_type=PoolView)
    return seen


async def fall(lab: Lab, node: str) -> None:
    await lab.world.inject(Injection(node=node, kind=FaultKind.FALLEN_OFF_BUS, gpu=0, heals_at=Rung.REBOOT))
    await lab.fault(node)


async def test_faults_before_during_and_after_the_new_runs_lead_to_one_repair_each(
    client: Client, tmp_path: Path
) -> None:
    """News keep arriving while runs end: three nodes at a time, each among a burst of reports."""
    async with laboratory(client, tmp_path, automatic(pools=PLENTY), nodes=6, spares=0, job_nodes=0) as lab:
        bursts = [NODES[:2], NODES[2:4], NODES[4:]]
        for burst in bursts:
            before = await runs(lab)
            reporting = asyncio.create_task(afresh(lab, before))
            for node in burst:
                await fall(lab, node)
            await reporting
        for node in NODES:
            assert (await lab.result(node)).outcome is Outcome.RETURNED
        assert await runs(lab) > len(bursts)
        assert await lab.repairs() == len(NODES)
        state = await lab.truth()
        assert [state.node(node).burn_ins for node in NODES] == [1] * len(NODES)

        async def settled() -> bool:
            return all(node.health == "healthy" and not node.faults for node in (await view(lab)).nodes)

        await lab.until(settled, "the pool knows that all nodes are back")


async def test_lease_budget_and_waiting_incident_survive_new_runs(client: Client, tmp_path: Path) -> None:
    policy = acting(pools=ONE)
    async with laboratory(client, tmp_path, policy, nodes=6, spares=1, job_nodes=1) as lab:
        await fall(lab, NODES[0])
        state = await lab.waits_for(NODES[0], "reboot")
        assert state.spare == "spare-01"
        await fall(lab, NODES[1])

        async def waits() -> bool:
            return [entry.incident.node.name for entry in (await view(lab)).waiting] == [NODES[1]]

        await lab.until(waits, "the second node waits for the budget")
        await afresh(lab, await runs(lab))
        await afresh(lab, await runs(lab))
        kept = await view(lab)
        assert kept.leased == {"spare-01": lab.repair(NODES[0]).id}
        assert (kept.out, [entry.incident.node.name for entry in kept.waiting]) == (1, [NODES[1]])
        assert await lab.repairs() == 1
        assert state.wait is not None
        yes = Approve(by="ana", step="reboot", digest=state.wait.digest)
        await lab.repair(NODES[0]).signal("approve", yes)
        assert (await lab.result(NODES[0])).outcome is Outcome.RETURNED
        second = await lab.waits_for(NODES[1], "reboot")
        assert second.phase is not Phase.ENDED
        assert await lab.repairs() == 2


async def test_people_are_told_even_when_the_run_ends_at_that_moment(client: Client, tmp_path: Path) -> None:
    """What is to be told is told once for each node, whichever run decided it."""
    async with laboratory(client, tmp_path, automatic(pools=PLENTY), nodes=6, spares=0, job_nodes=0) as lab:
        for xid in range(40):
            node = NODES[xid % len(NODES)]
            await lab.fault(node, "application.memory_fault", gpu=xid % 2, xid=31)

        def told() -> set[str]:
            return {notice.notice_id.rpartition("/")[0] for notice in lab.told.notices}

        async def all_told() -> bool:
            return len(told()) == 2 * 3

        await lab.until(all_told, f"each GPU's fault is told; told so far: {sorted(told())}")
        assert await runs(lab) > 1
