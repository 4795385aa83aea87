"""An operation that is running, and those who watch it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

from domain.operations import OperationProgress, OperationRequest


class RunningOperation:
    """The present state of one operation, for any number of watchers.

    A watcher that is slow skips what it missed and always gets the last state; nothing is queued for it.

    Attributes:
        task: what carries it out, once it is launched.
        cancel_asked: someone asked it to stop.
        ending: how it ended is being written down; it cannot be stopped any more.
    """

    def __init__(self, request: OperationRequest, progress: OperationProgress, started_at: datetime) -> None:
        self.request = request
        self.started_at = started_at
        self.task: asyncio.Task[None] | None = None
        self.cancel_asked = False
        self.ending = False
        self._progress = progress
        self._changed = asyncio.Event()

    @property
    def progress(self) -> OperationProgress:
        """The present state."""
        return self._progress

    def update(self, progress: OperationProgress) -> None:
        """Set the present state and wake the watchers."""
        if progress == self._progress:
            return
        self._progress = progress
        # Each change has its own event: whoever waited on the old one wakes, later ones wait on the new.
        self._changed.set()
        self._changed = asyncio.Event()

    async def watch(self) -> AsyncIterator[OperationProgress]:
        """Yield the present state at once, then each change, until it is final."""
        while True:
            changed, progress = self._changed, self._progress
            yield progress
            if progress.state.final:
                return
            if changed is self._changed:
                await changed.wait()
