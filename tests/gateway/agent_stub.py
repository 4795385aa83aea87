"""An agent reduced to its stream, and a pool that writes down what reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

import grpc
import grpc.aio

from domain.faults import Fault, FaultEvent, Scope, Severity, Transition
from domain.nodes import Gpu, Inventory, NodeIdentity, NodeRef
from domain.observations import Component, ComponentKind, Source
from domain.reports import NodeEvent, NodeEventKind, PoolReport
from gateway.hand_over import RefusedError
from gateway.server import Gateway
from runtime.settings import GatewaySettings
from wire import convert
from wire.v1 import health_pb2, health_pb2_grpc

PATIENCE_SECONDS = 20.0


class AgentStub:
    """Speaks for one node."""

    def __init__(
        self,
        port: int,
        name: str = "gpu-0",
        *,
        cluster: str = "c1",
        pool: str = "h100",
        boot_id: str = "boot-1",
        spool_id: str = "spool-1",
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        self.node = NodeRef(cluster=cluster, pool=pool, name=name)
        self.boot_id = boot_id
        self.spool_id = spool_id
        # A connection of its own for every stub, as real agents have.
        options = [("grpc.use_local_subchannel_pool", 1)]
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options)
        else:
            self.channel = grpc.aio.secure_channel(f"localhost:{port}", credentials, options)
        self.call: Any = None
        self.heartbeats = 0
        self.reopen()

    def reopen(self) -> None:
        """Open a stream, leaving the last one."""
        if self.call is not None:
            self.call.cancel()
        self.call = health_pb2_grpc.HealthStub(self.channel).Report()  # type: ignore[no-untyped-call]
        self.heartbeats = 0

    @property
    def identity(self) -> NodeIdentity:
        return NodeIdentity(
            node=self.node,
            boot_id=self.boot_id,
            operations_address="127.0.0.1:1",
            inventory=Inventory(gpus=(Gpu(uuid="GPU-1", pci_bus_id="0000:1b:00.0"),)),
        )

    async def hello(self, clock: datetime | None = None) -> health_pb2.Welcome:
        """Say hello and return the welcome."""
        hello = health_pb2.Hello(
            identity=convert.identity_to_pb(self.identity),
            spool_id=self.spool_id,
            clock=convert.time_to_pb(clock or datetime.now(UTC)),
        )
        await self.send(health_pb2.AgentMessage(hello=hello))
        message = await self.read()
        assert message.WhichOneof("kind") == "welcome"
        welcome: health_pb2.Welcome = message.welcome
        return welcome

    async def send(self, message: health_pb2.AgentMessage) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.call.write(message)

    async def heartbeat(self) -> None:
        self.heartbeats += 1
        await self.send(health_pb2.AgentMessage(heartbeat=health_pb2.Heartbeat(sequence=self.heartbeats)))

    async def fault(
        self,
        sequence: int,
        transition: Transition = Transition.OPENED,
        fault_class: str = "gpu.fallen_off_bus",
    ) -> None:
        await self.send(
            health_pb2.AgentMessage(
                fault=convert.fault_event_to_pb(
                    fault_event(self.node, self.spool_id, sequence, transition, fault_class)
                )
            )
        )

    async def read(self) -> Any:
        """Return the next message; raises what the stream ended with."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            message = await self.call.read()
        if message is grpc.aio.EOF:
            raise ConnectionError(f"{await self.call.code()}: {await self.call.details()}")
        return message

    async def acked(self, sequence: int) -> int:
        """Read until everything up to this sequence is acknowledged; returns the number that said so."""
        while True:
            message = await self.read()
            if message.WhichOneof("kind") == "ack" and message.ack.sequence >= sequence:
                number: int = message.ack.sequence
                return number

    async def ending(self) -> tuple[grpc.StatusCode, str]:
        """Return how the gateway ended the stream."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.call.code(), await self.call.details()

    async def close(self) -> None:
        """End the stream and the connection at once, as a killed agent would."""
        self.call.cancel()
        await self.channel.close()


def fault_event(
    node: NodeRef,
    spool_id: str,
    sequence: int,
    transition: Transition = Transition.OPENED,
    fault_class: str = "gpu.fallen_off_bus",
) -> FaultEvent:
    """Return a fault event as an agent makes it."""
    now = datetime.now(UTC)
    return FaultEvent(
        spool_id=spool_id,
        sequence=sequence,
        transition=transition,
        fault=Fault(
            fault_class=fault_class,
            node=node,
            component=Component(kind=ComponentKind.GPU, id="GPU-1"),
            severity=Severity.FATAL,
            scope=Scope.GPU,
            source=Source.KERNEL_LOG,
            boot_id="boot-1",
            first_seen=now,
            last_seen=now,
        ),
    )


Agents: TypeAlias = Callable[..., AgentStub]
"""Makes an agent with ``AgentStub``'s arguments, and closes it when the test ends."""


class Pools:
    """Stands for Temporal: keeps what it accepts, accepts nothing while ``open`` is cleared."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.refuse = 0
        self.reports: list[tuple[str, str, PoolReport]] = []

    async def send(self, cluster: str, pool: str, report: PoolReport, request_id: str) -> None:
        await self.open.wait()
        if self.refuse:
            self.refuse -= 1
            raise RefusedError("not now")
        self.reports.append((cluster, pool, report))

    def events(self, pool: str = "h100", kind: NodeEventKind | None = None) -> list[NodeEvent]:
        return [
            event
            for _, name, report in self.reports
            for event in report.events
            if name == pool and kind in (None, event.kind)
        ]

    def faults(self, pool: str = "h100") -> list[tuple[Transition, int, int]]:
        """Return transition, sequence and suppressed count of each fault event."""
        return [
            (event.fault.transition, event.fault.sequence, event.suppressed)
            for event in self.events(pool, NodeEventKind.FAULT)
            if event.fault is not None
        ]


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition holds."""
    await until_async(_as_async(condition), what)


async def until_async(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until the condition, which has to ask somebody, holds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_SECONDS
    while not await condition():
        assert loop.time() < deadline, f"waited in vain: {what}"
        await asyncio.sleep(0.01)


def _as_async(condition: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def ask() -> bool:
        return condition()

    return ask


async def started(pools: Pools, **settings: Any) -> Gateway:
    """Return a running gateway on a free port that hands over to these pools."""
    gateway = Gateway(GatewaySettings(listen="127.0.0.1:0", **settings), pools)
    await gateway.start()
    return gateway


def metric(gateway: Gateway, name: str, **labels: str) -> float:
    """Return what the gateway counted; 0 before it counted anything."""
    value = gateway.metrics.registry.get_sample_value(f"kintsugi_gateway_{name}", labels)
    return 0.0 if value is None else value
