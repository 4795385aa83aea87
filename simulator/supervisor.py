"""Lets something run for each node of a served world exactly while its agent can run there."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path

from domain.errors import KintsugiError
from domain.nodes import NodeRef
from simulator.client import WorldClient
from simulator.states import NodeLife

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5

RunAgent = Callable[[NodeRef, NodeLife, Path], Coroutine[None, None, None]]
"""Runs the agent of a node in one boot on a state directory (its disk), until cancelled."""


class NodeSupervisor:
    """Lets the agent of one node live and die with its node.

    Args:
        disk: the agent's state directory; emptied when the node gets another disk.
    """

    def __init__(self, node: NodeRef, run_agent: RunAgent, disk: Path) -> None:
        self._node = node
        self._run_agent = run_agent
        self._disk = disk
        self._life: NodeLife | None = None
        self._news = asyncio.Event()

    def tell(self, life: NodeLife) -> None:
        """Take note of how the node is now."""
        if life != self._life:
            self._life = life
            self._news.set()

    async def run(self) -> None:
        """Supervise until cancelled."""
        while True:
            self._news.clear()
            if self._life is not None and self._life.agent_up:
                await self._while_it_lasts(self._life)
            else:
                await self._news.wait()

    async def _while_it_lasts(self, life: NodeLife) -> None:
        self._use_disk(life.disk_id)
        running = asyncio.create_task(self._run_agent(self._node, life, self._disk), name=f"agent of {self._node}")
        changed = asyncio.create_task(self._news.wait())
        try:
            await asyncio.wait((running, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            running.cancel()
            await asyncio.wait((running,))
        if not running.cancelled():
            log.error("the agent of %s ended: %s; it is started again", self._node, running.exception())
            await asyncio.sleep(RETRY_SECONDS)

    def _use_disk(self, disk_id: str) -> None:
        label = self._disk.with_name(f"{self._disk.name}.disk")
        if label.exists() and label.read_text(encoding="utf-8") != disk_id:
            shutil.rmtree(self._disk, ignore_errors=True)
        self._disk.mkdir(mode=0o700, parents=True, exist_ok=True)
        label.write_text(disk_id, encoding="utf-8")


async def supervise(world: WorldClient, run_agent: RunAgent, state_dir: Path, only: frozenset[str]) -> None:
    """Supervise the world's nodes, or those named, until cancelled; a world that is away is waited for."""
    supervisors: dict[str, NodeSupervisor] = {}
    async with asyncio.TaskGroup() as group:
        while True:
            try:
                state = await world.state()
                async for lives in world.watch_nodes():
                    for life in lives:
                        if only and life.node not in only:
                            continue
                        if life.node not in supervisors:
                            node = NodeRef(cluster=state.cluster, pool=state.pool, name=life.node)
                            supervisors[life.node] = NodeSupervisor(node, run_agent, state_dir / life.node)
                            group.create_task(supervisors[life.node].run(), name=f"supervisor of {life.node}")
                        supervisors[life.node].tell(life)
            except KintsugiError as error:
                log.warning("%s; trying again", error)
            await asyncio.sleep(RETRY_SECONDS)
