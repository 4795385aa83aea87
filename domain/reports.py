"""What the gateway hands to a pool: batches of what happened to its nodes."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from domain.faults import FaultEvent
from domain.model import Message
from domain.nodes import NodeIdentity, NodeRef
from domain.pool import Admit, CloseBreaker, PoolState
from domain.repair import RepairEnded, SpareRequest


class NodeEventKind(StrEnum):
    """What happened.

    ``seen``: an agent said hello (first time at this gateway, new boot, or back after silence).
    ``lost``: a node that was connected is silent for longer than the gateway's limit.
    ``fault``: a fault opened, repeated or cleared.
    """

    SEEN = "seen"
    LOST = "lost"
    FAULT = "fault"


class NodeEvent(Message):
    """One thing that happened to one node.

    Attributes:
        at: the gateway's clock, the one clock that all events of a pool share (an agent's may be off).
        identity: with ``seen``.
        fault: with ``fault``.
        suppressed: repeats of this fault that the gateway's flood limit held back, counted not lost.
        gateway: name of the gateway that says so; empty when it is not known.
    """

    kind: NodeEventKind
    node: NodeRef
    at: datetime
    identity: NodeIdentity | None = None
    fault: FaultEvent | None = None
    suppressed: int = 0
    gateway: str = ""


class PoolReport(Message):
    """One signal to a pool: several events in the order in which they happened. At most 200 of them."""

    events: tuple[NodeEvent, ...]


class Unread(Message):
    """News that a run of a pool hands on to the next, in the order in which they came."""

    events: tuple[NodeEvent, ...] = ()
    ended: tuple[RepairEnded, ...] = ()
    closed: tuple[CloseBreaker, ...] = ()
    admitted: tuple[Admit, ...] = ()
    spares: tuple[SpareRequest, ...] = ()


class PoolInput(Message):
    """What a pool's workflow starts with when the first report wakes it.

    Attributes:
        state: what an earlier run of the same pool carried over; None for the first.
        unread: what had come in and was not taken in yet when that run ended.
    """

    cluster: str
    pool: str
    state: PoolState | None = None
    unread: Unread = Unread()
