"""A gateway that starts again asks the pools whom its predecessor saw, and misses who does not come back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import grpc
import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError
from temporalio.worker import Worker

from activities.current_policy import PolicyActivities
from domain.policy import Policy
from domain.pool import NodeHealth, PoolView
from domain.reports import NodeEvent, NodeEventKind
from gateway.server import Gateway
from gateway.temporal_sender import TemporalSender
from runtime.settings import GatewaySettings
from runtime.temporal import sandbox_runner
from tests.conftest import TemporalServer, free_port
from tests.gateway.agent_stub import Agents, AgentStub, until, until_async
from tests.gateway.pool_history import reported
from workflows.ids import WORKFLOW_TASK_QUEUE, pool_workflow_id
from workflows.pool_workflow import PoolWorkflow
from workflows.repair_workflow import RepairWorkflow

PATIENT = MappingProxyType({"silence_seconds": 120.0, "heartbeat_seconds": 5.0})
"""A gateway whose agents need not say anything for as long as a test runs."""

QUICK = MappingProxyType({"silence_seconds": 0.2, "heartbeat_seconds": 0.1})
"""A gateway that soon misses who has not come."""


class BuiltIn:
    """The policy that only observes."""

    async def current(self) -> Policy:
        return Policy()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    """A Temporal of this file's own, since a gateway asks every pool that it finds; it may be stopped for a while."""
    running = TemporalServer(tmp_path_factory.mktemp("temporal") / "server.log")
    yield running
    running.process.send_signal(signal.SIGCONT)
    running.stop()


@pytest.fixture
async def client(server: TemporalServer) -> Client:
    return await Client.connect(server.address, data_converter=pydantic_data_converter)


@pytest.fixture
async def cluster(client: Client) -> AsyncIterator[str]:
    """A cluster of this test's own; its pools end with the test."""
    name = f"c-{uuid.uuid4().hex[:8]}"
    yield name
    for pool in ("h100", "other"):
        with suppress(RPCError):
            await client.get_workflow_handle(pool_workflow_id(name, pool)).terminate()


@pytest.fixture
async def workers(client: Client) -> AsyncIterator[None]:
    async with _worker(client):
        yield


@pytest.mark.usefixtures("workers")
async def test_exactly_who_does_not_come_back_is_lost_and_is_told_once(
    client: Client, cluster: str, agents: Agents, caplog: pytest.LogCaptureFixture
) -> None:
    async with _gateway(client, "gw-a") as first, _gateway(client, "gw-b") as other:
        for name in ("stays-away", "moves", "changes-pool"):
            await agents(first.port, name, cluster=cluster).hello()
        await agents(other.port, "was-never-here", cluster=cluster).hello()
        await _shows(client, cluster, "was-never-here", "gw-b")
        await _shows(client, cluster, "changes-pool", "gw-a")
        await first.stop()
        await agents(other.port, "moves", cluster=cluster).hello()
        await agents(other.port, "changes-pool", cluster=cluster, pool="other").hello()
        await _shows(client, cluster, "moves", "gw-b")
        await _shows(client, cluster, "changes-pool", "gw-b", pool="other")
        assert await _lost(client, cluster) == []

        before = datetime.now(UTC)
        async with _gateway(client, "gw-a", QUICK):
            await until(lambda: "1 missing in 2 pools" in caplog.text, "it has looked")
            await _is_lost(client, cluster, "stays-away")
        (event,) = await _lost(client, cluster)
        assert (event.node.name, event.gateway) == ("stays-away", "gw-a")
        assert before <= event.at

        async with _gateway(client, "gw-a", QUICK):
            await until(lambda: "0 missing in 2 pools" in caplog.text, "it has looked again")
        assert len(await _lost(client, cluster)) == 1


async def test_it_waits_for_a_worker_that_answers_for_the_pool(
    client: Client, cluster: str, agents: Agents, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _seen_once(client, cluster, agents)
    monkeypatch.setattr("gateway.expected.ANSWER_SECONDS", 0.3)
    monkeypatch.setattr("gateway.expected.FIRST_RETRY_SECONDS", 0.05)
    async with _gateway(client, "gw-a", QUICK):
        await until(lambda: caplog.text.count("does not answer, does a worker run?") >= 2, "nobody answers")
        monkeypatch.setattr("gateway.expected.ANSWER_SECONDS", 10.0)
        async with _worker(client):
            await _is_lost(client, cluster, "gpu-0")


@pytest.mark.usefixtures("workers")
async def test_it_waits_for_temporal(
    server: TemporalServer,
    client: Client,
    cluster: str,
    agents: Agents,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await _seen_once(client, cluster, agents)
    monkeypatch.setattr("gateway.expected.ANSWER_SECONDS", 0.3)
    monkeypatch.setattr("gateway.expected.FIRST_RETRY_SECONDS", 0.05)
    server.process.send_signal(signal.SIGSTOP)
    async with _gateway(client, "gw-a", QUICK) as gateway:
        await until(lambda: caplog.text.count("the pools cannot be listed") >= 2, "Temporal is away")
        # It serves all the while.
        agent = agents(gateway.port, "gpu-1", cluster=cluster)
        await agent.hello()
        monkeypatch.setattr("gateway.expected.ANSWER_SECONDS", 10.0)
        server.process.send_signal(signal.SIGCONT)
        await _is_lost(client, cluster, "gpu-0")


@pytest.mark.usefixtures("workers")
async def test_a_stop_before_it_has_looked_reports_nobody(client: Client, cluster: str, agents: Agents) -> None:
    await _seen_once(client, cluster, agents)
    async with _gateway(client, "gw-a"):
        pass
    never: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
    async with _gateway(client, "gw-a", QUICK, expected_from=never):
        pass
    assert await _lost(client, cluster) == []


@pytest.mark.processes
@pytest.mark.usefixtures("workers")
async def test_a_node_that_dies_with_its_gateway_is_lost_once_the_gateway_is_back(
    server: TemporalServer, client: Client, cluster: str, tmp_path: Path, agents: Agents
) -> None:
    port = free_port()
    first = _process(port, server.address, tmp_path / "first.log")
    second = None
    beating = None
    try:
        for name in ("gpu-0", "gpu-1"):
            await _connected(agents(port, name, cluster=cluster))
            await _shows(client, cluster, name, "gw-a")
        first.kill()
        first.wait()
        second = _process(port, server.address, tmp_path / "second.log", silence=1.5, heartbeat=0.5)
        back = agents(port, "gpu-1", cluster=cluster)
        await _connected(back)
        beating = asyncio.create_task(_beat(back))
        await _is_lost(client, cluster, "gpu-0")
        await until(lambda: "1 missing in 1 pools" in (tmp_path / "second.log").read_text(), "it has looked")
        second.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(second.wait, 20) == 0
        assert [event.node.name for event in await _lost(client, cluster)] == ["gpu-0"]
        assert (await _node(client, cluster, "gpu-1"))[0] is NodeHealth.HEALTHY
        assert "Traceback" not in (tmp_path / "second.log").read_text()
    finally:
        if beating is not None:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
        for process in (first, second):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def _worker(client: Client) -> Worker:
    return Worker(
        client,
        task_queue=WORKFLOW_TASK_QUEUE,
        workflows=[PoolWorkflow, RepairWorkflow],
        activities=[PolicyActivities(BuiltIn()).current],
        workflow_runner=sandbox_runner(),
    )


@asynccontextmanager
async def _gateway(
    client: Client,
    name: str,
    settings: Mapping[str, float] = PATIENT,
    expected_from: asyncio.Future[Client] | None = None,
) -> AsyncIterator[Gateway]:
    connected: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
    connected.set_result(client)
    given = GatewaySettings.model_validate({"name": name, "listen": "127.0.0.1:0", **settings})
    gateway = Gateway(given, TemporalSender(connected))
    await gateway.start()
    gateway.expect(expected_from or connected)
    try:
        yield gateway
    finally:
        await gateway.stop()


def _process(
    port: int, temporal: str, log: Path, silence: float = 15.0, heartbeat: float = 5.0
) -> subprocess.Popen[bytes]:
    given = {
        "TEMPORAL_ADDRESS": temporal,
        "KINTSUGI_GATEWAY_NAME": "gw-a",
        "KINTSUGI_GATEWAY_SILENCE_SECONDS": str(silence),
        "KINTSUGI_GATEWAY_HEARTBEAT_SECONDS": str(heartbeat),
    }
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "gateway", "--listen", f"127.0.0.1:{port}"],
            env=os.environ | given,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


async def _connected(agent: AgentStub) -> None:
    async def ready() -> bool:
        try:
            await asyncio.wait_for(agent.channel.channel_ready(), 0.5)
        except TimeoutError:
            return False
        return True

    await until_async(ready, "the gateway listens")
    agent.reopen()
    await agent.hello()


async def _beat(agent: AgentStub) -> None:
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        while True:
            await agent.heartbeat()
            await asyncio.sleep(0.2)


async def _seen_once(client: Client, cluster: str, agents: Agents) -> None:
    """Have a gateway see a node, and go."""
    async with _gateway(client, "gw-a") as gateway:
        await agents(gateway.port, cluster=cluster).hello()

        async def told() -> bool:
            with suppress(RPCError):
                return bool(await reported(client, cluster, "h100"))
            return False

        await until_async(told, "the pool hears of the node")


async def _node(client: Client, cluster: str, name: str, pool: str = "h100") -> tuple[NodeHealth | None, str]:
    """Return how the pool shows the node: its health, and its gateway."""
    await asyncio.sleep(0.05)  # each question costs the worker a task
    with suppress(RPCError):
        view: PoolView = await client.get_workflow_handle(pool_workflow_id(cluster, pool)).query(
            "get_pool", result_type=PoolView
        )
        return next(((node.health, node.gateway) for node in view.nodes if node.name == name), (None, ""))
    return None, ""


async def _shows(client: Client, cluster: str, name: str, gateway: str, pool: str = "h100") -> None:
    async def shown() -> bool:
        return await _node(client, cluster, name, pool) == (NodeHealth.HEALTHY, gateway)

    await until_async(shown, f"{name} is seen by {gateway}")


async def _is_lost(client: Client, cluster: str, name: str) -> None:
    async def lost() -> bool:
        return (await _node(client, cluster, name))[0] is NodeHealth.LOST

    await until_async(lost, f"{name} is lost")


async def _lost(client: Client, cluster: str) -> list[NodeEvent]:
    """Return every loss that was reported to a pool of the cluster."""
    lost: list[NodeEvent] = []
    for pool in ("h100", "other"):
        with suppress(RPCError):
            lost += [e for e in await reported(client, cluster, pool) if e.kind is NodeEventKind.LOST]
    return lost
