"""``python -m fleet``: the real agent code, once for each node of a simulated cluster. Composition root.

An agent lives as long as its node in the simulated world: it is cut off without warning when the node goes down,
hangs or loses its agent, and a new one starts with the new boot id on the same state directory (its disk).
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

from agents.agent import Agent
from agents.boot import BootFacts
from agents.kernel.records import KernelRecord
from agents.probe.reader import ProbeUnavailableError
from domain.errors import KintsugiError
from domain.gpu_snapshot import GpuSnapshot
from domain.nodes import NodeRef
from runtime import exits, logs
from runtime.settings import LOG_LEVELS, AgentSettings, SettingsError, load
from simulator.client import WorldClient
from simulator.kernel_text import KERNEL_RELEASE
from simulator.node_driver import NodeDriver
from simulator.states import NodeLife
from simulator.supervisor import supervise


class SimulatedKernel:
    """The kernel log of one simulated boot (``KernelRecordSource``)."""

    def __init__(self, world: WorldClient, life: NodeLife) -> None:
        self._world, self._life = world, life

    async def records(self, after: int) -> AsyncIterator[tuple[KernelRecord, ...]]:
        """Yield records as they are written."""
        async for batch in self._world.kernel_records(self._life.node, self._life.boot_id, after):
            yield tuple(KernelRecord(r.sequence, r.facility, r.level, r.at, r.text) for r in batch)


class SimulatedGpus:
    """The GPUs of one simulated node (``GpuReader``)."""

    def __init__(self, world: WorldClient, node: str) -> None:
        self._world, self._node = world, node

    async def read(self) -> GpuSnapshot:
        """Return what NVML would say now."""
        try:
            return await self._world.gpu_snapshot(self._node)
        except KintsugiError as error:
            raise ProbeUnavailableError(str(error)) from None


class Fleet:
    """Agents of simulated nodes, all reporting to one gateway."""

    def __init__(self, world: WorldClient, gateway: str) -> None:
        self._world, self._gateway = world, gateway

    async def run_agent(self, node: NodeRef, life: NodeLife, state_dir: Path) -> None:
        """Run the agent of one node in one boot until cancelled, which is the end of a killed process."""
        settings = load(
            AgentSettings,
            cluster=node.cluster,
            pool=node.pool,
            node=node.name,
            gateway=self._gateway,
            listen="127.0.0.1:0",
            state_dir=state_dir,
            topology=life.topology,
        )
        boot = BootFacts(boot_id=life.boot_id, machine_id=life.machine_id, kernel_release=KERNEL_RELEASE)
        driver = NodeDriver(self._world, node.name, life.boot_id)
        kernel, gpus = SimulatedKernel(self._world, life), SimulatedGpus(self._world, node.name)
        agent = asyncio.ensure_future(Agent(settings, boot, kernel, gpus, driver).run())
        try:
            await asyncio.wait((agent,))
            agent.result()
        finally:
            driver.die()
            agent.cancel()
            await asyncio.wait((agent,))


async def _until_stopped(options: argparse.Namespace) -> None:
    world = WorldClient(options.world)
    run_agent = Fleet(world, options.gateway).run_agent
    fleet = asyncio.ensure_future(supervise(world, run_agent, options.state_dir, frozenset(options.nodes)))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, fleet.cancel)
    await asyncio.wait((fleet,))
    await world.close()
    if not fleet.cancelled():
        fleet.result()


def main() -> None:
    """Read the command line and run until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m fleet", description="Run the agents of a simulated cluster.")
    parser.add_argument("--world", required=True, metavar="HOST:PORT", help="the served world (python -m simulator)")
    parser.add_argument("--gateway", default="127.0.0.1:7443", metavar="HOST:PORT", help="the gateway to report to")
    parser.add_argument("--state-dir", type=Path, required=True, help="where each agent keeps its spool")
    parser.add_argument("--nodes", type=lambda text: text.split(","), default=[], help="only these, comma separated")
    parser.add_argument("--log-level", default="WARNING", choices=LOG_LEVELS, help="how much to say")
    options = parser.parse_args()
    logs.configure(options.log_level)
    try:
        asyncio.run(_until_stopped(options))
    except* (SettingsError, OSError) as group:
        exits.complain("; ".join(str(error) for error in group.exceptions))
        exits.leave(exits.USAGE)
    exits.leave(exits.OK)


if __name__ == "__main__":
    main()
