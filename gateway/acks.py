"""Which sequence numbers of a spool are durable: an acknowledgement covers everything up to it."""

from __future__ import annotations

from collections import OrderedDict


class AckWindow:
    """The sequence numbers of one spool between the first that is not durable and the highest that came in.

    It outlives a stream: what an agent sends again after a reconnect is neither handed over twice nor
    acknowledged too early.
    """

    __slots__ = ("_pending", "highest", "spool_id")

    def __init__(self, spool_id: str) -> None:
        self.spool_id = spool_id
        self.highest = 0
        # Keys arrive in increasing order, so that the first is always the lowest.
        self._pending: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        """Return how many hand-overs are not durable yet."""
        return len(self._pending)

    def came_before(self, sequence: int) -> bool:
        """Return whether this sequence number came in earlier."""
        return sequence <= self.highest

    def take(self, sequence: int, joins: bool = False) -> None:
        """Take in a new sequence number; one that ``joins`` an earlier one becomes durable with it."""
        self.highest = sequence
        if not joins:
            self._pending[sequence] = None

    def done(self, first_sequence: int) -> None:
        """Note that the hand-over which began with this sequence number is durable."""
        self._pending.pop(first_sequence, None)

    @property
    def acked(self) -> int:
        """Highest sequence number up to which everything is durable, 0 for none."""
        return next(iter(self._pending)) - 1 if self._pending else self.highest
