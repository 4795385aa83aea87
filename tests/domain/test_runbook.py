"""The runbook: which steps a repair takes, for each way in which the world may answer."""

from __future__ import annotations

import pytest

from domain.faults import Rung, Severity, Transition
from domain.repair import Outcome, PastRung, Phase, StepState
from domain.repair_news import fault_reported, node_seen
from domain.runbook import StepResult, next_step, open_faults, started
from domain.workloads import Workload
from tests.domain.builders import at, do, event, fault, identity, plan_of, policy, repair

DONE = StepResult(state=StepState.DONE)
FAILED = StepResult(state=StepState.FAILED, detail="did not work")
BUSY = StepResult(state=StepState.DONE, workloads=(Workload(id="job-1", nodes=("gpu-3",)),))


def test_an_idle_node_goes_straight_to_the_rung_and_is_proven_before_it_returns() -> None:
    assert plan_of(repair(), {}, DONE) == ["quarantine", "drain", "reboot", "burn_in", "return", "returned"]


def test_work_is_saved_before_the_drain_and_recovered_before_the_rung() -> None:
    plan = plan_of(repair(), {"quarantine": BUSY}, DONE)
    assert plan == ["quarantine", "checkpoint", "drain", "recover", "reboot", "burn_in", "return", "returned"]


def test_a_rung_that_fails_is_followed_by_the_next_of_the_ladder_until_a_person_must_look() -> None:
    plan = plan_of(repair(), {"reboot": FAILED, "power_cycle": FAILED, "replace": FAILED}, DONE)
    assert plan == ["quarantine", "drain", "reboot", "power_cycle", "replace", "ask"]


def test_a_failed_burn_in_climbs_and_the_node_is_proven_again() -> None:
    plan = plan_of(repair(), {"burn_in": FAILED}, DONE)
    assert plan == ["quarantine", "drain", "reboot", "burn_in", "power_cycle", "burn_in-2", "return", "returned"]


def test_a_node_is_never_returned_without_a_burn_in_that_passed() -> None:
    plan = plan_of(repair(), {"burn_in": FAILED, "burn_in-2": FAILED}, DONE)
    assert "return" not in plan
    assert plan[-1] == "replaced"


def test_an_objection_at_the_return_sends_the_node_back_up_the_ladder() -> None:
    plan = plan_of(repair(), {"return": FAILED}, DONE)
    assert plan[-5:] == ["return", "power_cycle", "burn_in-2", "return-2", "returned"]


def test_an_unreachable_node_is_fenced_before_its_work_starts_elsewhere_and_then_switched_on() -> None:
    plan = plan_of(repair(fault("node.unreachable")), {"quarantine": BUSY}, DONE)
    assert plan.index("fence") < plan.index("recover")
    assert plan.index("recover") < plan.index("power_cycle")


def test_a_drain_that_does_not_end_is_fenced_and_only_a_rung_that_switches_on_is_left() -> None:
    plan = plan_of(repair(fault("gpu.ecc_uncorrectable")), {"quarantine": BUSY, "drain": FAILED}, DONE)
    after = plan[plan.index("drain") :]
    assert after[:3] == ["drain", "fence", "recover"]
    assert after[3] == "power_cycle"


def test_attempts_are_bounded_whatever_the_ladder_says() -> None:
    under = policy(
        attempts={"per_incident": 2},
        ladders=[{"fault": "*", "rungs": ["reset_gpu", "reboot", "power_cycle", "reprovision"]}],
    )
    plan = plan_of(repair(under=under), {"reset_gpu": FAILED, "reboot": FAILED}, DONE)
    assert plan == ["quarantine", "drain", "reset_gpu", "reboot", "ask"]


def test_a_quarantine_that_cannot_be_made_asks_instead_of_going_on() -> None:
    assert plan_of(repair(), {"quarantine": FAILED}, DONE) == ["quarantine", "ask-quarantine"]


COULD_NOT = StepResult(state=StepState.FAILED, detail="the scheduler is away", could_not=True)


@pytest.mark.parametrize("step", ["burn_in", "return"])
def test_an_outage_of_ours_says_nothing_about_the_node(step: str) -> None:
    """A node that could not be proven or given back is not rebooted for it: a person is asked."""
    plan = plan_of(repair(), {step: COULD_NOT}, DONE)
    assert plan[-2:] == [step, f"ask-{step}"]
    assert plan.count("reboot") == 1
    assert "power_cycle" not in plan


def test_a_rung_that_never_began_is_no_history() -> None:
    state = do(do(repair(), DONE), DONE)
    state = do(state, COULD_NOT)
    assert state.rungs_run == ()
    step = next_step(state)
    assert step is not None
    assert step.step_id == "ask-reboot"


def test_a_fence_that_fails_asks_before_anything_is_rebooted() -> None:
    plan = plan_of(repair(), {"quarantine": BUSY, "drain": FAILED, "fence": FAILED}, DONE)
    assert plan == ["quarantine", "checkpoint", "drain", "fence", "ask-fence"]


def test_work_that_could_not_be_recovered_is_tried_again_after_the_rung() -> None:
    plan = plan_of(repair(), {"quarantine": BUSY, "recover": FAILED}, DONE)
    assert plan[-6:] == ["recover", "reboot", "recover-2", "burn_in", "return", "returned"]


def test_work_that_cannot_be_recovered_at_all_is_never_forgotten() -> None:
    plan = plan_of(repair(), {"quarantine": BUSY, "recover": FAILED, "recover-2": FAILED}, DONE)
    assert plan[-3:] == ["reboot", "recover-2", "ask-recover"]


def test_a_node_that_answers_while_its_fencing_waits_for_approval_is_not_switched_off() -> None:
    state = do(repair(fault("node.unreachable")), DONE)
    step = next_step(state)
    assert step is not None
    assert step.step_id == "fence"
    waiting_for_it = state.model_copy(update={"phase": Phase.DRAIN})
    after = node_seen(waiting_for_it, identity())
    step = next_step(after)
    assert step is not None
    assert step.step_id == "drain"


def test_a_hello_while_the_fencing_runs_is_old_news() -> None:
    state = do(repair(fault("node.unreachable")), DONE)
    step = next_step(state)
    assert step is not None
    fencing = started(state, step, "policy", at(3))
    assert open_faults(node_seen(fencing, identity())) == open_faults(fencing)


def test_a_node_taken_over_ends_the_repair_wherever_it_is() -> None:
    taken = StepResult(state=StepState.FAILED, detail="uncordoned by hand", taken_over=True)
    assert plan_of(repair(), {"reboot": taken}, DONE)[-2:] == ["reboot", "taken_over"]


def test_grace_comes_after_the_quarantine_and_a_fault_that_clears_in_it_needs_no_rung() -> None:
    thermal = fault("thermal.slowdown")
    state = repair(thermal, under=policy(grace=[{"fault": "thermal.*", "wait": "60s"}]))
    state = do(state, DONE)
    step = next_step(state)
    assert step is not None
    assert step.step_id == "grace"
    state = fault_reported(state, event(thermal, Transition.CLEARED), at(3))
    assert plan_of(state, {}, DONE) == ["grace", "drain", "burn_in", "return", "returned"]


def test_a_fault_of_the_application_changes_nothing_in_a_running_repair() -> None:
    state = do(repair(), DONE)
    application = fault().model_copy(update={"severity": Severity.APPLICATION, "fault_class": "application.any"})
    assert fault_reported(state, event(application), at(5)) == state


def test_what_a_process_wrote_changes_nothing_in_a_running_repair() -> None:
    state = do(repair(), DONE)
    forged = fault("gpu.row_remap_failure", trusted=False)
    assert fault_reported(state, event(forged), at(5)) == state


def test_news_of_an_earlier_boot_changes_nothing() -> None:
    state = do(repair(), DONE)
    assert fault_reported(state, event(fault("gpu.row_remap_failure", boot="boot-0")), at(5)) == state


def test_a_heavier_fault_during_the_repair_raises_the_ladder() -> None:
    state = do(repair(fault("gpu.row_remap_pending")), DONE)
    assert state.ladder[0] is Rung.RESET_GPU
    state = fault_reported(state, event(fault("gpu.fallen_off_bus", seconds=5)), at(5))
    assert state.ladder[0] is Rung.REBOOT


def test_a_fault_that_comes_back_after_the_rung_undoes_the_proof() -> None:
    state = repair()
    for _ in range(3):
        state = do(state, DONE)
    assert not open_faults(state)
    assert not state.needs_rung
    state = do(state, DONE)  # burn-in
    assert state.proven
    state = fault_reported(state, event(fault(seconds=50)), at(50))
    assert not state.proven
    step = next_step(state)
    assert step is not None
    assert step.step_id == "power_cycle"


def test_silence_during_a_rung_is_expected() -> None:
    state = do(do(repair(), DONE), DONE)
    step = next_step(state)
    assert step is not None
    assert step.step_id == "reboot"
    acting = state.model_copy(update={"phase": Phase.ACT})
    assert fault_reported(acting, event(fault("node.unreachable")), at(9)) == acting


def test_a_node_that_answers_again_in_its_grace_is_not_unreachable_any_more() -> None:
    state = do(repair(fault("node.unreachable")), DONE)
    state = node_seen(state, identity(boot="boot-1"))
    assert not open_faults(state)
    assert not state.needs_rung


@pytest.mark.parametrize(
    ("past", "first"),
    [
        ((), Rung.REBOOT),
        ((Rung.REBOOT,), Rung.POWER_CYCLE),
        ((Rung.REBOOT, Rung.POWER_CYCLE), Rung.REPLACE),
    ],
)
def test_history_on_the_same_component_goes_on_above_what_did_not_hold(past: tuple[Rung, ...], first: Rung) -> None:
    component = str(fault().component)
    history = tuple(
        PastRung(component=component, fault_class="gpu.fallen_off_bus", rung=rung, at=at(-3600)) for rung in past
    )
    assert repair(history=history).ladder[0] is first


def test_history_of_another_component_or_beyond_the_look_back_counts_for_nothing() -> None:
    other = PastRung(component="gpu/GPU-x", fault_class="gpu.fallen_off_bus", rung=Rung.POWER_CYCLE, at=at(-10))
    old = PastRung(
        component=str(fault().component), fault_class="gpu.fallen_off_bus", rung=Rung.POWER_CYCLE, at=at(-8 * 86400)
    )
    assert repair(history=(other, old)).ladder[0] is Rung.REBOOT


def test_too_many_repairs_of_one_component_are_left_to_a_person() -> None:
    history = tuple(
        PastRung(component=str(fault().component), fault_class="gpu.ecc_contained", rung=Rung.RESET_GPU, at=at(-i))
        for i in range(1, 4)
    )
    state = repair(history=history)
    assert state.ladder == ()
    assert plan_of(state, {}, DONE)[-1] == "ask"


def test_the_drivers_own_verdict_raises_the_first_rung() -> None:
    seen = fault("gpu.row_remap_pending", suggested_rung=Rung.REBOOT)
    assert repair(seen).ladder[0] is Rung.REBOOT


def test_the_outcome_is_final() -> None:
    state = repair().model_copy(update={"outcome": Outcome.ABORTED})
    assert next_step(state) is None
