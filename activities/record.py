"""The permanent record, and telling people."""

from __future__ import annotations

import logging

from temporalio import activity

from domain.errors import KintsugiError
from domain.ledger import LedgerEntry, Notice
from domain.model import Message
from domain.ports import Ledger, Notifier

log = logging.getLogger(__name__)


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
        """Write the entries (each once, however often this runs) and tell the notices."""
        await self._ledger.record(order.entries)
        for notice in order.notices:
            try:
                await self._notifier.tell(notice)
            except KintsugiError as error:
                log.error("could not tell %s %r: %s", notice.audience, notice.title, error)
