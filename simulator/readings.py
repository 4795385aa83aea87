"""What NVML says about the GPUs of a simulated node."""

from __future__ import annotations

from domain.gpu_snapshot import HW_SLOWDOWN, HW_THERMAL, GpuProcessReading, GpuReading, GpuSnapshot
from domain.nodes import Gpu
from simulator.faults import FaultKind
from simulator.kernel_text import DRIVER_VERSION
from simulator.machine import Machine
from simulator.world import World

IDLE_C = 34
BUSY_C = 61
HOT_C = 89
SLOWDOWN_C = 87
SHUTDOWN_C = 92
NVLINKS = 18
"""Links of an H100 SXM GPU (NVIDIA H100 datasheet: 900 GB/s over 18 links of fourth-generation NVLink)."""
PCIE_GENERATION = 5
PCIE_WIDTH = 16
USED_BYTES = 70 * 1024**3


def snapshot_of(world: World, machine: Machine) -> GpuSnapshot:
    """Return a reading of all GPUs that the driver lists."""
    missing = machine.missing_gpus()
    return GpuSnapshot(
        driver_version=DRIVER_VERSION,
        readings=tuple(_reading(world, machine, gpu) for gpu in machine.gpus if gpu.uuid not in missing),
    )


def _reading(world: World, machine: Machine, gpu: Gpu) -> GpuReading:
    names = GpuReading(index=gpu.index, uuid=gpu.uuid, serial=gpu.serial, model=gpu.model, pci_bus_id=gpu.pci_bus_id)
    if gpu.uuid in machine.dead_gpus():
        return names.model_copy(update={"lost": True})
    pids = [rank.pid_on(gpu.uuid) for rank in world.ranks_on(machine) if gpu.uuid in rank.gpu_uuids]
    hot = machine.has(FaultKind.THERMAL, gpu.uuid)
    pending = machine.has(FaultKind.ECC_ROW_REMAP, gpu.uuid)
    failed = machine.has(FaultKind.ROW_REMAP_FAILURE, gpu.uuid)
    return names.model_copy(
        update={
            "temperature_c": HOT_C if hot else BUSY_C if pids else IDLE_C,
            "slowdown_temperature_c": SLOWDOWN_C,
            "shutdown_temperature_c": SHUTDOWN_C,
            "clocks_event_reasons": HW_SLOWDOWN | HW_THERMAL if hot else 0,
            "ecc_volatile_uncorrected": int(pending or failed),
            "ecc_aggregate_uncorrected": int(pending or failed),
            "row_remap_pending": pending,
            "row_remap_failure": failed,
            "retired_pages_pending": False,
            "pcie_generation": PCIE_GENERATION,
            "pcie_generation_max": PCIE_GENERATION,
            "pcie_width": PCIE_WIDTH,
            "pcie_width_max": PCIE_WIDTH,
            "mig_enabled": False,
            "nvlinks": (True,) * NVLINKS,
            "processes": tuple(GpuProcessReading(pid=pid, used_memory_bytes=USED_BYTES) for pid in pids),
        }
    )
