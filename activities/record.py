"""The permanent record, and telling people."""

from __future__ import annotations

import asyncio
import logging

from temporalio import activity

from domain.errors import KintsugiError, TransientError
from domain.ledger import LedgerEntry, Notice
from domain.model import Message
from domain.ports import Ledger, Notifier

log = logging.getLogger(__name__)

TELLING_ATTEMPTS = 5
"""In so many attempts a notice that reached nobody is told again; in the next one it is given up, with an error."""


class RecordInput(Message):
    """What to write down, and what to tell."""

    entries: tuple[LedgerEntry, ...] = ()
    notices: tuple[Notice, ...] = ()


class RecordActivities:
    """Writes first, then tells. Nobody being reachable is no reason to stop a repair."""

    def __init__(self, ledger: Ledger, notifier: Notifier) -> None:
        self._ledger = ledger
        self._notifier = notifier

    @activity.defn(name="record")
    async def record(self, order: RecordInput) -> None:
        """Write the entries and tell the notices, each once by its id, however often this runs.

        Raises:
            TransientError: the ledger is busy, or somebody could not be told and there is an attempt left for it.
        """
        await self._ledger.record(order.entries)
        # All at once: one that waits for its time-out must not use up the time of the others.
        missed = [error for error in await asyncio.gather(*map(self._tell, order.notices)) if error is not None]
        if missed:
            raise TransientError("; ".join(str(error) for error in missed))

    async def _tell(self, notice: Notice) -> TransientError | None:
        """Tell one notice; return why it has to be told again."""
        try:
            await self._notifier.tell(notice)
        except KintsugiError as error:
            if isinstance(error, TransientError) and activity.info().attempt <= TELLING_ATTEMPTS:
                return error
            log.error("could not tell %s %r: %s", notice.audience, notice.title, error)
        return None
