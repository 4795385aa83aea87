"""The gateway over real gRPC, with pools that only write down what reaches them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2 as grpc_health_pb2
from grpc_health.v1 import health_pb2_grpc as grpc_health_pb2_grpc

from domain.faults import Transition
from domain.reports import NodeEventKind
from gateway.server import Gateway
from runtime.settings import GatewaySettings
from tests.gateway.agent_stub import Agents, Pools, metric, started, until
from wire.v1 import health_pb2

OPENED = Transition.OPENED


async def test_hello_is_welcomed_and_the_node_is_seen(gateway: Gateway, pools: Pools, agents: Agents) -> None:
    agent = agents(gateway.port)
    welcome = await agent.hello()
    assert (welcome.heartbeat_seconds, welcome.acked_sequence) == (5.0, 0)
    await until(lambda: bool(pools.events()), "the node is seen")
    (event,) = pools.events()
    assert event.kind is NodeEventKind.SEEN
    assert event.identity == agent.identity


async def test_faults_are_acknowledged_only_when_accepted(gateway: Gateway, pools: Pools, agents: Agents) -> None:
    agent = agents(gateway.port)
    await agent.hello()
    await until(lambda: bool(pools.events()), "the node is seen")
    pools.open.clear()
    for sequence in (1, 2, 3):
        await agent.fault(sequence)
    await until(lambda: metric(gateway, "events_waiting") == 3, "three faults wait")
    # Whatever was written before this would be read before it.
    gateway.change(GatewaySettings(heartbeat_seconds=1.0))
    assert (await agent.read()).WhichOneof("kind") == "settings"
    pools.open.set()
    assert await agent.acked(3) == 3
    assert pools.faults() == [(OPENED, 1, 0), (OPENED, 2, 0), (OPENED, 3, 0)]


async def test_a_refused_report_is_sent_again_whole_and_in_order(
    gateway: Gateway, pools: Pools, agents: Agents
) -> None:
    pools.refuse = 3
    agent = agents(gateway.port)
    await agent.hello()
    await agent.fault(1)
    await agent.fault(2)
    assert await agent.acked(2) == 2
    assert pools.events()[0].kind is NodeEventKind.SEEN
    assert [sequence for _, sequence, _ in pools.faults()] == [1, 2]


async def test_what_is_sent_again_is_acknowledged_and_not_handed_over_twice(
    gateway: Gateway, pools: Pools, agents: Agents
) -> None:
    agent = agents(gateway.port)
    await agent.hello()
    await agent.fault(1)
    await agent.fault(2)
    await agent.acked(2)
    pools.open.clear()
    await agent.fault(3)
    await until(lambda: metric(gateway, "events_waiting") == 1, "the third waits")
    await agent.close()

    again = agents(gateway.port)
    assert (await again.hello()).acked_sequence == 2
    for sequence in (1, 2, 3, 4):
        await again.fault(sequence)
    await until(lambda: metric(gateway, "events_sent_again_total") == 3, "three are recognised")
    pools.open.set()
    assert await again.acked(4) == 4
    assert [sequence for _, sequence, _ in pools.faults()] == [1, 2, 3, 4]


async def test_a_new_spool_starts_counting_anew(gateway: Gateway, pools: Pools, agents: Agents) -> None:
    agent = agents(gateway.port)
    await agent.hello()
    await agent.fault(1)
    await agent.acked(1)
    other = agents(gateway.port, spool_id="spool-2")
    assert (await other.hello()).acked_sequence == 0
    await other.fault(1)
    await other.acked(1)
    assert [event.fault.spool_id for event in pools.events(kind=NodeEventKind.FAULT) if event.fault] == [
        "spool-1",
        "spool-2",
    ]


async def test_two_pools_get_their_own_reports_and_do_not_wait_for_each_other(
    gateway: Gateway, pools: Pools, agents: Agents
) -> None:
    first, second = agents(gateway.port, "a", pool="p1"), agents(gateway.port, "b", pool="p2")
    await first.hello()
    await second.hello()
    await first.fault(1)
    await second.fault(1)
    await first.acked(1)
    await second.acked(1)
    assert [event.node.name for event in pools.events("p1")] == ["a", "a"]
    assert [event.node.name for event in pools.events("p2")] == ["b", "b"]


def _hello_without(field: str) -> health_pb2.AgentMessage:
    stub = health_pb2.Hello(
        identity=health_pb2.NodeIdentity(node=health_pb2.NodeRef(cluster="c1", pool="h100", name="gpu-0"), boot_id="b"),
        spool_id="s",
    )
    if field == "node.name":
        stub.identity.node.name = "../../etc"
    else:
        stub.ClearField(field)
    return health_pb2.AgentMessage(hello=stub)


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (health_pb2.AgentMessage(heartbeat=health_pb2.Heartbeat(sequence=1)), "first message must be a hello"),
        (health_pb2.AgentMessage(), "first message must be a hello"),
        (_hello_without("spool_id"), "spool_id"),
        (_hello_without("identity"), "node is missing"),
        (_hello_without("node.name"), "node.name is '../../etc'"),
    ],
)
async def test_a_bad_first_message_ends_the_stream_with_a_sentence(
    gateway: Gateway, pools: Pools, agents: Agents, message: health_pb2.AgentMessage, sentence: str
) -> None:
    agent = agents(gateway.port)
    await agent.send(message)
    code, details = await agent.ending()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert sentence in details
    assert metric(gateway, "streams_refused_total", reason="malformed") == 1
    assert pools.events() == []


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (health_pb2.AgentMessage(), "neither hello, heartbeat nor fault"),
        (health_pb2.AgentMessage(fault=health_pb2.FaultEvent(sequence=1)), "fault is missing"),
        (health_pb2.AgentMessage(heartbeat=health_pb2.Heartbeat(sequence=0)), "heartbeat 0 came after"),
        (_hello_without("spool_id"), "second hello"),
    ],
)
async def test_a_bad_later_message_ends_the_stream_and_keeps_what_was_said(
    gateway: Gateway, pools: Pools, agents: Agents, message: health_pb2.AgentMessage, sentence: str
) -> None:
    agent = agents(gateway.port)
    await agent.hello()
    await agent.fault(7)
    await agent.acked(7)
    await agent.send(message)
    code, details = await agent.ending()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert sentence in details
    again = agents(gateway.port)
    assert (await again.hello()).acked_sequence == 7


async def test_bytes_that_are_no_message_end_the_stream_with_a_sentence(gateway: Gateway) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.port}") as channel:
        call: Any = channel.stream_stream("/wire.v1.Health/Report")()
        await call.write(b"\xff\xff\xff\xff")
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "malformed" in await call.details()


async def test_an_oversize_message_is_refused_and_the_gateway_lives(pools: Pools, agents: Agents) -> None:
    gateway = await started(pools, max_message_bytes=16 * 1024)
    try:
        agent = agents(gateway.port)
        await agent.hello()
        event = health_pb2.FaultEvent(sequence=1, fault=health_pb2.Fault(evidence=["x" * 20_000]))
        await agent.send(health_pb2.AgentMessage(fault=event))
        code, details = await agent.ending()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "larger than max" in details
        again = agents(gateway.port)
        await again.hello()
        await again.fault(1)
        assert await again.acked(1) == 1
    finally:
        await gateway.stop()


async def test_a_clock_an_hour_off_is_accepted_warned_of_and_not_believed(
    gateway: Gateway, pools: Pools, agents: Agents, caplog: pytest.LogCaptureFixture
) -> None:
    agent = agents(gateway.port)
    await agent.hello(clock=datetime.now(UTC) - timedelta(hours=1))
    assert "clock of node c1/h100/gpu-0 is off by -3600 s" in caplog.text
    await until(lambda: bool(pools.events()), "the node is seen")
    assert abs((pools.events()[0].at - datetime.now(UTC)).total_seconds()) < 60


async def test_a_newer_stream_replaces_the_older_and_flapping_is_told(
    gateway: Gateway, agents: Agents, pools: Pools, caplog: pytest.LogCaptureFixture
) -> None:
    agent = agents(gateway.port)
    await agent.hello()
    for number in range(3):
        previous, agent = agent, agents(gateway.port, boot_id=f"boot-{number % 2}")
        await agent.hello()
        code, details = await previous.ending()
        assert code is grpc.StatusCode.ABORTED
        assert "newer stream of node gpu-0" in details
    assert "two agents seem to use this name" in caplog.text
    await until(lambda: metric(gateway, "connected_agents") == 1, "one stream is left")
    await agent.fault(1)
    assert await agent.acked(1) == 1


async def test_the_same_agent_on_a_new_connection_is_no_news(gateway: Gateway, pools: Pools, agents: Agents) -> None:
    await agents(gateway.port).hello()
    await agents(gateway.port).hello()
    third = agents(gateway.port, boot_id="boot-2")
    await third.hello()
    await until(lambda: len(pools.events()) == 2, "the new boot is seen")
    assert [event.identity.boot_id for event in pools.events() if event.identity] == ["boot-1", "boot-2"]


async def test_a_new_connection_after_a_quiet_time_is_news_since_the_node_may_have_been_elsewhere(
    pools: Pools, agents: Agents
) -> None:
    gateway = await started(pools, name="gw-a", heartbeat_seconds=0.2, silence_seconds=1.0)
    try:
        await agents(gateway.port).hello()
        await asyncio.sleep(0.6)  # the heartbeats of more than half the silence limit are missing
        await agents(gateway.port).hello()
        await until(lambda: len(pools.events(kind=NodeEventKind.SEEN)) == 2, "the node is seen again")
        assert {event.gateway for event in pools.events()} == {"gw-a"}
    finally:
        await gateway.stop()


async def test_grpc_health_says_serving(gateway: Gateway) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.port}") as channel:
        stub = grpc_health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(grpc_health_pb2.HealthCheckRequest(service="wire.v1.Health"))
        assert answer.status == grpc_health_pb2.HealthCheckResponse.SERVING


async def test_a_stream_without_hello_is_ended(
    gateway: Gateway, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.report_stream.HELLO_SECONDS", 0.1)
    agent = agents(gateway.port)
    await agent.call.wait_for_connection()
    code, details = await agent.ending()
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "no hello" in details


async def test_a_changed_heartbeat_reaches_connected_and_later_agents(gateway: Gateway, agents: Agents) -> None:
    agent = agents(gateway.port)
    await agent.hello()
    gateway.change(GatewaySettings(heartbeat_seconds=1.5, silence_seconds=9.0))
    message = await agent.read()
    assert message.settings.heartbeat_seconds == 1.5
    assert (await agents(gateway.port, "gpu-1").hello()).heartbeat_seconds == 1.5
    await agent.fault(1)
    assert await agent.acked(1) == 1


async def test_acks_that_fall_due_during_the_welcome_come_after_it(
    gateway: Gateway, pools: Pools, agents: Agents
) -> None:
    agent = agents(gateway.port)
    await agent.hello()
    await until(lambda: bool(pools.events()), "the node is seen")
    pools.open.clear()
    await agent.fault(1)
    await until(lambda: metric(gateway, "events_waiting") == 1, "the fault waits")
    await agent.close()
    again = agents(gateway.port)
    greeting = asyncio.create_task(again.hello())
    await asyncio.sleep(0)
    pools.open.set()
    welcome = await greeting
    if welcome.acked_sequence < 1:
        assert await again.acked(1) == 1
    assert [sequence for _, sequence, _ in pools.faults()] == [1]
