"""How many repairs a minute one machine carries through, beside workflows of the same shape that do nothing.

A Temporal development server (in memory), one worker process with our workflows and activities, and a simulated
cluster whose actions take no time. All nodes of a pool fail at once. In the same run and alternating with it, as many
bare workflows run on the same server: the same number of activities (which return at once), signals and child
starts, without any of our code. The difference is what our decisions, models and records cost.

    python -m benchmarks.repairs_per_minute [--nodes 20] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    import psutil

    from domain.faults import Rung
    from domain.repair import Outcome
    from runtime import exits
    from runtime.temporal import sandbox_runner
    from simulator.faults import FaultKind, Injection
    from simulator.timing import Timing
    from tests.conftest import TemporalServer
    from tests.replay.scenarios import BAD, SCENARIOS
    from tests.workflows import lab as laboratories
    from tests.workflows.lab import Lab, automatic, laboratory

AT_ONCE = Timing(**dict.fromkeys(Timing.model_fields, 0.0))
POLICY = automatic(pools={"*": {"budget": {"max_nodes": 1000, "max_percent": 100}, "breaker": {"nodes": 1000}}})
MAX_EVENTS = 80
"""Longest history of a repair that the project aims at, in events."""
KINDS = {
    "activity_task_scheduled_event_attributes": "activities",
    "workflow_execution_signaled_event_attributes": "signals received",
    "signal_external_workflow_execution_initiated_event_attributes": "signals sent",
    "timer_started_event_attributes": "timers",
    "upsert_workflow_search_attributes_event_attributes": "search attribute updates",
    "workflow_task_completed_event_attributes": "workflow tasks",
}


@dataclass
class Shape:
    """What a bare repair does, taken from the history of a real one."""

    activities: int
    received: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20, help="nodes that fail at once (default 20)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each kind (default 3)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        server = TemporalServer(Path(directory) / "server.log")
        try:
            asyncio.run(_measure(options, server, Path(directory)))
        finally:
            server.stop()
    exits.leave(exits.OK)


async def _measure(options: argparse.Namespace, server: TemporalServer, directory: Path) -> None:
    client = await Client.connect(server.address, data_converter=pydantic_data_converter)
    await _events_of_one(client, directory)
    laboratories.QUICK = AT_ONCE
    _, shape, _ = await _ours(client, directory, 2)  # what all rounds share is loaded here
    await _bare(client, 2, shape)
    meter = Meter(server.process.pid, options.nodes)
    ours, bare = [], []
    events = 0.0
    for _ in range(options.rounds):
        meter.begin()
        bare.append(await _bare(client, options.nodes, shape))
        bare_cost = meter.cost()
        meter.begin()
        rate, _, events = await _ours(client, directory, options.nodes)
        ours.append(rate)
        print(
            f"  repairs {rate:6.0f} a minute ({meter.cost()})   bare workflows {bare[-1]:6.0f} a minute ({bare_cost})",
            flush=True,
        )
    ratio = statistics.median(mine / floor for mine, floor in zip(ours, bare, strict=True))
    print(
        f"{options.nodes} at once, median of {options.rounds}: {statistics.median(ours):.0f} repairs a minute"
        f" ({events:.0f} events each), bare workflows with {shape.activities} activities {statistics.median(bare):.0f};"
        f" ratio {ratio:.2f}"
    )


class Meter:
    """Processor time of this process (worker and simulated cluster) and of the server, for each repair."""

    def __init__(self, server: int, repairs: int) -> None:
        self._processes = (psutil.Process(), psutil.Process(server))
        self._repairs = repairs
        self._before = self._used()

    def begin(self) -> None:
        """Count from now on."""
        self._before = self._used()

    def cost(self) -> str:
        """Return what was used since the beginning, in words."""
        spent = [(now - then) / self._repairs * 1000 for now, then in zip(self._used(), self._before, strict=True)]
        return f"each {spent[0]:3.0f} ms of CPU here, {spent[1]:3.0f} in the server"

    def _used(self) -> list[float]:
        times = [process.cpu_times() for process in self._processes]
        return [each.user + each.system for each in times]


async def _events_of_one(client: Client, directory: Path) -> None:
    """Play whole repairs of a node with work on it, and print what their histories consist of."""
    for name in ("returned", "checkpointed"):
        scenario = SCENARIOS[name]
        async with laboratory(client, directory, scenario.policy, scenario.nodes, scenario.spares, 2) as lab:
            await scenario.play(lab)
            counts = await _counts(lab.repair(BAD))
        told = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS.values())
        verdict = "" if counts["events"] <= MAX_EVENTS else f", above the aim of {MAX_EVENTS}"
        print(f"one repair ({name}): {counts['events']} events{verdict}: {told}", flush=True)


async def _counts(handle: WorkflowHandle) -> Counter[str]:  # type: ignore[type-arg]
    counts: Counter[str] = Counter()
    async for event in handle.fetch_history_events():
        counts["events"] += 1
        counts.update(name for kind, name in KINDS.items() if event.HasField(kind))  # type: ignore[arg-type]
    return counts


async def _ours(client: Client, directory: Path, nodes: int) -> tuple[float, Shape, float]:
    async with laboratory(client, directory, POLICY, nodes, spares=0, job_nodes=0) as lab:
        names = list(lab.model.machines)
        for name in names:
            await lab.world.inject(Injection(node=name, kind=FaultKind.FALLEN_OFF_BUS, gpu=0, heals_at=Rung.REBOOT))
        began = time.monotonic()
        await asyncio.gather(*(lab.fault(name) for name in names))
        await asyncio.gather(*(_returned(lab, name) for name in names))
        took = time.monotonic() - began
        counts = [await _counts(lab.repair(name)) for name in names]
        mean = statistics.mean(each["events"] for each in counts)
        shape = Shape(counts[0]["activities"], counts[0]["signals received"])
    return 60 * nodes / took, shape, mean


async def _returned(lab: Lab, node: str) -> None:
    result = await lab.result(node)
    if result.outcome is not Outcome.RETURNED:
        raise RuntimeError(f"the repair of {node} ended {result.outcome}: {result.detail}")


# The same shape without us.


@activity.defn
async def nothing(text: str) -> str:
    """Return at once."""
    return text


@workflow.defn
class BareRepair:
    """So many activities, one after the other, and a signal at its end."""

    def __init__(self) -> None:
        self._heard = 0

    @workflow.run
    async def run(self, activities: int, received: int, pool: str) -> None:
        """Do nothing so often; before the last activities, wait for the signals."""
        for number in range(activities):
            if number == activities // 2:
                await workflow.wait_condition(lambda: self._heard >= received)
            await workflow.execute_activity(nothing, "x", start_to_close_timeout=timedelta(seconds=30))
        await workflow.get_external_workflow_handle(pool).signal("ended")

    @workflow.signal
    def news(self) -> None:
        """Something happened."""
        self._heard += 1


@workflow.defn
class BarePool:
    """Starts a repair at each signal and ends when all have ended."""

    def __init__(self) -> None:
        self._asked = self._ended = self._started = 0

    @workflow.run
    async def run(self, activities: int, received: int, repairs: int) -> None:
        """Start them as they come."""
        for number in range(repairs):
            self._started = number
            await workflow.wait_condition(lambda: self._asked > self._started)
            child = f"{workflow.info().workflow_id}/{number}"
            await workflow.start_child_workflow(
                BareRepair.run, args=[activities, received, workflow.info().workflow_id], id=child
            )
            for _ in range(received):
                await workflow.get_external_workflow_handle(child).signal("news")
        await workflow.wait_condition(lambda: self._ended >= repairs)

    @workflow.signal
    def fault(self) -> None:
        """A repair is wanted."""
        self._asked += 1

    @workflow.signal
    def ended(self) -> None:
        """A repair is over."""
        self._ended += 1


async def _bare(client: Client, repairs: int, shape: Shape) -> float:
    queue = f"bare-{uuid.uuid4().hex[:8]}"
    async with Worker(
        client,
        task_queue=queue,
        workflows=[BareRepair, BarePool],
        activities=[nothing],
        workflow_runner=sandbox_runner(),
    ):
        began = time.monotonic()
        arguments = [shape.activities, shape.received, repairs]
        pool = await client.start_workflow(BarePool.run, args=arguments, id=queue, task_queue=queue)
        await asyncio.gather(*(pool.signal(BarePool.fault) for _ in range(repairs)))
        await pool.result()
        return 60 * repairs / (time.monotonic() - began)


if __name__ == "__main__":
    main()
