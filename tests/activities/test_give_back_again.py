"""Giving a node back when the worker may have died after it had done so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from temporalio.testing import ActivityEnvironment

from activities.give_back import GiveBackActivities, GiveBackInput, GiveBackResult
from adapters.node_agent.client import NodeAgentClient
from adapters.standalone.scheduler import StandaloneScheduler
from domain.nodes import Inventory, NodeRef
from domain.scheduling import Mark

NODE = NodeRef(cluster="local", pool="default", name="desk")
MARK = Mark(repair_id="repair/local/desk/1", reason="a GPU fell off the bus")
ORDER = GiveBackInput(node=NODE, address="", mark=MARK, recorded=Inventory(), vouched_by="ana")


async def give_back(scheduler: StandaloneScheduler, attempt: int) -> GiveBackResult:
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, attempt=attempt)
    return await environment.run(GiveBackActivities(scheduler, NodeAgentClient()).give_back, ORDER)


async def test_a_second_attempt_finds_that_the_first_had_released_the_node(tmp_path: Path) -> None:
    scheduler = StandaloneScheduler(tmp_path / "marks.db")
    await scheduler.quarantine(NODE, MARK)
    assert (await give_back(scheduler, attempt=1)).returned
    again = await give_back(scheduler, attempt=2)
    assert (again.returned, again.ours) == (True, True)


async def test_a_mark_that_is_gone_at_the_first_attempt_was_taken_by_somebody(tmp_path: Path) -> None:
    scheduler = StandaloneScheduler(tmp_path / "marks.db")
    found = await give_back(scheduler, attempt=1)
    assert (found.returned, found.ours) == (False, False)


async def test_a_mark_of_another_repair_is_not_ours_to_release(tmp_path: Path) -> None:
    scheduler = StandaloneScheduler(tmp_path / "marks.db")
    other = Mark(repair_id="repair/local/desk/2", reason="another repair")
    await scheduler.quarantine(NODE, other)
    found = await give_back(scheduler, attempt=2)
    assert (found.returned, found.ours) == (False, False)
    assert (await scheduler.scheduling_state(NODE)).our_mark == other
