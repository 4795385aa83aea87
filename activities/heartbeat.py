"""Heartbeats of long activities: the progress that people see, and the way an activity hears of its cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio import activity

from domain.repair import StepProgress

INTERVAL_SECONDS = 1.0
"""Time between two heartbeats, in seconds; every long activity's heartbeat time-out is many times that."""


class Heartbeat:
    """The latest progress of an activity, sent on every change and at an interval."""

    def __init__(self) -> None:
        # What an earlier attempt reported stays until there is news: its cursor must not be lost by a first beat.
        self._latest = earlier_progress() or StepProgress()

    def report(self, progress: StepProgress) -> None:
        """Send new progress. The SDK throttles what comes too quickly; the latest always goes out."""
        self._latest = progress
        activity.heartbeat(progress)

    async def _beat(self) -> None:
        while True:
            activity.heartbeat(self._latest)
            await asyncio.sleep(INTERVAL_SECONDS)


@asynccontextmanager
async def heartbeating() -> AsyncIterator[Heartbeat]:
    """Keep heartbeats going while the body waits for a slow port."""
    heartbeat = Heartbeat()
    beating = asyncio.create_task(heartbeat._beat())
    try:
        yield heartbeat
    finally:
        beating.cancel()


def earlier_progress() -> StepProgress | None:
    """Return the last progress that an earlier attempt of this activity reported, if any."""
    details = activity.info().heartbeat_details
    if not details:
        return None
    last = details[-1]
    return last if isinstance(last, StepProgress) else StepProgress.model_validate(last)
