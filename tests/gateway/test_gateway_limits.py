"""What the gateway does with silence, floods and a Temporal that takes nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import grpc

from domain.faults import FaultEvent, Transition
from domain.reports import NodeEventKind
from gateway.sessions import MAX_UNACKED
from tests.gateway.agent_stub import Agents, AgentStub, Pools, fault_event, metric, started, until
from wire import convert
from wire.v1 import health_pb2

OPENED, REPEATED, CLEARED = Transition.OPENED, Transition.REPEATED, Transition.CLEARED


async def test_a_silent_node_is_lost_once_and_seen_again(pools: Pools, agents: Agents) -> None:
    gateway = await started(pools, silence_seconds=0.3, heartbeat_seconds=0.1)
    try:
        silent, broken, alive = (agents(gateway.port, name) for name in ("silent", "broken", "alive"))
        for agent in (silent, broken, alive):
            await agent.hello()
        await broken.close()

        async def beat() -> None:
            while True:
                await alive.heartbeat()
                await asyncio.sleep(0.05)

        beating = asyncio.create_task(beat())
        await until(lambda: len(pools.events(kind=NodeEventKind.LOST)) == 2, "two are lost")
        code, details = await silent.ending()
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "nothing was heard of node silent" in details
        await agents(gateway.port, "silent").hello()
        seen = [("silent", NodeEventKind.SEEN), ("silent", NodeEventKind.LOST), ("silent", NodeEventKind.SEEN)]
        await until(
            lambda: [(e.node.name, e.kind) for e in pools.events() if e.node.name == "silent"][:3] == seen,
            "it is seen again",
        )
        beating.cancel()
        lost = pools.events(kind=NodeEventKind.LOST)
        assert {event.node.name for event in lost[:2]} == {"silent", "broken"}
        # The time of the last word, and not of the discovery.
        seen_at = {event.node.name: event.at for event in pools.events()[:3]}
        assert all(event.at - seen_at[event.node.name] < timedelta(seconds=0.25) for event in lost[:2])
    finally:
        await gateway.stop()


async def test_a_gateway_that_stops_loses_no_node(pools: Pools, agents: Agents) -> None:
    gateway = await started(pools, silence_seconds=0.3)
    agent = agents(gateway.port)
    await agent.hello()
    await agent.fault(1)
    await agent.acked(1)
    await gateway.stop()
    code, details = await agent.ending()
    assert code is grpc.StatusCode.UNAVAILABLE
    assert "stopping" in details
    await asyncio.sleep(0.5)
    assert pools.events(kind=NodeEventKind.LOST) == []


async def test_a_flood_is_folded_with_its_count_and_acknowledged_when_durable(pools: Pools, agents: Agents) -> None:
    gateway = await started(pools, fault_rate_per_node=2.0)
    try:
        agent = agents(gateway.port)
        await agent.hello()
        await agent.fault(1, OPENED)
        for sequence in range(2, 402):
            await agent.fault(sequence, REPEATED)
        await agent.fault(402, OPENED, "nvlink.down")
        assert await agent.acked(402) == 402
        faults = pools.faults()
        repeats = [suppressed for transition, _, suppressed in faults if transition is REPEATED]
        assert len(repeats) + sum(repeats) == 400
        assert len(repeats) < 10
        assert [sequence for transition, sequence, _ in faults if transition is OPENED] == [1, 402]
    finally:
        await gateway.stop()


async def test_no_repeat_follows_the_clear(pools: Pools, agents: Agents) -> None:
    gateway = await started(pools, fault_rate_per_node=1.0)
    try:
        agent = agents(gateway.port)
        await agent.hello()
        await agent.fault(1, OPENED)
        for sequence in range(2, 52):
            await agent.fault(sequence, REPEATED)
        await agent.fault(52, CLEARED)
        assert await agent.acked(52) == 52
        assert pools.faults() == [(OPENED, 1, 0), (CLEARED, 52, 50)]
    finally:
        await gateway.stop()


async def test_a_node_is_read_no_further_while_too_much_waits(pools: Pools, agents: Agents) -> None:
    gateway = await started(pools, silence_seconds=0.5)
    try:
        agent = agents(gateway.port)
        await agent.hello()
        await until(lambda: bool(pools.events()), "the node is seen")
        pools.open.clear()
        total = MAX_UNACKED + 100
        for sequence in range(1, total + 1):
            await agent.fault(sequence)
        await until(lambda: metric(gateway, "events_waiting") == MAX_UNACKED, "the bound is reached")
        await asyncio.sleep(0.8)
        assert metric(gateway, "events_waiting") == MAX_UNACKED
        # It was not heard for long, but only because nobody listened.
        assert metric(gateway, "nodes_lost_total") == 0
        pools.open.set()
        assert await agent.acked(total) == total
        assert [sequence for _, sequence, _ in pools.faults()] == list(range(1, total + 1))
        assert max(len(report.events) for _, _, report in pools.reports) <= 200
    finally:
        await gateway.stop()


async def test_many_events_are_batched_by_size_too(pools: Pools, agents: Agents) -> None:
    gateway = await started(pools)
    try:
        agent = agents(gateway.port)
        await agent.hello()
        await until(lambda: bool(pools.events()), "the node is seen")
        pools.open.clear()
        event = convert.fault_event_to_pb(_wordy(agent))
        for sequence in range(1, 201):
            event.sequence = sequence
            await agent.send(health_pb2.AgentMessage(fault=event))
        await until(lambda: metric(gateway, "events_waiting") == 200, "all are in")
        pools.open.set()
        await agent.acked(200)
        sizes = [len(report.model_dump_json().encode()) for _, _, report in pools.reports]
        assert max(sizes) < 600_000
        assert len(pools.faults()) == 200
    finally:
        await gateway.stop()


def _wordy(agent: AgentStub) -> FaultEvent:
    event = fault_event(agent.node, agent.spool_id, 1)
    return event.model_copy(update={"fault": event.fault.model_copy(update={"evidence": ("é" * 1024,) * 5})})
