"""The gateway against a real Temporal server: what counts is what stands in the pools' histories."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError

from domain.reports import NodeEvent, NodeEventKind, PoolInput
from gateway.server import Gateway
from gateway.temporal_sender import TemporalSender
from runtime.settings import GatewaySettings
from tests.conftest import TemporalServer, free_port
from tests.gateway.agent_stub import AgentStub, until, until_async
from tests.gateway.mute_proxy import MuteProxy
from tests.gateway.pool_history import reported
from workflows.ids import POOL_WORKFLOW, WORKFLOW_TASK_QUEUE, pool_workflow_id


@pytest.fixture
async def cluster(temporal_client: Client) -> AsyncIterator[str]:
    """A cluster of this test's own; its pools end with the test."""
    name = f"c-{uuid.uuid4().hex[:8]}"
    yield name
    for pool in ("h100", "p1", "p2"):
        try:
            await temporal_client.get_workflow_handle(pool_workflow_id(name, pool)).terminate()
        except RPCError:
            continue


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[TemporalServer]:
    """A Temporal server that the test may stop and kill."""
    server = TemporalServer(tmp_path / "temporal.log", database=tmp_path / "temporal.db")
    yield server
    server.process.send_signal(signal.SIGCONT)
    server.stop()


async def test_the_first_report_wakes_the_pool(temporal_client: Client, cluster: str) -> None:
    gateway = await _gateway(temporal_client)
    agent = AgentStub(gateway.port, cluster=cluster)
    try:
        await agent.hello()
        await agent.fault(1)
        await agent.acked(1)
        handle = temporal_client.get_workflow_handle(pool_workflow_id(cluster, "h100"))
        started = (await handle.fetch_history()).events[0].workflow_execution_started_event_attributes
        assert started.workflow_type.name == POOL_WORKFLOW
        assert started.task_queue.name == WORKFLOW_TASK_QUEUE
        (given,) = await temporal_client.data_converter.decode(started.input.payloads, [PoolInput])
        assert given == PoolInput(cluster=cluster, pool="h100")
        events = await reported(temporal_client, cluster, "h100")
        assert [event.kind for event in events] == [NodeEventKind.SEEN, NodeEventKind.FAULT]
        assert events[0].identity == agent.identity
    finally:
        await agent.close()
        await gateway.stop()


async def test_two_pools_have_a_workflow_each(temporal_client: Client, cluster: str) -> None:
    gateway = await _gateway(temporal_client)
    agents = [AgentStub(gateway.port, f"n-{pool}", cluster=cluster, pool=pool) for pool in ("p1", "p2")]
    try:
        for agent in agents:
            await agent.hello()
            await agent.fault(1)
        for agent in agents:
            await agent.acked(1)
            assert {event.node for event in await reported(temporal_client, cluster, agent.node.pool)} == {agent.node}
    finally:
        for agent in agents:
            await agent.close()
        await gateway.stop()


async def test_while_temporal_stands_still_nothing_is_acknowledged_lost_or_doubled(
    own_server: TemporalServer,
) -> None:
    client = await Client.connect(own_server.address, data_converter=pydantic_data_converter)
    gateway = await _gateway(client, attempt_seconds=0.5)
    agent = AgentStub(gateway.port)
    try:
        await agent.hello()
        await agent.fault(1)
        await agent.acked(1)
        own_server.process.send_signal(signal.SIGSTOP)
        for sequence in (2, 3, 4):
            await agent.fault(sequence)
        reading = asyncio.create_task(agent.acked(4))
        # Each attempt may already lie in the stopped server's socket: all of them wake up with it.
        await until(lambda: _failures(gateway) >= 3, "attempts time out")
        assert not reading.done()
        own_server.process.send_signal(signal.SIGCONT)
        assert await reading == 4
        assert _sequences(await reported(client, "c1", "h100")) == [1, 2, 3, 4]
    finally:
        await agent.close()
        await gateway.stop()


async def test_a_report_whose_answer_was_lost_arrives_once(
    temporal_client: Client, temporal_server: str, cluster: str
) -> None:
    proxy = MuteProxy(int(temporal_server.rpartition(":")[2]))
    await proxy.start()
    client = await Client.connect(f"127.0.0.1:{proxy.port}", data_converter=pydantic_data_converter)
    gateway = await _gateway(client, attempt_seconds=0.5)
    agent = AgentStub(gateway.port, cluster=cluster)
    try:
        await agent.hello()
        await agent.fault(1)
        await agent.acked(1)
        proxy.mute = True
        await agent.fault(2)

        async def arrived() -> bool:
            return 2 in _sequences(await reported(temporal_client, cluster, "h100"))

        await until_async(arrived, "Temporal has the report, and the gateway does not know")
        await until(lambda: _failures(gateway) >= 2, "attempts time out")
        proxy.mute = False
        proxy.hang_up()
        assert await agent.acked(2) == 2
        assert _sequences(await reported(temporal_client, cluster, "h100")) == [1, 2]
    finally:
        await agent.close()
        await gateway.stop()
        await proxy.stop()


async def test_a_temporal_that_was_killed_gets_everything_when_it_is_back(
    own_server: TemporalServer, tmp_path: Path
) -> None:
    client = await Client.connect(own_server.address, data_converter=pydantic_data_converter)
    gateway = await _gateway(client, attempt_seconds=2.0)
    agent = AgentStub(gateway.port)
    successor = None
    try:
        await agent.hello()
        await agent.fault(1)
        await agent.acked(1)
        own_server.stop()
        for sequence in (2, 3):
            await agent.fault(sequence)
        reading = asyncio.create_task(agent.acked(3))
        await until(lambda: _failures(gateway) >= 1, "an attempt fails")
        assert not reading.done()
        successor = await asyncio.to_thread(
            TemporalServer, tmp_path / "second.log", own_server.port, tmp_path / "temporal.db"
        )
        assert await reading == 3
        assert _sequences(await reported(client, "c1", "h100")) == [1, 2, 3]
    finally:
        await agent.close()
        await gateway.stop()
        if successor is not None:
            successor.stop()


@pytest.mark.processes
async def test_a_killed_gateway_loses_nothing(
    temporal_client: Client, temporal_server: str, cluster: str, tmp_path: Path
) -> None:
    port = free_port()
    first = _process(port, temporal_server, tmp_path / "first.log")
    second = None
    agent = AgentStub(port, cluster=cluster)
    again = None
    try:
        await _connected(agent)
        await agent.fault(1)
        await agent.acked(1)
        first.send_signal(signal.SIGSTOP)
        for sequence in (2, 3):
            await agent.fault(sequence)
        first.kill()
        first.wait()
        second = _process(port, temporal_server, tmp_path / "second.log")
        again = AgentStub(port, cluster=cluster)
        # A new process knows nothing: what was acknowledged is the agent's to remember.
        assert await _connected(again) == 0
        for sequence in (2, 3):
            await again.fault(sequence)
        assert await again.acked(3) == 3
        assert set(_sequences(await reported(temporal_client, cluster, "h100"))) == {1, 2, 3}
        second.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(second.wait, 20) == 0
        kinds = {event.kind for event in await reported(temporal_client, cluster, "h100")}
        assert NodeEventKind.LOST not in kinds
    finally:
        for stub in (agent, again):
            if stub is not None:
                await stub.close()
        for process in (first, second):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


@pytest.mark.processes
async def test_agents_may_come_before_temporal(tmp_path: Path) -> None:
    port, temporal_port = free_port(), free_port()
    process = _process(port, f"127.0.0.1:{temporal_port}", tmp_path / "gateway.log")
    agent = AgentStub(port)
    server = None
    try:
        await _connected(agent)
        await agent.fault(1)
        reading = asyncio.create_task(agent.acked(1))
        await until(lambda: "does not answer" in (tmp_path / "gateway.log").read_text(), "the log tells")
        assert not reading.done()
        server = await asyncio.to_thread(TemporalServer, tmp_path / "temporal.log", temporal_port)
        assert await reading == 1
        client = await Client.connect(server.address, data_converter=pydantic_data_converter)
        assert _sequences(await reported(client, "c1", "h100")) == [1]
    finally:
        await agent.close()
        process.kill()
        process.wait()
        if server is not None:
            server.stop()


@pytest.mark.processes
async def test_a_gateway_that_stood_still_calls_nobody_lost_and_reads_settings_again(
    temporal_client: Client, temporal_server: str, cluster: str, tmp_path: Path
) -> None:
    port = free_port()
    config, log = tmp_path / "kintsugi.toml", tmp_path / "gateway.log"
    config.write_text("[gateway]\nsilence_seconds = 1.0\nheartbeat_seconds = 0.5\n")
    process = _process(port, temporal_server, log, KINTSUGI_CONFIG=str(config))
    agent = AgentStub(port, cluster=cluster)
    try:
        await _connected(agent)
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(2.0)
        process.send_signal(signal.SIGCONT)
        await until(lambda: "stood still" in log.read_text(), "it notices")
        await agent.heartbeat()
        config.write_text("[gateway]\nsilence_seconds = 60.0\nheartbeat_seconds = 2.5\n")
        process.send_signal(signal.SIGHUP)
        assert (await agent.read()).settings.heartbeat_seconds == 2.5
        config.write_text("[gateway]\nsilence = 60.0\n")
        process.send_signal(signal.SIGHUP)
        await until(lambda: "the settings in force stay" in log.read_text(), "a typo changes nothing")
        await agent.fault(1)
        await agent.acked(1)
        kinds = [event.kind for event in await reported(temporal_client, cluster, "h100")]
        assert kinds == [NodeEventKind.SEEN, NodeEventKind.FAULT]
    finally:
        await agent.close()
        process.kill()
        process.wait()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("arguments", "environment", "sentence"),
    [
        (["--listen", "0.0.0.0:0"], {}, "without TLS would let anybody speak for any node"),
        (["--listen", "nonsense"], {}, "must be host:port"),
        ([], {"KINTSUGI_GATEWAY_TLS__CA": "ca.pem"}, "there is no cert and no key"),
        ([], {"KINTSUGI_GATEWAY_HEARTBEAT_SECONDS": "often"}, "heartbeat_seconds"),
        (["--log-level", "LOUD"], {}, "LOUD"),
        ([], {"KINTSUGI_GATEWAY_NAME": "rack 7/b"}, "name: String should match pattern"),
        ([], {"KINTSUGI_GATEWAY_SILENCE_SECONDS": "6"}, "at least twice heartbeat_seconds"),
    ],
)
def test_settings_that_cannot_work_end_the_command_with_a_sentence(
    arguments: list[str], environment: dict[str, str], sentence: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr


async def _gateway(client: Client, attempt_seconds: float = 10.0) -> Gateway:
    connected: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
    connected.set_result(client)
    gateway = Gateway(GatewaySettings(listen="127.0.0.1:0"), TemporalSender(connected, attempt_seconds))
    await gateway.start()
    return gateway


def _process(port: int, temporal: str, log: Path, **environment: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "gateway", "--listen", f"127.0.0.1:{port}"],
            env=os.environ | {"TEMPORAL_ADDRESS": temporal} | environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


async def _connected(agent: AgentStub) -> int:
    """Say hello as soon as the gateway is up; returns the acknowledged sequence of its welcome."""

    async def ready() -> bool:
        try:
            await asyncio.wait_for(agent.channel.channel_ready(), 0.5)
        except TimeoutError:
            return False
        return True

    await until_async(ready, "the gateway listens")
    agent.reopen()
    return (await agent.hello()).acked_sequence


def _sequences(events: list[NodeEvent]) -> list[int]:
    return [event.fault.sequence for event in events if event.fault is not None]


def _failures(gateway: Gateway) -> float:
    return gateway.metrics.registry.get_sample_value("kintsugi_gateway_hand_over_failures_total") or 0.0
