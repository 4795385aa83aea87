"""A storm of faults on one node stays readable, and pages nobody for each of its faults."""

from __future__ import annotations

from datetime import timedelta

import pytest
from rich.console import Console

from cli import render
from domain.approvals import waiting
from domain.chronicle import Chronicle
from domain.narrate import SHOWN_FAULTS, details
from domain.pool import NodeHealth, NodeRecord, PoolState
from domain.pool_view import view
from domain.repair import StepState
from domain.repair_news import fault_reported
from domain.runbook import StepResult, next_step
from tests.domain.builders import at, do, event, fault, identity, policy, repair

DONE = StepResult(state=StepState.DONE)
STORM = 200


def test_what_people_read_of_a_storm_is_bounded_and_the_rest_is_counted() -> None:
    state = repair(*(fault(component=f"GPU-{i}") for i in range(STORM)))
    assert len(details(state).splitlines()) < 60
    assert f"and {STORM - SHOWN_FAULTS} more" in details(state)
    assert render.faults_table(state).row_count == SHOWN_FAULTS + 1


def test_each_fault_of_a_storm_voids_the_approval_but_people_are_told_once() -> None:
    state = do(do(repair(), DONE), DONE)
    chronicle = Chronicle.of(state)
    digests = set()
    before = None
    for number in range(STORM):
        state = fault_reported(state, event(fault(component=f"GPU-{number}", seconds=number)), at(number))
        step = next_step(state)
        assert step is not None
        state = waiting(state, step, at(number))
        assert state.wait is not None
        digests.add(state.wait.digest)
        again = before is not None and before.step_id == state.wait.step_id
        chronicle.asked(state.wait, at(number), again=again)
        before = state.wait
    entries, notices = chronicle.take()
    assert len(digests) == STORM
    assert len(notices) == 1
    assert sum("asks for" in entry.text for entry in entries) == STORM


@pytest.mark.parametrize("health", list(NodeHealth))
def test_every_health_of_a_node_can_be_shown(health: NodeHealth) -> None:
    pool = PoolState(cluster="c1", pool="train", nodes={"gpu-3": NodeRecord(identity=identity())})
    seen = view(pool, policy())
    seen = seen.model_copy(update={"nodes": (seen.nodes[0].model_copy(update={"health": health}),)})
    console = Console(width=120, record=True)
    console.print(render.pool(seen, at(0) + timedelta(seconds=1)))
    assert health.value in console.export_text()
