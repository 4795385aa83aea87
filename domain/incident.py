"""Incidents: one cause that needs handling, made of the faults that it explains."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from domain.faults import Fault, Rung, Severity
from domain.model import Message
from domain.nodes import NodeRef

SEVERITY_ORDER = (Severity.INFO, Severity.APPLICATION, Severity.UNKNOWN, Severity.DEGRADED, Severity.FATAL)
RUNG_ORDER = tuple(Rung)


def severity_rank(severity: Severity) -> int:
    """Return how bad a severity is; larger is worse."""
    return SEVERITY_ORDER.index(severity)


def rung_rank(rung: Rung) -> int:
    """Return how high a rung is on the ladder; larger is heavier."""
    return RUNG_ORDER.index(rung)


class Incident(Message):
    """One cause on one node.

    Attributes:
        incident_id: ``<node>-<number>``, unique within a pool.
        faults: the faults that the cause explains; the first is the lead.
    """

    incident_id: str
    node: NodeRef
    opened_at: datetime
    faults: tuple[Fault, ...]

    @property
    def lead(self) -> Fault:
        """The fault by which the incident is named: the worst, and of equals the earliest."""
        return lead_fault(self.faults)

    @property
    def headline(self) -> str:
        """One line for a person: what, where, how many faults."""
        more = f" (+{len(self.faults) - 1} more)" if len(self.faults) > 1 else ""
        return f"{self.lead.fault_class} on {self.node.name} {self.lead.component}{more}"


def lead_fault(faults: Iterable[Fault]) -> Fault:
    """Return the fault that leads: the worst severity, then the earliest, then by name. ValueError when empty."""
    ordered = sorted(faults, key=lambda f: (-severity_rank(f.severity), f.first_seen, f.key))
    if not ordered:
        raise ValueError("an incident has at least one fault")
    return ordered[0]


def merge_fault(faults: Iterable[Fault], seen: Fault) -> tuple[Fault, ...]:
    """Return the faults with ``seen`` added, or merged into the fault of the same key."""
    merged: list[Fault] = []
    found = False
    for fault in faults:
        if fault.key != seen.key:
            merged.append(fault)
            continue
        found = True
        merged.append(
            seen.model_copy(
                update={
                    "first_seen": min(fault.first_seen, seen.first_seen),
                    "count": max(fault.count, seen.count),
                    "trusted": fault.trusted or seen.trusted,
                    "suggested_rung": seen.suggested_rung or fault.suggested_rung,
                    "evidence": (seen.evidence or fault.evidence)[-5:],
                }
            )
        )
    if not found:
        merged.append(seen)
    return tuple(merged)
