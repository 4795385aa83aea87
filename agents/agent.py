"""The agent of one node: checks, tracker, spool, reporter and operations, put together."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime

from agents.boot import BootFacts
from agents.check_runner import CheckRunner
from agents.checks.base import Batch, Check
from agents.checks.gpus import GpuCheck
from agents.checks.kernel_log import KernelLogCheck
from agents.database import prepare_state_dir
from agents.identity import Identity, LearningReader, agent_version
from agents.inspection import Inspector
from agents.kernel.records import KernelRecordSource
from agents.operations.aftermath import what_it_ended
from agents.operations.driver import OperationDriver
from agents.operations.journal import Journal
from agents.operations.manager import OperationManager
from agents.pipeline import Pipeline
from agents.probe.reader import GpuReader
from agents.reporter import Reporter
from agents.server import NodeOperationsService, OperationsServer
from agents.spool import Spool
from domain.fault_tracker import FaultTracker
from domain.gpu_snapshot import GpuSnapshot
from domain.operations import OperationRequest
from runtime.settings import AgentSettings

log = logging.getLogger(__name__)

_FIRST_LOOK_SECONDS = 2.0
"""How long the first hello and the kernel log wait for the GPUs; what comes later is told in a second hello."""


@dataclass
class _Parts:
    """What runs while the agent runs."""

    pipeline: Pipeline
    reporter: Reporter
    runners: tuple[CheckRunner, ...]


class Agent:
    """Watches one node, reports its faults and carries out operations on it.

    Args:
        settings: of this agent.
        boot: this boot and this machine.
        kernel: the kernel log.
        gpus: the way to the GPUs; on a machine without any it says so and everything else works.
        driver: what carries out operations.
        version: of the agent, as the gateway shall see it.
    """

    def __init__(
        self,
        settings: AgentSettings,
        boot: BootFacts,
        kernel: KernelRecordSource,
        gpus: GpuReader,
        driver: OperationDriver,
        agent_version: str = agent_version(),
    ) -> None:
        self._settings = settings
        self._boot = boot
        self._kernel = kernel
        self._gpus = gpus
        self._driver = driver
        self._version = agent_version
        self._parts: _Parts | None = None
        self._serving = asyncio.Event()
        self._ended = False
        self.operations_address = ""
        """``host:port`` of NodeOperations, once it serves."""

    async def serving(self) -> None:
        """Return when NodeOperations is served.

        Raises:
            RuntimeError: the agent ended without serving; what ``run`` raised says why.
        """
        await self._serving.wait()
        if not self.operations_address:
            raise RuntimeError("the agent ended before it served")

    async def run(self) -> None:
        """Run until cancelled.

        Raises:
            StartError: it cannot start; the text says what to do.
        """
        try:
            async with AsyncExitStack() as stack:
                await self._run(stack)
        finally:
            self._serving.set()

    async def _run(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        stack.callback(os.close, prepare_state_dir(settings.state_dir))
        spool = await Spool.open(settings.state_dir / "spool.db", settings.spool_max_bytes)
        stack.callback(spool.close)
        journal = await Journal.open(settings.state_dir / "operations.db")
        stack.callback(journal.close)

        identity = Identity(settings, self._boot, self._version, await spool.known_inventory(self._boot.boot_id))
        node = identity.present.node
        remembered = [fault for fault in await spool.open_faults() if fault.node == node]
        position = await spool.position(self._boot.boot_id)
        reporter = Reporter(settings.gateway, settings.tls, spool, lambda: identity.present, self._ailing_checks)
        pipeline = Pipeline(FaultTracker(node, self._boot.boot_id, remembered), spool, recorded=reporter.wake)

        async def learn(snapshot: GpuSnapshot) -> None:
            if identity.learn(snapshot):
                await spool.remember_inventory(self._boot.boot_id, identity.inventory)
                reporter.introduce_again()

        gpus = LearningReader(self._gpus, learn)
        done = position

        def make_kernel_check() -> Check:
            return KernelLogCheck(
                self._kernel, self._boot.boot_id, done, lambda: identity.inventory, settings.accept_injected
            )

        def make_gpu_check() -> Check:
            return GpuCheck(gpus, settings.nvml_interval_seconds, self._boot.boot_id, lambda: identity.inventory)

        async def deliver(batch: Batch) -> None:
            nonlocal done
            await pipeline.deliver(batch)
            if batch.position is not None:
                done = batch.position.sequence

        kernel_check = CheckRunner(make_kernel_check, deliver)
        gpu_check = CheckRunner(make_gpu_check, deliver)
        self._parts = _Parts(pipeline, reporter, (kernel_check, gpu_check))

        inspector = Inspector(identity, gpus, lambda: pipeline.open_faults, lambda: self._blind_spots(spool))

        async def succeeded(request: OperationRequest) -> None:
            await pipeline.deliver(Batch(observations=what_it_ended(request, self._boot.boot_id, datetime.now(UTC))))

        manager = OperationManager(journal, self._driver, self._boot.boot_id, inspector.inspect, succeeded)
        stack.push_async_callback(manager.close)
        service = NodeOperationsService(manager, inspector.inspect, settings.callers)
        server = OperationsServer(settings.listen, settings.tls, settings.allow_insecure, service)
        await manager.resume()
        stack.push_async_callback(server.stop)
        self.operations_address = await server.start()
        identity.listening_on(self.operations_address)
        self._serving.set()
        log.info(
            "agent of %s serves operations on %s and reports to %s",
            node,
            self.operations_address,
            settings.gateway,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(pipeline.run(), name="pipeline")
            group.create_task(gpu_check.run(), name="GPU check")
            # Lines name PCI addresses, faults name UUIDs: which is which is known after the first look.
            if not identity.inventory.gpus:
                await _first_look(gpus)
            group.create_task(kernel_check.run(), name="kernel log check")
            group.create_task(reporter.run(), name="reporter")

    def _ailing_checks(self) -> list[str]:
        if self._parts is None:
            return []
        ailing = [runner.name for runner in self._parts.runners if runner.ailment()]
        return ailing + ["spool"] * bool(self._parts.pipeline.blind_spots)

    def _blind_spots(self, spool: Spool) -> list[str]:
        if self._parts is None:
            return []
        spots = list(self._parts.pipeline.blind_spots)
        spots += [f"{runner.name}: {words}" for runner in self._parts.runners if (words := runner.ailment())]
        if spool.set_aside is not None:
            spots.append(f"spool: a damaged file was set aside as {spool.set_aside}; what it held is not known")
        if not self._parts.reporter.connected:
            spots.append(f"gateway: not connected, {spool.backlog} fault events wait")
        return spots


async def _first_look(gpus: LearningReader) -> None:
    try:
        async with asyncio.timeout(_FIRST_LOOK_SECONDS):
            await gpus.looked.wait()
    except TimeoutError:
        log.warning("the GPUs do not answer yet: the first hello goes out without them")
