"""The agent as a whole, in this process and as real ones that are killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from datetime import datetime
from pathlib import Path

import grpc.aio
import pytest

from agents.agent import Agent
from agents.boot import BootFacts
from agents.database import transact
from agents.errors import StartError
from agents.kernel.records import KernelRecordSource
from agents.operations.inspect_only import InspectOnlyDriver
from domain.fault_tracker import FaultTracker
from domain.faults import Fault, Transition
from domain.gpu_snapshot import GpuReading, GpuSnapshot
from domain.observations import Observation
from tests.agents.gateway_double import GatewayDouble, gateway_double
from tests.agents.node_double import BOOT, FileKernel, GpusDouble, KernelDouble, settings, xid_line
from tests.agents.waiting import until
from wire.v1 import health_pb2, operations_pb2, operations_pb2_grpc

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def gateway() -> AsyncIterator[GatewayDouble]:
    async with gateway_double() as gateway:
        yield gateway


class Node:
    """What survives an agent: the log, the GPUs, the disk."""

    def __init__(self, gateway: GatewayDouble, state_dir: Path) -> None:
        self.gateway = gateway
        self.state_dir = state_dir
        self.kernel = KernelDouble()
        self.gpus = GpusDouble()
        self.boot = BOOT

    @asynccontextmanager
    async def agent(self, kernel: KernelRecordSource | None = None, **rest: object) -> AsyncIterator[Agent]:
        made = settings(self.gateway.address, self.state_dir, **rest)
        agent = Agent(made, self.boot, kernel or self.kernel, self.gpus, InspectOnlyDriver())
        running = asyncio.create_task(agent.run())
        try:
            async with asyncio.timeout(10):
                await agent.serving()
            yield agent
        finally:
            running.cancel()
            await asyncio.wait([running])
        assert running.cancelled(), "the agent ran until it was stopped"

    def faults(self) -> list[health_pb2.FaultEvent]:
        """What the gateway holds, each number once."""
        found = {fault.sequence: fault for stream in self.gateway.streams for fault in stream.faults}
        return [found[sequence] for sequence in sorted(found)]

    async def arrive(self, count: int) -> list[health_pb2.FaultEvent]:
        await self.gateway.until(lambda: len(self.faults()) >= count, f"{count} fault events")
        return self.faults()


@pytest.fixture
def node(gateway: GatewayDouble, tmp_path: Path) -> Node:
    return Node(gateway, tmp_path / "state")


def kept_position(state_dir: Path) -> int:
    with closing(sqlite3.connect(state_dir / "spool.db")) as connection:
        row = connection.execute("SELECT sequence FROM position").fetchone()
    return -1 if row is None else int(row[0])


async def inspect(agent: Agent) -> operations_pb2.Inspection:
    async with grpc.aio.insecure_channel(agent.operations_address) as channel:
        stub = operations_pb2_grpc.NodeOperationsStub(channel)  # type: ignore[no-untyped-call]
        answer = await stub.Inspect(operations_pb2.InspectRequest())
        assert isinstance(answer, operations_pb2.Inspection)
        return answer


async def test_a_kernel_line_becomes_a_fault_at_the_gateway(node: Node) -> None:
    async with node.agent() as agent:
        node.kernel.write("usb 1-1: new device")
        node.kernel.write(xid_line(0x1B))
        (event,) = await node.arrive(1)
        inspection = await inspect(agent)
    assert event.sequence == 1
    assert event.transition == health_pb2.TRANSITION_OPENED
    assert event.fault.xid == 79
    assert event.fault.trusted
    hello = node.gateway.streams[0].hello.identity
    assert (hello.node.name, hello.boot_id, hello.machine_id) == ("n1", "boot-1", "machine-1")
    assert hello.operations_address == agent.operations_address
    assert len(inspection.open_faults) == 1
    assert any("no driver on this machine" in spot for spot in inspection.blind_spots)


async def test_a_restart_replays_nothing_and_keeps_what_is_open(node: Node) -> None:
    async with node.agent():
        node.kernel.write(xid_line(0x1B))
        await node.arrive(1)
    async with node.agent() as agent:
        node.kernel.write(xid_line(0x2C))
        events = await node.arrive(2)
        inspection = await inspect(agent)
    assert [event.sequence for event in events] == [1, 2]
    assert [event.transition for event in events] == [health_pb2.TRANSITION_OPENED] * 2
    assert len(inspection.open_faults) == 2
    assert len({stream.hello.spool_id for stream in node.gateway.streams}) == 1


async def test_lines_that_mean_nothing_are_not_read_again_either(node: Node) -> None:
    async with node.agent():
        for _ in range(5):
            node.kernel.write("nothing of interest")
        await until(lambda: kept_position(node.state_dir) == 4, "the position on disk")
    async with node.agent():
        await until(lambda: len(node.kernel.asked_after) == 2, "the second read")
    assert node.kernel.asked_after == [-1, 4]


async def test_what_happened_without_a_gateway_arrives_when_it_is_back(node: Node) -> None:
    await node.gateway.stop()
    async with node.agent():
        for bus in range(1, 6):
            node.kernel.write(xid_line(bus))
        await asyncio.sleep(0.1)
    await node.gateway.start(int(node.gateway.address.rpartition(":")[2]))
    async with node.agent():
        events = await node.arrive(5)
    assert [event.sequence for event in events] == [1, 2, 3, 4, 5]


async def test_a_line_from_before_the_start_is_told_of_the_gpu_and_not_of_its_slot(node: Node) -> None:
    node.kernel.write(xid_line(0x1B))
    node.gpus.answer = GpuSnapshot(
        driver_version="580.65.06", readings=(GpuReading(index=0, uuid="GPU-7", pci_bus_id="00000000:1B:00.0"),)
    )
    async with node.agent():
        (event,) = await node.arrive(1)
    assert event.fault.component.id == "GPU-7"
    assert [gpu.uuid for gpu in node.gateway.streams[0].hello.identity.inventory.gpus] == ["GPU-7"]


async def test_gpus_that_show_up_later_are_told_in_a_new_hello(node: Node) -> None:
    async with node.agent(nvml_interval_seconds=0.05):
        await node.gateway.until(lambda: len(node.gateway.streams) == 1, "a hello without GPUs")
        node.gpus.answer = GpuSnapshot(driver_version="580.65.06", readings=())
        await node.gateway.until(
            lambda: node.gateway.streams[-1].hello.identity.inventory.driver_version == "580.65.06",
            "a hello with the driver",
        )
    assert not node.gateway.streams[0].hello.identity.inventory.driver_version


async def test_a_kernel_log_that_cannot_be_read_is_a_blind_spot_and_no_crash(node: Node) -> None:
    node.kernel.broken = PermissionError(13, "Permission denied", "/dev/kmsg")
    async with node.agent() as agent:
        await node.gateway.until(
            lambda: any(
                "kernel" in name for s in node.gateway.streams for b in s.heartbeats for name in b.ailing_checks
            ),
            "a heartbeat that names the check",
        )
        spots = (await inspect(agent)).blind_spots
    assert any("Permission denied /dev/kmsg" in spot for spot in spots)


async def test_a_line_that_breaks_the_tracker_stops_nobody(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = FaultTracker.apply

    def breaks(
        tracker: FaultTracker, observations: Iterable[Observation], now: datetime
    ) -> list[tuple[Transition, Fault]]:
        seen = list(observations)
        if any("3d:" in observation.text for observation in seen):
            raise ZeroDivisionError("a mistake of ours")
        return genuine(tracker, seen, now)

    monkeypatch.setattr(FaultTracker, "apply", breaks)
    async with node.agent():
        for bus in (0x1B, 0x3D, 0x2C):
            node.kernel.write(xid_line(bus))
        events = await node.arrive(2)
    assert ["1b:" in event.fault.evidence[0] for event in events] == [True, False]


async def test_another_boot_starts_its_log_anew(node: Node) -> None:
    async with node.agent():
        node.kernel.write(xid_line(0x1B))
        await node.arrive(1)
    node.boot = BootFacts(boot_id="boot-2", machine_id="machine-1", kernel_release="6.1.0")
    node.kernel = KernelDouble()
    async with node.agent():
        await until(lambda: node.kernel.asked_after == [-1], "a read from the start")
        await node.gateway.until(lambda: len(node.gateway.streams) == 2, "a hello")
    assert node.gateway.streams[-1].hello.identity.boot_id == "boot-2"


async def test_two_agents_never_share_a_state_directory(node: Node) -> None:
    async with node.agent():
        second = Agent(
            settings(node.gateway.address, node.state_dir), BOOT, KernelDouble(), GpusDouble(), InspectOnlyDriver()
        )
        with pytest.raises(StartError, match="another agent already uses"):
            await second.run()
        with pytest.raises(RuntimeError, match="ended before it served"):
            await second.serving()


async def test_a_full_disk_stops_no_fault_from_being_told(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node.agent() as agent:
        node.kernel.write(xid_line(0x1B))
        await node.arrive(1)

        def refuse(connection: sqlite3.Connection, work: object, durable: bool) -> object:
            if connection.execute("PRAGMA database_list").fetchone()[2]:
                raise sqlite3.OperationalError("database or disk is full")
            return transact(connection, work, durable)  # type: ignore[arg-type]

        monkeypatch.setattr("agents.spool.transact", refuse)
        node.kernel.write(xid_line(0x2C))
        await node.gateway.until(
            lambda: any("2c" in event.fault.evidence[0] for heard in node.gateway.streams for event in heard.faults),
            "the second fault",
        )
        await node.gateway.until(
            lambda: any("spool" in beat.ailing_checks for beat in node.gateway.streams[-1].heartbeats),
            "a heartbeat that says so",
        )
        spots = (await inspect(agent)).blind_spots
        monkeypatch.undo()
    assert any("free space there" in spot for spot in spots)
    assert len({stream.hello.spool_id for stream in node.gateway.streams}) == 2, "numbers of memory are others"


@pytest.mark.processes
async def test_sigkill_in_the_middle_loses_nothing_and_repeats_no_number(
    gateway: GatewayDouble, tmp_path: Path
) -> None:
    node = Node(gateway, tmp_path / "state")
    log_file = tmp_path / "kernel.log"
    log_file.write_text("")
    lines = [xid_line(bus) for bus in range(1, 181)]
    for third in range(3):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.agents.node_double",
            gateway.address,
            str(node.state_dir),
            str(log_file),
            cwd=ROOT,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            for number in range(third * 60, third * 60 + 60):
                with log_file.open("a") as log:
                    log.write(lines[number] + "\n")
                await asyncio.sleep(0.002)
                if number % 60 == 40:
                    await node.arrive(number - 10)
                    break
            for rest in lines[number + 1 : third * 60 + 60]:
                with log_file.open("a") as log:
                    log.write(rest + "\n")
        finally:
            process.send_signal(signal.SIGKILL)
            await process.wait()
    async with node.agent(FileKernel(log_file)):
        events = await node.arrive(180)
        await asyncio.sleep(0.3)  # nothing more may come
    assert len(node.faults()) == 180
    assert [event.sequence for event in events] == list(range(1, 181))
    assert len({event.fault.component.id for event in events}) == 180
    assert {event.transition for event in events} == {health_pb2.TRANSITION_OPENED}


async def command(tmp_path: Path, *arguments: str, **environment: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "agents",
        *arguments,
        cwd=ROOT,
        env={**os.environ, "KINTSUGI_AGENT_LISTEN": "127.0.0.1:0", **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.processes
async def test_the_command_watches_until_it_is_told_to_stop(gateway: GatewayDouble, tmp_path: Path) -> None:
    quiet_log = tmp_path / "no-kmsg"
    for number in (signal.SIGTERM, signal.SIGINT):
        known = len(gateway.streams)
        process = await command(
            tmp_path,
            "--gateway",
            gateway.address,
            "--state-dir",
            str(tmp_path / "state"),
            "--node",
            "n1",
            KINTSUGI_AGENT_KERNEL_LOG=str(quiet_log),
        )
        try:
            await gateway.until(lambda known=known: len(gateway.streams) > known, "a hello")  # type: ignore[misc]
            process.send_signal(number)
            async with asyncio.timeout(20):
                _, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, errors.decode()
        assert b"Traceback" not in errors
        assert b"no-kmsg" in errors, "a log that cannot be read is named"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (("--state-dir", "{file}/below"), {}, "set KINTSUGI_AGENT_STATE_DIR"),
        (("--listen", "127.0.0.1:{taken}"), {}, "port is in use"),
        (("--listen", "0.0.0.0:0"), {}, "without TLS"),
        (("--node", "a/b"), {}, "node"),
        ((), {"KINTSUGI_AGENT_DRIVER": "magic"}, "only 'none' is known"),
        ((), {"KINTSUGI_AGENT_TLS__CA": "/nowhere/ca.pem"}, "all three files"),
    ],
)
async def test_what_cannot_start_says_what_to_do(
    tmp_path: Path, arguments: tuple[str, ...], environment: dict[str, str], words: str
) -> None:
    (tmp_path / "file").write_text("")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        places = {"file": tmp_path / "file", "taken": listener.getsockname()[1]}
        process = await command(
            tmp_path,
            "--state-dir",
            str(tmp_path / "state"),
            *(argument.format(**places) for argument in arguments),
            **environment,
        )
        async with asyncio.timeout(30):
            _, errors = await process.communicate()
    assert process.returncode == 2
    assert words in errors.decode()
    assert "Traceback" not in errors.decode()


@pytest.mark.kmsg
@pytest.mark.processes
@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK | os.W_OK), reason="only root may write the kernel log")
@pytest.mark.parametrize("accepted", [False, True])
async def test_the_real_kernel_log(gateway: GatewayDouble, tmp_path: Path, accepted: bool) -> None:
    # A PCI domain that no machine has, so that what others write meanwhile is told apart.
    address = f"{random.randrange(0x8000, 0xFFFF):04x}:1b:00"
    drill = ["--accept-injected"] if accepted else []
    process = await command(
        tmp_path, "--gateway", gateway.address, "--state-dir", str(tmp_path / "state"), "--node", "n1", *drill
    )
    try:
        await gateway.until(lambda: bool(gateway.streams), "a hello")
        with open("/dev/kmsg", "w") as kernel:  # noqa: ASYNC230 - one line
            kernel.write(f"NVRM: Xid (PCI:{address}): 79, pid=1234, name=python3, GPU has fallen off the bus.\n")

        def ours() -> list[health_pb2.FaultEvent]:
            return [event for heard in gateway.streams for event in heard.faults if address in str(event)]

        await gateway.until(lambda: bool(ours()), "the fault")
    finally:
        process.kill()
        await process.communicate()
    assert ours()[0].fault.xid == 79
    assert ours()[0].fault.trusted is accepted, "a process wrote it, not the kernel"
