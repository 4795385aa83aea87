"""A whole Kintsugi as separate processes: each started by its settings, killed and started again by a test.

Temporal on a file, gateway, worker, a served simulated cluster and its fleet of real agents. A child asks the kernel
to be ended with the test process, so that nothing outlives it, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import temporalio.api.enums.v1
import temporalio.api.taskqueue.v1
import temporalio.api.workflowservice.v1
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import TemporalError

from cli.launch import environment, module_command
from cli.ports import LOOPBACK, answers, free_ports
from cli.supervisor import Child
from cli.temporal_server import binary
from domain.pool import NodeHealth, PoolView
from domain.repair import Approve, Outcome, RepairResult, RepairState, RepairView, StepState
from runtime import temporal
from simulator.client import WorldClient
from simulator.states import WorldState
from workflows.ids import (
    REPAIR_WORKFLOW,
    WORKFLOW_TASK_QUEUE,
    cluster_task_queue,
    pool_workflow_id,
    repair_workflow_id,
)

CLUSTER = "plant"
POOL = "train"
START_SECONDS = 60.0
"""How long a process may take to be ready, in seconds: other tests may want the processors too."""
PATIENCE_SECONDS = 100.0
"""How long a test waits for a condition, in seconds: a killed worker is noticed after 20 s of silence."""
QUERY_TIMEOUT = timedelta(seconds=3)

AUTOMATIC = """
version: 1
rules:
  - name: everything by itself
    decide: auto
pools:
  "*":
    budget: {max_nodes: 4, max_percent: 100}
    breaker: {nodes: 50, window: 10m}
"""

Ready = Callable[["Part"], Awaitable[bool]]


async def until(condition: Callable[[], Awaitable[bool]], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for a condition; fail with what was waited for."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not await condition():
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        await asyncio.sleep(0.1)


def settings(directory: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process: what is given, and none of what the test process was given."""
    nothing = directory / "no-settings.toml"
    nothing.touch()
    kept = {name: value for name, value in environment().items() if not name.startswith(("TEMPORAL_", "KINTSUGI_"))}
    return {
        **kept,
        "KINTSUGI_CONFIG": str(nothing),
        "TEMPORAL_CONFIG_FILE": str(nothing),
        "NO_PROXY": LOOPBACK,
        **given,
    }


@dataclass
class Part:
    """One process, which can be started again after it ended.

    Attributes:
        ready: whether it does its work.
    """

    name: str
    command: Sequence[str]
    directory: Path
    given: Mapping[str, str]
    ready: Ready
    _child: Child | None = field(default=None, repr=False)

    @property
    def log(self) -> Path:
        """What it says, over all its lives."""
        return self.directory / f"{self.name}.log"

    @property
    def pid(self) -> int:
        """Number of the present process."""
        assert self._child is not None
        assert self._child.process is not None
        return self._child.process.pid

    async def start(self) -> None:
        """Start it and wait until it is ready."""
        child = Child(self.name, self.command, self.log, settings(self.directory, self.given), stop_seconds=20)
        self._child = child
        await child.start()

        async def ready_or_dead() -> bool:
            assert child.running, f"{self.name} ended while it started:\n{child.tail()}"
            return await self.ready(self)

        await until(ready_or_dead, f"{self.name} is ready", START_SECONDS)

    async def kill(self) -> None:
        """Kill it as ``kill -9`` does."""
        assert self._child is not None
        assert self._child.process is not None
        assert self._child.running, f"{self.name} had ended before it was killed:\n{self._child.tail()}"
        self._child.process.kill()
        assert await self._child.ended() == -signal.SIGKILL

    async def terminate(self) -> int:
        """Ask it to stop, as a service manager does, and return its exit status."""
        assert self._child is not None
        assert self._child.process is not None
        self._child.process.terminate()
        async with asyncio.timeout(START_SECONDS):
            return await self._child.ended()

    async def end(self) -> None:
        """End it, however it is."""
        if self._child is not None and self._child.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child.process.kill()
            await self._child.ended()


async def at_once(part: Part) -> bool:
    """Readiness of a part that others show to be ready."""
    return True


def serves(address: str) -> Ready:
    """Readiness of a server: it takes connections."""

    async def ready(part: Part) -> bool:
        return await answers(address)

    return ready


def temporal_part(directory: Path, port: int) -> Part:
    """Return Temporal's development server on a file of its own."""
    address = f"{LOOPBACK}:{port}"
    command = [binary(), "server", "start-dev", "--headless", "--ip", LOOPBACK, "--port", str(port)]
    command += ["--db-filename", str(directory / "temporal.db"), "--log-level", "error"]
    command += ["--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=1"]

    async def ready(part: Part) -> bool:
        try:
            async with asyncio.timeout(5):
                await (await temporal.connect(address, attempts=1)).count_workflows()
        except (ConnectionError, TemporalError, TimeoutError):
            return False
        return True

    return Part("temporal", command, directory, {}, ready)


def gateway_part(directory: Path, temporal_address: str, port: int) -> Part:
    """Return the gateway."""
    listen = f"{LOOPBACK}:{port}"
    given = {"TEMPORAL_ADDRESS": temporal_address, "KINTSUGI_GATEWAY_LISTEN": listen}
    return Part("gateway", module_command("gateway"), directory, given, serves(listen))


def worker_part(directory: Path, temporal_address: str, cluster: str, policy: Path, more: Mapping[str, str]) -> Part:
    """Return the worker, ready when Temporal has seen this very process ask for both kinds of work."""
    given = {
        "TEMPORAL_ADDRESS": temporal_address,
        "KINTSUGI_WORKER_CLUSTER": cluster,
        "KINTSUGI_WORKER_POLICY": str(policy),
        "KINTSUGI_WORKER_LEDGER": str(directory / "ledger.db"),
        "KINTSUGI_WORKER_SHUTDOWN_SECONDS": "1",
        **more,
    }

    async def ready(part: Part) -> bool:
        client = await temporal.connect(temporal_address, attempts=1)
        kinds = temporalio.api.enums.v1.TaskQueueType
        return await _polls(client, WORKFLOW_TASK_QUEUE, kinds.TASK_QUEUE_TYPE_WORKFLOW, part.pid) and await _polls(
            client, cluster_task_queue(cluster), kinds.TASK_QUEUE_TYPE_ACTIVITY, part.pid
        )

    return Part("worker", module_command("worker"), directory, given, ready)


async def _polls(client: Client, queue: str, kind: temporalio.api.enums.v1.TaskQueueType.ValueType, pid: int) -> bool:
    request = temporalio.api.workflowservice.v1.DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=temporalio.api.taskqueue.v1.TaskQueue(name=queue),
        task_queue_type=kind,
    )
    pollers = (await client.workflow_service.describe_task_queue(request)).pollers
    return any(poller.identity.startswith(f"{pid}@") for poller in pollers)


@dataclass
class Repairs:
    """What a test asks Temporal about repairs; works while the worker is away and comes back."""

    client: Client
    cluster: str
    pool: str

    def handle(self, node: str, number: int = 1) -> WorkflowHandle[object, RepairResult]:
        """Return the handle of a node's repair."""
        return self.client.get_workflow_handle(repair_workflow_id(self.cluster, node, number), result_type=RepairResult)

    async def state(self, node: str, number: int = 1) -> RepairState | None:
        """Return what a repair knows; None while it does not exist or nobody can answer."""
        try:
            view: RepairView = await self.handle(node, number).query(
                "get_repair", result_type=RepairView, rpc_timeout=QUERY_TIMEOUT
            )
        except TemporalError:
            return None
        return view.state

    async def runs(self, node: str, step: str) -> None:
        """Wait until a step of a node's repair is under way."""
        seen: list[str] = []

        async def running() -> bool:
            state = await self.state(node)
            record = state.step(step) if state is not None else None
            seen[:] = [f"{s.step_id}: {s.state} {s.detail}" for s in state.steps] if state is not None else []
            assert record is None or record.state is StepState.RUNNING, f"too late, {step} of {node} is {record}"
            return record is not None

        try:
            await until(running, f"{step} of {node} runs")
        except AssertionError as error:
            raise AssertionError(f"{error}; steps: {seen}") from None

    async def returned(self, *nodes: str) -> None:
        """Wait until the repairs of these nodes have ended, and see that each node was returned."""
        for node in nodes:
            handle = self.handle(node)

            async def known(node: str = node) -> bool:
                return await self.state(node) is not None

            await until(known, f"there is a repair of {node}")
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    result = await handle.result()
            except TimeoutError:
                raise AssertionError(f"the repair of {node} does not end: {await self.state(node)}") from None
            assert result.outcome is Outcome.RETURNED, result

    async def approve(self, node: str) -> None:
        """Approve what a node's repair waits for."""
        state = await self.state(node)
        assert state is not None
        assert state.wait is not None
        said = Approve(by="ana", step=state.wait.step_id, digest=state.wait.digest)
        await self.handle(node).signal("approve", said)

    async def approve_until(self, node: str, last: str) -> None:
        """Approve whatever a repair waits for until it waits for this step; then leave it waiting."""
        reached: list[RepairState | None] = [None]

        async def waits() -> bool:
            state = reached[0] = await self.state(node)
            if state is None or state.wait is None:
                return False
            if state.wait.step_id != last:
                await self.approve(node)
            return state.wait.step_id == last

        await until(waits, f"{node} waits for {last}")

    async def approve_all(self, node: str) -> None:
        """Approve whatever a repair waits for until it is over."""

        async def over() -> bool:
            state = await self.state(node)
            if state is not None and state.wait is not None:
                await self.approve(node)
            return state is not None and state.outcome is not None

        await until(over, f"the repair of {node} is over")

    async def pool_view(self) -> PoolView | None:
        """Return the pool as people see it; None while nobody can answer."""
        handle = self.client.get_workflow_handle(pool_workflow_id(self.cluster, self.pool))
        try:
            view: PoolView = await handle.query("get_pool", result_type=PoolView, rpc_timeout=QUERY_TIMEOUT)
        except TemporalError:
            return None
        return view

    async def count(self) -> int:
        """Return how many repairs there are or were."""
        return (await self.client.count_workflows(f"WorkflowType = '{REPAIR_WORKFLOW}'")).count


@dataclass
class Plant:
    """Everything that runs, and what a test asks of it."""

    temporal: Part
    gateway: Part
    worker: Part
    simulator: Part
    fleet: Part
    world: WorldClient
    repairs: Repairs

    async def truth(self) -> WorldState:
        """Return what really is, having seen that no rule was broken."""
        state = await self.world.state()
        assert state.violations == ()
        return state

    async def all_is_well(self) -> None:
        """Wait until the pool knows every node of the world and holds each to be healthy."""
        nodes = len((await self.world.state()).nodes)

        async def well() -> bool:
            view = await self.repairs.pool_view()
            return (
                view is not None
                and len(view.nodes) == nodes
                and all(node.health is NodeHealth.HEALTHY and not node.faults for node in view.nodes)
            )

        await until(well, f"the pool knows {nodes} healthy nodes")


@contextlib.asynccontextmanager
async def plant(
    directory: Path,
    policy: str = AUTOMATIC,
    nodes: int = 4,
    spares: int = 1,
    timing: Mapping[str, float] | None = None,
) -> AsyncIterator[Plant]:
    """Run a plant; at the end, also of a test that fails, none of its processes runs any more."""
    temporal_port, gateway_port, world_port = free_ports(3)
    temporal_address, world_address = f"{LOOPBACK}:{temporal_port}", f"{LOOPBACK}:{world_port}"
    policy_file = directory / "policy.yaml"
    policy_file.write_text(policy, encoding="utf-8")
    simulator = ["--listen", world_address, "--cluster", CLUSTER, "--pool", POOL, "--job-nodes", "0"]
    simulator += ["--nodes", str(nodes), "--spares", str(spares), "--gpus", "2"]
    for name, seconds in (timing or {}).items():
        simulator += ["--timing", f"{name}={seconds}"]
    fleet = ["--world", world_address, "--gateway", f"{LOOPBACK}:{gateway_port}"]
    fleet += ["--state-dir", str(directory / "agents")]
    simulated = {"KINTSUGI_WORKER_SCHEDULER": "simulated", "KINTSUGI_WORKER_SIMULATOR": world_address}
    world = WorldClient(world_address)
    parts = [
        temporal_part(directory, temporal_port),
        gateway_part(directory, temporal_address, gateway_port),
        worker_part(directory, temporal_address, CLUSTER, policy_file, simulated),
        Part("simulator", module_command("simulator", simulator), directory, {}, serves(world_address)),
        Part("fleet", module_command("fleet", fleet), directory, {}, at_once),
    ]
    try:
        # Each waits for what it needs, so the order does not matter; Temporal first, as the client does not wait.
        await parts[0].start()
        async with asyncio.TaskGroup() as starting:
            for part in parts[1:]:
                starting.create_task(part.start())
        client = await temporal.connect(temporal_address, attempts=5)
        temporal_server, gateway, worker, served, agents = parts
        running = Plant(temporal_server, gateway, worker, served, agents, world, Repairs(client, CLUSTER, POOL))
        await running.all_is_well()
        yield running
    except BaseException:
        for part in parts:
            if part.log.exists():
                print(f"--- {part.log.name}, its end ---\n{os.linesep.join(part.log.read_text().splitlines()[-15:])}")
        raise
    finally:
        await world.close()
        for part in reversed(parts):
            await part.end()
