"""Facts of this boot and this machine, read once at the start."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from agents.errors import StartError

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""A UUID that the kernel makes anew at each boot: random(4)."""
PRODUCT_UUID = Path("/sys/class/dmi/id/product_uuid")
"""The mainboard's UUID (SMBIOS type 1), readable by root only; absent on machines without DMI."""

_PLACEHOLDERS = frozenset(
    {
        "",
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "03000200-0400-0500-0006-000700080009",
    }
)
"""UUIDs that boards carry whose maker never set one. Many boards have the same, so they identify nothing."""


@dataclass(frozen=True)
class BootFacts:
    """This boot and this machine.

    Attributes:
        boot_id: new at each boot; a different one proves that the node was rebooted.
        machine_id: hardware identity that survives a reinstall, in lower case; empty where there is none.
        kernel_release: as ``uname -r`` prints it.
    """

    boot_id: str
    machine_id: str
    kernel_release: str


def read_boot_facts(boot_id: Path = BOOT_ID, product_uuid: Path = PRODUCT_UUID) -> BootFacts:
    """Return the facts of the running boot.

    Raises:
        StartError: the boot id cannot be read, without which nothing can be told from old news.
    """
    try:
        boot = boot_id.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"the boot id cannot be read from {boot_id}: {error}. Is /proc mounted?") from None
    if not boot:
        raise StartError(f"{boot_id} is empty: without a boot id a reboot cannot be told from a restart")
    return BootFacts(boot_id=boot, machine_id=_machine_id(product_uuid), kernel_release=os.uname().release)


def _machine_id(path: Path) -> str:
    try:
        found = path.read_text(encoding="ascii", errors="replace").strip().lower()
    except OSError:
        return ""
    return "" if found in _PLACEHOLDERS else found
