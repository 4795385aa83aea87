"""Who this node is: its place, this boot, its hardware as far as it has been seen."""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import Awaitable, Callable

from agents.boot import BootFacts
from agents.probe.reader import GpuReader, ProbeError
from agents.server import split_address
from domain.gpu_snapshot import GpuSnapshot, inventory_from
from domain.nodes import Gpu, Inventory, NodeIdentity, NodeRef
from runtime.settings import AgentSettings


def agent_version() -> str:
    """Return the installed version of Kintsugi, ``unknown`` when it runs from a bare source tree."""
    try:
        return importlib.metadata.version("kintsugi")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


class Identity:
    """The node's identity, completed as the agent learns more.

    Args:
        settings: place, topology and advertised address.
        boot: this boot and this machine.
        version: of the agent.
        known: hardware seen earlier in this boot.
    """

    def __init__(self, settings: AgentSettings, boot: BootFacts, version: str, known: Inventory) -> None:
        self._advertise = settings.advertise
        self._kernel_release = boot.kernel_release
        self._present = NodeIdentity(
            node=NodeRef(cluster=settings.cluster, pool=settings.pool, name=settings.node),
            boot_id=boot.boot_id,
            machine_id=boot.machine_id,
            agent_version=version,
            inventory=known.model_copy(update={"kernel_release": boot.kernel_release}),
            topology=dict(settings.topology),
        )

    @property
    def present(self) -> NodeIdentity:
        """The identity as it is known now."""
        return self._present

    @property
    def inventory(self) -> Inventory:
        """The hardware seen in this boot, a GPU that was lost since included."""
        return self._present.inventory

    def listening_on(self, address: str) -> None:
        """Take the address that NodeOperations is served on, unless another one is advertised."""
        host, port = split_address(address)
        if host in ("0.0.0.0", "[::]"):
            host = self._present.node.name
        self._present = self._present.model_copy(update={"operations_address": self._advertise or f"{host}:{port}"})

    def learn(self, snapshot: GpuSnapshot) -> bool:
        """Add what a snapshot shows; return whether that was news."""
        merged = merge_inventory(self.inventory, inventory_from(snapshot, self._kernel_release))
        if merged == self.inventory:
            return False
        self._present = self._present.model_copy(update={"inventory": merged})
        return True


def merge_inventory(known: Inventory, found: Inventory) -> Inventory:
    """Return what is known of this boot's hardware after another look.

    A GPU is never forgotten within a boot: one that no longer shows is a fault, not a smaller node. What an
    ailing GPU did not say at first is filled in.
    """
    seen = {gpu.uuid for gpu in known.gpus}
    latest = {gpu.uuid: gpu for gpu in found.gpus}
    added = tuple(gpu for gpu in found.gpus if gpu.uuid not in seen)
    return Inventory(
        gpus=tuple(_completed(gpu, latest.get(gpu.uuid, gpu)) for gpu in known.gpus) + added,
        driver_version=found.driver_version or known.driver_version,
        kernel_release=found.kernel_release or known.kernel_release,
    )


def _completed(known: Gpu, found: Gpu) -> Gpu:
    return known.model_copy(
        update={
            "serial": known.serial or found.serial,
            "pci_bus_id": known.pci_bus_id or found.pci_bus_id,
            "model": known.model or found.model,
        }
    )


class LearningReader:
    """A GPU reader that passes each look on, one look at a time. Implements ``GpuReader``.

    Args:
        reader: what really looks.
        learn: told of each snapshot before the caller gets it.
    """

    def __init__(self, reader: GpuReader, learn: Callable[[GpuSnapshot], Awaitable[None]]) -> None:
        self._reader = reader
        self._learn = learn
        self._one_at_a_time = asyncio.Lock()
        self.looked = asyncio.Event()
        self.blind_spots: tuple[str, ...] = ()

    async def read(self) -> GpuSnapshot:
        """Return a fresh snapshot; raises what the reader raises."""
        async with self._one_at_a_time:
            try:
                snapshot = await self._reader.read()
            except ProbeError as error:
                self.blind_spots = (f"GPUs: {error}",)
                self.looked.set()
                raise
            self.blind_spots = tuple(f"GPUs: {problem}" for problem in snapshot.problems)
            await self._learn(snapshot)
            self.looked.set()
            return snapshot
