"""A served world for each test that asks for one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.simulator.served_world import Served, served_world


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Serve the default cluster, 20 simulated seconds a second."""
    async with served_world() as served:
        yield served
