"""Whether a pool can afford to lose a node now: budget, cool-down, breaker."""

from __future__ import annotations

import math
from datetime import datetime

from domain.faults import Fault, Severity
from domain.incident import Incident
from domain.model import Message
from domain.policy import Action, Budget, Decision, Policy
from domain.pool import BreakerState, PoolState, RecentFault

ACTED_ON = (Severity.DEGRADED, Severity.FATAL)
"""Severities for which a node may be taken; everything else is only told."""


class Admission(Message):
    """Whether a repair may start now, and if not, why not."""

    admitted: bool
    why: str = ""


def budget_limit(budget: Budget, manageable: int) -> int:
    """Return how many nodes may be out at once: the stricter of count and percent.

    A percentage that comes to less than one node still allows one, or a small pool could never be repaired;
    only ``max_nodes: 0`` and ``max_percent: 0`` allow none.
    """
    if budget.max_nodes == 0 or budget.max_percent == 0:
        return 0
    return min(budget.max_nodes, max(1, math.floor(manageable * budget.max_percent / 100)))


def out_of_service(state: PoolState, besides: str = "") -> list[str]:
    """Return the nodes that are out: in repair or silent, without the one that is asked about."""
    return [
        name
        for name, record in state.nodes.items()
        if name != besides and (record.out or record.lost_since is not None)
    ]


def admit(state: PoolState, incident: Incident, policy: Policy, now: datetime) -> Admission:
    """Return whether the incident's repair may start now.

    A repair that would only observe takes nothing away and is always admitted. A person's word (``admit``)
    stands above budget, cool-down and breaker.
    """
    node = incident.node.name
    record = state.nodes[node]
    if record.repair_id:
        return Admission(admitted=False, why=f"{record.repair_id} is still running")
    if node in state.admitted_by:
        return Admission(admitted=True)
    if record.held_by:
        return Admission(admitted=False, why=f"in the hands of {record.held_by}, who aborted the last repair")
    pool = policy.for_pool(state.pool)
    if record.settled_at is not None and not record.settled_returned:
        until = record.settled_at + pool.cool_down
        if now < until:
            return Admission(admitted=False, why=f"cool-down until {until:%H:%M:%S} UTC")
    if observes(incident, policy):
        return Admission(admitted=True)
    if state.breaker.open:
        return Admission(admitted=False, why=f"the breaker is open: {state.breaker.reason}")
    out = out_of_service(state, besides=node)
    limit = budget_limit(pool.budget, len(state.nodes))
    if len(out) + 1 > limit:
        return Admission(
            admitted=False,
            why=f"budget: {len(out)} of at most {limit} nodes are out ({', '.join(sorted(out)[:5])})",
        )
    return Admission(admitted=True)


def observes(incident: Incident, policy: Policy) -> bool:
    """Return whether the policy only observes this incident."""
    lead = incident.lead
    rule = policy.rule(incident.node.cluster, incident.node.pool, lead.fault_class, lead.severity, Action.QUARANTINE)
    return rule.decide is Decision.OBSERVE


def with_opened(state: PoolState, fault: Fault, policy: Policy, now: datetime) -> PoolState:
    """Return the state with a newly opened fault counted for the breaker, which opens when too much fails alike.

    Many nodes with the same fault in a short time have a cause that no single node's repair mends, or the check
    itself is wrong. The window is bounded by nodes and classes, not by events.
    """
    breaker = policy.for_pool(state.pool).breaker
    kept = tuple(
        entry
        for entry in state.recent
        if now - entry.at <= breaker.window
        and not (entry.node == fault.node.name and entry.fault_class == fault.fault_class)
    )
    recent = (*kept, RecentFault(node=fault.node.name, fault_class=fault.fault_class, at=now))
    alike = sorted({entry.node for entry in recent if entry.fault_class == fault.fault_class})
    changes: dict[str, object] = {"recent": recent}
    if len(alike) >= breaker.nodes and not state.breaker.open:
        changes["breaker"] = BreakerState(
            open=True,
            since=now,
            fault_class=fault.fault_class,
            reason=(
                f"{len(alike)} nodes have {fault.fault_class} within {breaker.window}: {', '.join(alike[:8])}."
                " A shared cause, or a check that is wrong"
            ),
        )
    return state.model_copy(update=changes)


def actionable(faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Return the faults for which a node may be taken away: trusted, and bad enough."""
    return tuple(fault for fault in faults if fault.trusted and fault.severity in ACTED_ON)
