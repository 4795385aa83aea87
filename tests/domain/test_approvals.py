"""Approvals: what people may say, when it applies, and what they are told when it does not."""

from __future__ import annotations

import pytest

from domain.approvals import digest, hear, nobody_answered, only_observes, permission, waiting
from domain.faults import Rung
from domain.policy import Policy
from domain.repair import Abort, Approve, Override, OverrideAction, Pause, Phase, Reject, RepairState, Resume, StepState
from domain.repair_news import fault_reported
from domain.runbook import Step, StepResult, ended, next_step, started
from tests.domain.builders import at, do, event, fault, identity, policy, repair

DONE = StepResult(state=StepState.DONE)


def asked(under: Policy | None = None) -> tuple[RepairState, Step]:
    """Return a repair that waits for the approval of its reboot."""
    state = do(do(repair(under=under or policy()), DONE), DONE)
    step = next_step(state)
    assert step is not None
    assert step.step_id == "reboot"
    return waiting(state, step, at(10)), step


def approve(state: RepairState, step: Step, by: str = "ana", **changes: str) -> RepairState:
    said = Approve(by=by, step=changes.get("step", step.step_id), digest=changes.get("digest", digest(state, step)))
    return hear(state, said, at(11)).state


def test_the_right_approval_releases_the_step_and_is_named_as_its_reason() -> None:
    state, step = asked()
    assert not permission(state, step).allowed
    verdict = permission(approve(state, step), step)
    assert verdict.allowed
    assert verdict.by == "ana"


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (Approve(by="ana", step="reset_gpu", digest="00000000"), "waits for an answer to step 'reboot'"),
        (Approve(by="ana", step="reboot", digest="00000000"), "the plan has changed"),
        (Resume(by="ana"), "not paused"),
    ],
)
def test_what_does_not_apply_is_refused_with_the_reason_and_changes_nothing(said: Approve | Resume, says: str) -> None:
    state, step = asked()
    heard = hear(state, said, at(11))
    assert not heard.answer.accepted
    assert says in heard.answer.message
    assert says in heard.state.last_refusal
    assert heard.state.model_copy(update={"last_refusal": ""}) == state
    assert not permission(heard.state, step).allowed


def test_an_approval_before_anything_waits_is_refused() -> None:
    heard = hear(repair(), Approve(by="ana", step="reboot", digest="x"), at(1))
    assert "nothing waits" in heard.answer.message


def test_an_escalation_voids_the_approval() -> None:
    state, step = asked()
    approved = approve(state, step)
    escalated = fault_reported(approved, event(fault("gpu.ecc_uncorrectable", seconds=5, suggested_rung=None)), at(12))
    following = next_step(escalated)
    assert following is not None
    assert digest(escalated, following) != digest(state, step)
    assert not permission(escalated, following).allowed


def test_an_approval_is_bound_to_this_boot_of_the_node() -> None:
    state, step = asked()
    approved = approve(state, step)
    rebooted = approved.model_copy(update={"identity": identity(boot="boot-2")})
    assert not permission(rebooted, step).allowed


def test_two_approvals_must_come_from_two_people() -> None:
    rules = [
        {"name": "two", "match": {"action": "reboot"}, "decide": "approve", "approvals": 2},
        {"name": "rest", "decide": "auto"},
    ]
    state, step = asked(policy(rules=rules))
    once = approve(state, step, by="ana")
    assert not permission(once, step).allowed
    again = hear(once, Approve(by="ana", step="reboot", digest=digest(once, step)), at(12))
    assert not again.answer.accepted
    assert "already approved" in again.answer.message
    assert permission(approve(once, step, by="ben"), step).allowed


def test_a_no_holds_the_repair_and_a_later_yes_is_not_enough() -> None:
    state, step = asked()
    held = hear(state, Reject(by="ana", step="reboot", reason="not now"), at(11)).state
    assert held.phase is Phase.HELD
    assert not permission(held, step).allowed
    late = hear(held, Approve(by="ben", step="reboot", digest=digest(held, step)), at(12))
    assert not late.answer.accepted
    assert "override" in late.answer.message


@pytest.mark.parametrize(
    ("action", "following"),
    [
        (OverrideAction.PROCEED, "reboot"),
        (OverrideAction.POWER_CYCLE, "power_cycle"),
        (OverrideAction.BURN_IN, "burn_in"),
        (OverrideAction.RETURN, "return"),
    ],
)
def test_an_override_orders_what_comes_next_without_further_approval(action: OverrideAction, following: str) -> None:
    state, _ = asked()
    held = hear(state, Reject(by="ana", step="reboot"), at(11)).state
    ordered = hear(held, Override(by="ben", action=action, reason="reseated the card"), at(12)).state
    step = next_step(ordered)
    assert step is not None
    assert step.step_id == following
    verdict = permission(ordered, step)
    assert verdict.allowed
    assert "ben (override)" in verdict.by


def test_an_order_is_good_for_one_step_only() -> None:
    state, _ = asked()
    ordered = hear(state, Override(by="ben", action=OverrideAction.REBOOT, reason="now"), at(12)).state
    state = do(ordered, StepResult(state=StepState.FAILED, detail="no"))
    step = next_step(state)
    assert step is not None
    assert step.rung is Rung.POWER_CYCLE
    assert not permission(state, step).allowed


def test_a_return_by_override_names_who_vouches_for_the_node() -> None:
    state, _ = asked()
    ordered = hear(state, Override(by="ben", action=OverrideAction.RETURN, reason="spare part in"), at(12)).state
    assert ordered.vouched_by == "ben"


def test_nobody_answers_hold_waits_for_ever() -> None:
    state, step = asked()
    assert state.wait is not None
    assert state.wait.until is not None
    after, urgent = nobody_answered(state, state.wait.until)
    assert urgent
    assert after.wait is not None
    assert after.wait.until is None
    assert not permission(after, step).allowed


def test_nobody_answers_escalate_asks_again_with_a_new_deadline() -> None:
    rules = [
        {"name": "r", "match": {"action": "reboot"}, "decide": "approve", "no_answer": "escalate"},
        {"name": "rest", "decide": "auto"},
    ]
    state, step = asked(policy(rules=rules))
    after, urgent = nobody_answered(state, at(3700))
    assert urgent
    assert after.wait is not None
    assert after.wait.until == at(3700 + 3600)
    assert not permission(after, step).allowed


def test_nobody_answers_proceed_goes_on_and_says_that_the_policy_did_it() -> None:
    rules = [
        {"name": "night", "match": {"action": "reboot"}, "decide": "approve", "no_answer": "proceed"},
        {"name": "rest", "decide": "auto"},
    ]
    state, step = asked(policy(rules=rules))
    after, _ = nobody_answered(state, at(3700))
    verdict = permission(after, step)
    assert verdict.allowed
    assert "night" in verdict.by


def test_an_approval_that_expired_half_way_counts_no_more() -> None:
    rules = [
        {"name": "two", "match": {"action": "reboot"}, "decide": "approve", "approvals": 2},
        {"name": "rest", "decide": "auto"},
    ]
    state, step = asked(policy(rules=rules))
    half = approve(state, step, by="ana")
    expired, _ = nobody_answered(half, at(3700))
    assert not permission(approve(expired, step, by="ben"), step).allowed


def test_pause_and_resume_and_their_repetition() -> None:
    state, _ = asked()
    paused = hear(state, Pause(by="ana"), at(11)).state
    assert paused.paused_by == "ana"
    assert not hear(paused, Pause(by="ben"), at(12)).answer.accepted
    assert hear(paused, Resume(by="ben"), at(13)).state.paused_by == ""


def test_after_an_abort_nothing_else_is_heard() -> None:
    state, step = asked()
    aborted = hear(state, Abort(by="ana", reason="mine"), at(11)).state
    late = hear(aborted, Approve(by="ben", step="reboot", digest=digest(aborted, step)), at(12))
    assert not late.answer.accepted
    assert "aborted" in late.answer.message


def test_the_built_in_policy_only_observes() -> None:
    assert only_observes(repair(under=Policy()))
    assert not only_observes(repair())


def test_an_action_that_the_policy_only_observes_waits_for_an_override() -> None:
    rules = [
        {"name": "look at reboots", "match": {"action": "reboot"}, "decide": "observe"},
        {"name": "r", "decide": "auto"},
    ]
    state, step = asked(policy(rules=rules))
    assert state.wait is not None
    assert state.wait.override_only
    refused = hear(state, Approve(by="ana", step="reboot", digest=digest(state, step)), at(11))
    assert "override" in refused.answer.message


def test_a_return_that_a_person_orders_comes_at_once_even_before_the_drain() -> None:
    state = do(repair(), DONE)
    ordered = hear(state, Override(by="ben", action=OverrideAction.RETURN, reason="wrong node"), at(3)).state
    step = next_step(ordered)
    assert step is not None
    assert step.step_id == "return"
    assert permission(ordered, step).allowed


def test_a_rung_cannot_be_ordered_while_work_is_still_on_the_node() -> None:
    state = do(repair(), DONE)
    heard = hear(state, Override(by="ben", action=OverrideAction.REBOOT, reason="now"), at(3))
    assert not heard.answer.accepted
    assert "off the node" in heard.answer.message


def test_what_is_ordered_while_a_rung_runs_comes_after_it() -> None:
    state, step = asked()
    running = started(approve(state, step), step, "ana", at(12))
    ordered = hear(running, Override(by="ben", action=OverrideAction.POWER_CYCLE, reason="sure"), at(13)).state
    after = ended(ordered, step, DONE, at(14))
    following = next_step(after)
    assert following is not None
    assert following.step_id == "power_cycle"
    assert permission(after, following).allowed


def test_a_persons_word_for_the_node_ends_with_the_next_fault() -> None:
    state, _ = asked()
    vouched = hear(state, Override(by="ben", action=OverrideAction.RETURN, reason="ok"), at(12)).state
    assert vouched.vouched_by == "ben"
    later = fault_reported(vouched, event(fault("gpu.ecc_uncorrectable", seconds=20)), at(20))
    assert later.vouched_by == ""
    assert not later.proven


@pytest.mark.parametrize("failing", ["quarantine", "fence", "burn_in"])
def test_proceed_tries_again_what_could_not_be_done(failing: str) -> None:
    could_not = StepResult(state=StepState.FAILED, detail="the BMC is away", could_not=True)
    state = repair(fault("node.unreachable") if failing == "fence" else fault())
    while True:
        step = next_step(state)
        assert step is not None
        if step.step_id == f"ask-{failing}":
            break
        state = do(state, could_not if step.step_id == failing else DONE)
    held = waiting(state, step, at(30))
    assert "the BMC is away" in (held.wait.reason if held.wait else "")
    ordered = hear(held, Override(by="ben", action=OverrideAction.PROCEED, reason="it is back"), at(31)).state
    again = next_step(ordered)
    assert again is not None
    assert again.step_id == f"{failing}-2"
    assert permission(ordered, again).allowed
