"""One open fault as its tracker keeps it: cheap to update in a storm, turned into words when it is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from domain.catalog import FaultClass
from domain.classify import Classification
from domain.faults import Fault, Rung
from domain.incident import rung_rank, severity_rank
from domain.observations import MAX_TEXT, Observation
from domain.recovery_action import VERDICT_CLASSES

MAX_EVIDENCE = 5
REPEAT_SECONDS = 30.0
"""A fault that goes on is told again at most this often, in seconds, with its count."""

UNTRUSTED_QUIET_SECONDS = 600.0
"""What only a process said is over after so long without a word, in seconds, whatever its class."""


@dataclass(slots=True)
class OpenFault:
    """A fault and what happened to it since it was last told.

    Attributes:
        fault: as it was last told.
        told_at: when it was last told, on the clock of ``now``.
        changed: whether there is something to tell since.
        inactive_since: since when its readings say that it no longer holds, None while they do not.
        joined: classes that joined it as consequences.
    """

    entry: FaultClass
    fault: Fault
    told_at: datetime
    count: int
    last_seen: datetime
    evidence: list[str]
    suggested_rung: Rung | None
    changed: bool = False
    inactive_since: datetime | None = None
    joined: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, entry: FaultClass, fault: Fault, told_at: datetime) -> OpenFault:
        """Return the record of a fault that was just told, or that an earlier run of the agent left open."""
        return cls(
            entry=entry,
            fault=fault,
            told_at=told_at,
            count=fault.count,
            last_seen=fault.last_seen,
            evidence=list(fault.evidence),
            suggested_rung=fault.suggested_rung,
        )

    def told(self, now: datetime) -> Fault:
        """Return the fault as it is now, and remember that it was told."""
        self.fault = self.current()
        self.told_at = now
        self.changed = False
        return self.fault

    def current(self) -> Fault:
        """Return the fault as it is now."""
        return self.fault.model_copy(
            update={
                "count": self.count,
                "last_seen": self.last_seen,
                "evidence": tuple(self.evidence),
                "suggested_rung": self.suggested_rung,
            }
        )

    def see(self, observation: Observation, judged: Classification) -> bool:
        """Take in that it was seen again; return whether it got worse, which is told at once."""
        self.last_seen = max(self.last_seen, observation.at)
        self.inactive_since = None
        if not observation.stateful:
            if judged.counted:
                self.count += observation.count
            self.add_evidence(observation)
            self.changed = True
        if self.fault.boot_id != observation.boot_id:
            self.fault = self.fault.model_copy(update={"boot_id": observation.boot_id})
        worse = self._take_severity(judged)
        return self._take_verdict(judged.suggested_rung) or worse

    def join(self, observation: Observation, judged: Classification) -> bool:
        """Take in a consequence as evidence; return whether it makes the fault worse, which is told at once.

        A verdict of the driver counts when it asks for at least as much as the first rung of this fault: a
        GPU off the bus is not mended by the reset that its driver asks for.
        """
        if not observation.stateful or judged.fault_class not in self.joined:
            self.joined.add(judged.fault_class)
            self.add_evidence(observation)
            self.changed = True
        worse = self.entry.concerns_node and self._take_severity(judged)
        verdict = judged.suggested_rung
        if verdict is None or rung_rank(verdict) < rung_rank(self.entry.ladder[0]):
            return worse
        return self._take_verdict(verdict) or worse

    def _take_severity(self, judged: Classification) -> bool:
        old, new = severity_rank(self.fault.severity), severity_rank(judged.severity)
        last_word_counts = judged.fault_class == self.entry.name and self.entry.name in VERDICT_CLASSES
        if new > old or (new < old and last_word_counts):
            self.fault = self.fault.model_copy(update={"severity": judged.severity})
            self.changed = True
        return new > old

    def _take_verdict(self, verdict: Rung | None) -> bool:
        if verdict is None or verdict is self.suggested_rung:
            return False
        heavier = self.suggested_rung is None or rung_rank(verdict) > rung_rank(self.suggested_rung)
        self.suggested_rung = verdict
        self.changed = True
        return heavier

    def withdraw_verdict(self) -> None:
        """Take in that the driver asks for nothing any more."""
        if self.suggested_rung is not None:
            self.suggested_rung = None
            self.changed = True

    def add_evidence(self, observation: Observation) -> None:
        """Keep the observation's words: the first that opened the fault, and the latest of the others."""
        text = evidence_of(observation)
        if text in self.evidence:
            return
        self.evidence.append(text)
        if len(self.evidence) > MAX_EVIDENCE:
            del self.evidence[1]

    def says_inactive(self, observation: Observation) -> bool:
        """Take in that it no longer holds; return whether it is over by that.

        A reading from before its last sighting proves nothing: it was on its way when the fault happened. Events
        come in order, though many share one time stamp.
        """
        at = observation.at
        if at < self.last_seen or (at == self.last_seen and observation.stateful):
            return False
        if self.inactive_since is None:
            self.inactive_since = at
        return at - self.inactive_since >= timedelta(seconds=self.entry.clear_after_seconds)

    def over_by_time(self, now: datetime) -> bool:
        """Return whether it is over because nothing was heard of it for long enough."""
        if self.inactive_since is not None:
            return now - self.inactive_since >= timedelta(seconds=self.entry.clear_after_seconds)
        quiet = self.entry.quiet_seconds if self.fault.trusted else UNTRUSTED_QUIET_SECONDS
        return quiet is not None and now - self.last_seen >= timedelta(seconds=quiet)

    def repeat_is_due(self, now: datetime) -> bool:
        """Return whether it is time to tell what has happened to it since it was last told."""
        return self.changed and now - self.told_at >= timedelta(seconds=REPEAT_SECONDS)

    def explains(self, observation: Observation, judged: Classification) -> bool:
        """Return whether an observation on the same component is a consequence of this fault."""
        if not self.entry.explains(judged.fault_class):
            return False
        window = self.entry.absorb_seconds
        return window is None or abs(observation.at - self.last_seen) <= timedelta(seconds=window)


def evidence_of(observation: Observation) -> str:
    """Return the observation in words: its text, or its kind where it has none."""
    return observation.text[:MAX_TEXT] or f"{observation.source}: {observation.kind}"
