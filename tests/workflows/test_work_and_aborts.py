"""Two workloads and one spare; an abort while the node is being burnt in."""

from __future__ import annotations

from pathlib import Path

from temporalio.client import Client

from domain.faults import Rung
from domain.operations import OperationKind, OperationRequest, OperationState
from domain.repair import Abort, Outcome, StepState
from simulator.faults import FaultKind, Injection
from simulator.jobs import JobSpec
from tests.workflows.lab import QUICK, automatic, laboratory

BAD = "gpu-01"
FALLEN = Injection(node=BAD, kind=FaultKind.FALLEN_OFF_BUS, gpu=0, heals_at=Rung.REBOOT)


async def test_with_two_workloads_and_one_spare_both_go_on(temporal_client: Client, tmp_path: Path) -> None:
    async with laboratory(temporal_client, tmp_path, automatic(), nodes=3, job_nodes=0) as lab:
        for name in ("one", "two"):
            await lab.world.submit(JobSpec(id=name, nodes=(BAD,), gpus_per_node=1, steps_per_second=20.0))
        await lab.world.inject(FALLEN)
        await lab.fault(BAD)
        result = await lab.result(BAD)
        assert result.outcome is Outcome.RETURNED
        assert sorted(moved.spare for moved in result.moved) == ["", "spare-01"]
        assert all(moved.running for moved in result.moved)
        state = await lab.truth()
        assert {state.job(name).state for name in ("one", "two")} == {"running"}
        assert sum("spare-01" in state.job(name).nodes for name in ("one", "two")) == 1


async def test_an_abort_stops_the_burn_in_on_the_node_too(temporal_client: Client, tmp_path: Path) -> None:
    async with laboratory(temporal_client, tmp_path, automatic(), job_nodes=0) as lab:
        lab.model.timing = QUICK.model_copy(update={"burn_in": 3600.0})
        await lab.world.inject(FALLEN)
        await lab.fault(BAD)

        async def burning() -> bool:
            step = (await lab.state(BAD)).step("burn_in")
            return step is not None and step.state is StepState.RUNNING

        await lab.until(burning, "the burn-in runs")
        boot = (await lab.truth()).node(BAD).boot_id
        request = OperationRequest(
            operation_id=f"{lab.repair(BAD).id}/burn_in", kind=OperationKind.BURN_IN, boot_id=boot, deadline_seconds=60
        )
        states: list[OperationState] = []

        async for progress in lab.world.run_operation(BAD, boot, request):
            if not states:
                await lab.repair(BAD).signal("abort", Abort(by="ana", reason="I take it"))
            states.append(progress.state)

        assert (states[0], states[-1]) == (OperationState.RUNNING, OperationState.CANCELLED)
        assert (await lab.result(BAD)).outcome is Outcome.ABORTED
        assert not (await lab.truth()).node(BAD).schedulable
