"""The agent's stream to the gateway: hello, heartbeats, faults out of the spool; acks and settings back.

Nothing leaves the spool before the gateway acknowledges it, so the stream may break at any moment.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import grpc
import grpc.aio

from agents.errors import StartError
from agents.reporter_retry import DEFAULT_TIMES, Ending, RetryTimes, advice, retry_delay
from agents.spool import Spool
from agents.tls import channel_credentials
from domain.nodes import NodeIdentity
from runtime.settings import TlsFiles
from wire.convert import MalformedError, fault_event_to_pb, identity_to_pb, time_to_pb
from wire.v1 import health_pb2, health_pb2_grpc

log = logging.getLogger(__name__)

MAX_IN_FLIGHT = 256
"""Events sent and not yet acknowledged, at most: what a broken stream makes us send twice."""
_PAGE = 64
_DEFAULT_HEARTBEAT_SECONDS = 5.0
_CHANNEL_OPTIONS = (
    # A dead peer without a RST is noticed within 30 s. The gateway must permit pings this often.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # The back-off is ours; each attempt is a new connection with a fresh look-up and freshly read certificates.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", 64 * 1024),
)

Call = grpc.aio.StreamStreamCall[health_pb2.AgentMessage, health_pb2.GatewayMessage]


@dataclass
class _Stream:
    """What is known about one stream.

    Attributes:
        sent: highest sequence number sent on it, or known to the gateway at its welcome.
        in_flight: numbers sent on it and not yet acknowledged, in order.
        acked: highest sequence number acknowledged.
    """

    heartbeat_seconds: float = _DEFAULT_HEARTBEAT_SECONDS
    sent: int = 0
    in_flight: list[int] = field(default_factory=list)
    acked: int = 0
    ack_came: asyncio.Event = field(default_factory=asyncio.Event)
    welcomed: asyncio.Event = field(default_factory=asyncio.Event)
    beats: int = 0
    last_beat: float = float("-inf")


class Reporter:
    """Keeps one stream to the gateway and everything in the spool on its way.

    Args:
        target: ``host:port`` of the gateway.
        tls: certificates, read again at each connect so that renewed ones are used.
        spool: where faults wait.
        identity: returns who this node is now; asked at each hello.
        ailing: returns the names of checks that are late or failing.
        times: how long to wait for what.
    """

    def __init__(
        self,
        target: str,
        tls: TlsFiles,
        spool: Spool,
        identity: Callable[[], NodeIdentity],
        ailing: Callable[[], Sequence[str]],
        times: RetryTimes = DEFAULT_TIMES,
    ) -> None:
        self._target = target
        self._tls = tls
        self._spool = spool
        self._identity = identity
        self._ailing = ailing
        self._times = times
        self._wake = asyncio.Event()
        self._introduce_again = False
        self._connected = False
        # After the gateway called something malformed, events go out one by one until the culprit is known.
        self._window = MAX_IN_FLIGHT

    @property
    def connected(self) -> bool:
        """Whether the gateway has welcomed this node on the present stream."""
        return self._connected

    def wake(self) -> None:
        """Say that the spool has new events."""
        self._wake.set()

    def introduce_again(self) -> None:
        """Say that the identity changed: the stream is ended and opened again with a new hello."""
        self._introduce_again = True
        self._wake.set()

    async def run(self) -> None:
        """Report until cancelled; reconnects for ever."""
        failures = 0
        while True:
            try:
                ending = await self._one_stream()
            except (sqlite3.Error, StartError) as error:
                ending = Ending(welcomed=False, sentence=str(error))
            if ending.welcomed:
                failures = 0
            delay = retry_delay(ending, failures, self._times)
            failures += 1
            if not ending.wanted:
                log.warning(
                    "the stream to the gateway at %s ended: %s%s. Trying again in %.1f s, %d faults wait",
                    self._target,
                    ending.sentence,
                    advice(ending.code),
                    delay,
                    self._spool.backlog,
                    extra={"code": ending.code.name if ending.code else ""},
                )
            await asyncio.sleep(delay)

    async def _one_stream(self) -> Ending:
        self._introduce_again = False
        stream = _Stream()
        channel = _open_channel(self._target, self._tls)
        try:
            call: Call = health_pb2_grpc.HealthStub(channel).Report()  # type: ignore[no-untyped-call]
            try:
                ending = await _first_to_end(
                    self._read(call, stream),
                    self._write(call, stream),
                    self._delete_acked(stream),
                    self._expect_welcome(stream),
                )
            finally:
                call.cancel()
        finally:
            self._connected = False
            await channel.close()
        ending.welcomed = stream.welcomed.is_set()
        if ending.welcomed and ending.code is grpc.StatusCode.INVALID_ARGUMENT:
            await self._isolate(stream, ending)
        return ending

    async def _read(self, call: Call, stream: _Stream) -> Ending:
        # There is no time-out around read(): cancelling a read cancels the call.
        while True:
            message = await call.read()
            if not isinstance(message, health_pb2.GatewayMessage):  # the end of the stream
                return Ending(sentence="the gateway closed it", code=await call.code())
            kind = message.WhichOneof("kind")
            if kind == "welcome":
                if not await self._welcome(message.welcome, stream):
                    return Ending(wanted=True, sentence="the spool took a new identity")
            elif kind == "ack":
                self._acked(message.ack.sequence, stream)
            elif kind == "settings":
                stream.heartbeat_seconds = _sane_heartbeat(message.settings.heartbeat_seconds)
                self._wake.set()

    async def _welcome(self, welcome: health_pb2.Welcome, stream: _Stream) -> bool:
        if welcome.acked_sequence > self._spool.last_sequence:
            log.error(
                "the gateway knows fault %d of this spool, which has given out numbers up to %d only: its file was"
                " copied or restored. It takes a new identity, so that the gateway drops nothing",
                welcome.acked_sequence,
                self._spool.last_sequence,
            )
            await self._spool.renew_identity()
            return False
        stream.heartbeat_seconds = _sane_heartbeat(welcome.heartbeat_seconds)
        stream.sent = stream.acked = welcome.acked_sequence
        stream.ack_came.set()
        stream.welcomed.set()
        self._connected = True
        log.info("welcomed by the gateway at %s, %d faults wait", self._target, self._spool.backlog)
        return True

    def _acked(self, sequence: int, stream: _Stream) -> None:
        if sequence > stream.sent:
            log.error("the gateway acknowledged fault %d, but only %d was sent: ignored", sequence, stream.sent)
            return
        if sequence <= stream.acked:
            return
        stream.acked = sequence
        stream.in_flight = [number for number in stream.in_flight if number > sequence]
        stream.ack_came.set()
        self._wake.set()

    async def _write(self, call: Call, stream: _Stream) -> Ending:
        hello = health_pb2.Hello(
            identity=identity_to_pb(self._identity()),
            spool_id=self._spool.spool_id,
            clock=time_to_pb(datetime.now(UTC)),
        )
        await call.write(health_pb2.AgentMessage(hello=hello))
        await stream.welcomed.wait()
        loop = asyncio.get_running_loop()
        while True:
            if self._introduce_again or self._spool.spool_id != hello.spool_id:
                await call.done_writing()
                return Ending(wanted=True, sentence="the node's or the spool's identity changed")
            self._wake.clear()
            more = await self._send_page(call, stream)
            due = stream.last_beat + stream.heartbeat_seconds
            if loop.time() >= due:
                await call.write(health_pb2.AgentMessage(heartbeat=self._heartbeat(stream)))
                stream.last_beat = loop.time()
            elif not more:
                await _wait_until(self._wake, due)

    async def _send_page(self, call: Call, stream: _Stream) -> bool:
        """Send some events; return whether there may be more that may be sent now."""
        room = min(_PAGE, self._window - len(stream.in_flight))
        if room <= 0 or self._spool.last_sequence <= stream.sent:
            return False
        events = await self._spool.unacked(stream.sent, room)
        for event in events:
            try:
                message = health_pb2.AgentMessage(fault=fault_event_to_pb(event))
            except MalformedError as error:
                log.error("fault %d can never be sent and is set aside: %s", event.sequence, error)
                await self._spool.refuse(event.sequence)
                continue
            # Counted before it is written: an ack may come back before write() returns.
            stream.sent = event.sequence
            stream.in_flight.append(event.sequence)
            await call.write(message)
        return len(events) == room

    def _heartbeat(self, stream: _Stream) -> health_pb2.Heartbeat:
        stream.beats += 1
        return health_pb2.Heartbeat(
            sequence=stream.beats,
            clock=time_to_pb(datetime.now(UTC)),
            backlog=self._spool.backlog,
            dropped=self._spool.dropped,
            ailing_checks=self._ailing(),
        )

    async def _delete_acked(self, stream: _Stream) -> Ending:
        # Apart from reading, so that many acks become one delete.
        while True:
            await stream.ack_came.wait()
            stream.ack_came.clear()
            await self._spool.acknowledge(stream.acked)
            if self._spool.backlog == 0:
                self._window = MAX_IN_FLIGHT

    async def _expect_welcome(self, stream: _Stream) -> Ending:
        try:
            async with asyncio.timeout(self._times.welcome_seconds):
                await stream.welcomed.wait()
        except TimeoutError:
            return Ending(sentence=f"it sent no welcome within {self._times.welcome_seconds:g} s")
        never: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        return await never

    async def _isolate(self, stream: _Stream, ending: Ending) -> None:
        """Find the event that the gateway cannot read, so that one bad event never holds up the others."""
        if not stream.in_flight:
            return
        ending.suspect = True
        if self._window == 1:
            culprit = stream.in_flight[0]
            log.error("the gateway cannot read fault %d (%s): it is set aside", culprit, ending.sentence)
            await self._spool.refuse(culprit)
        self._window = 1


async def _first_to_end(*parts: Awaitable[Ending]) -> Ending:
    """Return how the first part ended; the others are cancelled and awaited."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    # The reader comes first: when a write fails, the read says why.
    endings = [_ending(task) for task in ended]
    return next((ending for ending in endings if ending.code is not None), endings[0])


def _ending(task: asyncio.Future[Ending]) -> Ending:
    # grpc.aio raises CancelledError in read() when the peer ends a call with the status CANCELLED.
    if task.cancelled():
        return Ending(sentence="the gateway cancelled it", code=grpc.StatusCode.CANCELLED)
    error = task.exception()
    if error is None:
        return task.result()
    if isinstance(error, grpc.aio.AioRpcError):
        return Ending(sentence=error.details() or error.code().name, code=error.code())
    if isinstance(error, asyncio.InvalidStateError):
        return Ending(sentence="the gateway closed it")
    if isinstance(error, MalformedError):
        return Ending(sentence=f"this node's identity cannot be sent: {error}", code=grpc.StatusCode.INVALID_ARGUMENT)
    raise error


async def _wait_until(event: asyncio.Event, when: float) -> None:
    try:
        async with asyncio.timeout_at(when):
            await event.wait()
    except TimeoutError:
        pass


def _open_channel(target: str, tls: TlsFiles) -> grpc.aio.Channel:
    credentials = channel_credentials(tls)
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=_CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(target, credentials, options=_CHANNEL_OPTIONS)


def _sane_heartbeat(seconds: float) -> float:
    return min(max(seconds, 0.05), 300.0) if seconds > 0 else _DEFAULT_HEARTBEAT_SECONDS
