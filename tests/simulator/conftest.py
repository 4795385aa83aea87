"""A world, in memory or served, for each test that asks for one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from simulator import gangs
from simulator.scenarios import training_job
from simulator.world import World
from tests.simulator.served_world import Served, served_world


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Serve the default cluster, 20 simulated seconds a second."""
    async with served_world() as served:
        yield served


@pytest.fixture
def world() -> World:
    """Return the default cluster, whose training job has done 61 steps."""
    world = World(seed=7)
    gangs.submit(world, training_job())
    world.advance(30.5)
    return world
