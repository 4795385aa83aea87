"""A laboratory for workflows: a real Temporal server, the real workflows and activities, a served simulated cluster.

Only the agents' gRPC and the gateway are left out: the lab's agents speak to the simulated cluster directly, and
the lab itself reports hellos and faults to the pool, as the gateway does.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from temporalio.client import Client, WorkflowHandle

from activities.registry import World as Ports
from adapters.ledger.sqlite import SqliteLedger
from adapters.simulated.cluster import SimulatedCluster
from domain.catalog import fault_class
from domain.errors import TransientError
from domain.faults import Fault, FaultEvent, Transition
from domain.ledger import Notice
from domain.nodes import Gpu, Inventory, NodeIdentity, NodeRef
from domain.observations import Component, ComponentKind, Source
from domain.operations import NodeInspection, OperationProgress, OperationRequest, OperationState
from domain.policy import Policy
from domain.pool import PoolView
from domain.repair import RepairResult, RepairState, RepairView
from domain.reports import NodeEvent, NodeEventKind, PoolInput, PoolReport
from domain.scheduling import Mark, SchedulingState
from domain.workloads import Workload
from runtime.temporal import ensure_search_attributes
from simulator.client import WorldClient
from simulator.machine import MODEL
from simulator.scenarios import training_job
from simulator.service import WorldService
from simulator.states import NodeState, WorldState
from simulator.timing import Timing
from simulator.world import Layout, World
from worker import workers
from workflows import search_attributes
from workflows.ids import (
    POOL_WORKFLOW,
    REPORT_SIGNAL,
    WORKFLOW_TASK_QUEUE,
    pool_workflow_id,
    repair_workflow_id,
)

POOL = "train"
PATIENCE_SECONDS = 40.0
"""How long a test waits for a condition before it fails, in seconds."""

QUICK = Timing(
    shutdown=0.4,
    boot=0.4,
    power=0.1,
    fault_returns=0.05,
    checkpoint=0.2,
    restore=0.1,
    clean_up=0.1,
    reset_gpu=0.2,
    burn_in=0.3,
    drain=0.2,
    job_start=0.2,
    reprovision=0.5,
    replace=0.5,
)

ACTING = {
    "rules": [
        {
            "name": "heavy",
            "match": {"action": ["reset_gpu", "reboot", "power_cycle", "reprovision", "replace"]},
            "decide": "approve",
        },
        {"name": "rest", "decide": "auto"},
    ],
    "pools": {"*": {"budget": {"max_nodes": 2, "max_percent": 50}, "lost_grace": "200ms"}},
}


def acting(**changes: object) -> Policy:
    """Return a policy that acts by itself but asks before a rung of the ladder."""
    return Policy.model_validate({**ACTING, **changes}, extra="forbid")


def automatic(**changes: object) -> Policy:
    """Return a policy that never asks."""
    return acting(**{"rules": [{"name": "all", "decide": "auto"}], **changes})


class DirectAgents:
    """Agents that need no process: the address of a node's agent is the node's name."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._running: dict[str, asyncio.Task[None]] = {}
        self._latest: dict[str, OperationProgress] = {}

    async def _up(self, address: str) -> NodeState:
        node = (await self._lab.world.state()).node(address)
        if not node.agent_up:
            raise TransientError(f"the agent of {address} does not answer")
        return node

    async def start(self, address: str, request: OperationRequest) -> OperationProgress:
        """See ``NodeAgent.start``."""
        node = await self._up(address)
        known = self._running.get(request.operation_id)
        if known is None or (known.done() and not self._latest[request.operation_id].state.final):
            self._latest[request.operation_id] = OperationProgress(
                operation_id=request.operation_id, kind=request.kind, state=OperationState.RUNNING
            )
            self._running[request.operation_id] = asyncio.create_task(self._carry_out(node, request))
        return self._latest[request.operation_id]

    async def _carry_out(self, node: NodeState, request: OperationRequest) -> None:
        with contextlib.suppress(TransientError):
            async for progress in self._lab.world.run_operation(node.name, node.boot_id, request):
                self._latest[request.operation_id] = progress

    async def watch(self, address: str, operation_id: str) -> AsyncIterator[OperationProgress]:
        """See ``NodeAgent.watch``."""
        boot = (await self._up(address)).boot_id
        while not self._latest[operation_id].state.final:
            await asyncio.sleep(0.05)
            if (await self._up(address)).boot_id != boot:
                raise TransientError(f"{address} has rebooted")
            yield self._latest[operation_id]
        yield self._latest[operation_id]

    async def cancel(self, address: str, operation_id: str) -> OperationProgress:
        """See ``NodeAgent.cancel``."""
        await self._up(address)
        await self._lab.world.cancel_operation(address, operation_id)
        return self._latest[operation_id]

    async def inspect(self, address: str) -> NodeInspection:
        """See ``NodeAgent.inspect``."""
        await self._up(address)
        return NodeInspection(identity=await self._lab.identity(address), taken_at=datetime.now(UTC))


class Breakable(SimulatedCluster):
    """The simulated cluster, with calls that a test breaks: method name → error to raise."""

    def __init__(self, address: str, broken: dict[str, Exception]) -> None:
        super().__init__(address)
        self._broken = broken

    def _check(self, name: str) -> None:
        if name in self._broken:
            raise self._broken[name]

    async def scheduling_state(self, node: NodeRef) -> SchedulingState:
        """See ``Scheduler.scheduling_state``."""
        self._check("scheduling_state")
        return await super().scheduling_state(node)

    async def release(self, node: NodeRef, mark: Mark) -> SchedulingState:
        """See ``Scheduler.release``."""
        self._check("release")
        return await super().release(node, mark)

    async def workloads(self, node: NodeRef) -> Sequence[Workload]:
        """See ``Scheduler.workloads``."""
        self._check("workloads")
        return await super().workloads(node)


class Told:
    """A notifier that remembers."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    async def tell(self, notice: Notice) -> None:
        """See ``Notifier.tell``."""
        self.notices.append(notice)


class FixedPolicy:
    """A policy that a test can change."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    async def current(self) -> Policy:
        """See ``PolicySource.current``."""
        return self.policy


class Lab:
    """One cluster with its pool, and what a test asks of them."""

    def __init__(self, client: Client, directory: Path, policy: Policy, layout: Layout) -> None:
        self.client = client
        self.cluster = layout.cluster
        self.model = World(layout, timing=QUICK)
        self.policy = FixedPolicy(policy)
        self.ledger = SqliteLedger(directory / f"{self.cluster}.db")
        self.told = Told()
        self.broken: dict[str, Exception] = {}
        self.address = ""
        self.world = WorldClient("")
        self._boots: dict[str, str] = {}
        self._sequence = 0

    @property
    def pool(self) -> WorkflowHandle[object, None]:
        """The pool's workflow."""
        return self.client.get_workflow_handle(pool_workflow_id(self.cluster, POOL))

    def repair(self, node: str, number: int = 1) -> WorkflowHandle[object, RepairResult]:
        """A node's repair."""
        return self.client.get_workflow_handle(repair_workflow_id(self.cluster, node, number), result_type=RepairResult)

    def ref(self, node: str) -> NodeRef:
        """A node's place."""
        return NodeRef(cluster=self.cluster, pool=POOL, name=node)

    async def identity(self, node: str) -> NodeIdentity:
        """Who a node is now."""
        state = (await self.world.state()).node(node)
        gpus = self.model.machine(node).gpus
        inventory = Inventory(gpus=tuple(Gpu(uuid=g.uuid, serial=g.serial, model=MODEL) for g in gpus))
        return NodeIdentity(
            node=self.ref(node),
            boot_id=state.boot_id,
            machine_id=f"machine-{node}",
            operations_address=node,
            inventory=inventory,
        )

    async def report(self, *events: NodeEvent) -> None:
        """Report to the pool, as the gateway does."""
        await self.client.start_workflow(
            POOL_WORKFLOW,
            PoolInput(cluster=self.cluster, pool=POOL),
            id=pool_workflow_id(self.cluster, POOL),
            task_queue=WORKFLOW_TASK_QUEUE,
            start_signal=REPORT_SIGNAL,
            start_signal_args=[PoolReport(events=events)],
        )

    async def fault(
        self,
        node: str,
        name: str = "gpu.fallen_off_bus",
        gpu: int = 0,
        transition: Transition = Transition.OPENED,
        **changes: object,
    ) -> Fault:
        """Report a fault of a node."""
        state = (await self.world.state()).node(node)
        known = fault_class(name)
        on_node = name.startswith("node.")
        now = datetime.now(UTC)
        seen = Fault(
            fault_class=name,
            node=self.ref(node),
            component=Component(kind=ComponentKind.NODE)
            if on_node
            else Component(kind=ComponentKind.GPU, id=state.gpu_uuids[gpu]),
            severity=known.severity,
            scope=known.scope,
            source=Source.KERNEL_LOG,
            boot_id=state.boot_id,
            first_seen=now,
            last_seen=now,
            evidence=(f"{name} on {node}",),
        ).model_copy(update=changes)
        self._sequence += 1
        event = FaultEvent(spool_id="lab", sequence=self._sequence, transition=transition, fault=seen)
        await self.report(NodeEvent(kind=NodeEventKind.FAULT, node=seen.node, at=now, fault=event))
        return seen

    async def lost(self, node: str) -> None:
        """Report a node's silence."""
        await self.report(NodeEvent(kind=NodeEventKind.LOST, node=self.ref(node), at=datetime.now(UTC)))

    async def herald(self) -> None:
        """Report each node's hello, and each new boot, until cancelled."""
        async for lives in self.world.watch_nodes():
            events = []
            for life in lives:
                if life.agent_up and self._boots.get(life.node) != life.boot_id:
                    self._boots[life.node] = life.boot_id
                    identity = await self.identity(life.node)
                    events.append(
                        NodeEvent(kind=NodeEventKind.SEEN, node=identity.node, at=datetime.now(UTC), identity=identity)
                    )
            if events:
                await self.report(*events)

    async def until(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait for a condition; fail with what was waited for."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            try:
                while not await condition():  # noqa: ASYNC110 - the world outside has no event to await
                    await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                raise AssertionError(f"never came true: {what}") from None

    async def state(self, node: str, number: int = 1) -> RepairState:
        """What a repair knows; waits until the repair exists."""
        handle = self.repair(node, number)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    view: RepairView = await handle.query("get_repair", result_type=RepairView)
                    return view.state
                except Exception:
                    await asyncio.sleep(0.05)

    async def waits_for(self, node: str, step: str, number: int = 1) -> RepairState:
        """Wait until a repair waits for a person to answer a step."""
        found: list[RepairState] = []

        async def waiting() -> bool:
            state = await self.state(node, number)
            found.append(state)
            return state.wait is not None and state.wait.step_id == step

        await self.until(waiting, f"{node} waits for an answer to {step}; last seen: {found[-1:]}")
        return found[-1]

    async def told_anybody(self) -> bool:
        """Whether people have been told anything."""
        return bool(self.told.notices)

    async def result(self, node: str, number: int = 1) -> RepairResult:
        """Wait until a repair ends; it must exist by then."""
        await self.state(node, number)
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.repair(node, number).result()

    async def seen_all(self) -> None:
        """Wait until the pool knows every node."""

        async def known() -> bool:
            try:
                view = await self.pool.query("get_pool", result_type=PoolView)
            except Exception:
                return False
            return len(view.nodes) == len(self.model.machines)

        await self.until(known, "the pool knows every node")

    async def truth(self) -> WorldState:
        """What really is, and that no rule was broken."""
        state = await self.world.state()
        assert state.violations == ()
        return state

    async def repairs(self) -> int:
        """How many repairs there are of this cluster."""
        count = 0
        async for _ in self.client.list_workflows(f"KintsugiCluster = '{self.cluster}'"):
            count += 1
        return count


@contextlib.asynccontextmanager
async def laboratory(
    client: Client,
    directory: Path,
    policy: Policy,
    nodes: int = 4,
    spares: int = 1,
    job_nodes: int = 2,
    searchable: bool = True,
) -> AsyncIterator[Lab]:
    """Run a lab: served world, workers, hellos; at the end nothing of it runs any more."""
    layout = Layout(cluster=f"lab-{uuid.uuid4().hex[:8]}", pool=POOL, nodes=nodes, spares=spares, gpus=2)
    lab = Lab(client, directory, policy, layout)
    if searchable:
        await ensure_search_attributes(client, search_attributes.ALL)
    service = WorldService(lab.model)
    served: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(service.serve("127.0.0.1:0", served.set_result))
    address = await served
    lab.world = WorldClient(address)
    cluster = Breakable(address, lab.broken)
    if job_nodes:
        await lab.world.submit(training_job(job_nodes, gpus=2))
    ports = Ports(cluster, cluster, cluster, DirectAgents(lab), lab.ledger, lab.told, lab.policy)
    flows, effects = workers(client, lab.cluster, ports, shutdown=timedelta(0))
    async with flows, effects:
        heralding = asyncio.create_task(lab.herald())
        try:
            await lab.seen_all()
            yield lab
        finally:
            heralding.cancel()
            await _terminate(lab)
    await cluster.close()
    await lab.world.close()
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving


async def _terminate(lab: Lab) -> None:
    for workflow_id in [
        pool_workflow_id(lab.cluster, POOL),
        *[repair_workflow_id(lab.cluster, name, n) for name in lab.model.machines for n in (1, 2)],
    ]:
        with contextlib.suppress(Exception):
            await lab.client.get_workflow_handle(workflow_id).terminate()
