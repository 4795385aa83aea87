"""What the gateway knows of each node that has reported to it, and when a silent one is lost."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

from domain.faults import FaultEvent
from domain.nodes import NodeIdentity, NodeRef
from domain.reports import NodeEvent, NodeEventKind
from gateway.acks import AckWindow
from gateway.flood import FloodGate, Passed
from gateway.hand_over import HandOver
from gateway.metrics import GatewayMetrics

log = logging.getLogger(__name__)

MAX_UNACKED: Final = 256
"""Hand-overs of one node that may wait for Temporal before the gateway stops reading its stream."""

FORGET_SECONDS: Final = 3600.0
"""A lost node is forgotten after this long, in seconds; it is new when it comes back."""

FLAPS: Final = 3
FLAP_SECONDS: Final = 60.0
"""This many living streams replaced within this time mean that two agents use one name."""


class Stream(Protocol):
    """A node's live stream, as its record sees it."""

    held_back: bool

    def acknowledge(self) -> None:
        """Tell the agent how far its faults are durable, soon."""

    def ask_heartbeat(self, seconds: float) -> None:
        """Ask the agent for a heartbeat every so many seconds from now on."""

    def end(self, reason: str, explanation: str) -> None:
        """End the stream; the agent reads the explanation."""


class NodeRecord:
    """One node. It outlives the node's streams, so that a reconnect repeats and loses nothing."""

    __slots__ = (
        "_room",
        "_timer",
        "flood",
        "heard_at",
        "heard_time",
        "identity_bytes",
        "lost",
        "node",
        "replaced_at",
        "stream",
        "window",
    )

    def __init__(self, node: NodeRef, spool_id: str, flood: FloodGate) -> None:
        self.node = node
        self.window = AckWindow(spool_id)
        self.flood = flood
        # Serialised, and not as words: a tenth of the memory.
        self.identity_bytes = b""
        self.stream: Stream | None = None
        self.lost = False
        self.heard_at = 0.0
        self.heard_time = datetime.fromtimestamp(0, UTC)
        self.replaced_at: deque[float] | None = None
        self._room: asyncio.Event | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def full(self) -> bool:
        """Whether so much waits for Temporal that the node's stream is not to be read."""
        return len(self.window) >= MAX_UNACKED

    async def wait_for_room(self) -> None:
        """Wait until enough was accepted, or until the stream is to end."""
        self._room = asyncio.Event()
        await self._room.wait()

    def make_room(self) -> None:
        """Wake who waits for room."""
        if self._room is not None:
            self._room.set()


class Sessions:
    """All nodes of this gateway.

    Args:
        gateway: this gateway's name, which every event carries.
        hand_over: where events go.
        silence_seconds: a node that is silent for longer is lost, in seconds.
        fault_rate: faults per second and node that are passed on at once.
        now: the gateway's clock, UTC.
    """

    def __init__(
        self,
        gateway: str,
        hand_over: HandOver,
        metrics: GatewayMetrics,
        silence_seconds: float,
        fault_rate: float,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._gateway = gateway
        self._hand_over = hand_over
        self._metrics = metrics
        self._silence = silence_seconds
        self._fault_rate = fault_rate
        self._now = now
        self._records: dict[tuple[str, str], NodeRecord] = {}

    def __len__(self) -> int:
        """Return how many nodes are known."""
        return len(self._records)

    def open(self, identity: NodeIdentity, identity_bytes: bytes, spool_id: str, stream: Stream) -> NodeRecord:
        """Make this the node's stream, ending an older one, and tell the pool when there is news in it."""
        node = identity.node
        key = (node.cluster, node.name)
        record = self._records.get(key)
        news = True
        if record is None:
            record = NodeRecord(node, spool_id, FloodGate(self._fault_rate, _steady()))
            self._records[key] = record
        elif record.stream is not None:
            # The same agent on a new connection is no news; after a stream's end it is: another gateway may
            # have noticed the node's silence while it was away.
            # And so it is when the old stream was quiet: the node may have been there without an end to this one.
            quiet = _steady() - record.heard_at > self._silence / 2
            news = quiet or record.identity_bytes != identity_bytes or record.node != node
            self._replace(record)
        if record.window.spool_id != spool_id:
            self._flush(record)
            record.window = AckWindow(spool_id)
        record.node = node
        record.identity_bytes = identity_bytes
        record.stream = stream
        record.lost = False
        self.heard(record)
        if news:
            self._tell(NodeEvent(kind=NodeEventKind.SEEN, node=node, at=record.heard_time, identity=identity))
        return record

    def _replace(self, record: NodeRecord) -> None:
        now = _steady()
        flaps = record.replaced_at = record.replaced_at or deque(maxlen=FLAPS)
        flaps.append(now)
        if len(flaps) == FLAPS and now - flaps[0] < FLAP_SECONDS:
            log.error(
                "the agents of node %s replace each other's streams: two agents seem to use this name;"
                " give each node its own",
                record.node,
                extra={"node": record.node.name, "times": FLAPS, "seconds": round(now - flaps[0], 1)},
            )
            flaps.clear()
        stream, record.stream = record.stream, None
        if stream is not None:
            stream.end("replaced", f"a newer stream of node {record.node.name} replaced this one")
        record.make_room()

    def close(self, record: NodeRecord, stream: Stream) -> None:
        """Note that a stream is over. The node is lost only when none follows in time."""
        if record.stream is stream:
            record.stream = None

    def heard(self, record: NodeRecord) -> None:
        """Note that the node gave a sign of life."""
        record.heard_at = _steady()
        record.heard_time = self._now()

    def fault(self, record: NodeRecord, event: FaultEvent) -> None:
        """Take a fault in: hand it over, fold it, or drop it when it came in before."""
        window = record.window
        if window.came_before(event.sequence):
            self._metrics.repeated.inc()
            if record.stream is not None and event.sequence <= window.acked:
                record.stream.acknowledge()
            return
        first, passed = record.flood.offer(event, _steady())
        window.take(event.sequence, joins=first != event.sequence)
        if passed is None:
            self._metrics.folded.inc()
            self._release_later(record)
        else:
            self._pass_on(record, passed)

    def _pass_on(self, record: NodeRecord, passed: Passed) -> None:
        window = record.window
        event = NodeEvent(
            kind=NodeEventKind.FAULT,
            node=record.node,
            at=self._now(),
            fault=passed.event,
            suppressed=passed.suppressed,
        )

        def durable() -> None:
            window.done(passed.first_sequence)
            if len(window) <= MAX_UNACKED // 2:
                record.make_room()
            if record.window is window and record.stream is not None:
                record.stream.acknowledge()

        self._tell(event, durable)

    def _tell(self, event: NodeEvent, on_durable: Callable[[], None] | None = None) -> None:
        self._hand_over.put(event.model_copy(update={"gateway": self._gateway}), on_durable)

    def _release_later(self, record: NodeRecord) -> None:
        wait = record.flood.wait_seconds(_steady())
        if record._timer is None and wait is not None:
            record._timer = asyncio.get_running_loop().call_later(wait, self._release, record)

    def _release(self, record: NodeRecord) -> None:
        record._timer = None
        while (passed := record.flood.release(_steady())) is not None:
            self._pass_on(record, passed)
        self._release_later(record)

    def _flush(self, record: NodeRecord) -> None:
        """Hand over what is folded, whatever the rate: the agent's new spool does not know it any more."""
        while (passed := record.flood.release_now()) is not None:
            self._pass_on(record, passed)

    def flush(self) -> None:
        """Hand over all that is folded, before the gateway stops."""
        for record in self._records.values():
            if record._timer is not None:
                record._timer.cancel()
                record._timer = None
            self._flush(record)

    def change(self, heartbeat_seconds: float, silence_seconds: float) -> None:
        """Ask every agent for this heartbeat, and call a node lost after this silence, both in seconds."""
        self._silence = silence_seconds
        for record in self._records.values():
            if record.stream is not None:
                record.stream.ask_heartbeat(heartbeat_seconds)

    def end_all(self, reason: str, explanation: str) -> None:
        """End every stream. No node is lost by it."""
        for record in self._records.values():
            if record.stream is not None:
                record.stream.end(reason, explanation)
                record.make_room()

    async def watch(self) -> None:
        """Notice silent nodes, until cancelled."""
        last = _steady()
        while True:
            interval = min(max(self._silence / 20, 0.02), 1.0)
            await asyncio.sleep(interval)
            now = _steady()
            if now - last > interval + self._silence / 4:
                # It was the gateway that did not listen (stopped, starved): the nodes get the time back.
                log.warning("the gateway stood still for %.1f s; no node is called silent for that", now - last)
                for record in self._records.values():
                    record.heard_at += now - last
            last = now
            self.look(now)

    def look(self, now: float) -> None:
        """Report the nodes lost that are silent for too long, and forget those lost long ago."""
        for key, record in list(self._records.items()):
            silent = now - record.heard_at
            if record.lost:
                if silent > FORGET_SECONDS and not len(record.window):
                    del self._records[key]
            elif silent > self._silence and not (record.stream is not None and record.stream.held_back):
                self._lose(record, silent)

    def _lose(self, record: NodeRecord, silent: float) -> None:
        record.lost = True
        self._metrics.lost.inc()
        log.warning(
            "node %s is silent for %.1f s and reported lost",
            record.node,
            silent,
            extra={"node": record.node.name},
        )
        # When it was last heard, not now: a node that turned up at another gateway since then is not lost.
        self._tell(NodeEvent(kind=NodeEventKind.LOST, node=record.node, at=record.heard_time))
        if record.stream is not None:
            # So that a node which wakes up says hello, and is seen, again.
            stream, record.stream = record.stream, None
            stream.end("silent", f"nothing was heard of node {record.node.name} for {silent:.0f} s")
            record.make_room()

    def lose_absent(self, node: NodeRef, since: datetime) -> bool:
        """Report a node lost that was seen before this process began and has not come; returns whether it was."""
        if (node.cluster, node.name) in self._records:
            return False
        self._metrics.lost.inc()
        log.warning(
            "node %s did not come back since this gateway started and is reported lost",
            node,
            extra={"node": node.name},
        )
        self._tell(NodeEvent(kind=NodeEventKind.LOST, node=node, at=since))
        return True


def _steady() -> float:
    return asyncio.get_running_loop().time()
