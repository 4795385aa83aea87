"""Outages of ours during a repair: they are no evidence against the node, and no repair ends unheard."""

from __future__ import annotations

import asyncio
from pathlib import Path

from temporalio.client import Client

from domain.errors import PermanentError
from domain.faults import Rung
from domain.pool import NodeHealth, PoolView
from domain.repair import Abort, Outcome, Override, OverrideAction
from simulator.faults import FaultKind, Injection
from tests.workflows.lab import Lab, acting, automatic, laboratory

BAD = "gpu-01"
FALLEN = Injection(node=BAD, kind=FaultKind.FALLEN_OFF_BUS, gpu=0, heals_at=Rung.REBOOT)
FORBIDDEN = PermanentError("403: nodes is forbidden")


async def health(lab: Lab, name: str = BAD) -> NodeHealth:
    view: PoolView = await lab.pool.query("get_pool", result_type=PoolView)
    return next(node.health for node in view.nodes if node.name == name)


async def test_a_mark_that_cannot_be_watched_does_not_make_the_repair_ask_again_and_again(
    temporal_client: Client, tmp_path: Path
) -> None:
    async with laboratory(temporal_client, tmp_path, acting(), nodes=2, spares=0, job_nodes=0) as lab:
        lab.broken["scheduling_state"] = FORBIDDEN
        await lab.fault(BAD)
        await lab.waits_for(BAD, "reboot")
        asked = [notice for notice in lab.told.notices if "waits for you" in notice.title]
        length = (await lab.repair(BAD).describe()).history_length
        # Two looks at the same history with work for a busy loop in between.
        for _ in range(20):
            await lab.state(BAD)
            await asyncio.sleep(0.05)
        assert (await lab.repair(BAD).describe()).history_length <= length + 10
        assert len([notice for notice in lab.told.notices if "waits for you" in notice.title]) <= max(len(asked), 1)


async def test_a_node_that_cannot_be_looked_at_is_not_rebooted_but_a_person_is_asked(
    temporal_client: Client, tmp_path: Path
) -> None:
    async with laboratory(temporal_client, tmp_path, automatic(), nodes=2, spares=0, job_nodes=0) as lab:
        lab.broken["scheduling_state"] = FORBIDDEN
        await lab.world.inject(FALLEN)
        await lab.fault(BAD)
        state = await lab.waits_for(BAD, "ask-reboot")
        assert state.wait is not None
        assert "403" in state.wait.reason
        assert state.rungs_run == ()
        assert (await lab.truth()).node(BAD).reboots == 0
        del lab.broken["scheduling_state"]
        proceed = Override(by="ana", action=OverrideAction.PROCEED, reason="the role is back")
        await lab.repair(BAD).execute_update("override_update", proceed)
        assert (await lab.result(BAD)).outcome is Outcome.RETURNED


async def test_an_abort_that_cannot_undo_the_quarantine_still_tells_the_pool(
    temporal_client: Client, tmp_path: Path
) -> None:
    async with laboratory(temporal_client, tmp_path, acting(), nodes=2, spares=0, job_nodes=0) as lab:
        await lab.fault(BAD)
        await lab.waits_for(BAD, "reboot")
        lab.broken["release"] = FORBIDDEN
        await lab.repair(BAD).signal("abort", Abort(by="ana", give_back=True))
        result = await lab.result(BAD)
        assert result.outcome is Outcome.ABORTED
        assert "lift it by hand" in result.detail

        async def held() -> bool:
            return await health(lab) is NodeHealth.HELD

        await lab.until(held, "the pool knows that the node is in a person's hands")


async def test_a_node_left_to_a_person_counts_again_once_they_give_it_back(
    temporal_client: Client, tmp_path: Path
) -> None:
    async with laboratory(temporal_client, tmp_path, acting(), nodes=2, spares=0, job_nodes=0) as lab:
        await lab.fault(BAD)
        await lab.waits_for(BAD, "reboot")
        await lab.repair(BAD).signal("abort", Abort(by="ana"))
        assert (await lab.result(BAD)).held_by == "ana"
        await lab.world.unmark(BAD)

        async def in_service() -> bool:
            view: PoolView = await lab.pool.query("get_pool", result_type=PoolView)
            return view.out == 0 and await health(lab) is not NodeHealth.HELD

        await lab.until(in_service, "the pool notices that the node was given back by hand")


async def test_a_quarantine_that_failed_half_way_is_tried_again_on_a_persons_word(
    temporal_client: Client, tmp_path: Path
) -> None:
    async with laboratory(temporal_client, tmp_path, automatic(), nodes=2, spares=0, job_nodes=0) as lab:
        lab.broken["workloads"] = FORBIDDEN
        await lab.world.inject(FALLEN)
        await lab.fault(BAD)
        await lab.waits_for(BAD, "ask-quarantine")
        del lab.broken["workloads"]
        proceed = Override(by="ana", action=OverrideAction.PROCEED, reason="the role is back")
        await lab.repair(BAD).execute_update("override_update", proceed)
        assert (await lab.result(BAD)).outcome is Outcome.RETURNED
        assert (await lab.truth()).node(BAD).mark == ""


async def test_work_whose_checkpoint_and_recovery_fail_is_never_forgotten(
    temporal_client: Client, tmp_path: Path
) -> None:
    async with laboratory(temporal_client, tmp_path, automatic()) as lab:
        await lab.world.inject(Injection(node=BAD, kind=FaultKind.HOST_HANG))
        await lab.world.inject(Injection(node=BAD, kind=FaultKind.BMC_UNREACHABLE))
        await lab.lost(BAD)
        state = await lab.waits_for(BAD, "ask-fence")
        assert state.workloads
        await lab.world.clear(BAD, FaultKind.BMC_UNREACHABLE)
        proceed = Override(by="ana", action=OverrideAction.PROCEED, reason="the BMC answers")
        await lab.repair(BAD).execute_update("override_update", proceed)
        result = await lab.result(BAD)
        assert result.outcome is Outcome.RETURNED
        assert [moved.spare for moved in result.moved] == ["spare-01"]
        await lab.truth()
