"""Record the histories that tests/replay replays, on a real Temporal server with a simulated cluster.

    python -m scripts.record_histories                  all of them
    python -m scripts.record_histories returned aborted only these
    python -m scripts.record_histories --commands       only the list of commands, after a change that keeps order

Record anew when a workflow was changed on purpose and no repair runs that began before the change. Otherwise wrap
the change in ``workflow.patched`` and keep the old histories: they stand for the repairs that are running.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from runtime import exits
from tests.conftest import TemporalServer
from tests.replay import commands
from tests.replay.scenarios import AFRESH_AFTER_EVENTS, SCENARIOS, Scenario
from tests.workflows.lab import Lab, laboratory
from workflows.ids import pool_workflow_id

Recorded = tuple[str, dict[str, Any]]
"""A workflow id and the history of one of its runs, as Temporal's JSON."""

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "replay" / "histories"


def main() -> None:
    """Read the command line and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(SCENARIOS)}")
    parser.add_argument("--commands", action="store_true", help="record the list of commands only")
    parser.add_argument("--into", type=Path, default=FOLDER, help="folder of the histories")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in SCENARIOS]
    if unknown:
        parser.error(f"no such scenario: {', '.join(unknown)}; known are {', '.join(SCENARIOS)}")
    if not options.commands:
        options.into.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            _record(options.names or list(SCENARIOS), options.into, Path(scratch))
    # Last: a recording that failed must not look like one that was made.
    commands.write()
    exits.leave(exits.OK)


def _record(names: list[str], into: Path, scratch: Path) -> None:
    knob = {"limit.historyCount.suggestContinueAsNew": str(AFRESH_AFTER_EVENTS)}
    plain = TemporalServer(scratch / "plain.log")
    try:
        hasty = TemporalServer(scratch / "hasty.log", dynamic_config=knob)
        try:
            for name in names:
                address = hasty.address if name == "pool_afresh" else plain.address
                place = scratch / name
                place.mkdir()
                _write(name, asyncio.run(_play(SCENARIOS[name], address, place)), into)
        finally:
            hasty.stop()
    finally:
        plain.stop()


async def _play(scenario: Scenario, address: str, scratch: Path) -> list[Recorded]:
    # The identity goes into each event: not the name of the machine on which this happens to run.
    client = await Client.connect(address, data_converter=pydantic_data_converter, identity="recorder")
    async with laboratory(client, scratch, scenario.policy, scenario.nodes, scenario.spares, scenario.job_nodes) as lab:
        await scenario.play(lab)
        return [entry async for entry in _histories(client, lab, scenario)]


def _write(name: str, recorded: list[Recorded], into: Path) -> None:
    for old in into.glob(f"{name}-*.json.gz"):
        old.unlink()
    for number, (workflow_id, history) in enumerate(recorded, 1):
        path = into / f"{name}-{number}.json.gz"
        text = json.dumps({"workflow_id": workflow_id, "history": history}, sort_keys=True, separators=(",", ":"))
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
        events = len(history["events"])
        print(f"{path.name:38} {events:4} events {path.stat().st_size / 1024:7.1f} KiB  {workflow_id}", flush=True)


async def _histories(client: Client, lab: Lab, scenario: Scenario) -> AsyncIterator[Recorded]:
    """Yield every repair's history and, when they are wanted, those of all the pool's runs, oldest first."""
    wanted = {lab.repair(node).id for node in lab.model.machines}
    if scenario.pools:
        wanted.add(pool_workflow_id(lab.cluster, "train"))
    for workflow_id in sorted(wanted):
        run_id = await _first_run(client, workflow_id)
        while run_id:
            history = await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
            yield workflow_id, _without_places(json.loads(history.to_json()))
            last = history.events[-1]
            run_id = last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id


async def _first_run(client: Client, workflow_id: str) -> str:
    try:
        described = await client.get_workflow_handle(workflow_id).describe()
    except Exception:
        return ""
    return described.raw_description.workflow_execution_info.first_run_id or described.run_id


def _without_places(history: dict[str, Any]) -> dict[str, Any]:
    """Leave out stack traces: they name folders of this machine, and no replay reads them."""

    def without(found: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in found.items() if key != "stackTrace"}

    cleaned: dict[str, Any] = json.loads(json.dumps(history), object_hook=without)
    return cleaned


if __name__ == "__main__":
    main()
