"""From observations to faults that open, repeat and clear. Pure: the clock is an argument."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from domain.catalog import CATALOG, FaultClass, fault_class
from domain.classify import ENDED_BY_RECOVERY, Classification, classify
from domain.faults import Fault, Transition
from domain.nodes import NodeRef
from domain.observations import ComponentKind, Observation, Source
from domain.open_fault import OpenFault, evidence_of

MAX_OPEN = 512
MAX_UNTRUSTED = 32
MAX_DEBOUNCED = 1024
LONGEST_GAP_SECONDS = 120.0
"""Readings further apart than this, in seconds, are not in a row."""

Told = tuple[Transition, Fault]
Key = tuple[str, str, bool]


@dataclass(slots=True)
class _Run:
    """Active readings in a row of a class that needs several before it opens."""

    since: datetime
    latest: datetime
    readings: int


class FaultTracker:
    """The open faults of one node on one boot.

    Its whole lasting state is ``open_faults``: a tracker made from them goes on where the other one stopped.
    Observations of another boot are old news and change nothing. What a process wrote (``trusted`` False)
    is kept apart: it never merges with what the kernel said, explains nothing of it and ends nothing of it.
    """

    def __init__(self, node: NodeRef, boot_id: str, open_faults: Iterable[Fault] = ()) -> None:
        """Take over the faults that an earlier run left open.

        Of those from an earlier boot only states that are read again and again go on; events ended with their
        boot. The first ``apply`` or ``tick`` tells that they are cleared.
        """
        self._node = node
        self._boot_id = boot_id
        self._open: dict[Key, OpenFault] = {}
        self._ended: list[Fault] = []
        self._runs: dict[Key, _Run] = {}
        self._dropped = 0
        for fault in open_faults:
            entry = CATALOG.get(fault.fault_class)
            if entry is None or not self._goes_on(fault, entry):
                self._ended.append(fault)
            else:
                self._open[_key_of(fault)] = OpenFault.of(entry, fault, fault.last_seen)

    def _goes_on(self, fault: Fault, entry: FaultClass) -> bool:
        if fault.boot_id == self._boot_id:
            return True
        return entry.stateful and fault.trusted and fault.source is not Source.KERNEL_LOG

    @property
    def open_faults(self) -> tuple[Fault, ...]:
        """The faults that are open now, with their counts, in the order in which they opened."""
        return tuple(record.current() for record in self._open.values())

    @property
    def dropped(self) -> int:
        """How many faults could not be opened because too many were open: a number to watch, normally 0."""
        return self._dropped

    def apply(self, observations: Iterable[Observation], now: datetime) -> list[Told]:
        """Take in observations in the order in which they happened; return what has to be told.

        A fault is told when it opens, at once when it gets worse, at most every 30 s with its count while
        it goes on, and when it clears. A state that merely continues is not told again.

        Args:
            observations: of any boot; those of another boot are ignored.
            now: the present time (UTC).
        """
        told = self._tell_ended()
        for observation in observations:
            if observation.boot_id != self._boot_id:
                continue
            judged = classify(observation)
            if judged is None:
                continue
            if observation.at > now:  # a clock that runs ahead must not make a fault last longer
                observation = observation.model_copy(update={"at": now})
            told += self._clear(observation, judged, now)
            if judged.opens:
                told += self._see(observation, judged, now)
        return told

    def tick(self, now: datetime) -> list[Told]:
        """Return what has to be told because time has passed; call it about once a second."""
        told = self._tell_ended()
        for key, record in list(self._open.items()):
            if record.over_by_time(now):
                told.append(self._close(key, now))
            elif record.repeat_is_due(now):
                told.append((Transition.REPEATED, record.told(now)))
        return told

    def _tell_ended(self) -> list[Told]:
        ended, self._ended = self._ended, []
        return [(Transition.CLEARED, fault) for fault in ended]

    def _clear(self, observation: Observation, judged: Classification, now: datetime) -> list[Told]:
        if not judged.clears or not observation.trusted:
            return []
        told: list[Told] = []
        whole_node = observation.component.kind is ComponentKind.NODE
        for key, record in list(self._open.items()):
            if not record.fault.trusted or not (whole_node or record.fault.component == observation.component):
                continue
            if key[0] in judged.clears:
                if record.says_inactive(observation):
                    told.append(self._close(key, now))
            elif judged.clears == ENDED_BY_RECOVERY:
                record.withdraw_verdict()
        for key in [key for key in self._runs if key[0] in judged.clears]:
            if whole_node or key[1] == str(observation.component):
                del self._runs[key]
        return told

    def _see(self, observation: Observation, judged: Classification, now: datetime) -> list[Told]:
        key = (judged.fault_class, str(observation.component), observation.trusted)
        known = self._open.get(key)
        if known is not None:
            return self._tell(known, known.see(observation, judged), now)
        for (_, component, trusted), lead in self._open.items():
            if component == key[1] and trusted is key[2] and lead.explains(observation, judged):
                return self._tell(lead, lead.join(observation, judged), now)
        entry = fault_class(judged.fault_class)
        if not self._lasts(key, entry, observation):
            return []
        told = self._make_room(entry, observation.trusted, now)
        if told is None:
            self._dropped += 1
            return []
        fault = self._fault(observation, judged)
        self._open[key] = OpenFault.of(entry, fault, now)
        return [*told, (Transition.OPENED, fault)]

    def _tell(self, record: OpenFault, worse: bool, now: datetime) -> list[Told]:
        if worse or record.repeat_is_due(now):
            return [(Transition.REPEATED, record.told(now))]
        return []

    def _lasts(self, key: Key, entry: FaultClass, observation: Observation) -> bool:
        """Return whether readings in a row were active for long enough. An event needs no second one."""
        if not observation.stateful or (entry.open_after_readings <= 1 and entry.open_after_seconds <= 0):
            return True
        at = observation.at
        run = self._runs.get(key)
        if run is None or at - run.latest > timedelta(seconds=LONGEST_GAP_SECONDS):
            if run is None and len(self._runs) >= MAX_DEBOUNCED:
                self._runs.pop(next(iter(self._runs)))
            run = self._runs[key] = _Run(since=at, latest=at, readings=0)
        run.latest = max(run.latest, at)
        run.readings += 1
        lasted = run.latest - run.since >= timedelta(seconds=entry.open_after_seconds)
        if run.readings < entry.open_after_readings or not lasted:
            return False
        del self._runs[key]
        return True

    def _make_room(self, entry: FaultClass, trusted: bool, now: datetime) -> list[Told] | None:
        """Return what is closed to make room, or None when there is no room.

        Only what is merely told makes room: a fault that concerns the node is never closed for another.
        """
        same = [key for key in self._open if key[2] is trusted]
        if len(same) < (MAX_OPEN if trusted else MAX_UNTRUSTED):
            return []
        told_only = [key for key in same if not self._open[key].entry.concerns_node or not trusted]
        if not told_only or (trusted and not entry.concerns_node):
            return None
        return [self._close(min(told_only, key=lambda key: self._open[key].last_seen), now)]

    def _fault(self, observation: Observation, judged: Classification) -> Fault:
        return Fault(
            fault_class=judged.fault_class,
            node=self._node,
            component=observation.component,
            severity=judged.severity,
            scope=judged.scope,
            source=observation.source,
            boot_id=observation.boot_id,
            first_seen=observation.at,
            last_seen=observation.at,
            count=observation.count,
            trusted=observation.trusted,
            suggested_rung=judged.suggested_rung,
            evidence=(evidence_of(observation),),
            xid=observation.code if observation.kind == "xid" else None,
        )

    def _close(self, key: Key, now: datetime) -> Told:
        return (Transition.CLEARED, self._open.pop(key).told(now))


def _key_of(fault: Fault) -> Key:
    return (fault.fault_class, str(fault.component), fault.trusted)
