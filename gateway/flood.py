"""The flood limit: transitions always pass, repeats beyond a node's rate are folded into one and counted."""

from __future__ import annotations

from dataclasses import dataclass

from domain.faults import FaultEvent, Transition


@dataclass(frozen=True, slots=True)
class Passed:
    """An event that goes on to the pool.

    Attributes:
        first_sequence: lowest of the sequence numbers that it stands for.
        suppressed: repeats that it stands for besides itself. Summed over all events, repeats passed plus
            ``suppressed`` is the number of repeats that came in.
    """

    event: FaultEvent
    first_sequence: int
    suppressed: int = 0


@dataclass(slots=True)
class _Fold:
    latest: FaultEvent
    first_sequence: int
    repeats: int = 1


class FloodGate:
    """A token bucket for the faults of one node. Times are seconds of any steady clock.

    Args:
        rate: events per second, over 0. The bucket holds one second's worth, at least one.
        now: the time now.
    """

    __slots__ = ("_burst", "_folds", "_rate", "_tokens", "_updated")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._burst = max(rate, 1.0)
        self._tokens = self._burst
        self._updated = now
        self._folds: dict[str, _Fold] = {}

    def offer(self, event: FaultEvent, now: float) -> tuple[int, Passed | None]:
        """Take an event in.

        A transition takes the repeats of its fault that were held back with it, so that no repeat can arrive
        after the clear.

        Returns:
            The first sequence number of the hand-over that covers the event, and that hand-over, or None when
            the event was folded into one that comes later.
        """
        key = event.fault.key
        fold = self._folds.get(key)
        if event.transition is not Transition.REPEATED:
            self._fill(now)
            self._tokens = max(self._tokens - 1.0, 0.0)
            if fold is None:
                return event.sequence, Passed(event, event.sequence)
            del self._folds[key]
            return fold.first_sequence, Passed(event, fold.first_sequence, fold.repeats)
        if fold is not None:
            fold.latest = event
            fold.repeats += 1
            return fold.first_sequence, None
        if not self._folds and self._take(now):
            return event.sequence, Passed(event, event.sequence)
        self._folds[key] = _Fold(event, event.sequence)
        return event.sequence, None

    def release(self, now: float) -> Passed | None:
        """Return the longest-waiting folded repeat when the rate allows it now.

        It carries sequence 0: it is the gateway's own sum, and it comes out of the order of the spool.
        """
        return self.release_now() if self._folds and self._take(now) else None

    def release_now(self) -> Passed | None:
        """Return the longest-waiting folded repeat whatever the rate, None when nothing is held back."""
        if not self._folds:
            return None
        fold = self._folds.pop(next(iter(self._folds)))
        event = fold.latest.model_copy(update={"sequence": 0})
        return Passed(event, fold.first_sequence, fold.repeats - 1)

    def wait_seconds(self, now: float) -> float | None:
        """Return the time until ``release`` can give something, None when nothing is held back."""
        if not self._folds:
            return None
        self._fill(now)
        return max(1.0 - self._tokens, 0.0) / self._rate

    def _fill(self, now: float) -> None:
        self._tokens = min(self._tokens + (now - self._updated) * self._rate, self._burst)
        self._updated = now

    def _take(self, now: float) -> bool:
        self._fill(now)
        # A timer may fire a hair before its token is whole.
        if self._tokens < 1.0 - 1e-6:
            return False
        self._tokens = max(self._tokens - 1.0, 0.0)
        return True
