"""The runbook of a repair: which step comes next, and what a step's result changes. Pure functions of the state."""

from __future__ import annotations

from datetime import datetime, timedelta

from domain.faults import Fault, FaultEvent, Rung, Severity, Transition
from domain.incident import merge_fault, rung_rank
from domain.ladder import ladder_for
from domain.model import Message
from domain.nodes import NodeIdentity
from domain.policy import Action, Rule
from domain.repair import Outcome, PastRung, Phase, RepairInput, RepairState, StepRecord, StepState
from domain.saving import UNREACHABLE
from domain.workloads import MovedWork, SavedWork, Workload

ACTION_OF_RUNG = {
    Rung.RESET_GPU: Action.RESET_GPU,
    Rung.REBOOT: Action.REBOOT,
    Rung.POWER_CYCLE: Action.POWER_CYCLE,
    Rung.REPROVISION: Action.REPROVISION,
    Rung.REPLACE: Action.REPLACE,
}
ASK = "ask"
"""Step under which a repair that knows no further waits for a person."""

OVER = (StepState.DONE, StepState.FAILED, StepState.SKIPPED)


class Step(Message):
    """What to do next.

    Attributes:
        action: what the policy is asked about; None for steps that change nothing (waiting, asking).
        reason: why a person is asked, for ``ask``.
    """

    step_id: str
    phase: Phase
    action: Action | None = None
    rung: Rung | None = None
    reason: str = ""


class StepResult(Message):
    """How a step ended.

    Attributes:
        state: ``done``, ``failed`` or ``skipped``.
        taken_over: somebody else has the node now; the repair stops.
        workloads, saved, moved, identity, foreign_holds: what the step found, None when it did not look.
    """

    state: StepState
    detail: str = ""
    taken_over: bool = False
    workloads: tuple[Workload, ...] | None = None
    saved: tuple[SavedWork, ...] | None = None
    moved: tuple[MovedWork, ...] | None = None
    identity: NodeIdentity | None = None
    foreign_holds: tuple[str, ...] | None = None


def begin(repair: RepairInput, repair_id: str, now: datetime) -> RepairState:
    """Return the state in which a repair starts."""
    faults = repair.incident.faults
    return RepairState(
        input=repair,
        repair_id=repair_id,
        identity=repair.identity,
        started_at=now,
        faults=faults,
        ladder=ladder_for(faults, repair.policy, repair.history, now),
    )


def next_step(state: RepairState) -> Step | None:
    """Return the next step, or None when the repair is over."""
    if state.outcome is not None:
        return None
    if not state.quarantined:
        return _quarantine(state)
    for step in _before_acting(state):
        if not _ended(state, step.step_id):
            return step
    if state.needs_rung:
        return _next_rung(state)
    if not state.proven:
        return Step(step_id=numbered(state, "burn_in"), phase=Phase.BURN_IN, action=Action.BURN_IN)
    return Step(step_id=numbered(state, "return"), phase=Phase.RETURN, action=Action.RETURN)


def _quarantine(state: RepairState) -> Step:
    record = state.step("quarantine")
    if record is not None and record.state is StepState.FAILED and state.ordered is None:
        return Step(step_id=ASK, phase=Phase.HELD, reason=f"the node could not be quarantined: {record.detail}")
    return Step(step_id="quarantine", phase=Phase.QUARANTINE, action=Action.QUARANTINE)


def _before_acting(state: RepairState) -> list[Step]:
    """Return the steps that give the fault time, and bring the work away from the node.

    A node that cannot be reached is fenced before anything starts elsewhere: silence does not prove that its
    processes have stopped. A node that will not empty is fenced too, if the policy lets it be.
    """
    faults = open_faults(state)
    fence = Step(step_id="fence", phase=Phase.DRAIN, action=Action.FENCE)
    drained = state.step("drain")
    fence_first = drained is None and (_ended(state, "fence") or any(f.fault_class == UNREACHABLE for f in faults))
    steps: list[Step] = []
    if grace_of(state) > timedelta(0):
        steps.append(Step(step_id="grace", phase=Phase.GRACE))
    if state.input.policy.limits.drain_patience > timedelta(0) and not any(
        fault.severity is Severity.FATAL for fault in faults
    ):
        steps.append(Step(step_id="let_finish", phase=Phase.GRACE))
    if state.workloads:
        steps.append(Step(step_id="checkpoint", phase=Phase.CHECKPOINT, action=Action.CHECKPOINT))
    if fence_first:
        steps.append(fence)
    steps.append(Step(step_id="drain", phase=Phase.DRAIN, action=Action.DRAIN))
    if drained is not None and drained.state is StepState.FAILED:
        steps.append(fence)
    if state.workloads:
        steps.append(Step(step_id="recover", phase=Phase.RECOVER, action=Action.RECOVER))
    return steps


def _next_rung(state: RepairState) -> Step:
    bound = state.input.policy.attempts.per_incident
    if not state.ladder:
        return Step(step_id=ASK, phase=Phase.HELD, reason="no rung of the ladder is left")
    if len(state.rungs_run) >= bound and state.ordered is None:
        return Step(step_id=ASK, phase=Phase.HELD, reason=f"{len(state.rungs_run)} rungs were run and none held")
    rung = state.ladder[0]
    action = ACTION_OF_RUNG[rung]
    return Step(step_id=numbered(state, action.value), phase=Phase.ACT, action=action, rung=rung)


def numbered(state: RepairState, name: str) -> str:
    """Return the id of the next try of a step: ``burn_in``, ``burn_in-2`` …"""
    tries = sum(1 for s in state.steps if s.step_id.partition("-")[0] == name and s.state in OVER)
    return name if tries == 0 else f"{name}-{tries + 1}"


def _ended(state: RepairState, step_id: str) -> bool:
    record = state.step(step_id)
    return record is not None and record.state in OVER


def open_faults(state: RepairState) -> tuple[Fault, ...]:
    """Return the faults of the incident that have not cleared."""
    return tuple(fault for fault in state.faults if fault.key not in state.cleared)


def grace_of(state: RepairState) -> timedelta:
    """Return how long the incident may clear by itself: the shortest grace of its first faults."""
    policy = state.input.policy
    return min((policy.grace_for(fault.fault_class) for fault in state.input.incident.faults), default=timedelta(0))


def rule_for(state: RepairState, action: Action) -> Rule:
    """Return the policy's rule for an action of this repair."""
    node = state.identity.node
    lead = state.input.incident.lead
    return state.input.policy.rule(node.cluster, node.pool, lead.fault_class, lead.severity, action)


def started(state: RepairState, step: Step, decided_by: str, now: datetime) -> RepairState:
    """Return the state with a step under way. A rung makes every earlier proof worthless."""
    running = StepRecord(
        step_id=step.step_id,
        action=step.action,
        phase=step.phase,
        state=StepState.RUNNING,
        started_at=now,
        decided_by=decided_by,
    )
    changes: dict[str, object] = {
        "steps": _with_record(state.steps, running),
        "phase": step.phase,
        "wait": None,
    }
    if step.rung is not None:
        changes["proven"] = False
    if step.action is not None:
        changes |= {"ordered": None, "ordered_step": ""}
    return state.model_copy(update=changes)


def ended(state: RepairState, step: Step, result: StepResult, now: datetime) -> RepairState:
    """Return the state after a step: its record, and what its result means for the rest of the repair."""
    record = state.step(step.step_id) or StepRecord(
        step_id=step.step_id, action=step.action, phase=step.phase, state=result.state, started_at=now
    )
    record = record.model_copy(update={"state": result.state, "ended_at": now, "detail": result.detail})
    changes: dict[str, object] = {"steps": _with_record(state.steps, record)}
    for name in ("workloads", "saved", "moved", "identity", "foreign_holds"):
        found = getattr(result, name)
        if found is not None:
            changes[name] = found
    if result.taken_over:
        changes |= {"outcome": Outcome.TAKEN_OVER, "outcome_detail": result.detail}
    after = state.model_copy(update=changes)
    if result.taken_over or result.state is StepState.SKIPPED:
        return after
    return _consequences(after, step, result.state is StepState.DONE, result.detail, now)


def _consequences(state: RepairState, step: Step, done: bool, detail: str, now: datetime) -> RepairState:
    changes: dict[str, object] = {}
    if step.rung is not None:
        return _after_rung(state, step.rung, done, detail, now)
    if step.phase is Phase.QUARANTINE and done:
        changes["quarantined"] = True
    elif step.action is Action.FENCE and done:
        # The node is off now: only a rung that switches it on again can bring it back.
        heavier = tuple(rung for rung in state.ladder if rung_rank(rung) >= rung_rank(Rung.POWER_CYCLE))
        changes |= {"fenced": True, "needs_rung": True, "ladder": heavier or (Rung.POWER_CYCLE,)}
    elif step.phase is Phase.BURN_IN:
        changes |= {"proven": done} if done else {"proven": False, "needs_rung": True}
    elif step.phase is Phase.RETURN:
        if done:
            changes |= {"outcome": Outcome.RETURNED, "outcome_detail": detail}
        else:
            changes |= {"proven": False, "needs_rung": True, "vouched_by": ""}
    return state.model_copy(update=changes)


def _after_rung(state: RepairState, rung: Rung, done: bool, detail: str, now: datetime) -> RepairState:
    lead = state.input.incident.lead
    run = PastRung(component=str(lead.component), fault_class=lead.fault_class, rung=rung, at=now)
    changes: dict[str, object] = {
        "rungs_run": (*state.rungs_run, run),
        "ladder": tuple(r for r in state.ladder if rung_rank(r) > rung_rank(rung)),
        "needs_rung": not done,
    }
    if done:
        changes |= {"cleared": tuple(fault.key for fault in state.faults), "fenced": False}
        if rung is Rung.REPLACE:
            changes |= {"outcome": Outcome.REPLACED, "outcome_detail": detail}
    return state.model_copy(update=changes)


def _with_record(steps: tuple[StepRecord, ...], record: StepRecord) -> tuple[StepRecord, ...]:
    """Return the steps with this record in the place of the running one of the same id, else at the end."""
    for index in range(len(steps) - 1, -1, -1):
        if steps[index].step_id == record.step_id and steps[index].state not in OVER:
            return (*steps[:index], record, *steps[index + 1 :])
    return (*steps, record)


def fault_reported(state: RepairState, event: FaultEvent, now: datetime) -> RepairState:
    """Return the state after a fault of the node opened, repeated or cleared during the repair.

    Faults of the application, records that a process wrote, and news of an earlier boot change nothing. Silence
    is expected while a rung is under way. A fault that is new, or back after a rung, raises the ladder.
    """
    fault = event.fault
    if event.transition is Transition.CLEARED:
        return _fault_cleared(state, fault)
    if not fault.trusted or fault.severity not in (Severity.DEGRADED, Severity.FATAL):
        return state
    if fault.fault_class == UNREACHABLE:
        if state.phase is Phase.ACT or state.fenced:
            return state
    elif fault.boot_id and state.identity.boot_id and fault.boot_id != state.identity.boot_id:
        return state
    was_open = any(known.key == fault.key for known in open_faults(state))
    changed = state.model_copy(
        update={
            "faults": merge_fault(state.faults, fault),
            "cleared": tuple(key for key in state.cleared if key != fault.key),
        }
    )
    if was_open:
        return changed
    history = (*state.input.history, *state.rungs_run)
    ladder = ladder_for(open_faults(changed), state.input.policy, history, now)
    return changed.model_copy(update={"ladder": ladder, "needs_rung": True, "proven": False})


def _fault_cleared(state: RepairState, fault: Fault) -> RepairState:
    if all(known.key != fault.key for known in state.faults) or fault.key in state.cleared:
        return state
    after = state.model_copy(update={"cleared": (*state.cleared, fault.key)})
    if not open_faults(after) and not state.fenced:
        after = after.model_copy(update={"needs_rung": False})
    return after


def node_seen(state: RepairState, identity: NodeIdentity) -> RepairState:
    """Return the state after the node's agent said hello; a node that answers is reachable again."""
    unreachable = tuple(f.key for f in open_faults(state) if f.fault_class == UNREACHABLE)
    after = state.model_copy(update={"identity": identity})
    if unreachable and state.phase in (Phase.DETECTED, Phase.QUARANTINE, Phase.GRACE):
        after = after.model_copy(update={"cleared": (*state.cleared, *unreachable)})
        if not open_faults(after):
            after = after.model_copy(update={"needs_rung": False})
    return after
