"""The demonstration's processes: Temporal, gateway, worker, simulated world, and its fleet of real agents."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from temporalio.client import Client

from cli import plane
from cli.demo.inbox import Inbox
from cli.launch import DEBUG_VARIABLE, environment, module_command
from cli.ports import LOOPBACK, answers, free_ports
from cli.supervisor import Child, Supervisor
from simulator.client import WorldClient
from simulator.scenarios import training_job

CLUSTER = "demo"
POOL = "train"
NODES = 8
SPARES = 1
CHECKPOINT_EVERY = 10
"""How often the training job saves by itself, in steps: every five seconds, so that there is something to lose."""
POLICY = Path(__file__).with_name("policy.yaml")


A = TypeVar("A")
B = TypeVar("B")


@dataclass
class Stage:
    """What runs, and where.

    Attributes:
        speed: simulated seconds in a second of the world.
    """

    directory: Path
    supervisor: Supervisor
    speed: float
    inbox: Inbox = field(default_factory=Inbox)
    temporal: str = ""
    web_ui: str = ""
    _client: Client | None = None
    _world: WorldClient | None = None

    @property
    def client(self) -> Client:
        """The Temporal client, once set up."""
        assert self._client is not None
        return self._client

    @property
    def world(self) -> WorldClient:
        """The simulated world, once set up."""
        assert self._world is not None
        return self._world

    @property
    def ledger(self) -> Path:
        """File of the permanent record."""
        return self.directory / "ledger.db"

    async def set_up(self) -> None:
        """Start everything. Raises ``CouldNotError`` with the end of the log of what did not start."""
        self.inbox.open()
        world_port, gateway_port, temporal_port, ui_port = free_ports(4)
        world = f"{LOOPBACK}:{world_port}"
        gateway = f"{LOOPBACK}:{gateway_port}"
        embedded, _ = await _both(
            plane.start_temporal(self.supervisor, self.directory, temporal_port, ui_port),
            self.supervisor.add(self._world_child(world), lambda: answers(world), within_seconds=60),
        )
        self.temporal, self.web_ui = embedded
        self._client = await plane.reach(self.temporal)
        self._world = WorldClient(world)
        await self._world.submit(training_job().model_copy(update={"own_checkpoint_every": CHECKPOINT_EVERY}))
        given = {"TEMPORAL_ADDRESS": self.temporal}
        await _both(
            plane.start_gateway(
                self.supervisor,
                self.directory,
                {
                    **given,
                    "KINTSUGI_GATEWAY_LISTEN": gateway,
                    "KINTSUGI_GATEWAY_HEARTBEAT_SECONDS": "1",
                    "KINTSUGI_GATEWAY_SILENCE_SECONDS": "4",
                },
                "INFO",
            ),
            plane.start_worker(
                self.supervisor, self.directory, self._worker_settings(given, world), self._client, "INFO"
            ),
        )
        await self.supervisor.add(self._fleet_child(world, gateway), _at_once, within_seconds=5)

    async def tear_down(self) -> None:
        """Stop everything, the last started first."""
        if self._world is not None:
            await self._world.close()
        await self.supervisor.stop()
        self.inbox.close()

    def _worker_settings(self, given: dict[str, str], world: str) -> dict[str, str]:
        return {
            **given,
            "KINTSUGI_WORKER_CLUSTER": CLUSTER,
            "KINTSUGI_WORKER_POLICY": str(POLICY),
            "KINTSUGI_WORKER_LEDGER": str(self.ledger),
            "KINTSUGI_WORKER_SCHEDULER": "simulated",
            "KINTSUGI_WORKER_SIMULATOR": world,
            "KINTSUGI_WORKER_NOTIFY_URLS": f'["{self.inbox.url}"]',
            "KINTSUGI_WORKER_SHUTDOWN_SECONDS": "1",
        }

    def _world_child(self, listen: str) -> Child:
        arguments = [
            "--listen", listen,
            "--cluster", CLUSTER,
            "--pool", POOL,
            "--nodes", str(NODES),
            "--spares", str(SPARES),
            "--job-nodes", "0",
            "--speed", str(self.speed),
        ]  # fmt: skip
        return self._child("simulator", arguments)

    def _fleet_child(self, world: str, gateway: str) -> Child:
        agents = self.directory / "agents"
        agents.mkdir(exist_ok=True)
        return self._child("fleet", ["--world", world, "--gateway", gateway, "--state-dir", str(agents)])

    def _child(self, module: str, arguments: list[str]) -> Child:
        log = self.directory / f"{module}.log"
        return Child(module, module_command(module, arguments), log, environment(), stop_seconds=5)


async def _both(first: Coroutine[None, None, A], second: Coroutine[None, None, B]) -> tuple[A, B]:
    """Return both results; when one fails the other is cancelled and the failure raised."""
    one, other = asyncio.create_task(first), asyncio.create_task(second)
    try:
        await asyncio.wait({one, other}, return_when=asyncio.FIRST_EXCEPTION)
        if one.done():
            one.result()
        return await one, await other
    finally:
        for task in (one, other):
            task.cancel()
        await asyncio.gather(one, other, return_exceptions=True)


def forget_settings(directory: Path) -> None:
    """Let this process and its children see no settings but the demonstration's own.

    A profile of some real Temporal, a settings file in the current directory or a proxy for the loopback would
    otherwise lead a demonstration astray.
    """
    for name in list(os.environ):
        if name.startswith("TEMPORAL_") or (name.startswith("KINTSUGI_") and name != DEBUG_VARIABLE):
            del os.environ[name]
    nothing = directory / "no-settings.toml"
    nothing.touch()
    os.environ |= {
        "KINTSUGI_CONFIG": str(nothing),
        "TEMPORAL_CONFIG_FILE": str(nothing),
        "NO_PROXY": LOOPBACK,
        "no_proxy": LOOPBACK,
    }


async def _at_once() -> bool:
    return True
