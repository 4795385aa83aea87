"""What people may say to a repair and what it changes. One pure function behind the signal and the update."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime

from domain.incident import rung_rank
from domain.model import Message
from domain.policy import Action, Decision, NoAnswer, Rule
from domain.repair import (
    Abort,
    Answer,
    Approve,
    Override,
    OverrideAction,
    Pause,
    Phase,
    Reject,
    RepairState,
    Resume,
    Wait,
)
from domain.runbook import ASK, RUNG_OF_ORDER, Step, emptied, next_step, open_faults, order_covers, rule_for

Said = Approve | Reject | Pause | Resume | Abort | Override


class Permission(Message):
    """Whether a step may run now.

    Attributes:
        allowed: run it; ``by`` says who decided.
        override_only: only an override releases it (the policy observes, or no rung is left).
    """

    allowed: bool
    by: str = ""
    rule: Rule | None = None
    override_only: bool = False
    reason: str = ""


class Heard(Message):
    """The state after somebody spoke, and what they are answered."""

    state: RepairState
    answer: Answer


def digest(state: RepairState, step: Step) -> str:
    """Return the short hash of what a person approves: node identity, action, evidence, plan.

    Eight hexadecimal digits of SHA-256 over the canonical JSON; any escalation changes it.
    """
    shown = {
        "node": str(state.identity.node),
        "boot": state.identity.boot_id,
        "machine": state.identity.machine_id,
        "gpus": sorted(gpu.uuid for gpu in state.identity.inventory.gpus),
        "step": step.step_id,
        "evidence": sorted(fault.key for fault in open_faults(state)),
        "plan": [str(rung) for rung in state.ladder],
    }
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()[:8]


def permission(state: RepairState, step: Step) -> Permission:
    """Return whether a step may run: by policy, by order of a person, or only once somebody has answered."""
    if step.step_id.partition("-")[0] == ASK:
        return Permission(allowed=False, override_only=True, reason=step.reason)
    if step.action is None:
        return Permission(allowed=True)
    if state.ordered is not None and order_covers(state, step):
        return Permission(allowed=True, by=f"{state.ordered.by} (override): {state.ordered.reason}")
    rule = rule_for(state, step.action)
    if rule.decide is Decision.AUTO:
        return Permission(allowed=True, by=f"policy: {rule.name}", rule=rule)
    if rule.decide is Decision.APPROVE:
        if state.wait is not None and state.wait.step_id == step.step_id and state.wait.override_only:
            return Permission(allowed=False, rule=rule, override_only=True, reason=state.wait.reason)
        if _approved(state, step):
            assert state.wait is not None
            return Permission(allowed=True, by=", ".join(state.wait.approved_by), rule=rule)
        return Permission(allowed=False, rule=rule, reason=f"policy: {rule.name}")
    return Permission(
        allowed=False,
        rule=rule,
        override_only=True,
        reason=f"the policy only observes {step.action} ({rule.name})",
    )


def _approved(state: RepairState, step: Step) -> bool:
    wait = state.wait
    return (
        wait is not None
        and wait.step_id == step.step_id
        and wait.digest == digest(state, step)
        and len(wait.approved_by) >= wait.needed
    )


def waiting(state: RepairState, step: Step, now: datetime) -> RepairState:
    """Return the state while it waits for an answer to a step. Approvals of another plan are void."""
    verdict = permission(state, step)
    shown = digest(state, step)
    if state.wait is not None and state.wait.step_id == step.step_id and state.wait.digest == shown:
        return state
    rule = verdict.rule
    wait = Wait(
        step_id=step.step_id,
        action=step.action,
        digest=shown,
        since=now,
        until=None if verdict.override_only or rule is None else now + rule.answer_within,
        needed=rule.approvals if rule else 1,
        no_answer=rule.no_answer if rule else NoAnswer.HOLD,
        rule=rule.name if rule else "",
        reason=verdict.reason,
        override_only=verdict.override_only,
    )
    phase = Phase.HELD if verdict.override_only else step.phase
    return state.model_copy(update={"wait": wait, "phase": phase})


def nobody_answered(state: RepairState, now: datetime) -> tuple[RepairState, bool]:
    """Return the state after the time to answer has passed, and whether people must be told urgently."""
    wait = state.wait
    if wait is None or wait.until is None:
        return state, False
    if wait.no_answer is NoAnswer.PROCEED:
        by = f"nobody answered in time; policy: {wait.rule}"
        changed = wait.model_copy(update={"approved_by": (by,), "needed": 1, "until": None})
        return state.model_copy(update={"wait": changed}), False
    until = now + (wait.until - wait.since) if wait.no_answer is NoAnswer.ESCALATE else None
    changed = wait.model_copy(update={"approved_by": (), "since": now, "until": until})
    return state.model_copy(update={"wait": changed}), True


def hear(state: RepairState, said: Said, now: datetime) -> Heard:
    """Return what changes when a person speaks. What does not apply changes nothing but ``last_refusal``."""
    reason = refusal(state, said)
    if reason:
        note = f"{type(said).__name__.lower()} by {said.by} refused: {reason}"
        return Heard(
            state=state.model_copy(update={"last_refusal": note}),
            answer=Answer(accepted=False, message=reason),
        )
    changed, message = _apply(state.model_copy(update={"last_refusal": ""}), said)
    return Heard(state=changed, answer=Answer(accepted=True, message=message))


def refusal(state: RepairState, said: Said) -> str:
    """Return why what a person says does not apply now, with what would; empty when it applies."""
    if state.outcome is not None:
        return f"this repair is over ({state.outcome}): {state.outcome_detail}"
    if state.abort is not None:
        return f"{state.abort.by} has aborted this repair"
    match said:
        case Approve():
            return _refuse_approval(state, said)
        case Reject():
            return _refuse_rejection(state, said)
        case Pause():
            return f"it is already paused by {state.paused_by}" if state.paused_by else ""
        case Resume():
            return "" if state.paused_by else "it is not paused"
        case Override():
            return _refuse_override(state, said)
        case Abort():
            return ""


def _refuse_step(state: RepairState, step_id: str) -> str:
    wait = state.wait
    if wait is None:
        return f"nothing waits for an answer now; the repair is in phase {state.phase}"
    if wait.step_id != step_id:
        return f"it waits for an answer to step {wait.step_id!r}, not {step_id!r}"
    return ""


def _refuse_approval(state: RepairState, said: Approve) -> str:
    wrong = _refuse_step(state, said.step)
    if wrong or state.wait is None:
        return wrong
    wait = state.wait
    if wait.override_only:
        return f"{wait.reason}: an approval is not enough, use override or abort"
    # The plan may have changed in the very activation in which this message arrived.
    step = next_step(state)
    if step is None or step.step_id != said.step or digest(state, step) != wait.digest:
        return "the plan has just changed: look at it again"
    if said.digest != wait.digest:
        return f"digest {said.digest!r} is not what is proposed now ({wait.digest!r}): the plan has changed, look again"
    if said.by in wait.approved_by:
        return f"{said.by} has already approved; {wait.needed} different people are needed"
    return ""


def _refuse_rejection(state: RepairState, said: Reject) -> str:
    wrong = _refuse_step(state, said.step)
    if not wrong and state.wait is not None and state.wait.override_only:
        return "it is held already: use override or abort"
    return wrong


def _refuse_override(state: RepairState, said: Override) -> str:
    if said.action is OverrideAction.PROCEED:
        if state.wait is None or state.wait.step_id == ASK:
            return "there is no step to proceed with: name an action (reboot, power_cycle, burn_in, return …)"
        return ""
    if not state.quarantined:
        return "the node is not quarantined yet: approve, proceed or abort"
    if said.action is not OverrideAction.RETURN and not emptied(state):
        return f"{said.action} has to wait until the work is off the node; the repair is in phase {state.phase}"
    return ""


def _apply(state: RepairState, said: Said) -> tuple[RepairState, str]:
    match said:
        case Approve():
            assert state.wait is not None
            wait = state.wait.model_copy(update={"approved_by": (*state.wait.approved_by, said.by)})
            missing = wait.needed - len(wait.approved_by)
            message = f"{wait.step_id} is approved" if missing <= 0 else f"noted; {missing} more approval(s) needed"
            return state.model_copy(update={"wait": wait}), message
        case Reject():
            assert state.wait is not None
            reason = f"{said.by} said no to {said.step}" + (f": {said.reason}" if said.reason else "")
            wait = state.wait.model_copy(
                update={"override_only": True, "until": None, "reason": reason, "approved_by": ()}
            )
            return (
                state.model_copy(update={"wait": wait, "phase": Phase.HELD}),
                f"{said.step} will not be run; the repair holds until an override or abort",
            )
        case Pause():
            return state.model_copy(update={"paused_by": said.by}), "no further step begins until resume"
        case Resume():
            return state.model_copy(update={"paused_by": ""}), "the repair goes on"
        case Abort():
            kept = "our quarantine will be undone" if said.give_back else "the node stays out, in your hands"
            return state.model_copy(update={"abort": said}), f"the repair stops; {kept}"
        case Override():
            return _order(state, said), f"{said.action} comes next"


def _order(state: RepairState, said: Override) -> RepairState:
    changes: dict[str, object] = {"ordered": said, "ordered_step": state.wait.step_id if state.wait else ""}
    rung = RUNG_OF_ORDER.get(said.action)
    if rung is not None:
        above = tuple(r for r in state.ladder if rung_rank(r) > rung_rank(rung))
        changes |= {"ladder": (rung, *above), "needs_rung": True, "proven": False, "vouched_by": "", "wait": None}
    elif said.action is OverrideAction.BURN_IN:
        changes |= {"needs_rung": False, "proven": False, "vouched_by": "", "wait": None}
    elif said.action is OverrideAction.RETURN:
        changes |= {"needs_rung": False, "proven": True, "vouched_by": said.by, "wait": None}
    return state.model_copy(update=changes)


def only_observes(state: RepairState) -> bool:
    """Return whether the policy lets this repair do nothing: it would not even quarantine."""
    return rule_for(state, Action.QUARANTINE).decide is Decision.OBSERVE
