"""Nodes, their GPUs and the identity by which a returned node is recognised."""

from __future__ import annotations

from domain.model import Message


class NodeRef(Message):
    """A node by its place: which cluster, which pool, which name. Names are the scheduler's own."""

    cluster: str
    pool: str
    name: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.pool}/{self.name}"


class Gpu(Message):
    """One GPU as NVML names it.

    Attributes:
        uuid: ``nvmlDeviceGetUUID``, such as ``GPU-5c1f…``; stable over reboots and slots.
        serial: board serial (``nvmlDeviceGetSerial``), empty where the board has none.
        pci_bus_id: ``domain:bus:device.function`` in lower case, domain of four or eight digits, such as
            ``0000:1b:00.0``.
        model: product name (``nvmlDeviceGetName``).
        index: NVML index on this boot; not stable.
    """

    uuid: str
    serial: str = ""
    pci_bus_id: str = ""
    model: str = ""
    index: int = 0


class Inventory(Message):
    """What the node is made of, as the agent found it at its hello."""

    gpus: tuple[Gpu, ...] = ()
    driver_version: str = ""
    kernel_release: str = ""

    def uuid_at(self, pci_bus_id: str) -> str:
        """Return the UUID of the GPU at a PCI address, or an empty string.

        The kernel prints addresses with and without the function and with a domain of four or eight digits.
        """
        wanted = normalise_pci(pci_bus_id)
        return next((gpu.uuid for gpu in self.gpus if normalise_pci(gpu.pci_bus_id) == wanted), "")


class NodeIdentity(Message):
    """Who a node is right now: the place, this boot, this hardware, and where its agent listens.

    Attributes:
        boot_id: ``/proc/sys/kernel/random/boot_id``: new at each boot, the proof of a reboot.
        machine_id: hardware identity that survives a reinstall (DMI product UUID), empty where unreadable.
        operations_address: ``host:port`` of the agent's NodeOperations service.
        topology: labels of the parts that the node shares with others, such as ``rack``, ``leaf``,
            ``nvlink_domain``.
    """

    node: NodeRef
    boot_id: str
    machine_id: str = ""
    operations_address: str = ""
    agent_version: str = ""
    inventory: Inventory = Inventory()
    topology: dict[str, str] = {}


def normalise_pci(pci_bus_id: str) -> str:
    """Return a PCI address as ``dddddddd:bb:dd`` in lower case, without its function; empty stays empty."""
    text = pci_bus_id.strip().lower().removeprefix("pci:")
    if not text:
        return ""
    text = text.split(".", 1)[0]
    parts = text.split(":")
    if len(parts) == 2:
        parts = ["0", *parts]
    if len(parts) != 3:
        return text
    return f"{parts[0].zfill(8)}:{parts[1]}:{parts[2]}"


def hardware_differences(recorded: Inventory, found: Inventory) -> list[str]:
    """Return in words how a returned node differs from what was recorded; empty when it is the same hardware."""
    recorded_by_uuid = {gpu.uuid: gpu for gpu in recorded.gpus}
    found_by_uuid = {gpu.uuid: gpu for gpu in found.gpus}
    differences = [
        f"GPU {uuid} ({gpu.pci_bus_id or 'no address'}) is missing"
        for uuid, gpu in recorded_by_uuid.items()
        if uuid not in found_by_uuid
    ]
    differences += [
        f"GPU {uuid} ({gpu.pci_bus_id or 'no address'}) was not there before"
        for uuid, gpu in found_by_uuid.items()
        if uuid not in recorded_by_uuid
    ]
    differences += [
        f"GPU {uuid} has serial {found_by_uuid[uuid].serial}, recorded was {gpu.serial}"
        for uuid, gpu in recorded_by_uuid.items()
        if gpu.serial and uuid in found_by_uuid and found_by_uuid[uuid].serial != gpu.serial
    ]
    return differences
