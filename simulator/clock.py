"""A world that follows the wall clock, and those who wait for its changes."""

from __future__ import annotations

import asyncio
import time

from simulator.world import World


class LiveWorld:
    """Moves a world with the clock, waking only when something is due.

    Args:
        speed: simulated seconds in a second of the clock.
    """

    def __init__(self, world: World, speed: float) -> None:
        self._world = world
        self._speed = speed
        self._origin = time.monotonic()
        self._woken = asyncio.Event()
        self._changed = asyncio.Event()
        self._seen = world.version

    def now(self) -> World:
        """Return the world brought up to the present."""
        self._world.advance_to((time.monotonic() - self._origin) * self._speed)
        self.announce()
        return self._world

    def announce(self) -> None:
        """Wake everybody who waits for a change, if there was one, and look at the next thing due."""
        if self._world.version == self._seen:
            return
        self._seen = self._world.version
        # Each change has its own event: whoever waits on the old one wakes, later ones wait on the new.
        self._changed.set()
        self._changed = asyncio.Event()
        self._woken.set()

    def skip(self, seconds: float) -> None:
        """Let simulated seconds pass at once."""
        self._origin -= seconds / self._speed
        self.now()

    async def run(self) -> None:
        """Follow the clock until cancelled."""
        while True:
            self._woken.clear()
            due = self.now().next_due
            delay = None if due is None else max(0.0, (due - self._world.now) / self._speed)
            try:
                async with asyncio.timeout(delay):
                    await self._woken.wait()
            except TimeoutError:
                pass

    async def changed(self, at_most: float | None = None) -> None:
        """Wait for the next change of the world, at most so many seconds of the clock."""
        event = self._changed
        try:
            async with asyncio.timeout(at_most):
                await event.wait()
        except TimeoutError:
            pass
