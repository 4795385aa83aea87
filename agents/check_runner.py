"""Keeps one check running, and knows whether it is well."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from agents.checks.base import Batch, Check

log = logging.getLogger(__name__)

_FIRST_DELAY_SECONDS = 1.0
_LONGEST_DELAY_SECONDS = 60.0
_LATE_FACTOR = 3.0
_SETTLED_SECONDS = 5.0
"""An event source that has run for so long without an error counts as well again."""


class CheckRunner:
    """Runs a check until cancelled; one that ends or breaks is made anew after a growing delay.

    Args:
        make: makes the check, with what is known at that moment (such as the kernel log position).
        deliver: takes each batch.
        first_delay_seconds: bound of the delay after the first failure.
    """

    def __init__(
        self,
        make: Callable[[], Check],
        deliver: Callable[[Batch], Awaitable[None]],
        first_delay_seconds: float = _FIRST_DELAY_SECONDS,
    ) -> None:
        self._make = make
        self._deliver = deliver
        self._first_delay = first_delay_seconds
        self._check = make()
        self._last_batch = 0.0
        self._failure = ""
        self._running_since: float | None = None

    @property
    def name(self) -> str:
        """The check's own name."""
        return self._check.name

    def ailment(self) -> str:
        """Return in words what is wrong with the check; empty when it is well."""
        now = asyncio.get_running_loop().time()
        if self._failure and (self._running_since is None or now - self._running_since < _SETTLED_SECONDS):
            return self._failure
        expected = self._check.expected_seconds
        if expected is None or self._running_since is None:
            return ""
        silent = now - self._last_batch
        if silent <= _LATE_FACTOR * expected:
            return ""
        return f"silent for {silent:.0f} s, expected every {expected:g} s"

    async def run(self) -> None:
        """Run the check until cancelled."""
        failures = 0
        while True:
            self._running_since = self._last_batch = asyncio.get_running_loop().time()
            try:
                async for batch in self._check.batches():
                    failures = 0
                    self._failure = ""
                    await self._deliver(batch)
                    self._last_batch = asyncio.get_running_loop().time()
                failure = "it ended by itself"
            except Exception as error:
                failure = _in_words(error)
                # Known errors carry a sentence; the others are mistakes in the check and need their traceback.
                known = isinstance(error, OSError)
                log.debug("check %s failed", self.name, exc_info=None if known else error)
            if failure != self._failure:
                log.error("check %s is blind: %s. It is tried again and again", self.name, failure)
            self._failure = failure
            self._running_since = None
            bound = min(_LONGEST_DELAY_SECONDS, self._first_delay * 2 ** min(failures, 30))
            failures += 1
            await asyncio.sleep(random.uniform(bound / 2, bound))
            self._check = self._make()


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f" {error.filename}" if error.filename else ""
        return f"{error.strerror}{where}"
    return str(error) or type(error).__name__
