"""How long after a line in a node's kernel log its repair runs, and how long until the node takes no new work.

Everything is a process of its own on this machine: Temporal's development server on a file, gateway, worker, a
simulated cluster, and the real agents of its nodes. A fault writes its lines to a random healthy node's kernel log;
the repair's start is Temporal's own time stamp, the quarantine is the mark on the node in the simulated cluster. The
next line is written when the last node is healthy again, or with --together as soon as it is quarantined, so that
earlier repairs run beside it.

As root, a second round writes lines to this machine's real kernel log, with a real agent reading them; the policy
only observes there, so there is no quarantine to wait for.

    python -m benchmarks.kernel_line_to_repair [--lines 40] [--nodes 6] [--together] [--no-kernel] [--hops]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC
from itertools import pairwise
from pathlib import Path

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from cli.launch import module_command
from domain.faults import Rung
from domain.nodes import NodeRef
from domain.pool import NodeHealth
from runtime import exits
from simulator.faults import FaultKind, Injection
from tests.processes.plant import CLUSTER, POOL, Part, Plant, Repairs, at_once, plant
from workflows.ids import pool_workflow_id, repair_workflow_id

QUICK = {
    "shutdown": 0.1,
    "boot": 0.3,
    "power": 0.1,
    "fault_returns": 0.1,
    "burn_in": 0.2,
    "drain": 0.1,
    "clean_up": 0.1,
}
LOOK_SECONDS = 0.004
"""How often the mark is looked for, in seconds: the resolution of that figure."""
PATIENCE_SECONDS = 60.0
REAL_POOL = "real"
POLICY = """
version: 1
rules:
  - name: the real machine is only watched
    match: {pool: real}
    decide: observe
  - name: everything by itself
    decide: auto
pools:
  "*":
    budget: {max_nodes: 100, max_percent: 100}
    breaker: {nodes: 1000, window: 1m}
    cool_down: 0s
# The same GPU fails many times here; it must not climb the ladder.
attempts: {per_hardware: 1000, look_back: 0s}
"""
AIMS = {"repair runs": (0.250, 1.0), "quarantined": (None, 1.5)}
"""p50 and p99 that the project aims at, in seconds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=40, help="how many faults are injected (default 40)")
    parser.add_argument("--nodes", type=int, default=6, help="nodes of the simulated cluster (default 6)")
    parser.add_argument("--together", action="store_true", help="do not wait for the last repair to end")
    parser.add_argument("--no-kernel", action="store_true", help="leave the real kernel log alone")
    parser.add_argument("--hops", action="store_true", help="show where the time goes")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_measure(options, Path(directory)))
    exits.leave(exits.OK)


async def _measure(options: argparse.Namespace, directory: Path) -> None:
    async with plant(directory, POLICY, options.nodes, spares=0, timing=QUICK) as running:
        print(f"simulated kernel logs, {options.lines} lines, {options.nodes} nodes, {os.cpu_count()} cores")
        await _simulated(running, options)
        if options.no_kernel:
            return
        if os.geteuid() != 0 or not os.access("/dev/kmsg", os.W_OK):
            print("the real kernel log needs root: left out")
            return
        print(f"\nreal kernel log (/dev/kmsg), {options.lines} lines, one agent")
        await _real(running, options, directory)


async def _simulated(running: Plant, options: argparse.Namespace) -> None:
    chance = random.Random(options.seed)
    numbers: dict[str, int] = {}
    started: list[float] = []
    marked: list[float] = []
    hops = Hops()
    for line in range(options.lines):
        node = await _healthy(running, chance, everyone=not options.together)
        # Checks look at their own pace: lines come at any moment of it.
        await asyncio.sleep(chance.uniform(0.2, 1.2))
        number = numbers[node] = numbers.get(node, 0) + 1
        fault = Injection(node=node, kind=FaultKind.FALLEN_OFF_BUS, gpu=line % 2, heals_at=Rung.REBOOT)
        began = time.time()
        await running.world.inject(fault)
        seen = await _marked(running, node)
        marked.append(seen - began)
        handle = running.repairs.handle(node, number)
        started.append(await _start_time(handle) - began)
        hops.samples.append((handle.id, began, seen))
    _print("repair runs", started, options.hops)
    _print("quarantined", marked, options.hops)
    if options.hops:
        pool = running.repairs.client.get_workflow_handle(pool_workflow_id(CLUSTER, POOL))
        await hops.show(running.repairs.client, pool)


async def _healthy(running: Plant, chance: random.Random, everyone: bool) -> str:
    """Return a random healthy node, once there is one, or once all are."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        view = await running.repairs.pool_view()
        state = await running.world.state()
        nodes = view.nodes if view is not None else ()
        sound = [n.name for n in nodes if n.health is NodeHealth.HEALTHY and state.node(n.name).schedulable]
        if sound and (not everyone or len(sound) == len(nodes)):
            return chance.choice(sound)
        if time.monotonic() > deadline:
            ill = [f"{n.name}: {n.health} {', '.join(n.faults)} {n.repair_id}" for n in nodes if n.name not in sound]
            raise RuntimeError(f"not healthy within {PATIENCE_SECONDS:g} s: {'; '.join(ill)}")
        await asyncio.sleep(0.1)


async def _marked(running: Plant, node: str) -> float:
    ref = NodeRef(cluster=CLUSTER, pool=POOL, name=node)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            state = await running.world.scheduling_state(ref)
            if state.our_mark is not None:
                return time.time()
            await asyncio.sleep(LOOK_SECONDS)


async def _start_time(handle: WorkflowHandle[object, object]) -> float:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return (await handle.describe()).start_time.timestamp()
            except RPCError:
                await asyncio.sleep(LOOK_SECONDS)


async def _real(running: Plant, options: argparse.Namespace, directory: Path) -> None:
    node = "bench"
    given = {
        "KINTSUGI_AGENT_CLUSTER": CLUSTER,
        "KINTSUGI_AGENT_POOL": REAL_POOL,
        "KINTSUGI_AGENT_NODE": node,
        "KINTSUGI_AGENT_GATEWAY": running.gateway.given["KINTSUGI_GATEWAY_LISTEN"],
        "KINTSUGI_AGENT_LISTEN": "127.0.0.1:0",
        "KINTSUGI_AGENT_STATE_DIR": str(directory / "agent"),
        "KINTSUGI_AGENT_ACCEPT_INJECTED": "true",
    }
    agent = Part("agent", module_command("agents"), directory, given, at_once)
    repairs = Repairs(running.repairs.client, CLUSTER, REAL_POOL)
    await agent.start()
    try:

        async def introduced() -> bool:
            view = await repairs.pool_view()
            return view is not None and any(n.name == node for n in view.nodes)

        await _soon(introduced, "the agent is known to the pool")
        # What the ring buffer still holds of earlier drills is reported first.
        number = await _quiet(repairs, node)
        chance = random.Random(options.seed)
        started = []
        for line in range(options.lines):
            await asyncio.sleep(chance.uniform(0.2, 1.2))
            # Another GPU each time, in a PCI domain of our own: a fault that is open already is no news.
            pci = f"{os.getpid() & 0xFFFF:04x}:{line:02x}:00"
            began = time.time()
            _write_line(f"<3>NVRM: Xid (PCI:{pci}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
            number, at = await _repair_of(repairs, node, number + 1, pci)
            started.append(at - began)
        _print("repair runs", started, options.hops)
    finally:
        await agent.end()


def _write_line(line: str) -> None:
    Path("/dev/kmsg").write_text(line + "\n")


async def _repair_of(repairs: Repairs, node: str, number: int, pci: str) -> tuple[int, float]:
    """Return number and start of the repair of this GPU; others write to the same kernel log."""
    while True:
        handle = repairs.handle(node, number)
        start = await _start_time(handle)
        await handle.result()
        state = await repairs.state(node, number)
        if state is not None and any(fault.component.id.startswith(pci) for fault in state.faults):
            return number, start
        number += 1


async def _quiet(repairs: Repairs, node: str) -> int:
    """Return how many repairs of a node there were once no new one has come for two seconds."""
    count, since = 0, time.monotonic()
    while time.monotonic() - since < 2:
        try:
            await repairs.client.get_workflow_handle(repair_workflow_id(CLUSTER, node, count + 1)).describe()
        except RPCError:
            await asyncio.sleep(0.1)
        else:
            count, since = count + 1, time.monotonic()
    return count


async def _soon(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not await condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {PATIENCE_SECONDS:g} s: {what}")
        await asyncio.sleep(0.1)


def percentile(values: list[float], share: float) -> float:
    """Return the value that so many of all do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, round(share * len(ordered) + 0.5) - 1))]


def _print(name: str, seconds: list[float], everything: bool) -> None:
    p50, p99 = percentile(seconds, 0.5), percentile(seconds, 0.99)
    aims = [f"{label} ≤ {aim * 1000:.0f} ms" for label, aim in zip(("p50", "p99"), AIMS[name], strict=True) if aim]
    print(
        f"  {name:<12} p50 {p50 * 1000:6.0f} ms   p99 {p99 * 1000:6.0f} ms   max {max(seconds) * 1000:6.0f} ms"
        f"   (aim: {', '.join(aims)})",
        flush=True,
    )
    if everything:
        print("   ", " ".join(f"{value * 1000:.0f}" for value in seconds))


class Hops:
    """Where the time between a line and a mark goes, from the time stamps in Temporal's histories."""

    def __init__(self) -> None:
        self.samples: list[tuple[str, float, float]] = []

    async def show(self, client: Client, pool: WorkflowHandle[object, object]) -> None:
        """Print the median of each stretch of the way."""
        told = [event async for event in pool.fetch_history_events()]
        stretches: dict[str, list[float]] = {}
        for repair_id, began, marked in self.samples:
            marks = [("line written", began), *_in_pool(told, repair_id)]
            marks += await _in_repair(client, repair_id)
            marks.append(("mark seen in the cluster", marked))
            for (_, before), (name, at) in pairwise(marks):
                stretches.setdefault(name, []).append(at - before)
        print("  where the time goes (median, worst)")
        for name, values in stretches.items():
            print(f"    … {name:<38} {statistics.median(values) * 1000:6.0f} ms {max(values) * 1000:6.0f} ms")


def _in_pool(events: list[HistoryEvent], repair_id: str) -> list[tuple[str, float]]:
    marks: list[tuple[str, float]] = []
    for number, event in enumerate(events):
        start = event.start_child_workflow_execution_initiated_event_attributes
        if start.workflow_id != repair_id:
            continue
        before = events[:number]
        signal = next(e for e in reversed(before) if e.HasField("workflow_execution_signaled_event_attributes"))
        marks.append(("Temporal has the pool's signal", _at(signal)))
        marks.append(("the pool starts the repair", _at(event)))
    return marks


async def _in_repair(client: Client, repair_id: str) -> list[tuple[str, float]]:
    names = {
        "workflow_execution_started_event_attributes": "the repair exists",
        "activity_task_scheduled_event_attributes": "it asks for the quarantine",
        "activity_task_started_event_attributes": "a worker has taken it",
    }
    marks: list[tuple[str, float]] = []
    async for event in client.get_workflow_handle(repair_id).fetch_history_events():
        for kind, name in names.items():
            if event.HasField(kind) and all(known != name for known, _ in marks):  # type: ignore[arg-type]
                marks.append((name, _at(event)))
        if len(marks) == len(names):
            break
    return marks


def _at(event: HistoryEvent) -> float:
    return event.event_time.ToDatetime(tzinfo=UTC).timestamp()


if __name__ == "__main__":
    main()
