"""A real agent on the real ring buffer of this machine, up to a repair that a person releases with ``temporal``."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from agents.kernel.kmsg import DEVICE
from cli.launch import module_command
from cli.ports import LOOPBACK, free_ports
from cli.temporal_server import binary
from domain.repair import Outcome, RepairState, StepState
from runtime import temporal
from tests.processes.plant import (
    Part,
    Repairs,
    at_once,
    gateway_part,
    settings,
    temporal_part,
    until,
    worker_part,
)

POLICY = Path(__file__).parents[2] / "deploy" / "policies" / "approve.yaml"
NODE = "desk"
CLUSTER = "real"
POOL = "desks"

pytestmark = [
    pytest.mark.kmsg,
    pytest.mark.processes,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        os.geteuid() != 0 or not os.access(DEVICE, os.R_OK | os.W_OK), reason=f"needs root and a writable {DEVICE}"
    ),
]


def unused_address() -> str:
    """Return a PCI address that this run alone writes: other tests use the same ring buffer."""
    random = Random()
    return f"{random.randrange(0x1000, 0x10000):04x}:{random.randrange(256):02x}:{random.randrange(32):02x}"


def write_xid(address: str) -> None:
    """Write what the driver writes about a GPU that has fallen off the bus, as a process can."""
    text = f"NVRM: Xid (PCI:{address}): 79, pid=1234, name=python3, GPU has fallen off the bus.\n"
    descriptor = os.open(DEVICE, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def agent_part(directory: Path, gateway: str, *more: str) -> Part:
    """Return the agent as it runs on every node."""
    where = ["--cluster", CLUSTER, "--pool", POOL, "--node", NODE, "--gateway", gateway, "--listen", f"{LOOPBACK}:0"]
    command = module_command("agents", [*where, "--state-dir", str(directory / "agent"), *more])
    return Part("agents", command, directory, {}, at_once)


def signal(directory: Path, address: str, repair_id: str, name: str, said: dict[str, str]) -> None:
    """Say something to a repair with nothing but Temporal's own command."""
    command = [binary(), "workflow", "signal", "--address", address, "--workflow-id", repair_id]
    command += ["--name", name, "--input", json.dumps(said)]
    done = subprocess.run(command, env=settings(directory, {}), capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path, timeout=10)) as database:
        return database.execute(query).fetchall()


async def test_a_line_in_the_kernel_log_becomes_a_repair_that_a_person_releases(tmp_path: Path) -> None:
    temporal_port, gateway_port = free_ports(2)
    address, gateway = f"{LOOPBACK}:{temporal_port}", f"{LOOPBACK}:{gateway_port}"
    parts = [
        temporal_part(tmp_path, temporal_port),
        gateway_part(tmp_path, address, gateway_port),
        worker_part(tmp_path, address, CLUSTER, POLICY, {}),
        agent_part(tmp_path, gateway),
    ]
    server, gateway_process, worker, agent = parts
    drill = agent_part(tmp_path, gateway, "--accept-injected")
    try:
        await server.start()
        await asyncio.gather(gateway_process.start(), worker.start())
        repairs = Repairs(await temporal.connect(address, attempts=5), CLUSTER, POOL)

        # The kernel speaks for itself: what a process wrote is told, whatever the ring buffer holds.
        forged = unused_address()
        await agent.start()
        write_xid(forged)

        async def told() -> bool:
            return any(
                "a process wrote a kernel-like record (gpu.fallen_off_bus)" in line
                and any(forged in later for later in lines[number : number + 4])
                for lines in [worker.log.read_text().splitlines()]
                for number, line in enumerate(lines)
            )

        await until(told, "people are told of a forged record")
        assert await repairs.count() == 0
        assert await agent.terminate() == 0

        # In a drill it is believed. The agent goes on behind what it has read, so that older lines are no news.
        believed = unused_address()
        await drill.start()
        write_xid(believed)
        seen: list[RepairState] = []

        async def waits() -> bool:
            state = await repairs.state(NODE)
            seen[:] = [state] if state is not None else []
            return state is not None and state.wait is not None and any(believed in f.key for f in state.faults)

        await until(waits, "the repair waits for a person")
        state = seen[0]
        wait = state.wait
        assert wait is not None
        assert not any(forged in fault.key for fault in state.faults)
        assert wait.approved_by == ()
        ledger, marks = tmp_path / "ledger.db", tmp_path / "standalone.db"
        assert rows(marks, "SELECT repair_id FROM marks") == [(state.repair_id,)]

        signal(
            tmp_path,
            address,
            state.repair_id,
            "approve",
            {"by": "ana", "step": wait.step_id, "digest": wait.digest},
        )

        async def released() -> bool:
            state = await repairs.state(NODE)
            record = state.step(wait.step_id) if state is not None else None
            return record is not None and record.decided_by == "ana" and record.state is not StepState.RUNNING

        await until(released, f"{wait.step_id} runs on the word of ana")

        # This agent can only look, so the step failed and the repair asks again; a person gives the machine back.
        signal(
            tmp_path,
            address,
            state.repair_id,
            "override",
            {"by": "ana", "action": "return", "reason": "it was a drill"},
        )
        async with asyncio.timeout(60):
            result = await repairs.handle(NODE).result()
        assert result.outcome is Outcome.RETURNED
        assert rows(marks, "SELECT repair_id FROM marks") == []
        assert "ana" in {who for (who,) in rows(ledger, "SELECT who FROM entries")}
        assert await repairs.count() == 1
        assert await drill.terminate() == 0
    finally:
        for part in (drill, *reversed(parts)):
            await part.end()
