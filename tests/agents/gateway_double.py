"""A gateway for the agent's tests: a real grpc.aio server that keeps what it is told and acks when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import grpc.aio

from wire.v1 import health_pb2, health_pb2_grpc

Context = grpc.aio.ServicerContext[health_pb2.AgentMessage, health_pb2.GatewayMessage]


@dataclass
class Heard:
    """What came in on one stream."""

    context: Context
    hello: health_pb2.Hello
    faults: list[health_pb2.FaultEvent] = field(default_factory=list)
    heartbeats: list[health_pb2.Heartbeat] = field(default_factory=list)
    closed: bool = False

    @property
    def sequences(self) -> list[int]:
        return [fault.sequence for fault in self.faults]


class GatewayDouble(health_pb2_grpc.HealthServicer):
    """Answers as it is steered.

    Attributes:
        durable: per spool id, the highest sequence that is acknowledged.
        auto_ack: acknowledge each fault as it comes.
        refuse: answer a hello with this status.
        malformed: answer a fault with this number with INVALID_ARGUMENT.
        mute: never welcome anybody.
    """

    def __init__(self) -> None:
        self.streams: list[Heard] = []
        self.durable: dict[str, int] = {}
        self.auto_ack = True
        self.refuse: grpc.StatusCode | None = None
        self.malformed = 0
        self.mute = False
        self.heartbeat_seconds = 0.1
        self.address = ""
        self._changed = asyncio.Event()
        self._server: grpc.aio.Server | None = None

    async def Report(self, request_iterator: object, context: Context) -> None:
        first = await context.read()
        assert isinstance(first, health_pb2.AgentMessage)
        heard = Heard(context, first.hello)
        self.streams.append(heard)
        self._note()
        if self.refuse is not None:
            await context.abort(self.refuse, "refused by the test")
        if not self.mute:
            welcome = health_pb2.Welcome(
                heartbeat_seconds=self.heartbeat_seconds,
                acked_sequence=self.durable.get(heard.hello.spool_id, 0),
            )
            await context.write(health_pb2.GatewayMessage(welcome=welcome))
        try:
            while isinstance(message := await context.read(), health_pb2.AgentMessage):
                await self._take(message, heard)
        finally:
            heard.closed = True
            self._note()

    async def _take(self, message: health_pb2.AgentMessage, heard: Heard) -> None:
        if message.HasField("heartbeat"):
            heard.heartbeats.append(message.heartbeat)
        elif message.fault.sequence == self.malformed:
            await heard.context.abort(grpc.StatusCode.INVALID_ARGUMENT, "fault.severity is unspecified")
        else:
            heard.faults.append(message.fault)
            if self.auto_ack:
                await self.ack(message.fault.sequence)
        self._note()

    async def ack(self, sequence: int) -> None:
        heard = self.streams[-1]
        self.durable[heard.hello.spool_id] = max(sequence, self.durable.get(heard.hello.spool_id, 0))
        await heard.context.write(health_pb2.GatewayMessage(ack=health_pb2.Ack(sequence=sequence)))

    async def settings(self, heartbeat_seconds: float) -> None:
        await self.streams[-1].context.write(
            health_pb2.GatewayMessage(settings=health_pb2.Settings(heartbeat_seconds=heartbeat_seconds))
        )

    async def start(self, port: int = 0, credentials: grpc.ServerCredentials | None = None) -> None:
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        health_pb2_grpc.add_HealthServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        address = f"127.0.0.1:{port}"
        bound = (
            self._server.add_insecure_port(address)
            if credentials is None
            else self._server.add_secure_port(address, credentials)
        )
        await self._server.start()
        self.address = f"127.0.0.1:{bound}"

    async def stop(self) -> None:
        """Stop without grace: streams break off as when the process is killed."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def restart(self) -> None:
        port = int(self.address.rpartition(":")[2])
        await self.stop()
        await self.start(port)

    async def until(self, condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
        """Wait for a condition on what was heard."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._changed.clear()
                    try:
                        async with asyncio.timeout(0.05):
                            await self._changed.wait()
                    except TimeoutError:
                        pass
        except TimeoutError:
            raise AssertionError(f"never: {what}; streams: {[stream.sequences for stream in self.streams]}") from None

    def _note(self) -> None:
        self._changed.set()


@asynccontextmanager
async def gateway_double() -> AsyncIterator[GatewayDouble]:
    gateway = GatewayDouble()
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()
