"""A served world, seen from outside, and the world itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from simulator import gangs
from simulator.client import WorldClient
from simulator.scenarios import training_job
from simulator.service import WorldService
from simulator.timing import Timing
from simulator.world import Layout, World


@dataclass
class Served:
    """A served world: the world itself, its address, and a client."""

    world: World
    address: str
    client: WorldClient


@asynccontextmanager
async def served_world(
    speed: float = 20.0, layout: Layout | None = None, timing: Timing | None = None
) -> AsyncIterator[Served]:
    """Serve the default cluster with its training job, in this event loop."""
    world = World(layout, timing=timing, speed=speed)
    gangs.submit(world, training_job(min(4, world.layout.nodes), world.layout.gpus))
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(WorldService(world, speed).serve("127.0.0.1:0", address.set_result))
    client = WorldClient(await address)
    try:
        yield Served(world, address.result(), client)
    finally:
        await client.close()
        serving.cancel()
        await asyncio.wait([serving])
