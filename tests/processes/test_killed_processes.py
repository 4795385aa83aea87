"""Whole repairs by real processes, which may die at any moment: what the cluster looks like afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from domain.faults import Rung
from simulator.faults import FaultKind, Injection
from simulator.jobs import JobSpec
from tests.processes.plant import Plant, plant, until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

ASKING = """
version: 1
rules:
  - name: these wait, so that a test can bring several repairs to different steps
    match:
      action: [drain, recover, reboot, burn_in]
    decide: approve
  - name: everything else by itself
    decide: auto
pools:
  "*":
    budget: {max_nodes: 4, max_percent: 100}
    breaker: {nodes: 50, window: 10m}
"""


def fallen(node: str) -> Injection:
    return Injection(node=node, kind=FaultKind.FALLEN_OFF_BUS, gpu=0, heals_at=Rung.REBOOT)


def job(*nodes: str) -> JobSpec:
    return JobSpec(id=f"job-{nodes[0]}", nodes=nodes, gpus_per_node=2)


async def rebooted_once(running: Plant, *nodes: str) -> None:
    """See that each node was repaired by one reboot and proven by one burn-in, and is in service."""
    state = await running.truth()
    for name in nodes:
        node = state.node(name)
        assert (node.reboots, node.burn_ins, node.resets, node.power_cycles, node.fences) == (1, 1, 0, 0, 0), node
        assert (node.schedulable, node.mark, node.faults) == (True, "", ()), node
    assert await running.repairs.count() == len(nodes)
    await running.all_is_well()


async def work_goes_on(running: Plant, job_id: str, away_from: str, starts: int = 2) -> None:
    """See that a job runs away from a node and was started again exactly once."""

    async def runs() -> bool:
        return (await running.truth()).job(job_id).state == "running"

    await until(runs, f"{job_id} runs")
    found = (await running.truth()).job(job_id)
    assert away_from not in found.nodes
    assert found.starts == starts


async def test_a_whole_repair_that_nobody_touches(tmp_path: Path) -> None:
    async with plant(tmp_path) as running:
        await running.world.submit(job("gpu-01", "gpu-02"))
        before = (await running.truth()).node("gpu-01").boot_id
        await running.world.inject(fallen("gpu-01"))
        await running.repairs.returned("gpu-01")
        await rebooted_once(running, "gpu-01")
        assert (await running.truth()).node("gpu-01").boot_id != before
        await work_goes_on(running, "job-gpu-01", away_from="gpu-01")


async def test_the_worker_is_killed_in_the_middle_of_four_steps(tmp_path: Path) -> None:
    """Four repairs, each in another step at the moment of the kill."""
    steps = {"gpu-01": "drain", "gpu-02": "recover", "gpu-03": "reboot", "gpu-04": "burn_in"}
    slow = {"drain": 5.0, "job_start": 5.0, "shutdown": 2.0, "boot": 5.0, "burn_in": 9.0}
    async with plant(tmp_path, ASKING, spares=4, timing=slow) as running:
        repairs = running.repairs
        for node in steps:
            await running.world.submit(job(node))
            await running.world.inject(fallen(node))
        await asyncio.gather(*(repairs.approve_until(node, step) for node, step in steps.items()))
        await asyncio.gather(*(repairs.approve(node) for node in steps))
        await asyncio.gather(*(repairs.runs(node, step) for node, step in steps.items()))
        await running.worker.kill()
        await running.worker.start()
        await asyncio.gather(*(repairs.approve_all(node) for node in steps))
        await repairs.returned(*steps)
        await rebooted_once(running, *steps)
        for node in steps:
            await work_goes_on(running, f"job-{node}", away_from=node)


async def test_the_gateway_is_killed_while_faults_are_reported(tmp_path: Path) -> None:
    """One fault at work, one just reported, one while the gateway is away, and a reboot that nobody could report."""
    async with plant(tmp_path) as running:
        await running.world.submit(job("gpu-01"))
        before = (await running.truth()).node("gpu-01").boot_id
        await running.world.inject(fallen("gpu-01"))
        await running.repairs.runs("gpu-01", "reboot")
        await running.world.inject(fallen("gpu-02"))
        await running.gateway.kill()
        await running.world.inject(fallen("gpu-03"))

        async def up_again() -> bool:
            node = (await running.truth()).node("gpu-01")
            return node.agent_up and node.boot_id != before

        await until(up_again, "gpu-01 is up again")
        assert await running.repairs.state("gpu-03") is None
        await running.gateway.start()
        await running.repairs.returned("gpu-01", "gpu-02", "gpu-03")
        await rebooted_once(running, "gpu-01", "gpu-02", "gpu-03")


async def test_the_agents_are_killed_in_the_middle_of_their_operations(tmp_path: Path) -> None:
    """The agent of the node dies during the checkpoint and during the burn-in; both run once."""
    async with plant(tmp_path, timing={"checkpoint": 5.0, "burn_in": 9.0}) as running:
        await running.world.submit(job("gpu-01", "gpu-02"))

        async def runs() -> bool:
            return (await running.truth()).job("job-gpu-01").state == "running"

        await until(runs, "the job runs")
        await running.world.inject(Injection(node="gpu-01", kind=FaultKind.ECC_ROW_REMAP, gpu=0))
        for step in ("checkpoint", "burn_in"):
            await running.repairs.runs("gpu-01", step)
            await running.fleet.kill()
            await running.fleet.start()
        await running.repairs.returned("gpu-01")
        node = (await running.truth()).node("gpu-01")
        assert (node.checkpoints, node.resets, node.burn_ins, node.reboots) == (1, 1, 1, 0)
        assert (node.schedulable, node.mark, node.faults) == (True, "", ())
        result = await running.repairs.handle("gpu-01").result()
        assert result.moved[0].steps_lost == 0
        await work_goes_on(running, "job-gpu-01", away_from="gpu-01")
        await running.all_is_well()


async def test_temporal_is_killed_and_comes_back_on_its_file(tmp_path: Path) -> None:
    """The node goes on with what it was told; what is found meanwhile is delivered afterwards."""
    async with plant(tmp_path) as running:
        await running.world.submit(job("gpu-01"))
        await running.world.inject(fallen("gpu-01"))
        await running.repairs.runs("gpu-01", "burn_in")
        await running.temporal.kill()
        await running.world.inject(fallen("gpu-02"))

        async def burned_in() -> bool:
            return (await running.truth()).node("gpu-01").burn_ins == 1

        await until(burned_in, "the burn-in ends without Temporal")
        assert (await running.truth()).node("gpu-01").mark
        await running.temporal.start()
        await running.repairs.returned("gpu-01", "gpu-02")
        await rebooted_once(running, "gpu-01", "gpu-02")
