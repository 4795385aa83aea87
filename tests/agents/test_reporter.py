"""The reporter against a real gRPC server: whatever breaks, each fault arrives, in order, until it is acked."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from agents.reporter import MAX_IN_FLIGHT, Reporter
from agents.reporter_retry import Ending, RetryTimes, advice, retry_delay
from agents.spool import Spool
from domain.faults import Fault, Scope, Severity, Transition
from domain.nodes import Inventory, NodeIdentity, NodeRef
from domain.observations import Component, ComponentKind, Source
from runtime.settings import TlsFiles
from tests.agents.gateway_double import GatewayDouble, gateway_double
from tests.agents.waiting import until

NODE = NodeRef(cluster="c", pool="p", name="n1")
AT = datetime(2026, 1, 2, tzinfo=UTC)
TIMES = RetryTimes(first=0.02, longest=0.1, refused=0.1, welcome_seconds=5.0)


class Setting:
    """A reporter at work over a spool."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self.identity = NodeIdentity(node=NODE, boot_id="boot-1")
        self.ailing: list[str] = []
        self.reporter: Reporter | None = None
        self.task: asyncio.Task[None] | None = None

    def report_to(self, address: str, times: RetryTimes = TIMES) -> Reporter:
        self.reporter = Reporter(address, TlsFiles(), self.spool, lambda: self.identity, lambda: self.ailing, times)
        self.task = asyncio.create_task(self.reporter.run())
        return self.reporter

    async def record(self, count: int, transition: Transition = Transition.OPENED) -> None:
        fault = Fault(
            fault_class="gpu.fallen_off_bus",
            node=NODE,
            component=Component(kind=ComponentKind.GPU, id="GPU-1"),
            severity=Severity.FATAL,
            scope=Scope.GPU,
            source=Source.KERNEL_LOG,
            boot_id="boot-1",
            first_seen=AT,
            last_seen=AT,
        )
        await self.spool.record([(transition, fault)] * count, None, ())
        if self.reporter is not None:
            self.reporter.wake()

    async def delivered(self) -> None:
        await until(lambda: self.spool.backlog == 0, "an empty spool")

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
            assert self.task.cancelled(), "a stop is never swallowed, and the reporter never broke"
        self.spool.close()


@pytest.fixture
async def gateway() -> AsyncIterator[GatewayDouble]:
    async with gateway_double() as gateway:
        yield gateway


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    setting = Setting(await Spool.open(tmp_path / "spool.db", 10**7))
    yield setting
    await setting.stop()


async def test_what_waited_and_what_comes_is_delivered_and_then_forgotten(
    setting: Setting, gateway: GatewayDouble
) -> None:
    await setting.record(3)
    setting.report_to(gateway.address)
    await gateway.until(lambda: bool(gateway.streams) and len(gateway.streams[0].faults) == 3, "three old faults")
    await setting.record(2)
    await setting.delivered()
    (stream,) = gateway.streams
    assert stream.hello.identity.node.name == "n1"
    assert stream.hello.spool_id == setting.spool.spool_id
    assert stream.sequences == [1, 2, 3, 4, 5]
    assert await setting.spool.unacked(0, 10) == []


async def test_only_what_is_acked_is_deleted(setting: Setting, gateway: GatewayDouble) -> None:
    gateway.auto_ack = False
    await setting.record(5)
    setting.report_to(gateway.address)
    await gateway.until(lambda: bool(gateway.streams) and len(gateway.streams[0].faults) == 5, "five faults")
    await gateway.ack(2)
    await until(lambda: setting.spool.backlog == 3, "two deleted")
    await gateway.ack(1)  # late and out of order
    await gateway.ack(99)  # for what was never sent
    await setting.record(1)
    await gateway.until(lambda: len(gateway.streams[0].faults) == 6, "the sixth fault")
    assert [event.sequence for event in await setting.spool.unacked(0, 10)] == [3, 4, 5, 6]


async def test_after_a_break_the_unacked_are_sent_again_in_order_and_nothing_else(
    setting: Setting, gateway: GatewayDouble
) -> None:
    gateway.auto_ack = False
    await setting.record(6)
    setting.report_to(gateway.address)
    await gateway.until(lambda: bool(gateway.streams) and len(gateway.streams[0].faults) == 6, "six faults")
    await gateway.ack(2)
    await gateway.restart()
    await gateway.until(lambda: len(gateway.streams) > 1 and len(gateway.streams[-1].faults) == 4, "the other four")
    assert gateway.streams[-1].sequences == [3, 4, 5, 6]
    await gateway.ack(6)
    await setting.delivered()


async def test_what_the_gateway_knew_before_the_ack_was_lost_is_not_sent_again(
    setting: Setting, gateway: GatewayDouble
) -> None:
    await setting.record(4)
    gateway.durable[setting.spool.spool_id] = 3
    setting.report_to(gateway.address)
    await setting.delivered()
    assert gateway.streams[0].sequences == [4]


async def test_nothing_is_lost_over_many_breaks(setting: Setting, gateway: GatewayDouble) -> None:
    dice = random.Random(7)
    setting.report_to(gateway.address)
    for _ in range(8):
        await setting.record(dice.randint(1, 40))
        if dice.random() < 0.7:
            await gateway.restart()
    await setting.delivered()
    arrived: list[int] = []
    for stream in gateway.streams:
        assert stream.sequences == sorted(set(stream.sequences)), "in order, each once a stream"
        arrived += stream.sequences
    assert set(arrived) == set(range(1, setting.spool.last_sequence + 1))


async def test_a_burst_stays_within_what_may_be_in_flight(setting: Setting, gateway: GatewayDouble) -> None:
    gateway.auto_ack = False
    await setting.record(MAX_IN_FLIGHT + 100)
    setting.report_to(gateway.address)
    await gateway.until(
        lambda: (
            bool(gateway.streams)
            and len(gateway.streams[0].faults) >= MAX_IN_FLIGHT
            and len(gateway.streams[0].heartbeats) >= 3
        ),
        "a full window and heartbeats beside it",
    )
    assert len(gateway.streams[0].faults) == MAX_IN_FLIGHT
    await gateway.ack(50)
    await gateway.until(lambda: len(gateway.streams[0].faults) >= MAX_IN_FLIGHT + 50, "room for fifty more")
    assert gateway.streams[0].sequences == list(range(1, MAX_IN_FLIGHT + 51))


async def test_heartbeats_count_up_and_tell_how_the_agent_is(setting: Setting, gateway: GatewayDouble) -> None:
    gateway.auto_ack = False
    setting.ailing = ["kernel-log"]
    await setting.record(2)
    setting.report_to(gateway.address)
    await gateway.until(lambda: bool(gateway.streams) and len(gateway.streams[0].heartbeats) >= 4, "heartbeats")
    beats = gateway.streams[0].heartbeats
    assert [beat.sequence for beat in beats[:4]] == [1, 2, 3, 4]
    assert beats[-1].backlog == 2
    assert list(beats[-1].ailing_checks) == ["kernel-log"]
    assert abs(beats[-1].clock.ToDatetime(UTC) - datetime.now(UTC)).total_seconds() < 60


async def test_the_gateway_sets_the_pace_of_heartbeats(setting: Setting, gateway: GatewayDouble) -> None:
    gateway.heartbeat_seconds = 300.0
    setting.report_to(gateway.address)
    await gateway.until(lambda: bool(gateway.streams) and len(gateway.streams[0].heartbeats) == 1, "the first one")
    await gateway.settings(0.05)
    await gateway.until(lambda: len(gateway.streams[0].heartbeats) >= 5, "a quicker pace")


async def test_a_changed_identity_is_told_in_a_new_hello(setting: Setting, gateway: GatewayDouble) -> None:
    reporter = setting.report_to(gateway.address)
    await until(lambda: reporter.connected, "a welcome")
    setting.identity = setting.identity.model_copy(update={"inventory": Inventory(driver_version="580.1")})
    reporter.introduce_again()
    await gateway.until(lambda: len(gateway.streams) == 2, "a second hello")
    assert gateway.streams[1].hello.identity.inventory.driver_version == "580.1"
    await setting.record(1)
    await setting.delivered()
    assert gateway.streams[1].sequences == [1]


async def test_a_refusal_says_what_to_do_and_is_tried_again(
    setting: Setting, gateway: GatewayDouble, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.refuse = grpc.StatusCode.PERMISSION_DENIED
    await setting.record(1)
    setting.report_to(gateway.address)
    await gateway.until(lambda: len(gateway.streams) >= 2, "a second try")
    assert "the certificate's name must be the node's name" in caplog.text
    assert setting.spool.backlog == 1
    gateway.refuse = None
    await setting.delivered()


async def test_a_gateway_that_never_welcomes_is_left(setting: Setting, gateway: GatewayDouble) -> None:
    gateway.mute = True
    await setting.record(1)
    setting.report_to(gateway.address, RetryTimes(first=0.02, longest=0.1, welcome_seconds=0.2))
    await gateway.until(lambda: len(gateway.streams) >= 2, "a second try")
    assert gateway.streams[0].faults == [], "nothing is sent before the welcome"
    gateway.mute = False
    await setting.delivered()


async def test_one_event_the_gateway_cannot_read_never_holds_up_the_others(
    setting: Setting, gateway: GatewayDouble, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.malformed = 3
    await setting.record(6)
    setting.report_to(gateway.address)
    await setting.delivered()
    arrived = {number for stream in gateway.streams for number in stream.sequences}
    assert arrived == {1, 2, 4, 5, 6}
    assert "cannot read fault 3" in caplog.text


async def test_a_copied_spool_takes_a_new_identity_so_that_nothing_is_dropped(
    setting: Setting, gateway: GatewayDouble
) -> None:
    copied = setting.spool.spool_id
    gateway.durable[copied] = 500
    await setting.record(2)
    setting.report_to(gateway.address)
    await setting.delivered()
    assert gateway.streams[-1].hello.spool_id != copied
    assert gateway.streams[-1].sequences == [1, 2]


async def test_an_absent_gateway_is_waited_for(setting: Setting, gateway: GatewayDouble) -> None:
    address, port = gateway.address, int(gateway.address.rpartition(":")[2])
    await gateway.stop()
    await setting.record(1)
    reporter = setting.report_to(address)
    await asyncio.sleep(0.1)
    assert not reporter.connected
    await gateway.start(port)
    await setting.delivered()


def test_delays_grow_to_their_bound_and_start_again_after_a_welcome() -> None:
    times = RetryTimes()
    away = Ending("unreachable", grpc.StatusCode.UNAVAILABLE)
    longest = [max(retry_delay(away, failures, times) for _ in range(300)) for failures in (0, 1, 2, 40)]
    assert longest[0] <= 0.5 < longest[2] <= 2.0
    assert 25.0 < longest[3] <= 30.0
    assert min(retry_delay(away, 40, times) for _ in range(300)) < 3.0, "full jitter"
    refused = Ending("no", grpc.StatusCode.FAILED_PRECONDITION)
    assert all(30.0 <= retry_delay(refused, 0, times) <= 60.0 for _ in range(50))
    assert retry_delay(Ending("new identity", wanted=True), 9, times) == 0.0


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.UNIMPLEMENTED,
    ],
)
def test_each_refusal_has_advice(code: grpc.StatusCode) -> None:
    assert len(advice(code)) > 40
    assert advice(grpc.StatusCode.UNAVAILABLE) == ""
