from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from activities import heartbeat
from activities.give_back import GiveBackActivities, GiveBackInput
from adapters.node_agent.client import NodeAgentClient
from adapters.standalone import StandaloneScheduler
from domain.nodes import Inventory, NodeRef
from domain.scheduling import Mark, SchedulingState

NODE = NodeRef(cluster="c", pool="p", name="gpu-0")
MARK = Mark(repair_id="repair/c/gpu-0/1", reason="kintsugi: [gpu.missing] gpu/1")


async def test_a_slow_release_is_seen_to_be_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "INTERVAL_SECONDS", 0.01)
    beats = asyncio.Queue[object]()

    class Slow(StandaloneScheduler):
        async def release(self, node: NodeRef, mark: Mark) -> SchedulingState:
            while not beats.empty():
                beats.get_nowait()
            async with asyncio.timeout(10):
                for _ in range(3):
                    await beats.get()
            return await super().release(node, mark)

    scheduler = Slow(tmp_path / "marks.db")
    await scheduler.quarantine(NODE, MARK)
    environment = ActivityEnvironment()
    environment.on_heartbeat = beats.put_nowait
    agents = NodeAgentClient()
    order = GiveBackInput(node=NODE, address="", mark=MARK, recorded=Inventory(), vouched_by="ana")

    result = await environment.run(GiveBackActivities(scheduler, agents).give_back, order)

    assert result.returned
    assert (await scheduler.scheduling_state(NODE)).schedulable
