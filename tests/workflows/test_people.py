"""People at a repair: what they type, by signal and by update, and that a wrong word never stops the repair."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowUpdateFailedError

from domain.faults import Rung
from domain.repair import (
    Abort,
    Answer,
    Approve,
    Outcome,
    Override,
    OverrideAction,
    Pause,
    Phase,
    Reject,
    RepairState,
    Resume,
)
from simulator.faults import FaultKind, Injection
from tests.workflows.lab import Lab, acting, laboratory

BAD = "gpu-01"
FALLEN = Injection(node=BAD, kind=FaultKind.FALLEN_OFF_BUS, gpu=0, heals_at=Rung.REBOOT)


async def asked(lab: Lab) -> RepairState:
    """Bring a repair to the point where it waits for the approval of its reboot."""
    await lab.world.inject(FALLEN)
    await lab.fault(BAD)
    return await lab.waits_for(BAD, "reboot")


async def refused(lab: Lab, says: str) -> None:
    """Wait until the repair shows that it refused a message, and why."""

    async def shown() -> bool:
        return says in (await lab.state(BAD)).last_refusal

    await lab.until(shown, f"the repair says {says!r}")


async def test_the_temporal_command_alone_releases_a_repair(
    temporal_client: Client, temporal_server: str, tmp_path: Path
) -> None:
    async with laboratory(temporal_client, tmp_path, acting(), job_nodes=0) as lab:
        state = await asked(lab)
        assert state.wait is not None
        command = shutil.which("temporal") or str(Path(sys.executable).with_name("temporal"))
        process = await asyncio.create_subprocess_exec(
            command,
            "workflow",
            "signal",
            "--address",
            temporal_server,
            "--workflow-id",
            state.repair_id,
            "--name",
            "approve",
            "--input",
            f'{{"by": "ana", "step": "reboot", "digest": "{state.wait.digest}"}}',
            stdout=asyncio.subprocess.DEVNULL,
        )
        assert await process.wait() == 0
        assert (await lab.result(BAD)).outcome is Outcome.RETURNED
        reboot = (await lab.state(BAD)).step("reboot")
        assert reboot is not None
        assert reboot.decided_by == "ana"


@pytest.mark.parametrize(
    ("name", "args", "says"),
    [
        ("approve", [], "one JSON object"),
        ("approve", ["yes"], "approve"),
        ("approve", [{"by": "ana"}], "step: Field required"),
        ("approve", [{"by": "ana", "step": "reboot", "digest": 7}], "digest"),
        ("approve", [{"by": "ana", "step": "reboot", "digest": "x"}, 3], "one JSON object"),
        ("aprove", [{"by": "ana"}], "there is no signal 'aprove'"),
        ("approve", [{"by": "ana", "step": "reset_gpu", "digest": "00000000"}], "not 'reset_gpu'"),
        ("approve", [{"by": "ana", "step": "reboot", "digest": "00000000"}], "the plan has changed"),
        ("override", [{"by": "ana", "action": "explode", "reason": "x"}], "action"),
    ],
)
async def test_a_wrong_signal_is_answered_in_the_details_and_the_repair_goes_on_waiting(
    temporal_client: Client, tmp_path: Path, name: str, args: list[object], says: str
) -> None:
    async with laboratory(temporal_client, tmp_path, acting(), nodes=2, spares=0, job_nodes=0) as lab:
        await asked(lab)
        await lab.repair(BAD).signal(name, args=args)
        await refused(lab, says)
        state = await lab.waits_for(BAD, "reboot")
        assert state.wait is not None
        assert (await lab.truth()).node(BAD).reboots == 0
        good = Approve(by="ana", step="reboot", digest=state.wait.digest)
        await lab.repair(BAD).signal("approve", good)
        assert (await lab.result(BAD)).outcome is Outcome.RETURNED


async def test_an_update_is_told_at_once_why_it_does_not_apply_and_leaves_no_trace(
    temporal_client: Client, tmp_path: Path
) -> None:
    async with laboratory(temporal_client, tmp_path, acting(), nodes=2, spares=0, job_nodes=0) as lab:
        state = await asked(lab)
        assert state.wait is not None
        repair = lab.repair(BAD)
        with pytest.raises(WorkflowUpdateFailedError) as wrong:
            await repair.execute_update("approve_update", Approve(by="ana", step="reboot", digest="00000000"))
        assert "the plan has changed" in str(wrong.value.cause)
        kinds = [EventType.Name(event.event_type) async for event in repair.fetch_history_events()]
        assert not [kind for kind in kinds if "UPDATE" in kind]
        right = Approve(by="ana", step="reboot", digest=state.wait.digest)
        answer = await repair.execute_update("approve_update", right, result_type=Answer)
        assert answer.accepted
        assert (await lab.result(BAD)).outcome is Outcome.RETURNED


async def test_a_no_leaves_the_node_untouched_until_a_person_orders_what_comes_next(
    temporal_client: Client, tmp_path: Path
) -> None:
    async with laboratory(temporal_client, tmp_path, acting(), nodes=2, spares=0, job_nodes=0) as lab:
        await asked(lab)
        repair = lab.repair(BAD)
        await repair.execute_update("reject_update", Reject(by="ana", step="reboot", reason="firmware first"))
        state = await lab.waits_for(BAD, "reboot")
        assert state.phase is Phase.HELD
        node = (await lab.truth()).node(BAD)
        assert (node.reboots, node.schedulable) == (0, False)
        order = Override(by="ana", action=OverrideAction.POWER_CYCLE, reason="firmware is in")
        await repair.execute_update("override_update", order)
        result = await lab.result(BAD)
        assert result.outcome is Outcome.RETURNED
        node = (await lab.truth()).node(BAD)
        assert (node.reboots, node.power_cycles) == (0, 1)


async def test_an_abort_leaves_an_unproven_node_out_with_our_mark(temporal_client: Client, tmp_path: Path) -> None:
    async with laboratory(temporal_client, tmp_path, acting(), nodes=2, spares=0, job_nodes=0) as lab:
        await asked(lab)
        await lab.repair(BAD).signal("abort", Abort(by="ana", reason="I take it"))
        result = await lab.result(BAD)
        assert result.outcome is Outcome.ABORTED
        node = (await lab.truth()).node(BAD)
        assert not node.schedulable
        assert node.mark


async def test_an_abort_that_gives_back_undoes_our_quarantine_on_that_persons_word(
    temporal_client: Client, tmp_path: Path
) -> None:
    async with laboratory(temporal_client, tmp_path, acting(), nodes=2, spares=0, job_nodes=0) as lab:
        await lab.fault(BAD)
        await lab.waits_for(BAD, "reboot")
        await lab.repair(BAD).signal("abort", Abort(by="ana", reason="false alarm", give_back=True))
        result = await lab.result(BAD)
        assert result.outcome is Outcome.ABORTED
        node = (await lab.truth()).node(BAD)
        assert (node.schedulable, node.mark) == (True, "")


async def test_temporals_own_cancel_is_an_abort_that_leaves_the_node_out(
    temporal_client: Client, tmp_path: Path
) -> None:
    async with laboratory(temporal_client, tmp_path, acting(), nodes=2, spares=0, job_nodes=0) as lab:
        await asked(lab)
        await lab.repair(BAD).cancel()
        result = await lab.result(BAD)
        assert result.outcome is Outcome.ABORTED
        assert "cancel request" in result.detail
        assert not (await lab.truth()).node(BAD).schedulable


async def test_a_paused_repair_begins_nothing_until_it_is_resumed(temporal_client: Client, tmp_path: Path) -> None:
    async with laboratory(temporal_client, tmp_path, acting(), nodes=2, spares=0, job_nodes=0) as lab:
        state = await asked(lab)
        assert state.wait is not None
        repair = lab.repair(BAD)
        await repair.execute_update("pause_update", Pause(by="ana"))
        approval = Approve(by="ben", step="reboot", digest=state.wait.digest)
        await repair.execute_update("approve_update", approval)
        assert (await lab.state(BAD)).step("reboot") is None
        assert (await lab.truth()).node(BAD).reboots == 0
        await repair.execute_update("resume_update", Resume(by="ana"))
        assert (await lab.result(BAD)).outcome is Outcome.RETURNED


async def test_the_ui_can_filter_by_what_repairs_wait_for(temporal_client: Client, tmp_path: Path) -> None:
    async with laboratory(temporal_client, tmp_path, acting(), nodes=2, spares=0, job_nodes=0) as lab:
        await asked(lab)
        query = f"KintsugiCluster = '{lab.cluster}' AND KintsugiWaitingFor = 'reboot' AND KintsugiNode = '{BAD}'"

        async def found() -> bool:
            return [w.id async for w in temporal_client.list_workflows(query)] == [lab.repair(BAD).id]

        await lab.until(found, "the repair is found by what it waits for")


async def test_the_details_show_the_exact_command_that_approves(temporal_client: Client, tmp_path: Path) -> None:
    async with laboratory(temporal_client, tmp_path, acting(), nodes=2, spares=0, job_nodes=0) as lab:
        state = await asked(lab)
        assert state.wait is not None
        metadata = await lab.repair(BAD).query("__temporal_workflow_metadata")
        shown = metadata["currentDetails"] if isinstance(metadata, dict) else metadata.current_details
        assert "temporal workflow signal --name approve" in shown
        assert f"--workflow-id {state.repair_id}" in shown
        assert state.wait.digest in shown
