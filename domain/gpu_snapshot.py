"""What one look at the GPUs found, and what it amounts to in observations.

The words say what NVML answered. None always means that nobody knows: the function is not supported on that
GPU, or it failed (then ``problems`` of the snapshot says so). Nothing follows from None, neither a fault nor
its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from domain.model import Message, Word
from domain.nodes import Gpu, Inventory, normalise_pci
from domain.observations import MAX_TEXT, Component, ComponentKind, Observation, Source

HW_SLOWDOWN = 0x8
SW_THERMAL = 0x20
HW_THERMAL = 0x40
HW_POWER_BRAKE = 0x80
"""Clocks event reasons (``nvmlClocksEventReason*`` in nvml.h)."""

RESET_GPU_ACTION = 1
"""``NVML_GPU_RECOVERY_ACTION_GPU_RESET``."""


class GpuProcessReading(Message):
    """A process that holds a GPU.

    Attributes:
        used_memory_bytes: None where the driver does not tell (inside MIG, on some vGPUs).
    """

    pid: int
    used_memory_bytes: int | None = None


class GpuReading(Message):
    """One GPU as NVML answered.

    Attributes:
        uuid: empty when a GPU is lost whose UUID was never read.
        lost: NVML says that the GPU has fallen off the bus or is otherwise inaccessible
            (``NVML_ERROR_GPU_IS_LOST``). Everything else then is as last known, or None.
        reset_required: a call was refused until the GPU is reset (``NVML_ERROR_RESET_REQUIRED``).
        slowdown_temperature_c: at which the hardware slows down, in degrees Celsius.
        shutdown_temperature_c: at which the hardware turns itself off.
        clocks_event_reasons: bit mask of why the clocks are below their maximum.
        ecc_volatile_uncorrected: errors since the driver was loaded.
        ecc_aggregate_uncorrected: errors in the GPU's life.
        row_remap_pending: a row waits for the next reset to be remapped (Ampere and later).
        row_remap_failure: a row could not be remapped.
        retired_pages_pending: a page waits for the next driver load to be retired (before Ampere).
        pcie_generation: now; lower than the maximum is normal on an idle GPU.
        recovery_action: ``nvmlDeviceGpuRecoveryAction_t``: the driver's own verdict (driver 570 and later).
        nvlinks: whether each link is active, by link number; None where the link does not exist. Empty
            where the GPU has no NVLink.
    """

    index: int
    uuid: str = ""
    serial: str = ""
    model: str = ""
    pci_bus_id: str = ""
    lost: bool = False
    reset_required: bool = False
    temperature_c: int | None = None
    slowdown_temperature_c: int | None = None
    shutdown_temperature_c: int | None = None
    clocks_event_reasons: int | None = None
    ecc_volatile_uncorrected: int | None = None
    ecc_aggregate_uncorrected: int | None = None
    row_remap_pending: bool | None = None
    row_remap_failure: bool | None = None
    retired_pages_pending: bool | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    recovery_action: int | None = None
    mig_enabled: bool | None = None
    nvlinks: tuple[bool | None, ...] = ()
    processes: tuple[GpuProcessReading, ...] = ()


class GpuSnapshot(Message):
    """All GPUs of a node at one moment.

    Attributes:
        problems: in words, what could not be read although it should be; empty when all was well.
    """

    driver_version: str = ""
    readings: tuple[GpuReading, ...] = ()
    problems: tuple[str, ...] = ()


class LinkMemory(Word):
    """Which NVLinks were seen up, and which of those went down, as UUID and link number.

    A link that was never up is unused by design (no bridge, a free port) and no fault.
    """

    up: frozenset[tuple[str, int]] = frozenset()
    fell: frozenset[tuple[str, int]] = frozenset()

    def after(self, snapshot: GpuSnapshot) -> LinkMemory:
        """Return what is remembered once ``snapshot`` was looked at."""
        states = [
            ((reading.uuid, number), active)
            for reading in snapshot.readings
            if not reading.lost
            for number, active in enumerate(reading.nvlinks)
        ]
        up = self.up.union(link for link, active in states if active)
        fell = self.fell.union(link for link, active in states if active is False and link in self.up)
        # The usual look brings no news; then nothing is made anew.
        return self if len(up) == len(self.up) and len(fell) == len(self.fell) else LinkMemory(up=up, fell=fell)


def inventory_from(snapshot: GpuSnapshot, kernel_release: str) -> Inventory:
    """Return the hardware that a snapshot shows. A GPU without a UUID cannot be listed."""
    return Inventory(
        gpus=tuple(
            Gpu(
                uuid=reading.uuid,
                serial=reading.serial,
                pci_bus_id=reading.pci_bus_id,
                model=reading.model,
                index=reading.index,
            )
            for reading in snapshot.readings
            if reading.uuid
        ),
        driver_version=snapshot.driver_version,
        kernel_release=kernel_release,
    )


class GpuState(NamedTuple):
    """One state of one GPU, as an observation will tell it. A tuple: dozens are made every second.

    Attributes:
        uuid: empty for a GPU that nobody can name; the node then stands for it.
        kind: of observation.
        code: for ``recovery_action``.
    """

    uuid: str
    kind: str
    active: bool
    text: str = ""
    values: Mapping[str, float] = {}
    code: int | None = None

    def observed(self, boot_id: str, at: datetime) -> Observation:
        """Return it as an observation."""
        return Observation(
            source=Source.NVML,
            kind=self.kind,
            at=at,
            boot_id=boot_id,
            component=Component(kind=ComponentKind.GPU if self.uuid else ComponentKind.NODE, id=self.uuid),
            code=self.code,
            active=self.active,
            stateful=True,
            text=self.text[:MAX_TEXT],
            values=dict(self.values),
        )


def observations_from(
    snapshot: GpuSnapshot,
    known: Inventory,
    boot_id: str,
    at: datetime,
    links: LinkMemory | None = None,
) -> list[Observation]:
    """Return what a snapshot says (see ``states_from``) as observations of one moment."""
    return [state.observed(boot_id, at) for state in states_from(snapshot, known, links)]


def states_from(snapshot: GpuSnapshot, known: Inventory, links: LinkMemory | None = None) -> list[GpuState]:
    """Return each state that NVML answered for, active or not, and no other.

    Args:
        snapshot: the look.
        known: GPUs that belong to this node; one that does not show is missing.
        links: what earlier looks saw of the NVLinks. Without it no link is known to have been up.
    """
    readings = tuple(_identified(snapshot.readings, known))
    present = {reading.uuid for reading in readings if reading.uuid}
    states: list[GpuState] = []
    for gpu in known.gpus:
        gone = gpu.uuid not in present
        where = f" ({gpu.pci_bus_id})" if gpu.pci_bus_id else ""
        text = f"NVML does not list GPU {gpu.uuid}{where}" if gone else ""
        states.append(GpuState(gpu.uuid, "gpu_missing", gone, text))
    for reading in readings:
        states += _states_of(reading, links or LinkMemory())
    return states


def _identified(readings: Iterable[GpuReading], known: Inventory) -> Iterable[GpuReading]:
    """Yield the readings, with the UUID of lost GPUs where it can be told.

    A GPU that was lost before it was ever read has no UUID; its PCI address may tell, or that all others are
    accounted for.
    """
    readings = tuple(readings)
    present = {reading.uuid for reading in readings if reading.uuid}
    nameless = [reading for reading in readings if reading.lost and not reading.uuid]
    unseen = [gpu for gpu in known.gpus if gpu.uuid not in present]
    for reading in readings:
        if reading not in nameless:
            yield reading
            continue
        address = normalise_pci(reading.pci_bus_id)
        match = next((gpu for gpu in unseen if address and normalise_pci(gpu.pci_bus_id) == address), None)
        if match is None and len(nameless) == len(unseen) and not any(other.pci_bus_id for other in nameless):
            match = unseen[nameless.index(reading)]
        yield reading.model_copy(update={"uuid": match.uuid}) if match else reading


def _states_of(reading: GpuReading, links: LinkMemory) -> Iterator[GpuState]:
    uuid = reading.uuid
    if reading.lost:
        yield GpuState(uuid, "gpu_lost", True, f"NVML: GPU {reading.index} is lost (NVML_ERROR_GPU_IS_LOST)")
        return  # whatever else it says is what was known before
    if not uuid:
        return  # it cannot even say who it is: the GPU that it should be counts as missing
    yield GpuState(uuid, "gpu_lost", False)
    yield from _memory(reading)
    yield from _clocks(reading)
    yield from _verdict(reading)
    yield from _links(reading, links)


def _memory(reading: GpuReading) -> Iterator[GpuState]:
    uuid, name = reading.uuid, f"NVML: GPU {reading.index}"
    errors = reading.ecc_volatile_uncorrected
    if errors:
        values: dict[str, float] = {"ecc_volatile_uncorrected": errors}
        if reading.ecc_aggregate_uncorrected is not None:
            values["ecc_aggregate_uncorrected"] = reading.ecc_aggregate_uncorrected
        text = f"{name} counts {errors} uncorrectable memory errors since the driver was loaded"
        yield GpuState(uuid, "ecc_uncorrected", True, text, values)
    elif errors is not None:
        yield GpuState(uuid, "ecc_uncorrected", False)
    for kind, holds, words in (
        ("row_remap_pending", reading.row_remap_pending, "a memory row waits for the next reset to be remapped"),
        ("row_remap_failure", reading.row_remap_failure, "a memory row could not be remapped"),
        ("retired_pages_pending", reading.retired_pages_pending, "a memory page waits to be retired"),
    ):
        if holds is not None:
            yield GpuState(uuid, kind, holds, f"{name}: {words}" if holds else "")


def _clocks(reading: GpuReading) -> Iterator[GpuState]:
    uuid, name = reading.uuid, f"GPU {reading.index}"
    temperature, limit = reading.temperature_c, reading.slowdown_temperature_c
    hot = False
    values: dict[str, float] = {} if temperature is None else {"temperature_c": temperature}
    if temperature is not None and limit is not None:
        values["slowdown_temperature_c"] = limit
        hot = temperature >= limit
        if hot:
            text = f"NVML: {name} is at {temperature} °C, it slows down at {limit} °C"
            yield GpuState(uuid, "temperature_high", True, text, values)
        else:
            yield GpuState(uuid, "temperature_high", False)
    reasons = reading.clocks_event_reasons
    if reasons is None:
        return
    # SW thermal slowdown (0x20) is how the driver keeps a warm GPU below its limits: told with the others, no
    # finding of its own. HW slowdown (0x8) covers both causes; where no cause is given, the temperature tells.
    unexplained = bool(reasons & HW_SLOWDOWN) and not reasons & (HW_THERMAL | HW_POWER_BRAKE)
    thermal = bool(reasons & HW_THERMAL) or (unexplained and hot)
    brake = bool(reasons & HW_POWER_BRAKE) or (unexplained and not hot)
    degrees = "" if temperature is None else f" at {temperature} °C"
    for kind, holds, words in (
        ("thermal_slowdown", thermal, f"slowed down by heat{degrees}"),
        ("power_brake", brake, "slowed down by its power supply"),
    ):
        if holds:
            also = ", software thermal slowdown too" if reasons & SW_THERMAL else ""
            text = f"NVML: {name} is {words} (clocks event reasons 0x{reasons:x}{also})"
            yield GpuState(uuid, kind, True, text, values)
        else:
            yield GpuState(uuid, kind, False)


def _verdict(reading: GpuReading) -> Iterator[GpuState]:
    action = reading.recovery_action
    if not action and reading.reset_required:
        action = RESET_GPU_ACTION
    if action is not None:
        text = f"NVML: GPU {reading.index}: the driver asks for recovery action {action}" if action else ""
        yield GpuState(reading.uuid, "recovery_action", action != 0, text, code=action)


def _links(reading: GpuReading, memory: LinkMemory) -> Iterator[GpuState]:
    uuid = reading.uuid
    inactive = [number for number, active in enumerate(reading.nvlinks) if active is False]
    down = [number for number in inactive if (uuid, number) in memory.up]
    if down:
        links = ", ".join(str(number) for number in down)
        text = f"NVML: GPU {reading.index}: NVLink {links} of {len(reading.nvlinks)} went down"
        yield GpuState(uuid, "nvlink_down", True, text, {"links_down": len(down)})
    elif any(reading.nvlinks) and (not inactive or any(link[0] == uuid for link in memory.fell)):
        # An inactive link that was never seen up proves nothing: it may be unused, or down since before we looked.
        yield GpuState(uuid, "nvlink_down", False)
