"""How each process ends: 0 when it is asked to stop, 2 with a sentence when its settings cannot be used."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cli.launch import module_command
from cli.ports import LOOPBACK, free_ports
from tests.processes.plant import (
    Part,
    gateway_part,
    serves,
    settings,
    temporal_part,
    worker_part,
)

pytestmark = pytest.mark.processes

NOTHING_THERE = f"{LOOPBACK}:1"
"""Address at which nothing listens."""


def says(text: str, part: Part) -> Part:
    """Let a part be ready once it has said something."""

    async def ready(part: Part) -> bool:
        return text in part.log.read_text()

    part.ready = ready
    return part


def run(
    directory: Path, module: str, arguments: Sequence[str], given: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a process that is not expected to go on."""
    return subprocess.run(
        module_command(module, arguments),
        env=settings(directory, given),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
    )


async def ends_well(part: Part) -> None:
    try:
        await part.start()
        assert await part.terminate() == 0, part.log.read_text()
    finally:
        await part.end()
    assert "Traceback" not in part.log.read_text()


async def test_gateway_and_worker_stop_with_temporal_there(tmp_path: Path) -> None:
    temporal_port, gateway_port = free_ports(2)
    temporal = temporal_part(tmp_path, temporal_port)
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\n")
    try:
        await temporal.start()
        await ends_well(gateway_part(tmp_path, f"{LOOPBACK}:{temporal_port}", gateway_port))
        await ends_well(worker_part(tmp_path, f"{LOOPBACK}:{temporal_port}", "lone", policy, {}))
    finally:
        await temporal.end()


async def test_gateway_and_worker_stop_while_they_wait_for_temporal(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\n")
    waits = "does not answer, trying again"
    await ends_well(says(waits, gateway_part(tmp_path, NOTHING_THERE, free_ports(1)[0])))
    await ends_well(says(waits, worker_part(tmp_path, NOTHING_THERE, "lone", policy, {})))


async def test_agent_stops_while_its_gateway_is_away(tmp_path: Path) -> None:
    given = {"KINTSUGI_AGENT_KERNEL_LOG": str(tmp_path / "kmsg"), "KINTSUGI_AGENT_STATE_DIR": str(tmp_path / "agent")}
    given |= {"KINTSUGI_AGENT_GATEWAY": NOTHING_THERE, "KINTSUGI_AGENT_LISTEN": f"{LOOPBACK}:0"}
    await ends_well(says("serves operations on", Part("agents", module_command("agents"), tmp_path, given, serves(""))))


async def test_simulator_and_fleet_stop(tmp_path: Path) -> None:
    world = f"{LOOPBACK}:{free_ports(1)[0]}"
    simulator = module_command("simulator", ["--listen", world, "--nodes", "2"])
    options = ["--gateway", NOTHING_THERE, "--state-dir", str(tmp_path / "agents"), "--log-level", "INFO"]
    running = Part("simulator", simulator, tmp_path, {}, serves(world))
    try:
        await running.start()
        fleet = Part("fleet", module_command("fleet", ["--world", world, *options]), tmp_path, {}, serves(""))
        await ends_well(says("serves operations on", fleet))
        assert await running.terminate() == 0, running.log.read_text()
    finally:
        await running.end()
    lonely = Part("lonely", module_command("fleet", ["--world", NOTHING_THERE, *options]), tmp_path, {}, serves(""))
    await ends_well(says("trying again", lonely))


@pytest.mark.parametrize(
    ("module", "arguments", "given", "named"),
    [
        ("gateway", (), {"KINTSUGI_GATEWAY_HEARTBEAT_SECONDS": "-1"}, "heartbeat_seconds"),
        ("gateway", ("--listen", "nowhere"), {}, "listen"),
        ("gateway", ("--listen", "0.0.0.0:0"), {}, "listen"),
        ("gateway", (), {"KINTSUGI_GATEWAY_LOG_LEVEL": "LOUD"}, "LOUD"),
        ("gateway", (), {"KINTSUGI_CONFIG": "/nowhere/kintsugi.toml"}, "/nowhere/kintsugi.toml"),
        ("gateway", (), {"TEMPORAL_PROFILE": "nobody"}, "nobody"),
        ("worker", (), {"KINTSUGI_WORKER_SCHEDULER": "magic"}, "scheduler"),
        ("worker", ("--cluster", "a/b"), {}, "cluster"),
        ("worker", ("--policy", "/nowhere/policy.yaml"), {}, "/nowhere/policy.yaml"),
        ("worker", (), {"KINTSUGI_WORKER_LOG_LEVEL": "LOUD"}, "LOUD"),
        ("worker", (), {"KINTSUGI_WORKER_LEDGER": "/proc/ledger.db"}, "/proc/ledger.db"),
        ("worker", (), {"KINTSUGI_WORKER_SCHEDULER": "simulated"}, "simulator"),
        ("worker", (), {"TEMPORAL_PROFILE": "nobody"}, "nobody"),
        ("agents", ("--node", "a/b"), {}, "node"),
        ("agents", (), {"KINTSUGI_AGENT_NVML_INTERVAL_SECONDS": "0"}, "nvml_interval_seconds"),
        ("agents", ("--listen", "nowhere"), {}, "nowhere"),
        ("agents", ("--state-dir", "/proc/agent"), {}, "/proc/agent"),
        ("agents", (), {"KINTSUGI_AGENT_DRIVER": "magic"}, "magic"),
        ("agents", (), {"KINTSUGI_AGENT_LOG_LEVEL": "LOUD"}, "LOUD"),
        ("fleet", ("--world", NOTHING_THERE), {}, "--state-dir"),
        ("fleet", ("--world", NOTHING_THERE, "--state-dir", "x", "--log-level", "LOUD"), {}, "LOUD"),
        ("simulator", ("--nodes", "0"), {}, "--nodes"),
        ("simulator", ("--timing", "tea=5"), {}, "tea"),
        ("simulator", ("--listen", "nowhere"), {}, "nowhere"),
    ],
)
def test_bad_settings_are_told_in_a_sentence(
    tmp_path: Path, module: str, arguments: Sequence[str], given: Mapping[str, str], named: str
) -> None:
    places = {
        "KINTSUGI_AGENT_STATE_DIR": str(tmp_path / "agent"),
        "KINTSUGI_AGENT_LISTEN": f"{LOOPBACK}:0",
        "KINTSUGI_GATEWAY_LISTEN": f"{LOOPBACK}:0",
        "KINTSUGI_WORKER_LEDGER": str(tmp_path / "ledger.db"),
        "TEMPORAL_ADDRESS": NOTHING_THERE,
    }
    ended = run(tmp_path, module, arguments, {**places, **given})
    assert ended.returncode == 2, ended.stderr
    assert named in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    world = f"{LOOPBACK}:{free_ports(1)[0]}"
    first = Part("simulator", module_command("simulator", ["--listen", world]), tmp_path, {}, serves(world))
    try:
        await first.start()
        given = {"KINTSUGI_GATEWAY_LISTEN": world, "KINTSUGI_AGENT_LISTEN": world, "TEMPORAL_ADDRESS": NOTHING_THERE}
        given["KINTSUGI_AGENT_STATE_DIR"] = str(tmp_path / "agent")
        for module, arguments in (("gateway", ()), ("agents", ()), ("simulator", ("--listen", world))):
            ended = await asyncio.to_thread(run, tmp_path, module, arguments, given)
            assert ended.returncode == 2, ended.stderr
            assert world in ended.stderr
            assert "Traceback" not in ended.stderr
    finally:
        await first.end()
