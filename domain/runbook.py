"""The runbook of a repair: which step comes next, and what a step's result changes. Pure functions of the state."""

from __future__ import annotations

from datetime import datetime, timedelta

from domain.faults import Fault, Rung, Severity
from domain.incident import rung_rank
from domain.ladder import ladder_for
from domain.model import Message
from domain.nodes import NodeIdentity
from domain.policy import Action, Rule
from domain.repair import Outcome, OverrideAction, PastRung, Phase, RepairInput, RepairState, StepRecord, StepState
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
"""Step under which a repair that knows no further waits for a person. ``ask-recover`` and the like say which step
could not be done; ``proceed`` then tries that step again."""

OVER = (StepState.DONE, StepState.FAILED, StepState.SKIPPED)

MUST_WORK = ("quarantine", "fence")
"""Steps without which the repair does not go on: a person is asked when one fails. A drain that fails is followed by
fencing, a checkpoint by the work's own newest one, a recovery by another try after the rung."""

RUNG_OF_ORDER = {
    OverrideAction.RESET_GPU: Rung.RESET_GPU,
    OverrideAction.REBOOT: Rung.REBOOT,
    OverrideAction.POWER_CYCLE: Rung.POWER_CYCLE,
    OverrideAction.REPROVISION: Rung.REPROVISION,
    OverrideAction.REPLACE: Rung.REPLACE,
}


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
        could_not: it could not be carried out (an outage of ours, a missing driver, no permission), which says
            nothing about the node.
        began: False for a rung that this agent or site cannot do at all: it was not run.
        workloads, saved, moved, identity, foreign_holds: what the step found, None when it did not look.
    """

    state: StepState
    detail: str = ""
    taken_over: bool = False
    could_not: bool = False
    began: bool = True
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
        return _try(state, Step(step_id="quarantine", phase=Phase.QUARANTINE, action=Action.QUARANTINE))
    if _ordered(state, OverrideAction.RETURN):
        return Step(step_id=numbered(state, "return"), phase=Phase.RETURN, action=Action.RETURN)
    if not _rung_ordered(state):
        for step in _before_acting(state):
            if not _over(state, step.step_id):
                return _try(state, step)
    if state.needs_rung:
        return _next_rung(state)
    if state.workloads and _failed(state, "recover") and not _ordered(state, OverrideAction.BURN_IN):
        # The rung may have proven what could not be proven before: that the old copy has stopped.
        return _recover_again(state)
    if not state.proven:
        return _try(state, Step(step_id="burn_in", phase=Phase.BURN_IN, action=Action.BURN_IN))
    return _try(state, Step(step_id="return", phase=Phase.RETURN, action=Action.RETURN))


def _try(state: RepairState, step: Step) -> Step:
    """Return the next try of a step; one that could not be carried out is tried again only when a person says so."""
    last = latest(state, step.step_id)
    if last is not None and last.state is StepState.FAILED and (last.could_not or step.step_id in MUST_WORK):
        ask = f"{ASK}-{step.step_id}"
        if not (_ordered(state, OverrideAction.PROCEED) and state.ordered_step == ask):
            return Step(step_id=ask, phase=Phase.HELD, reason=f"{last.step_id} could not be done: {last.detail}")
    return step.model_copy(update={"step_id": numbered(state, step.step_id)})


def _recover_again(state: RepairState) -> Step:
    step = Step(step_id="recover", phase=Phase.RECOVER, action=Action.RECOVER)
    tries = [record for record in state.steps if record.step_id.partition("-")[0] == "recover"]
    since = tries[-1].ended_at
    rung_since = any(since is not None and run.at >= since for run in state.rungs_run)
    if rung_since or _ordered(state, OverrideAction.PROCEED):
        return step.model_copy(update={"step_id": numbered(state, "recover")})
    return Step(
        step_id=f"{ASK}-recover",
        phase=Phase.HELD,
        reason=f"the work is not running again: {tries[-1].detail}. Proceed tries again, burn_in goes on without it",
    )


def _before_acting(state: RepairState) -> list[Step]:
    """Return the steps that give the fault time, and bring the work away from the node.

    A node that cannot be reached is fenced before anything starts elsewhere: silence does not prove that its
    processes have stopped. A node that will not empty is fenced too, if the policy lets it be.
    """
    faults = open_faults(state)
    fence = Step(step_id="fence", phase=Phase.DRAIN, action=Action.FENCE)
    drained = latest(state, "drain")
    unreachable = any(fault.fault_class == UNREACHABLE for fault in faults)
    fence_first = drained is None and (latest(state, "fence") is not None or unreachable)
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
    if drained is not None and drained.state is StepState.FAILED and not drained.could_not and not state.fenced:
        steps.append(fence)
    if state.workloads:
        steps.append(Step(step_id="recover", phase=Phase.RECOVER, action=Action.RECOVER))
    return steps


def emptied(state: RepairState) -> bool:
    """Return whether the node's work is off the node, as far as the repair could bring it."""
    return latest(state, "drain") is not None and all(
        _over(state, step.step_id) or _failed(state, step.step_id) for step in _before_acting(state)
    )


def _next_rung(state: RepairState) -> Step:
    bound = state.input.policy.attempts.per_incident
    if not state.ladder:
        return Step(step_id=ASK, phase=Phase.HELD, reason="no rung of the ladder is left")
    if len(state.rungs_run) >= bound and state.ordered is None:
        return Step(step_id=ASK, phase=Phase.HELD, reason=f"{len(state.rungs_run)} rungs were run and none held")
    rung = state.ladder[0]
    action = ACTION_OF_RUNG[rung]
    step = Step(step_id=action.value, phase=Phase.ACT, action=action, rung=rung)
    last = latest(state, step.step_id)
    if (
        last is not None
        and last.could_not
        and not (_ordered_step(state) == f"{ASK}-{step.step_id}" or _rung_ordered(state))
    ):
        return Step(step_id=f"{ASK}-{step.step_id}", phase=Phase.HELD, reason=f"{last.step_id}: {last.detail}")
    return step.model_copy(update={"step_id": numbered(state, step.step_id)})


def _ordered_step(state: RepairState) -> str:
    return state.ordered_step if _ordered(state, OverrideAction.PROCEED) else ""


def _ordered(state: RepairState, action: OverrideAction) -> bool:
    return state.ordered is not None and state.ordered.action is action


def _rung_ordered(state: RepairState) -> bool:
    return state.ordered is not None and state.ordered.action in RUNG_OF_ORDER


def order_covers(state: RepairState, step: Step) -> bool:
    """Return whether what a person ordered is this step."""
    if state.ordered is None or step.action is None:
        return False
    if state.ordered.action is OverrideAction.PROCEED:
        return state.ordered_step in (step.step_id, f"{ASK}-{step.step_id.partition('-')[0]}")
    return state.ordered.action.value == step.action.value


def latest(state: RepairState, name: str) -> StepRecord | None:
    """Return the latest try of a step (``burn_in``, ``burn_in-2`` …), or None when it has not begun."""
    return next((step for step in reversed(state.steps) if step.step_id.partition("-")[0] == name), None)


def numbered(state: RepairState, name: str) -> str:
    """Return the id of the next try of a step: ``burn_in``, ``burn_in-2`` …"""
    tries = sum(1 for s in state.steps if s.step_id.partition("-")[0] == name and s.state in OVER)
    return name if tries == 0 else f"{name}-{tries + 1}"


def _over(state: RepairState, name: str) -> bool:
    """Return whether a step needs no further try: it is done, was skipped, or failed in a way that others mend."""
    record = latest(state, name)
    if record is None or record.state not in OVER:
        return False
    return record.state is not StepState.FAILED or not (name in MUST_WORK or record.could_not)


def _failed(state: RepairState, name: str) -> bool:
    record = latest(state, name)
    return record is not None and record.state is StepState.FAILED


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
        changes |= {"proven": False, "vouched_by": ""}
    if order_covers(state, step):
        changes |= {"ordered": None, "ordered_step": ""}
    return state.model_copy(update=changes)


def ended(state: RepairState, step: Step, result: StepResult, now: datetime) -> RepairState:
    """Return the state after a step: its record, and what its result means for the rest of the repair."""
    record = state.step(step.step_id) or StepRecord(
        step_id=step.step_id, action=step.action, phase=step.phase, state=result.state, started_at=now
    )
    record = record.model_copy(
        update={"state": result.state, "ended_at": now, "detail": result.detail, "could_not": result.could_not}
    )
    changes: dict[str, object] = {"steps": _with_record(state.steps, record)}
    for name in ("workloads", "saved", "moved", "identity", "foreign_holds"):
        found = getattr(result, name)
        if found is not None:
            changes[name] = found
    if result.taken_over:
        changes |= {"outcome": Outcome.TAKEN_OVER, "outcome_detail": result.detail}
    after = state.model_copy(update=changes)
    if result.taken_over or result.could_not or result.state is StepState.SKIPPED:
        return after
    if step.rung is not None:
        return _after_rung(after, step.rung, result, now)
    return _consequences(after, step, result.state is StepState.DONE, result.detail)


def _consequences(state: RepairState, step: Step, done: bool, detail: str) -> RepairState:
    changes: dict[str, object] = {}
    if step.phase is Phase.QUARANTINE and done:
        changes["quarantined"] = True
    elif step.action is Action.FENCE and done:
        # The node is off now: only a rung that switches it on again can bring it back.
        heavier = tuple(rung for rung in state.ladder if rung_rank(rung) >= rung_rank(Rung.POWER_CYCLE))
        changes |= {"fenced": True, "needs_rung": True, "ladder": heavier or (Rung.POWER_CYCLE,)}
    elif step.phase is Phase.BURN_IN:
        # A fault that came meanwhile asks for a rung; what the burn-in found then proves nothing.
        changes["proven"] = done and not state.needs_rung
        if not done:
            changes["needs_rung"] = True
    elif step.phase is Phase.RETURN:
        if done:
            changes |= {"outcome": Outcome.RETURNED, "outcome_detail": detail}
        else:
            changes |= {"proven": False, "needs_rung": True, "vouched_by": ""}
    return state.model_copy(update=changes)


def _after_rung(state: RepairState, rung: Rung, result: StepResult, now: datetime) -> RepairState:
    done = result.state is StepState.DONE
    lead = state.input.incident.lead
    run = PastRung(component=str(lead.component), fault_class=lead.fault_class, rung=rung, at=now)
    changes: dict[str, object] = {"rungs_run": (*state.rungs_run, run)} if result.began else {}
    if done:
        changes |= {"cleared": tuple(fault.key for fault in state.faults), "fenced": False}
        if rung is Rung.REPLACE:
            changes |= {"outcome": Outcome.REPLACED, "outcome_detail": result.detail}
    if state.ordered is None:
        # What a person ordered while the rung ran stands above what the ladder says.
        changes |= {
            "ladder": tuple(r for r in state.ladder if rung_rank(r) > rung_rank(rung)),
            "needs_rung": not done,
        }
    return state.model_copy(update=changes)


def _with_record(steps: tuple[StepRecord, ...], record: StepRecord) -> tuple[StepRecord, ...]:
    """Return the steps with this record in the place of the running one of the same id, else at the end."""
    for index in range(len(steps) - 1, -1, -1):
        if steps[index].step_id == record.step_id and steps[index].state not in OVER:
            return (*steps[:index], record, *steps[index + 1 :])
    return (*steps, record)
