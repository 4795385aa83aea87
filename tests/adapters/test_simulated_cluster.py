"""The simulated cluster through the ports that activities use."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from adapters.simulated.cluster import SimulatedCluster
from domain.errors import NotOursError, TransientError
from domain.nodes import NodeRef
from domain.ports import Power, Provisioner, Scheduler
from domain.scheduling import DrainRequest, Mark
from domain.workloads import SavedWork, SaveMethod
from simulator.faults import FaultKind, Injection
from simulator.machine import MODEL
from tests.simulator.served_world import Served, served_world

BAD = NodeRef(cluster="local", pool="h100", name="gpu-03")
MARK = Mark(repair_id="repair/local/gpu-03/1", reason="kintsugi: test")


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with served_world() as served:
        yield served


@pytest.fixture
async def cluster(served: Served) -> AsyncIterator[SimulatedCluster]:
    cluster = SimulatedCluster(served.address)
    yield cluster
    await cluster.close()


async def test_it_is_a_scheduler_a_power_control_and_a_provisioner(cluster: SimulatedCluster) -> None:
    scheduler: Scheduler = cluster
    power: Power = cluster
    provisioner: Provisioner = cluster
    assert (await scheduler.capacity(BAD)).gpus == 8
    assert not await power.is_off(BAD)
    assert (await provisioner.replace(BAD.model_copy(update={"name": "gpu-08"}), "t", "")).startswith("RMA-")


async def test_work_moves_to_the_spare_and_the_node_comes_back(served: Served, cluster: SimulatedCluster) -> None:
    await served.client.inject(Injection(node="gpu-03", kind=FaultKind.FALLEN_OFF_BUS))
    state = await cluster.quarantine(BAD, MARK)
    assert (state.schedulable, state.our_mark) == (False, MARK)
    (workload,) = await cluster.workloads(BAD)
    assert workload.nodes == ("gpu-01", "gpu-02", "gpu-03", "gpu-04")
    assert not await cluster.confirm_stopped(BAD, workload.id)
    assert [p.done async for p in cluster.drain(BAD, DrainRequest(mark=MARK))][-1]
    assert await cluster.confirm_stopped(BAD, workload.id)
    (spare,) = await cluster.spares("local", "h100")
    assert (spare.model, spare.gpus, spare.validated, spare.leased_to) == (MODEL, 8, True, "")
    await cluster.lease_spare(spare.node, MARK.repair_id)
    saved = SavedWork(workload=workload, method=SaveMethod.NONE)
    await cluster.resume_workload(saved, BAD, spare.node.name)
    while not (await cluster.workload_status("local", workload.id)).running:
        await served.client.advance(0.5)
    await cluster.power_cycle(BAD, "t")
    await served.client.advance(60)
    assert (await cluster.scheduling_state(BAD)).our_mark == MARK
    assert (await cluster.release(BAD, MARK)).schedulable
    assert (await served.client.state()).violations == ()


async def test_a_drain_that_is_joined_ends_for_both(cluster: SimulatedCluster) -> None:
    await cluster.quarantine(BAD, MARK)
    first = cluster.drain(BAD, DrainRequest(mark=MARK))
    await anext(first)
    second = cluster.drain(BAD, DrainRequest(mark=MARK))
    assert [p.done async for p in second][-1]
    assert [p.done async for p in first][-1]


async def test_fence_is_confirmed_power_off(served: Served, cluster: SimulatedCluster) -> None:
    await cluster.fence(BAD, "t")
    assert await cluster.is_off(BAD)
    await cluster.fence(BAD, "t")
    assert (await served.client.state()).node("gpu-03").fences == 1


async def test_anothers_spare_is_not_ours(cluster: SimulatedCluster) -> None:
    spare = BAD.model_copy(update={"name": "spare-01"})
    await cluster.lease_spare(spare, "one")
    with pytest.raises(NotOursError, match="leased to one"):
        await cluster.lease_spare(spare, "two")
    await cluster.return_spare(spare, "one")
    assert (await cluster.lease_spare(spare, "two")).leased_to == "two"


async def test_a_cluster_that_is_away_is_transient() -> None:
    cluster = SimulatedCluster("127.0.0.1:1")
    with pytest.raises(TransientError, match="cannot be reached"):
        await cluster.capacity(BAD)
    await cluster.close()
