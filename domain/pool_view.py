"""What a pool shows to people, and to whoever looks for a spare."""

from __future__ import annotations

from domain.admission import actionable, budget_limit, out_of_service
from domain.policy import Policy
from domain.pool import NodeHealth, NodeRecord, NodeView, PoolState, PoolView


def unfit_spares(state: PoolState, repair_id: str) -> tuple[str, ...]:
    """Return the nodes that must not be leased to a repair: given to another, silent, faulty, out or waiting."""
    waiting = {entry.incident.node.name for entry in state.waiting}
    given = {spare for spare, lease in state.leased.items() if lease != repair_id}
    unfit = {
        name
        for name, record in state.nodes.items()
        if record.lost_since is not None or record.out or record.repair_id or actionable(record.faults)
    }
    return tuple(sorted(waiting | given | unfit))


def view(state: PoolState, policy: Policy) -> PoolView:
    """Return the pool as people see it."""
    waiting = {entry.incident.node.name for entry in state.waiting}
    nodes = tuple(
        NodeView(
            name=name,
            health=_health(record, name in waiting),
            faults=tuple(fault.key for fault in record.faults),
            repair_id=record.repair_id,
            gateway=record.gateway,
        )
        for name, record in sorted(state.nodes.items())
    )
    return PoolView(
        cluster=state.cluster,
        pool=state.pool,
        nodes=nodes,
        waiting=state.waiting,
        breaker=state.breaker,
        out=len(out_of_service(state)),
        budget=budget_limit(policy.for_pool(state.pool).budget, len(state.nodes)),
        leased=state.leased,
    )


def _health(record: NodeRecord, waiting: bool) -> NodeHealth:
    if record.repair_id:
        return NodeHealth.IN_REPAIR
    if record.held_by:
        return NodeHealth.HELD
    if record.lost_since is not None:
        return NodeHealth.LOST
    if waiting:
        return NodeHealth.WAITING
    return NodeHealth.SUSPECT if actionable(record.faults) else NodeHealth.HEALTHY
