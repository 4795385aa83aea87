"""One node's stream: what the agent says is checked here, word by word, and what it is told goes out here."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from gateway.identity import NotPermittedError, certificate_names, check_speaker
from gateway.metrics import GatewayMetrics
from gateway.sessions import NodeRecord, Sessions
from wire import convert
from wire.convert import MalformedError
from wire.v1 import health_pb2

log = logging.getLogger(__name__)

CLOCK_TOLERANCE_SECONDS: Final = 300.0
HELLO_SECONDS: Final = 10.0
"""A stream on which no hello arrives within this time is ended, in seconds."""

Context: TypeAlias = grpc.aio.ServicerContext[health_pb2.AgentMessage, health_pb2.GatewayMessage]

_STATUS: Final = {
    "malformed": grpc.StatusCode.INVALID_ARGUMENT,
    "not_permitted": grpc.StatusCode.PERMISSION_DENIED,
    "no_hello": grpc.StatusCode.DEADLINE_EXCEEDED,
    "replaced": grpc.StatusCode.ABORTED,
    "silent": grpc.StatusCode.DEADLINE_EXCEEDED,
    "stopping": grpc.StatusCode.UNAVAILABLE,
}


class ReportStream:
    """Serves one call of ``Health.Report``.

    Args:
        mutual_tls: whether the peer's certificate must name the node.
        heartbeat_seconds: how often the agent is asked to send a heartbeat.
    """

    __slots__ = (
        "_acked",
        "_asked_heartbeat",
        "_context",
        "_dropped",
        "_ended",
        "_heartbeat",
        "_heartbeat_seconds",
        "_metrics",
        "_mutual_tls",
        "_record",
        "_repeat_ack",
        "_sessions",
        "_spool_id",
        "_tasks",
        "_welcomed",
        "_writer",
        "held_back",
    )

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        metrics: GatewayMetrics,
        *,
        mutual_tls: bool,
        heartbeat_seconds: float,
    ) -> None:
        self._context = context
        self._sessions = sessions
        self._metrics = metrics
        self._mutual_tls = mutual_tls
        self._heartbeat_seconds = heartbeat_seconds
        self._record: NodeRecord | None = None
        self._spool_id = ""
        self._heartbeat = 0
        self._dropped = 0
        self._acked = 0
        self._asked_heartbeat = heartbeat_seconds
        self._repeat_ack = False
        self._welcomed = False
        self._ended = False
        self._writer: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.held_back = False

    async def serve(self) -> None:
        """Read the stream until it ends, from either side."""
        no_hello = asyncio.get_running_loop().call_later(
            HELLO_SECONDS, self.end, "no_hello", f"no hello came within {HELLO_SECONDS:g} s"
        )
        try:
            message = await self._read()
            no_hello.cancel()
            if message is None:
                return
            record = await self._greet(message)
            while (message := await self._read()) is not None:
                self._sessions.heard(record)
                self._take(record, message)
                if record.full:
                    await self._hold_back(record)
        except (MalformedError, DecodeError) as error:
            await self._refuse("malformed", f"the message is malformed: {error}")
        except NotPermittedError as error:
            await self._refuse("not_permitted", str(error))
        finally:
            no_hello.cancel()
            if self._record is not None:
                self._sessions.close(self._record, self)
                self._metrics.connected.dec()

    async def _read(self) -> health_pb2.AgentMessage | None:
        if self._ended:
            return None
        message = await self._context.read()
        # Once the stream was ended from this side, nothing that still comes in counts.
        return None if self._ended or not isinstance(message, health_pb2.AgentMessage) else message

    async def _greet(self, message: health_pb2.AgentMessage) -> NodeRecord:
        if message.WhichOneof("kind") != "hello":
            raise MalformedError("the first message must be a hello")
        hello = message.hello
        _check_spool_id(hello.spool_id)
        identity = convert.identity_from_pb(hello.identity)
        if self._mutual_tls:
            check_speaker(certificate_names(self._context.auth_context()), identity.node.name)
        if hello.HasField("clock"):
            self._check_clock(convert.time_from_pb("clock", hello.clock), str(identity.node))
        self._spool_id = hello.spool_id
        identity_bytes = hello.identity.SerializeToString(deterministic=True)
        record = self._sessions.open(identity, identity_bytes, hello.spool_id, self)
        self._record = record
        self._metrics.connected.inc()
        self._acked = record.window.acked
        await self._context.write(
            health_pb2.GatewayMessage(
                welcome=health_pb2.Welcome(heartbeat_seconds=self._asked_heartbeat, acked_sequence=self._acked)
            )
        )
        self._welcomed = True
        self._write_soon()  # what became durable, or was changed, while the welcome went out
        return record

    def _check_clock(self, agent: datetime, node: str) -> None:
        off = (agent - datetime.now(UTC)).total_seconds()
        if abs(off) > CLOCK_TOLERANCE_SECONDS:
            log.warning(
                "the clock of node %s is off by %.0f s, its events get the gateway's time: check its time",
                node,
                off,
            )

    def _take(self, record: NodeRecord, message: health_pb2.AgentMessage) -> None:
        kind = message.WhichOneof("kind")
        if kind == "heartbeat":
            self._take_heartbeat(record, message.heartbeat)
        elif kind == "fault":
            event = convert.fault_event_from_pb(message.fault, record.node, self._spool_id)
            self._sessions.fault(record, event)
        elif kind == "hello":
            raise MalformedError("a second hello came on one stream")
        else:
            raise MalformedError("a message holds neither hello, heartbeat nor fault")

    def _take_heartbeat(self, record: NodeRecord, heartbeat: health_pb2.Heartbeat) -> None:
        if heartbeat.sequence <= self._heartbeat:
            raise MalformedError(f"heartbeat {heartbeat.sequence} came after heartbeat {self._heartbeat}")
        self._heartbeat = heartbeat.sequence
        if heartbeat.dropped > self._dropped:
            log.warning(
                "the spool of node %s is full: its agent dropped %d repeats so far",
                record.node,
                heartbeat.dropped,
            )
            self._dropped = heartbeat.dropped

    async def _hold_back(self, record: NodeRecord) -> None:
        """Leave the stream unread until Temporal took enough: HTTP/2 flow control slows the agent down."""
        self.held_back = True
        try:
            await record.wait_for_room()
        finally:
            self.held_back = False
            self._sessions.heard(record)

    def acknowledge(self) -> None:
        """Tell the agent how far its faults are durable, soon; an agent that repeats itself is told again."""
        self._repeat_ack = True
        self._write_soon()

    def ask_heartbeat(self, seconds: float) -> None:
        """Ask the agent for a heartbeat every so many seconds from now on."""
        self._heartbeat_seconds = seconds
        self._write_soon()

    def _write_soon(self) -> None:
        # One write at a time, as gRPC wants it, and none before the welcome; the newest number wins.
        if self._welcomed and self._writer is None and not self._ended:
            self._writer = asyncio.create_task(self._write())

    async def _write(self) -> None:
        try:
            while not self._ended and (message := self._next()) is not None:
                await self._context.write(message)
        except (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            # The stream broke; the agent hears it at its next welcome.
            log.debug("a message did not go out", exc_info=True)
        finally:
            self._writer = None

    def _next(self) -> health_pb2.GatewayMessage | None:
        """Return what is to be written now, and count it as written; None for nothing."""
        if self._heartbeat_seconds != self._asked_heartbeat:
            self._asked_heartbeat = self._heartbeat_seconds
            settings = health_pb2.Settings(heartbeat_seconds=self._asked_heartbeat)
            return health_pb2.GatewayMessage(settings=settings)
        acked = self._record.window.acked if self._record is not None else 0
        if acked > self._acked or self._repeat_ack:
            self._acked = acked
            self._repeat_ack = False
            return health_pb2.GatewayMessage(ack=health_pb2.Ack(sequence=acked))
        return None

    def end(self, reason: str, explanation: str) -> None:
        """End the stream from this side, from any task."""
        if self._ended:
            return
        self._ended = True
        task = asyncio.create_task(self._end(reason, explanation))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, reason: str, explanation: str) -> None:
        with suppress(grpc.aio.BaseError, grpc.RpcError, asyncio.InvalidStateError):
            await self._refuse(reason, explanation)

    async def _refuse(self, reason: str, explanation: str) -> None:
        self._ended = True
        self._metrics.refused.labels(reason).inc()
        node = str(self._record.node) if self._record is not None else "an unknown node"
        level = logging.INFO if reason in ("stopping", "replaced") else logging.WARNING
        log.log(level, "ended the stream of %s (%s): %s", node, self._context.peer(), explanation)
        await self._context.abort(_STATUS[reason], explanation)


def _check_spool_id(spool_id: str) -> None:
    """Raise ``MalformedError`` unless this can be the id of a spool."""
    if not 1 <= len(spool_id) <= 128 or not spool_id.isprintable():
        raise MalformedError("spool_id must have 1 to 128 printable characters")
