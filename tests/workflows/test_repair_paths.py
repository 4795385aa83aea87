"""Whole repairs on a real Temporal server and a simulated cluster: what the cluster looks like afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from temporalio.client import Client

from domain.faults import Rung, Transition
from domain.ledger import EntryKind
from domain.policy import Policy
from domain.repair import Outcome, Override, OverrideAction, Phase
from simulator.faults import FaultKind, Injection
from tests.workflows.lab import Lab, acting, automatic, laboratory

BAD = "gpu-01"
FALLEN = Injection(node=BAD, kind=FaultKind.FALLEN_OFF_BUS, gpu=0, heals_at=Rung.REBOOT)


async def test_a_gpu_off_the_bus_becomes_a_healthy_node_and_its_work_goes_on(
    temporal_client: Client, tmp_path: Path
) -> None:
    async with laboratory(temporal_client, tmp_path, automatic()) as lab:
        await lab.world.inject(FALLEN)
        before = (await lab.truth()).node(BAD)
        await lab.fault(BAD)
        result = await lab.result(BAD)
        assert result.outcome is Outcome.RETURNED
        assert [run.rung for run in result.rungs] == [Rung.REBOOT]
        assert [moved.spare for moved in result.moved] == ["spare-01"]
        after = await lab.truth()
        node = after.node(BAD)
        assert (node.schedulable, node.mark, node.faults) == (True, "", ())
        assert node.boot_id != before.boot_id
        assert (node.reboots, node.burn_ins) == (1, 1)
        job = after.job("train-1")
        assert set(job.nodes) == {"gpu-02", "spare-01"}
        assert job.state == "running"


async def test_a_gpu_that_still_answers_is_checkpointed_and_loses_nothing(
    temporal_client: Client, tmp_path: Path
) -> None:
    async with laboratory(temporal_client, tmp_path, automatic()) as lab:
        await lab.world.inject(Injection(node=BAD, kind=FaultKind.ECC_ROW_REMAP, gpu=0))
        await lab.fault(BAD, "gpu.row_remap_pending")
        result = await lab.result(BAD)
        assert result.outcome is Outcome.RETURNED
        node = (await lab.truth()).node(BAD)
        assert (node.checkpoints, node.resets, node.reboots) == (1, 1, 0)
        assert result.moved[0].steps_lost == 0


async def test_an_unreachable_node_is_fenced_before_its_work_starts_elsewhere(
    temporal_client: Client, tmp_path: Path
) -> None:
    async with laboratory(temporal_client, tmp_path, automatic()) as lab:
        await lab.world.inject(Injection(node=BAD, kind=FaultKind.HOST_HANG))
        await lab.lost(BAD)
        result = await lab.result(BAD)
        assert result.outcome is Outcome.RETURNED
        state = await lab.truth()
        assert (state.node(BAD).fences, state.node(BAD).power_cycles) == (1, 1)
        assert "spare-01" in state.job("train-1").nodes


async def test_a_failed_burn_in_climbs_the_ladder_and_proves_the_node_again(
    temporal_client: Client, tmp_path: Path
) -> None:
    async with laboratory(temporal_client, tmp_path, automatic()) as lab:
        await lab.world.inject(FALLEN)
        await lab.world.inject(Injection(node=BAD, kind=FaultKind.BURN_IN_FAILURE, times=1))
        await lab.fault(BAD)
        result = await lab.result(BAD)
        assert result.outcome is Outcome.RETURNED
        assert [run.rung for run in result.rungs] == [Rung.REBOOT, Rung.POWER_CYCLE]
        assert (await lab.truth()).node(BAD).burn_ins == 2


async def test_a_node_that_does_not_come_back_as_it_was_is_not_returned(
    temporal_client: Client, tmp_path: Path
) -> None:
    policy = automatic(ladders=[{"fault": "*", "rungs": ["reboot"]}], limits={"reboot": "2s"})
    async with laboratory(temporal_client, tmp_path, policy) as lab:
        await lab.world.inject(FALLEN)
        await lab.world.inject(Injection(node=BAD, kind=FaultKind.BOOT_FAILURE))
        await lab.fault(BAD)
        state = await lab.waits_for(BAD, "ask")
        assert state.phase is Phase.HELD
        reboot = state.step("reboot")
        assert reboot is not None
        assert "did not come back" in reboot.detail
        assert not (await lab.truth()).node(BAD).schedulable


async def test_without_a_spare_the_work_is_requeued_and_the_node_repaired_all_the_same(
    temporal_client: Client, tmp_path: Path
) -> None:
    async with laboratory(temporal_client, tmp_path, automatic(), nodes=3, spares=0, job_nodes=3) as lab:
        await lab.world.inject(FALLEN)
        await lab.fault(BAD)
        result = await lab.result(BAD)
        assert result.outcome is Outcome.RETURNED
        assert result.moved[0].spare == ""
        await lab.truth()


async def test_the_built_in_policy_touches_nothing_and_says_what_it_would_have_done(
    temporal_client: Client, tmp_path: Path
) -> None:
    async with laboratory(temporal_client, tmp_path, Policy()) as lab:
        before = (await lab.truth()).node(BAD)
        await lab.fault(BAD)
        result = await lab.result(BAD)
        assert result.outcome is Outcome.OBSERVED
        assert "quarantine → checkpoint → drain → recover → reboot" in result.detail
        assert (await lab.truth()).node(BAD) == before


async def test_a_fault_of_the_application_is_told_and_starts_no_repair(temporal_client: Client, tmp_path: Path) -> None:
    async with laboratory(temporal_client, tmp_path, automatic()) as lab:
        before = (await lab.truth()).node(BAD)
        await lab.fault(BAD, "application.memory_fault", xid=31)
        await lab.until(lab.told_anybody, "the job's owner is told")
        assert lab.told.notices[0].audience == "workload-owner"
        assert await lab.repairs() == 0
        assert (await lab.truth()).node(BAD) == before


async def test_what_a_process_wrote_starts_no_repair(temporal_client: Client, tmp_path: Path) -> None:
    async with laboratory(temporal_client, tmp_path, automatic()) as lab:
        await lab.fault(BAD, trusted=False)
        await lab.until(lab.told_anybody, "operators are told")
        assert await lab.repairs() == 0


async def test_a_fault_that_clears_in_its_grace_runs_no_rung_but_the_node_is_proven(
    temporal_client: Client, tmp_path: Path
) -> None:
    policy = automatic(grace=[{"fault": "thermal.*", "wait": "30s"}])
    async with laboratory(temporal_client, tmp_path, policy) as lab:
        await lab.world.inject(Injection(node=BAD, kind=FaultKind.THERMAL, gpu=0))
        await lab.fault(BAD, "thermal.slowdown")
        await lab.until(_in_phase(lab, Phase.GRACE), "the repair gives the fault time")
        assert not (await lab.truth()).node(BAD).schedulable
        await lab.world.clear(BAD, FaultKind.THERMAL)
        await lab.fault(BAD, "thermal.slowdown", transition=Transition.CLEARED)
        result = await lab.result(BAD)
        assert result.outcome is Outcome.RETURNED
        assert result.rungs == ()
        node = (await lab.truth()).node(BAD)
        assert (node.reboots, node.resets, node.burn_ins) == (0, 0, 1)


async def test_a_second_fault_joins_the_open_repair_and_raises_its_ladder(
    temporal_client: Client, tmp_path: Path
) -> None:
    """A fault that arrives while a repair runs is weighed, never dropped (NVIDIA/NVSentinel issue 1536)."""
    async with laboratory(temporal_client, tmp_path, acting()) as lab:
        await lab.fault(BAD, "gpu.row_remap_pending")
        first = await lab.waits_for(BAD, "reset_gpu")
        await lab.world.inject(FALLEN)
        await lab.fault(BAD, "gpu.fallen_off_bus", gpu=1)
        second = await lab.waits_for(BAD, "reboot")
        assert first.wait is not None
        assert second.wait is not None
        assert first.wait.digest != second.wait.digest
        assert await lab.repairs() == 1


async def test_a_node_given_back_by_hand_stops_the_repair(temporal_client: Client, tmp_path: Path) -> None:
    async with laboratory(temporal_client, tmp_path, automatic(limits={"reboot": "60s"})) as lab:
        lab.policy.policy = acting()
        await lab.fault(BAD)
        await lab.waits_for(BAD, "reboot")
        await lab.world.unmark(BAD)
        said = Override(by="ana", action=OverrideAction.PROCEED, reason="go on")
        await lab.repair(BAD).signal("override", said)
        result = await lab.result(BAD)
        assert result.outcome is Outcome.TAKEN_OVER
        node = (await lab.truth()).node(BAD)
        assert (node.reboots, node.mark) == (0, "")


async def test_someone_elses_hold_is_kept_and_named(temporal_client: Client, tmp_path: Path) -> None:
    """A node cordoned by someone else before the fault stays so (NVIDIA/NVSentinel issue 1424)."""
    async with laboratory(temporal_client, tmp_path, automatic()) as lab:
        await lab.world.hold(BAD, "ops", "disk swap on Friday")
        await lab.world.inject(FALLEN)
        await lab.fault(BAD)
        result = await lab.result(BAD)
        assert result.outcome is Outcome.RETURNED
        assert "ops" in result.detail
        node = (await lab.truth()).node(BAD)
        assert (node.mark, node.schedulable) == ("", False)
        assert len(node.holds) == 1


async def test_the_ledger_tells_the_whole_story_once(temporal_client: Client, tmp_path: Path) -> None:
    async with laboratory(temporal_client, tmp_path, automatic()) as lab:
        await lab.world.inject(FALLEN)
        await lab.fault(BAD)
        await lab.result(BAD)
        entries = lab.ledger.entries()
        kinds = [entry.kind for entry in entries]
        assert kinds.count(EntryKind.OUTCOME) == 1
        assert kinds.count(EntryKind.WORKLOAD) == 1
        assert {"quarantine", "drain", "recover", "reboot", "burn_in", "return"} <= {
            entry.text.split()[0] for entry in entries if entry.kind is EntryKind.STEP
        }


async def test_a_repair_that_somebody_terminated_no_longer_holds_its_node(
    temporal_client: Client, tmp_path: Path
) -> None:
    policy = acting(pools={"*": {"budget": {"max_nodes": 1, "max_percent": 50}, "cool_down": "1s"}})
    async with laboratory(temporal_client, tmp_path, policy, nodes=2, spares=0, job_nodes=0) as lab:
        await lab.fault(BAD)
        await lab.waits_for(BAD, "reboot")
        await lab.repair(BAD).terminate()
        await lab.fault(BAD, gpu=1)
        state = await lab.waits_for(BAD, "reboot", number=2)
        assert len(state.faults) == 2


@pytest.mark.parametrize("count", [3])
async def test_the_budget_holds_while_several_nodes_fail(temporal_client: Client, tmp_path: Path, count: int) -> None:
    policy = automatic(pools={"*": {"budget": {"max_nodes": 1, "max_percent": 100}, "breaker": {"nodes": 9}}})
    async with laboratory(temporal_client, tmp_path, policy, nodes=4, job_nodes=0) as lab:
        names = [f"gpu-0{i}" for i in range(1, count + 1)]
        for name in names:
            await lab.world.inject(FALLEN.model_copy(update={"node": name}))
            await lab.fault(name)
        for name in names:
            result = await lab.result(name)
            assert result.outcome is Outcome.RETURNED
        state = await lab.truth()
        assert all(state.node(name).schedulable for name in names)


def _in_phase(lab: Lab, phase: Phase) -> Callable[[], Awaitable[bool]]:
    async def there() -> bool:
        state = await lab.state(BAD)
        return state.phase is phase

    return there
