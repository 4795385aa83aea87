"""Recorded histories, replayed without a server: a change that would break running repairs is red here.

When it is: wrap the change in ``workflow.patched("name")`` so that repairs that began before it go on as they began,
or, when none can be running, record anew with ``python -m scripts.record_histories``.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from runtime.temporal import sandbox_runner
from tests.replay import commands
from tests.replay.changed_workflows import SleepyRepair
from tests.replay.scenarios import SCENARIOS
from workflows.pool_workflow import PoolWorkflow
from workflows.repair_workflow import RepairWorkflow

FOLDER = Path(__file__).with_name("histories")
RECORDED = sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))
MAX_BYTES = 2 * 1024 * 1024


def history(name: str) -> WorkflowHistory:
    read: dict[str, Any] = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    return WorkflowHistory.from_json(read["workflow_id"], read["history"])


def replayer(*workflows: type) -> Replayer:
    return Replayer(workflows=workflows, workflow_runner=sandbox_runner(), data_converter=pydantic_data_converter)


def repairs() -> list[str]:
    return [name for name in RECORDED if history(name).workflow_id.startswith("repair/")]


@pytest.mark.parametrize("name", RECORDED)
async def test_what_was_recorded_goes_the_same_way_today(name: str) -> None:
    await replayer(PoolWorkflow, RepairWorkflow).replay_workflow(history(name))


def test_every_scenario_is_recorded_and_the_recordings_are_small() -> None:
    assert {name.rpartition("-")[0] for name in RECORDED} == set(SCENARIOS)
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MAX_BYTES


@pytest.mark.parametrize("name", ["returned-2", "approved_by_signal-1"])
async def test_a_changed_order_of_commands_is_noticed(name: str) -> None:
    with pytest.raises(NondeterminismError):
        await replayer(PoolWorkflow, SleepyRepair).replay_workflow(history(name))


async def test_a_history_cut_anywhere_replays_too() -> None:
    """A worker takes a running repair over at any workflow task, not only at the end."""
    whole = history("returned-2")
    ends = [
        number
        for number, event in enumerate(whole.events, 1)
        if event.HasField("workflow_task_completed_event_attributes")
    ]
    for end in ends[:: max(1, len(ends) // 6)]:
        cut = WorkflowHistory(workflow_id=whole.workflow_id, events=whole.events[:end])
        await replayer(PoolWorkflow, RepairWorkflow).replay_workflow(cut)


def test_the_recordings_name_no_machine() -> None:
    for path in FOLDER.iterdir():
        text = gzip.decompress(path.read_bytes()).decode()
        assert '"stackTrace"' not in text, path.name
        assert set(json_values(json.loads(text), "identity")) <= {"recorder", "history-service", ""}, path.name


def json_values(found: object, key: str) -> list[str]:
    if isinstance(found, dict):
        own = [found[key]] if isinstance(found.get(key), str) else []
        return own + [value for child in found.values() for value in json_values(child, key)]
    if isinstance(found, list):
        return [value for child in found for value in json_values(child, key)]
    return []


@pytest.mark.parametrize("module", commands.MODULES)
def test_the_commands_are_those_that_were_recorded(module: str) -> None:
    now = Counter(tuple(calls) for calls in commands.current()[module].values())
    then = Counter(tuple(calls) for calls in commands.recorded().get(module, {}).values())
    more, fewer = [" → ".join(calls) for calls in now - then], [" → ".join(calls) for calls in then - now]
    assert now == then, (
        f"workflows/{module}.py gives Temporal other commands than when the histories were recorded: now {more},"
        f" then {fewer}. Repairs that run now would break if they meet this change: wrap it in workflow.patched(…),"
        " then `python -m scripts.record_histories --commands`. If none can be running, record anew with"
        " `python -m scripts.record_histories`"
    )


def test_a_new_command_changes_what_is_compared() -> None:
    before = "class W:\n    async def run(self):\n        await workflow.sleep(1)\n"
    after = before + "        await workflow.wait_condition(self.done, timeout=3)\n"
    comment = before.replace("sleep(1)", "sleep(1)  # a while")
    assert commands.commands_of(before) == commands.commands_of(comment) == {"run": ["sleep(1)"]}
    assert commands.commands_of(after) == {"run": ["sleep(1)", "wait_condition(self.done) with a timer"]}
