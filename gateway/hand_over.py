"""The way into Temporal: events wait in order, one queue a pool, until a signal with them was accepted."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from domain.faults import Transition
from domain.reports import NodeEvent, NodeEventKind, PoolReport
from gateway.metrics import GatewayMetrics

log = logging.getLogger(__name__)

MAX_EVENTS: Final = 200
MAX_BYTES: Final = 512 * 1024
"""Largest report, in bytes of JSON, unless one event alone is larger (at most about 1 MiB, see
``wire.convert_health``). Temporal refuses payloads over 2 MiB and warns from 512 KiB."""

REPEATS_WAIT_SECONDS: Final = 0.2
"""Repeats alone do not hurry: after a report they gather for this long, since each signal is history."""

FIRST_RETRY_SECONDS: Final = 0.1
MAX_RETRY_SECONDS: Final = 5.0
_SAY_AGAIN_SECONDS: Final = 30.0


class RefusedError(Exception):
    """Temporal did not accept a report, or nobody knows whether it did. The same report may be sent again."""


class PoolSender(Protocol):
    """Sends one report to a pool."""

    async def send(self, cluster: str, pool: str, report: PoolReport, request_id: str) -> None:
        """Return once the report is durable; raises ``RefusedError``.

        Invariant: a report sent again under the same request id arrives once.
        """


class _Waiting(NamedTuple):
    event: NodeEvent
    size: int
    since: float
    on_durable: Callable[[], None] | None


@dataclass(frozen=True, slots=True)
class _Batch:
    items: Sequence[_Waiting]
    request_id: str


class _PoolQueue:
    """The events of one pool. Its task lives only while there is something to send."""

    def __init__(self, cluster: str, pool: str, sender: PoolSender, metrics: GatewayMetrics) -> None:
        self._cluster = cluster
        self._pool = pool
        self._sender = sender
        self._metrics = metrics
        self._items: deque[_Waiting] = deque()
        self._hurry = asyncio.Event()
        self._sent_at = -REPEATS_WAIT_SECONDS
        self.task: asyncio.Task[None] | None = None

    def put(self, item: _Waiting) -> None:
        self._items.append(item)
        if not _is_repeat(item.event):
            self._hurry.set()
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._run(), name=f"hand-over {self._cluster}/{self._pool}")

    async def _run(self) -> None:
        while self._items:
            await self._gather_repeats()
            batch = self._take()
            await self._deliver(batch)
            self._sent_at = time.monotonic()
            self._account(batch)

    async def _gather_repeats(self) -> None:
        left = self._sent_at + REPEATS_WAIT_SECONDS - time.monotonic()
        if left > 0 and len(self._items) < MAX_EVENTS and not self._hurry.is_set():
            try:
                async with asyncio.timeout(left):
                    await self._hurry.wait()
            except TimeoutError:
                pass

    def _take(self) -> _Batch:
        items: list[_Waiting] = []
        size = 0
        while self._items and len(items) < MAX_EVENTS:
            if items and size + self._items[0].size > MAX_BYTES:
                break
            item = self._items.popleft()
            items.append(item)
            size += item.size
        if not any(not _is_repeat(item.event) for item in self._items):
            self._hurry.clear()
        return _Batch(items, str(uuid.uuid4()))

    async def _deliver(self, batch: _Batch) -> None:
        report = PoolReport(events=tuple(item.event for item in batch.items))
        failures = 0
        failing_since = said_at = 0.0
        while True:
            try:
                await self._sender.send(self._cluster, self._pool, report, batch.request_id)
            except RefusedError as error:
                failures += 1
                self._metrics.hand_over_failures.inc()
                now = time.monotonic()
                failing_since = failing_since or now
                if failures == 1 or now - said_at >= _SAY_AGAIN_SECONDS:
                    said_at = now
                    log.warning(
                        "Temporal does not accept reports of pool %s/%s, trying on; agents keep what is not"
                        " acknowledged: %s",
                        self._cluster,
                        self._pool,
                        error,
                        extra={"failures": failures, "events": len(batch.items) + len(self._items)},
                    )
                ceiling = min(FIRST_RETRY_SECONDS * 2 ** min(failures, 10), MAX_RETRY_SECONDS)
                await asyncio.sleep(random.uniform(ceiling / 2, ceiling))
            else:
                if failures:
                    log.info(
                        "Temporal accepts reports of pool %s/%s again, after %.1f s",
                        self._cluster,
                        self._pool,
                        time.monotonic() - failing_since,
                    )
                return

    def _account(self, batch: _Batch) -> None:
        now = time.monotonic()
        self._metrics.batches.inc()
        for item in batch.items:
            self._metrics.waiting.dec()
            self._metrics.events.labels(item.event.kind.value).inc()
            self._metrics.hand_over_seconds.observe(now - item.since)
            if item.on_durable is not None:
                item.on_durable()


class HandOver:
    """Takes events in and has them sent, in order within a pool, pools apart from each other."""

    def __init__(self, sender: PoolSender, metrics: GatewayMetrics) -> None:
        self._sender = sender
        self._metrics = metrics
        self._queues: dict[tuple[str, str], _PoolQueue] = {}

    def put(self, event: NodeEvent, on_durable: Callable[[], None] | None = None) -> None:
        """Queue an event; ``on_durable`` is called once, when Temporal has accepted it."""
        key = (event.node.cluster, event.node.pool)
        if key not in self._queues:
            self._queues[key] = _PoolQueue(*key, self._sender, self._metrics)
        self._metrics.waiting.inc()
        size = len(event.model_dump_json().encode()) + 1
        self._queues[key].put(_Waiting(event, size, time.monotonic(), on_durable))

    async def drain(self, seconds: float) -> bool:
        """Wait until everything queued was accepted, at most ``seconds``; returns whether it was."""
        tasks = self._running()
        if not tasks:
            return True
        _, left = await asyncio.wait(tasks, timeout=seconds)
        return not left

    async def close(self) -> None:
        """Stop sending. What was not accepted is dropped here: the agents still have it."""
        tasks = self._running()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _running(self) -> list[asyncio.Task[None]]:
        return [queue.task for queue in self._queues.values() if queue.task and not queue.task.done()]


def _is_repeat(event: NodeEvent) -> bool:
    fault = event.fault
    return event.kind is NodeEventKind.FAULT and fault is not None and fault.transition is Transition.REPEATED
