"""What a pool does with what it hears. Pure: state and news in, state and commands out."""

from __future__ import annotations

from datetime import datetime, timedelta

from domain.admission import actionable, admit, observes, with_opened
from domain.catalog import fault_class
from domain.faults import Fault, FaultEvent, Transition
from domain.incident import Incident, merge_fault, severity_rank
from domain.ledger import Notice
from domain.model import Message
from domain.nodes import NodeIdentity
from domain.observations import Component, ComponentKind, Source
from domain.policy import Policy
from domain.pool import BreakerState, NodeRecord, PoolState, WaitingIncident
from domain.pool_notices import breaker_notice, fault_notice, waiting_notice
from domain.repair import FaultReported, NodeSeen, Outcome, RepairEnded, RepairInput, RepairResult
from domain.reports import NodeEvent, NodeEventKind
from domain.saving import UNREACHABLE

TOLD_AGAIN = timedelta(minutes=10)
"""The same fault of an application is told to its owner at most this often."""

ASK_REPAIRS = timedelta(minutes=5)
"""While an incident waits, the running repairs are asked so often whether they still run."""

MAX_TOLD = 2_000
"""Most faults remembered as told; the oldest are forgotten first."""


class Command(Message):
    """Something that the pool's workflow carries out: exactly one of the fields is set.

    Attributes:
        start: a repair to start; ``number`` counts this node's repairs.
        forward_fault, forward_seen: news for the running repair ``repair_id``.
        return_spare: a spare that ``repair_id`` leased and did not use.
    """

    node: str = ""
    number: int = 0
    repair_id: str = ""
    start: RepairInput | None = None
    forward_fault: FaultReported | None = None
    forward_seen: NodeSeen | None = None
    return_spare: str = ""
    tell: Notice | None = None


class Decided(Message):
    """The state after a decision, and what to carry out, in this order."""

    state: PoolState
    commands: tuple[Command, ...] = ()


def take_in(state: PoolState, events: tuple[NodeEvent, ...], policy: Policy, now: datetime) -> Decided:
    """Return what follows from news of the pool's nodes; then whatever may start, starts."""
    commands: list[Command] = []
    for event in events:
        state, more = _take_in_one(state, event, policy, now)
        commands += more
    return _settle(state, commands, policy, now)


def time_passed(state: PoolState, policy: Policy, now: datetime) -> Decided:
    """Return what follows from the mere passing of time: silent nodes become unreachable, waiting repairs start."""
    commands: list[Command] = []
    grace = policy.for_pool(state.pool).lost_grace
    for name, record in state.nodes.items():
        if record.lost_since is None or now < record.lost_since + grace:
            continue
        if any(fault.fault_class == UNREACHABLE for fault in record.faults):
            continue
        fault = _unreachable(record.identity, record.lost_since, now)
        event = FaultEvent(spool_id="", sequence=0, transition=Transition.OPENED, fault=fault)
        state, more = _fault(state, name, event, policy, now)
        commands += more
    if state.waiting and (state.asked_at is None or now >= state.asked_at + ASK_REPAIRS):
        # Waiting for a repair that is gone without a word would be waiting for ever.
        state = state.model_copy(update={"asked_at": now})
        commands += [
            Command(node=name, repair_id=record.repair_id, forward_seen=NodeSeen(identity=record.identity))
            for name, record in state.nodes.items()
            if record.repair_id and record.lost_since is None
        ]
    return _settle(state, commands, policy, now)


def next_look(state: PoolState, policy: Policy, now: datetime) -> datetime | None:
    """Return when time alone will next change something, None for never."""
    pool = policy.for_pool(state.pool)
    times = [
        record.lost_since + pool.lost_grace
        for record in state.nodes.values()
        if record.lost_since is not None and all(f.fault_class != UNREACHABLE for f in record.faults)
    ]
    if state.waiting:
        times.append((state.asked_at or now) + ASK_REPAIRS)
    for waiting in state.waiting:
        record = state.nodes[waiting.incident.node.name]
        if record.settled_at is not None and not record.settled_returned:
            until = record.settled_at + pool.cool_down
            if until > now:
                times.append(until)
    return min(times, default=None)


def repair_ended(state: PoolState, ended: RepairEnded, policy: Policy, now: datetime) -> Decided:
    """Return what follows from the end of a repair: the node counts as in service again, others may start."""
    record = state.nodes.get(ended.node)
    if record is None or record.repair_id != ended.repair_id:
        return Decided(state=state)
    result = ended.result
    over = result.outcome in (Outcome.RETURNED, Outcome.CLEARED)
    # What came too late for the repair to handle is still there, and nobody's yet.
    left = tuple(fault for fault in record.faults if fault.key not in result.handled) if over else record.faults
    history = tuple(rung for rung in (*record.history, *result.rungs) if now - rung.at <= policy.attempts.look_back)
    still_out = bool(result.held_by) or (record.out and result.outcome in (Outcome.REPLACED, Outcome.GONE))
    record = record.model_copy(
        update={
            "repair_id": "",
            "out": still_out,
            "held_by": result.held_by,
            "held_mark": ended.repair_id if result.held_by else "",
            "settled_at": now,
            "settled_returned": over,
            "faults": left,
            "history": history,
            "identity": ended.identity if over else record.identity,
            "lost_since": None if result.outcome is Outcome.RETURNED else record.lost_since,
        }
    )
    state = _with_node(state, ended.node, record)
    used = {moved.spare for moved in result.moved}
    mine = [spare for spare, lease in state.leased.items() if lease == ended.repair_id]
    unused = [spare for spare in mine if spare not in used]
    state = state.model_copy(
        update={
            # A spare that took work over is a node like others from now on.
            "leased": {spare: lease for spare, lease in state.leased.items() if spare not in mine},
            "waiting": tuple(w for w in state.waiting if w.incident.node.name != ended.node),
        }
    )
    if over and actionable(left):
        state = _with_waiting(state, record, now)
    if ended.result.outcome is Outcome.GONE and actionable(record.faults):
        # Nobody handles its faults any more: they are taken up again, after the cool-down.
        state = _with_waiting(state, record, now)
    commands = [Command(node=ended.node, repair_id=ended.repair_id, return_spare=spare) for spare in unused]
    return _settle(state, commands, policy, now)


def repair_gone(node: str, record: NodeRecord, now: datetime) -> RepairEnded:
    """Return the end of a repair that cannot be reached: terminated, or lost with Temporal's data."""
    detail = f"{record.repair_id} does not run any more and did not say how it ended"
    return RepairEnded(
        repair_id=record.repair_id,
        node=node,
        at=now,
        result=RepairResult(outcome=Outcome.GONE, detail=detail),
        identity=record.identity,
    )


def close_breaker(state: PoolState, by: str, policy: Policy, now: datetime) -> Decided:
    """Return what follows when a person closes the breaker."""
    state = state.model_copy(update={"breaker": BreakerState(reason=f"closed by {by}"), "recent": ()})
    return _settle(state, [], policy, now)


def admit_by_person(state: PoolState, node: str, by: str, policy: Policy, now: datetime) -> Decided:
    """Return what follows when a person lets a waiting repair start; without one that waits, nothing."""
    if all(entry.incident.node.name != node for entry in state.waiting):
        return Decided(state=state)
    state = state.model_copy(update={"admitted_by": {**state.admitted_by, node: by}})
    return _settle(state, [], policy, now)


def hold_is_over(state: PoolState, node: str, policy: Policy, now: datetime) -> Decided:
    """Return what follows when a person has given back a node that an aborted repair had left in their hands."""
    record = state.nodes.get(node)
    if record is None or not record.held_by:
        return Decided(state=state)
    record = record.model_copy(update={"held_by": "", "held_mark": "", "out": False})
    return _settle(_with_node(state, node, record), [], policy, now)


def _take_in_one(state: PoolState, event: NodeEvent, policy: Policy, now: datetime) -> tuple[PoolState, list[Command]]:
    name = event.node.name
    if event.kind is NodeEventKind.SEEN and event.identity is not None:
        return _seen(state, event.identity, event.at, event.gateway)
    record = state.nodes.get(name)
    if event.kind is NodeEventKind.LOST:
        if record is None or record.lost_since is not None:
            return state, []
        if (record.seen_at is not None and event.at < record.seen_at) or record.has_left(event.gateway):
            # The node has turned up at another gateway since this one last heard of it.
            return state, []
        return _with_node(state, name, record.model_copy(update={"lost_since": event.at})), []
    if event.fault is None:
        return state, []
    if record is None:
        boot = event.fault.fault.boot_id
        record = NodeRecord(identity=NodeIdentity(node=event.node, boot_id=boot))
        state = _with_node(state, name, record)
    fault_event = event.fault
    if fault_event.spool_id == record.spool_id and 0 < fault_event.sequence <= record.sequence:
        return state, []
    if fault_event.sequence > 0:
        record = record.model_copy(update={"spool_id": fault_event.spool_id, "sequence": fault_event.sequence})
        state = _with_node(state, name, record)
    if fault_event.fault.boot_id != record.identity.boot_id:
        # News of an earlier boot is no news.
        return state, []
    return _fault(state, name, fault_event, policy, now)


def _seen(state: PoolState, identity: NodeIdentity, at: datetime, gateway: str) -> tuple[PoolState, list[Command]]:
    name = identity.node.name
    record = state.nodes.get(name)
    if record is None:
        return _with_node(state, name, NodeRecord(identity=identity, seen_at=at, gateway=gateway)), []
    if record.seen_at is not None and at < record.seen_at and record.has_left(gateway):
        # A gateway that could not reach Temporal for a while, about a node that has left it since.
        return state, []
    rebooted = identity.boot_id != record.identity.boot_id
    faults = tuple(fault for fault in record.faults if fault.fault_class != UNREACHABLE and not rebooted)
    record = record.model_copy(
        update={"identity": identity, "seen_at": at, "gateway": gateway, "lost_since": None, "faults": faults}
    )
    state = _with_node(state, name, record)
    state = _without_cleared(state, name, faults)
    if not record.repair_id:
        return state, []
    return state, [Command(node=name, repair_id=record.repair_id, forward_seen=NodeSeen(identity=identity))]


def _fault(
    state: PoolState, name: str, event: FaultEvent, policy: Policy, now: datetime
) -> tuple[PoolState, list[Command]]:
    record = state.nodes[name]
    fault = event.fault
    if event.transition is Transition.CLEARED:
        faults = tuple(known for known in record.faults if known.key != fault.key)
        state = _with_node(state, name, record.model_copy(update={"faults": faults}))
        state = _without_cleared(state, name, faults)
        return state, _forward(record, event)
    if not actionable((fault,)):
        return _tell(state, fault, now)
    known = next((each for each in record.faults if each.key == fault.key), None)
    new = known is None
    worse = known is not None and (known.severity, known.suggested_rung) != (fault.severity, fault.suggested_rung)
    record = record.model_copy(update={"faults": merge_fault(record.faults, fault)})
    state = _with_node(state, name, record)
    opened: list[Command] = []
    if new:
        before = state.breaker.open
        state = with_opened(state, fault, policy, now)
        if state.breaker.open and not before:
            opened.append(Command(tell=breaker_notice(state)))
    if record.repair_id:
        # A mere repetition is no news to the repair, and signals are bounded (10,000 a run).
        news = new or worse or event.transition is Transition.OPENED
        return state, [*opened, *(_forward(record, event) if news else [])]
    return _with_waiting(state, record, now), opened


def _forward(record: NodeRecord, event: FaultEvent) -> list[Command]:
    if not record.repair_id:
        return []
    return [
        Command(
            node=record.identity.node.name,
            repair_id=record.repair_id,
            forward_fault=FaultReported(event=event),
        )
    ]


def _with_waiting(state: PoolState, record: NodeRecord, now: datetime) -> PoolState:
    """Return the state with all of the node's faults in one incident: what is open together is handled together."""
    name = record.identity.node.name
    faults = actionable(record.faults)
    waiting = []
    known = False
    for entry in state.waiting:
        if entry.incident.node.name == name:
            known = True
            entry = entry.model_copy(update={"incident": entry.incident.model_copy(update={"faults": faults})})
        waiting.append(entry)
    if not known:
        incident = Incident(
            incident_id=f"{name}-{record.repairs + 1}",
            node=record.identity.node,
            opened_at=now,
            faults=faults,
        )
        waiting.append(WaitingIncident(incident=incident, why="new", since=now))
    return state.model_copy(update={"waiting": tuple(waiting)})


def _without_cleared(state: PoolState, name: str, open_now: tuple[Fault, ...]) -> PoolState:
    """Return the state in which a waiting incident knows only open faults, and is gone when there are none."""
    faults = actionable(open_now)
    waiting = []
    for entry in state.waiting:
        if entry.incident.node.name == name:
            if not faults:
                admitted = {node: by for node, by in state.admitted_by.items() if node != name}
                state = state.model_copy(update={"admitted_by": admitted})
                continue
            entry = entry.model_copy(update={"incident": entry.incident.model_copy(update={"faults": faults})})
        waiting.append(entry)
    return state.model_copy(update={"waiting": tuple(waiting)})


def _settle(state: PoolState, commands: list[Command], policy: Policy, now: datetime) -> Decided:
    """Start what may start: the worst incident first, of equals the one that has waited longest."""
    order = sorted(
        state.waiting,
        key=lambda w: (-severity_rank(w.incident.lead.severity), w.since, w.incident.incident_id),
    )
    still: list[WaitingIncident] = []
    for entry in order:
        verdict = admit(state, entry.incident, policy, now)
        if not verdict.admitted:
            if verdict.why != entry.why and entry.why == "new":
                commands.append(Command(tell=waiting_notice(entry, verdict.why)))
            still.append(entry.model_copy(update={"why": verdict.why}))
            continue
        state, start = _start(state, entry.incident, policy)
        commands.append(start)
    return Decided(state=state.model_copy(update={"waiting": tuple(still)}), commands=tuple(commands))


def _start(state: PoolState, incident: Incident, policy: Policy) -> tuple[PoolState, Command]:
    name = incident.node.name
    record = state.nodes[name]
    number = record.repairs + 1
    record = record.model_copy(
        update={
            "repairs": number,
            "repair_id": f"starting/{number}",
            "out": not observes(incident, policy),
            "held_by": "",
            "held_mark": "",
        }
    )
    state = _with_node(state, name, record)
    admitted = {node: by for node, by in state.admitted_by.items() if node != name}
    state = state.model_copy(update={"admitted_by": admitted})
    repair = RepairInput(identity=record.identity, incident=incident, policy=policy, history=record.history)
    return state, Command(node=name, number=number, start=repair)


def repair_started(state: PoolState, node: str, repair_id: str) -> PoolState:
    """Return the state once the repair's workflow exists."""
    return _with_node(state, node, state.nodes[node].model_copy(update={"repair_id": repair_id}))


def _tell(state: PoolState, fault: Fault, now: datetime) -> tuple[PoolState, list[Command]]:
    """Tell people about a fault that takes no node away, at most once in a while."""
    key = f"{fault.node.name}/{fault.key}/{fault.trusted}"
    last = state.told.get(key)
    if last is not None and now - last < TOLD_AGAIN:
        return state, []
    told = {**state.told, key: now}
    if len(told) > MAX_TOLD:
        told = dict(sorted(told.items(), key=lambda item: item[1])[-MAX_TOLD // 2 :])
    state = state.model_copy(update={"told": told})
    return state, [Command(tell=fault_notice(fault, now))]


def _unreachable(identity: NodeIdentity, since: datetime, now: datetime) -> Fault:
    known = fault_class(UNREACHABLE)
    return Fault(
        fault_class=UNREACHABLE,
        node=identity.node,
        component=Component(kind=ComponentKind.NODE),
        severity=known.severity,
        scope=known.scope,
        source=Source.GATEWAY,
        boot_id=identity.boot_id,
        first_seen=since,
        last_seen=now,
        evidence=(f"no gateway has heard from the agent since {since:%Y-%m-%d %H:%M:%S} UTC",),
    )


def _with_node(state: PoolState, name: str, record: NodeRecord) -> PoolState:
    return state.model_copy(update={"nodes": {**state.nodes, name: record}})
