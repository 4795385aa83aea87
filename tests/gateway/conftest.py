"""Fixtures of the gateway's tests."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

from gateway.server import Gateway
from tests.gateway.agent_stub import Agents, AgentStub, Pools, started


@pytest.fixture
async def pools() -> Pools:
    return Pools()


@pytest.fixture
async def gateway(pools: Pools) -> AsyncIterator[Gateway]:
    running = await started(pools)
    yield running
    await running.stop()


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    made: list[AgentStub] = []

    def make(*args: object, **options: object) -> AgentStub:
        made.append(AgentStub(*args, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for agent in made:
        await agent.close()


@pytest.fixture(autouse=True)
def _log_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
