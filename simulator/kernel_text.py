"""What the NVIDIA driver writes to the kernel log. Shapes: open-gpu-kernel-modules and lines in public reports."""

from __future__ import annotations

from domain.nodes import Gpu
from simulator.faults import FaultKind

FACILITY_KERNEL = 0
LEVEL_ERROR = 3
LEVEL_INFO = 6
DRIVER_VERSION = "570.124.06"
"""Xid 154 came with R565 (NVIDIA Xid catalog)."""
KERNEL_RELEASE = "6.8.0-48-generic"

BOOT_LINES = (
    f"Linux version {KERNEL_RELEASE} (gcc version 13.2.0)",
    f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {DRIVER_VERSION}",
)

_APPLICATION_XID_TEXT = {
    13: "Graphics SM Warp Exception on (GPC 1, TPC 0, SM 0): Out Of Range Address",
    31: (
        "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_6 faulted @ 0x7f5a_e7504000."
        " Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
    ),
    43: "Ch 00000008",
    45: "Ch 00000008",
}


def line_after_reset(gpu: Gpu) -> str:
    """Return how the driver says that a GPU that it wanted reset needs nothing any more."""
    return (
        f"NVRM: Xid (PCI:{gpu.pci_bus_id.rsplit('.', 1)[0]}): 154, pid='<unknown>', name=<unknown>, GPU recovery"
        " action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    )


def lines_of(kind: FaultKind, gpu: Gpu, pid: int, xid: int) -> tuple[str, ...]:
    """Return the kernel lines with which a fault on a GPU shows itself; empty when the kernel says nothing.

    ``pid`` is the process on the GPU, 0 when there is none; ``xid`` the code of an application's error.
    """
    address = gpu.pci_bus_id.rsplit(".", 1)[0]
    who = f"pid={pid}, name=python3" if pid else "pid='<unknown>', name=<unknown>"
    nobody = "pid='<unknown>', name=<unknown>"
    match kind:
        case FaultKind.FALLEN_OFF_BUS:
            return (
                f"NVRM: Xid (PCI:{address}): 79, {who}, GPU has fallen off the bus.",
                f"NVRM: GPU {gpu.pci_bus_id}: GPU has fallen off the bus.",
                f"NVRM: GPU {gpu.pci_bus_id}: GPU serial number is {gpu.serial}.",
            )
        case FaultKind.ECC_ROW_REMAP:
            return (
                f"NVRM: Xid (PCI:{address}): 48, {nobody}, An uncorrectable double bit error (DBE) has been"
                " detected on GPU in the framebuffer at physAddr 0x7fdf0de80 partition 5, subpartition 1.",
                f"NVRM: Xid (PCI:{address}): 63, {nobody}, Row Remapper: New row (0x00000007fdf0de80) marked for"
                " remapping, reset gpu to activate.",
                f"NVRM: Xid (PCI:{address}): 154, {nobody}, GPU recovery action changed from 0x0 (None) to 0x1"
                " (GPU Reset Required)",
            )
        case FaultKind.ROW_REMAP_FAILURE:
            return (
                f"NVRM: Xid (PCI:{address}): 64, {nobody}, Row Remapper Error: (0x00000002eebc4100) - All"
                " reserved rows for bank are remapped",
            )
        case FaultKind.APPLICATION_XID:
            text = _APPLICATION_XID_TEXT.get(xid, "Ch 00000008")
            return (f"NVRM: Xid (PCI:{address}): {xid}, {who}, {text}",)
        case _:
            return ()
