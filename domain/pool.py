"""A pool: what its workflow knows of its nodes, and what it shows."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from domain.faults import Fault
from domain.incident import Incident
from domain.model import Message
from domain.nodes import NodeIdentity
from domain.repair import PastRung


class NodeHealth(StrEnum):
    """How a node stands in its pool."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    LOST = "lost"
    WAITING = "waiting"
    IN_REPAIR = "in_repair"
    HELD = "held"


class NodeRecord(Message):
    """What the pool knows of one node.

    Attributes:
        spool_id: agent spool of the last event; sequence: highest one taken in.
        seen_at: when a gateway last said that it is there; lost_since: since when it is silent, None while it is not.
        gateway: the gateway that saw it last; empty when unknown.
        faults: open faults, merged by key.
        repair_id: the running repair; empty for none.
        repairs: how many repairs were started, for the next one's number.
        out: whether the node is taken out by us (False for a repair that only observes), and so counts in the budget.
        held_by: the person in whose hands an aborted repair left the node, with the mark of ``held_mark``.
        settled_at: when the last repair ended; older news is not news.
        history: rungs run on this node within the look-back.
    """

    identity: NodeIdentity
    spool_id: str = ""
    sequence: int = 0
    seen_at: datetime | None = None
    gateway: str = ""
    lost_since: datetime | None = None
    faults: tuple[Fault, ...] = ()
    repair_id: str = ""
    repairs: int = 0
    out: bool = False
    held_by: str = ""
    held_mark: str = ""
    settled_at: datetime | None = None
    settled_returned: bool = False
    history: tuple[PastRung, ...] = ()

    def has_left(self, gateway: str) -> bool:
        """Return whether another gateway saw the node last; of a nameless one that is never known."""
        return bool(self.gateway and gateway and self.gateway != gateway)


class WaitingIncident(Message):
    """An incident that may not start yet.

    Attributes:
        why: budget, cool-down, breaker …, in words.
        since: when it began to wait.
    """

    incident: Incident
    why: str
    since: datetime


class BreakerState(Message):
    """The breaker of a pool. While it is open no new repair starts; running ones go on and nodes still return."""

    open: bool = False
    since: datetime | None = None
    fault_class: str = ""
    reason: str = ""


class PoolState(Message):
    """Everything a pool knows; carried over by continue-as-new.

    Attributes:
        recent: faults that opened within the breaker's window.
        leased: spare → repair that holds it.
        told: fault → when people were last told of it.
        admitted_by: node → person who lets its repair start whatever the pool thinks.
        asked_at: when running repairs were last asked whether they still run.
    """

    cluster: str
    pool: str
    nodes: dict[str, NodeRecord] = {}
    waiting: tuple[WaitingIncident, ...] = ()
    breaker: BreakerState = BreakerState()
    recent: tuple[RecentFault, ...] = ()
    leased: dict[str, str] = {}
    told: dict[str, datetime] = {}
    admitted_by: dict[str, str] = {}
    asked_at: datetime | None = None


class RecentFault(Message):
    """A fault class that opened on a node, for the breaker's window."""

    node: str
    fault_class: str
    at: datetime


class NodeView(Message):
    """One node as people see it.

    Attributes:
        gateway: the gateway that saw it last; empty when unknown.
    """

    name: str
    health: NodeHealth
    faults: tuple[str, ...] = ()
    repair_id: str = ""
    gateway: str = ""


class PoolView(Message):
    """What a pool shows (query ``get_pool``)."""

    cluster: str
    pool: str
    nodes: tuple[NodeView, ...]
    waiting: tuple[WaitingIncident, ...]
    breaker: BreakerState
    out: int
    budget: int
    leased: dict[str, str] = {}


class CloseBreaker(Message):
    """``{"by": "ana", "reason": "the check was wrong"}``: repairs may start again."""

    by: str = Field(min_length=1, max_length=200)
    reason: str = ""


class Admit(Message):
    """``{"by": "ana", "node": "gpu-3", "reason": "…"}``: start a waiting repair although the pool would wait."""

    by: str = Field(min_length=1, max_length=200)
    node: str = Field(min_length=1, max_length=253)
    reason: str = ""


PoolState.model_rebuild()
