"""From batches of observations to durable fault events: one transaction for all that is at hand."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from agents.checks.base import Batch, KernelPosition
from agents.spool import Spool
from domain.fault_tracker import FaultTracker
from domain.faults import Fault, Transition
from domain.observations import Observation

log = logging.getLogger(__name__)

_MAX_QUEUED = 64
"""Batches waiting, at most; beyond that checks wait (the kernel keeps its log meanwhile)."""
_TICK_SECONDS = 1.0
_QUIET_SAVE_SECONDS = 2.0
"""How long counts, and the position of lines that amount to nothing, may stay unwritten: they can be read again."""
_LONGEST_RETRY_SECONDS = 5.0
_TRIES_ON_DISK = 4


class Pipeline:
    """Feeds the tracker and the spool from all checks, in the order in which batches come.

    Everything that waits is taken together, so that a burst costs a few fsyncs and not one per line.

    Args:
        tracker: decides what observations amount to.
        spool: where events become durable.
        recorded: called when the spool has new events.
    """

    def __init__(self, tracker: FaultTracker, spool: Spool, recorded: Callable[[], None]) -> None:
        self._tracker = tracker
        self._spool = spool
        self._recorded = recorded
        self._queue: asyncio.Queue[Batch] = asyncio.Queue(_MAX_QUEUED)
        self._stored_open: tuple[Fault, ...] = tracker.open_faults
        self._unsaved: KernelPosition | None = None
        self._next_quiet_save = 0.0
        self._write_problem = ""

    @property
    def open_faults(self) -> tuple[Fault, ...]:
        """Faults that are open now."""
        return self._tracker.open_faults

    @property
    def blind_spots(self) -> tuple[str, ...]:
        """What keeps findings from being made durable; empty when nothing does."""
        if self._spool.in_memory:
            return (
                "spool: the disk of the state directory cannot be written, what is found is kept in memory: free"
                " space there, then restart the agent",
            )
        return (f"spool: {self._write_problem}",) if self._write_problem else ()

    async def deliver(self, batch: Batch) -> None:
        """Take a batch; waits while many are queued."""
        if batch.observations or batch.position is not None:
            await self._queue.put(batch)

    async def run(self) -> None:
        """Record what is delivered, and what time alone clears, until cancelled."""
        loop = asyncio.get_running_loop()
        # At once: what an earlier boot or run left open may be over.
        next_tick = loop.time()
        while True:
            batches = await self._next_batches(next_tick)
            now = datetime.now(UTC)
            transitions: list[tuple[Transition, Fault]] = []
            if batches:
                for observation in (each for batch in batches for each in batch.observations):
                    transitions += self._apply(observation, now)
                self._unsaved = next(
                    (batch.position for batch in reversed(batches) if batch.position is not None),
                    self._unsaved,
                )
            if loop.time() >= next_tick:
                transitions += self._tracker.tick(now)
                next_tick = loop.time() + _TICK_SECONDS
            await self._save(transitions)

    def _apply(self, observation: Observation, now: datetime) -> list[tuple[Transition, Fault]]:
        # One by one: an observation that breaks the tracker must neither take its neighbours' events along nor
        # stop the agent, which would read it again at each start.
        try:
            return self._tracker.apply((observation,), now)
        except Exception:
            log.exception("an observation cannot be judged and is passed over: %r", observation)
            return []

    async def _next_batches(self, until: float) -> list[Batch]:
        batches: list[Batch] = []
        try:
            async with asyncio.timeout_at(until):
                batches.append(await self._queue.get())
        except TimeoutError:
            pass
        while not self._queue.empty():
            batches.append(self._queue.get_nowait())
        return batches

    async def _save(self, transitions: Sequence[tuple[Transition, Fault]]) -> None:
        now = asyncio.get_running_loop().time()
        if not transitions and now < self._next_quiet_save:
            return
        open_faults = self._tracker.open_faults
        if transitions or self._unsaved is not None or open_faults != self._stored_open:
            await self._until_written(transitions, open_faults)
            self._stored_open = open_faults
            self._unsaved = None
        self._next_quiet_save = now + _QUIET_SAVE_SECONDS
        if transitions:
            self._recorded()

    async def _until_written(
        self, transitions: Sequence[tuple[Transition, Fault]], open_faults: tuple[Fault, ...]
    ) -> None:
        delay = 0.05
        tried = 0
        while True:
            try:
                await self._spool.record(transitions, self._unsaved, open_faults)
            except sqlite3.Error as error:
                log.error(
                    "%d fault events cannot be written (%s), trying again in %.2f s: free space on the disk of the"
                    " state directory",
                    len(transitions),
                    error,
                    delay,
                )
                self._write_problem = f"fault events cannot be written: {error}"
                tried += 1
                if tried == _TRIES_ON_DISK and not self._spool.in_memory:
                    log.error("faults are kept in memory from now on, until the agent is restarted")
                    await self._spool.leave_disk()
                    continue
                await asyncio.sleep(delay)
                delay = min(2 * delay, _LONGEST_RETRY_SECONDS)
            else:
                self._write_problem = ""
                return
