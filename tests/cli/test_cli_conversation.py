"""A person at the terminal against real workflows: looking, answering, being refused."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
from temporalio.client import Client

from cli.application import run_app
from domain.faults import Rung
from domain.repair import Outcome, RepairState
from simulator.faults import FaultKind, Injection
from tests.workflows.lab import Lab, acting, laboratory

BAD = "gpu-01"
Said = tuple[int, str, str]
Type = Callable[..., Coroutine[None, None, Said]]


@pytest.fixture
def kintsugi(
    temporal_server: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Type:
    """Type a command; returns its exit status and what it printed."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_server)
    monkeypatch.setenv("USER", "ana")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("HOME", str(tmp_path))

    async def typed(*arguments: str) -> Said:
        capsys.readouterr()
        status = await asyncio.to_thread(run_app, list(arguments))
        return status, *capsys.readouterr()

    return typed


async def asked(lab: Lab) -> RepairState:
    await lab.world.inject(Injection(node=BAD, kind=FaultKind.FALLEN_OFF_BUS, gpu=0, heals_at=Rung.REBOOT))
    await lab.fault(BAD)
    return await lab.waits_for(BAD, "reboot")


async def listed(lab: Lab, kintsugi: Type) -> None:
    async def known() -> bool:
        return f"repair/{lab.cluster}/{BAD}/1" in (await kintsugi("repairs"))[1]

    await lab.until(known, "the repair is listed")


async def test_a_repair_is_looked_at_and_approved(temporal_client: Client, tmp_path: Path, kintsugi: Type) -> None:
    async with laboratory(temporal_client, tmp_path, acting(), job_nodes=0) as lab:
        state = await asked(lab)
        assert state.wait is not None
        await listed(lab, kintsugi)
        node = f"{lab.cluster}/{BAD}"

        status, out, _ = await kintsugi("show", node)
        assert status == 0
        assert f"Waits for a person: reboot on {BAD}" in out
        assert f"kintsugi approve {state.repair_id} --step reboot --digest {state.wait.digest}" in out
        assert "temporal workflow signal --workflow-id" in out

        status, out, _ = await kintsugi("pool", f"{lab.cluster}/train")
        assert status == 0
        assert f"{BAD}" in out
        assert "in_repair" in out

        status, out, _ = await kintsugi("show", node, "--json")
        assert json.loads(out)["state"]["wait"]["step_id"] == "reboot"

        status, out, _ = await kintsugi("approve", node, "--yes", "--reason", "go on")
        assert status == 0
        assert f"evidence  gpu.fallen_off_bus on {state.faults[0].component}" in out, "what is approved is printed"
        assert out.splitlines()[-1] == "reboot is approved"

        status, out, _ = await kintsugi("watch", node)
        assert status == 0
        assert "ended: returned" in out
        reboot = (await lab.state(BAD)).step("reboot")
        assert reboot is not None
        assert reboot.decided_by == "ana"

        status, out, err = await kintsugi("approve", node, "--yes")
        assert (status, out) == (1, "")
        assert "this repair is over (returned)" in err

        status, out, _ = await kintsugi("ledger", state.repair_id, "--file", str(tmp_path / f"{lab.cluster}.db"))
        assert status == 0
        assert "ana" in out
        assert "go on" in out


async def test_what_does_not_apply_is_refused_with_the_workflow_s_own_words(
    temporal_client: Client, tmp_path: Path, kintsugi: Type
) -> None:
    async with laboratory(temporal_client, tmp_path, acting(), job_nodes=0) as lab:
        state = await asked(lab)
        await listed(lab, kintsugi)
        repair = state.repair_id

        for arguments, says in [
            (["approve", repair, "--yes", "--digest", "00000000"], "the plan has changed"),
            (["approve", repair, "--yes", "--step", "burn_in"], "'reboot', not 'burn_in'"),
            (["resume", repair], "it is not paused"),
            (["show", f"{lab.cluster}/gpu-99"], "there is no repair of"),
            (["show", f"repair/{lab.cluster}/gpu-99/1"], "not found"),
            (["pool", f"{lab.cluster}/nope"], "not found"),
            (["close-breaker", f"{lab.cluster}/train"], "the breaker is not open"),
            (["admit", f"{lab.cluster}/train", BAD], "no repair of"),
        ]:
            status, _, err = await kintsugi(*arguments)
            assert status == 1, (arguments, err)
            assert says in err
            assert "Traceback" not in err
        assert (await lab.world.state()).node(BAD).reboots == 0

        assert (await kintsugi("pause", repair, "--reason", "wait"))[0] == 0
        assert (await lab.state(BAD)).paused_by == "ana"
        assert (await kintsugi("resume", repair))[0] == 0
        assert (await kintsugi("reject", repair, "--reason", "not now"))[:2] == (
            0,
            "reboot will not be run; the repair holds until an override or abort\n",
        )
        status, out, err = await kintsugi("approve", repair, "--yes")
        assert status == 1
        assert "use override or abort" in err
        assert "kintsugi override" in out
        status, out, _ = await kintsugi("abort", repair, "--by", "bo", "--reason", "mine now")
        assert status == 0
        assert (await lab.result(BAD)).outcome is Outcome.ABORTED
        truth = (await lab.truth()).node(BAD)
        assert (truth.reboots, truth.schedulable) == (0, False)


@pytest.mark.parametrize(("answer", "status", "reboots"), [("n\n", 1, 0), ("y\n", 0, 1)])
async def test_an_approval_is_asked_back_on_a_terminal(
    answer: str,
    status: int,
    reboots: int,
    temporal_client: Client,
    tmp_path: Path,
    kintsugi: Type,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with laboratory(temporal_client, tmp_path, acting(), job_nodes=0) as lab:
        state = await asked(lab)

        assert (await kintsugi("approve", state.repair_id))[0] == 2, "nobody can be asked without a terminal"

        typed = io.StringIO(answer)
        monkeypatch.setattr(typed, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys, "stdin", typed)
        assert (await kintsugi("approve", state.repair_id))[0] == status
        if reboots:
            assert (await lab.result(BAD)).outcome is Outcome.RETURNED
        assert (await lab.truth()).node(BAD).reboots == reboots


async def test_without_a_worker_it_is_said_that_none_answers(
    temporal_client: Client, kintsugi: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datetime import timedelta

    monkeypatch.setattr("cli.lookup.QUERY_TIMEOUT", timedelta(seconds=1))
    monkeypatch.setattr("cli.answers_commands.ANSWER_SECONDS", 1.0)
    repair_id = "repair/nowhere/gpu-01/1"
    await temporal_client.start_workflow("RepairWorkflow", id=repair_id, task_queue="nobody-polls-this")

    status, _, err = await kintsugi("show", repair_id)
    assert (status, "no worker answers" in err) == (2, True), err
    status, _, err = await kintsugi("pause", repair_id)
    assert status == 2
    assert f"temporal workflow signal --workflow-id {repair_id} --name pause" in err
    await temporal_client.get_workflow_handle(repair_id).terminate()
