"""Catalog entries of faults that are states: a reading taken again and again says whether they still hold."""

from __future__ import annotations

from collections.abc import Mapping

from domain.faults import Rung, Scope, Severity

Entry = Mapping[str, object]

_NVML = "nvml.h"
_MEMORY_DOC = "NVIDIA GPU memory error management (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt)"

STATE_CLASSES: tuple[Entry, ...] = (
    {
        "name": "gpu.row_remap_pending",
        "title": "Memory row waits for remapping",
        "severity": Severity.DEGRADED,
        "scope": Scope.GPU,
        "ladder": (Rung.RESET_GPU, Rung.REBOOT, Rung.REPLACE),
        "stateful": True,
        "clears": "NVML says that no remapping is pending (after a reset), or a reboot",
        "explanation": "A bad memory row has a spare that takes its place at the next GPU reset. Jobs that "
        "run now are not affected, so the reset can wait until they end, if the policy says so.",
        "source": f"{_MEMORY_DOC}; Xid 63",
        "clear_after_seconds": 5.0,
        "absorbs": ("gpu.ecc_counter",),
    },
    {
        "name": "gpu.row_remap_failure",
        "title": "Memory row could not be remapped",
        "severity": Severity.FATAL,
        "scope": Scope.GPU,
        "ladder": (Rung.REPLACE,),
        "stateful": True,
        "clears": "replacement of the GPU",
        "explanation": "The spare rows of a memory bank are used up. The bad row stays in use and will hurt "
        "jobs again; a reset does not help. NVIDIA exchanges boards with this flag.",
        "source": f"{_MEMORY_DOC}: RMA policy; Xid 64",
        "clear_after_seconds": 60.0,
        "absorbs": ("gpu.ecc_counter", "gpu.row_remap_pending"),
    },
    {
        "name": "gpu.page_retirement_pending",
        "title": "Memory page waits for retirement",
        "severity": Severity.DEGRADED,
        "scope": Scope.GPU,
        "ladder": (Rung.RESET_GPU, Rung.REBOOT, Rung.REPLACE),
        "stateful": True,
        "clears": "NVML says that no retirement is pending (after a reset), or a reboot",
        "explanation": "On GPUs before Ampere a bad memory page is taken out of use at the next reset or "
        "driver load. Until then new jobs may meet it.",
        "source": "NVIDIA dynamic page retirement (docs.nvidia.com/deploy/dynamic-page-retirement); Xid 63",
        "clear_after_seconds": 5.0,
        "absorbs": ("gpu.ecc_counter",),
    },
    {
        "name": "gpu.page_retirement_failure",
        "title": "Memory page could not be retired",
        "severity": Severity.FATAL,
        "scope": Scope.GPU,
        "ladder": (Rung.REPLACE,),
        "stateful": True,
        "clears": "replacement of the GPU, or a reboot after which the driver no longer says so",
        "explanation": "The table of bad pages is full or cannot be written. Bad memory stays in use, so "
        "the board is replaced.",
        "source": "NVIDIA dynamic page retirement; Xid 64",
        "clear_after_seconds": 60.0,
        "absorbs": ("gpu.ecc_counter", "gpu.page_retirement_pending"),
    },
    {
        "name": "gpu.ecc_counter",
        "title": "Uncorrectable memory errors were counted",
        "severity": Severity.INFO,
        "scope": Scope.GPU,
        "ladder": (Rung.NONE,),
        "stateful": True,
        "clears": "the volatile counter is back at zero (driver reload, reset, reboot)",
        "explanation": "The counter since the driver was loaded is not zero. The counter alone does not say "
        "whether the error was contained or is mended: the Xid, the remapping flags and the driver's "
        "verdict do, and each is acted on by itself.",
        "source": f"{_NVML}: NVML_VOLATILE_ECC; {_MEMORY_DOC}",
    },
    {
        "name": "gpu.reset_required",
        "title": "The driver asks for a GPU reset",
        "severity": Severity.FATAL,
        "scope": Scope.GPU,
        "ladder": (Rung.RESET_GPU, Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE),
        "stateful": True,
        "clears": "the driver's verdict goes back to None, or a reboot",
        "explanation": "The driver itself says that this GPU works only after a reset. With 'Drain and "
        "Reset' running jobs may end first.",
        "source": f"Xid 154 and {_NVML}: recovery actions 1 and 4",
        "ends_with_recovery": True,
        "absorbs": ("application.teardown",),
        "absorb_seconds": 60.0,
    },
    {
        "name": "gpu.reboot_required",
        "title": "The driver asks for a reboot",
        "severity": Severity.FATAL,
        "scope": Scope.NODE,
        "ladder": (Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE),
        "stateful": True,
        "clears": "the driver's verdict goes back to None, or a reboot",
        "explanation": "The driver itself says that only a reboot of the node (or a reset of the PCIe bus) "
        "brings this GPU back; the operating system may be in an inconsistent state.",
        "source": f"Xid 154 and {_NVML}: recovery actions 2, 6 and 7",
        "ends_with_recovery": True,
        "absorbs": ("application.teardown", "gpu.reset_required"),
        "absorb_seconds": 60.0,
    },
    {
        "name": "gpu.p2p_drain_required",
        "title": "The driver asks to end peer-to-peer work",
        "severity": Severity.DEGRADED,
        "scope": Scope.FABRIC,
        "ladder": (Rung.RESET_GPU, Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE),
        "stateful": True,
        "clears": "the driver's verdict goes back to None once the peers are quiet, or a reboot",
        "explanation": "Work between this GPU and its peers has to end before the GPU can recover by "
        "itself. Draining the node does that; often no reset is needed afterwards.",
        "source": f"Xid 154 and {_NVML}: recovery action 3",
        "ends_with_recovery": True,
        "absorbs": ("application.teardown",),
        "absorb_seconds": 60.0,
    },
    {
        "name": "gpu.missing",
        "title": "GPU is gone",
        "severity": Severity.FATAL,
        "scope": Scope.NODE,
        "ladder": (Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE),
        "stateful": True,
        "clears": "the GPU is listed again",
        "explanation": "A GPU that belongs to this node is not listed by the driver any more. It may have "
        "fallen off the bus or failed to start. The node is rebooted, then power-cycled; then somebody "
        "looks at the board.",
        "source": f"{_NVML}: nvmlDeviceGetCount against the recorded inventory",
        "open_after_readings": 3,
        "open_after_seconds": 2.0,
    },
    {
        "name": "nvlink.down",
        "title": "NVLink is down",
        "severity": Severity.DEGRADED,
        "scope": Scope.FABRIC,
        "ladder": (Rung.RESET_GPU, Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE),
        "stateful": True,
        "clears": "the link is up again for half a minute, or a reboot",
        "explanation": "A link that this GPU has is not active. Jobs over several GPUs run slowly or not at "
        "all. Links come up one by one when the driver starts, so this opens only after several readings.",
        "source": f"{_NVML}: nvmlDeviceGetNvLinkState",
        "open_after_readings": 3,
        "open_after_seconds": 20.0,
        "clear_after_seconds": 30.0,
    },
    {
        "name": "thermal.slowdown",
        "title": "GPU slows down from heat",
        "severity": Severity.DEGRADED,
        "scope": Scope.GPU,
        "ladder": (Rung.INSPECT,),
        "stateful": True,
        "clears": "no thermal slowdown for a minute",
        "explanation": "The hardware holds the clocks back because the GPU is too hot. A job over many "
        "nodes runs at the pace of this GPU. No reset cures heat: look at fans, air flow, liquid cooling "
        "and the room.",
        "source": f"{_NVML}: clocks event reason HW thermal slowdown (0x40)",
        "open_after_readings": 3,
        "open_after_seconds": 30.0,
        "clear_after_seconds": 60.0,
    },
    {
        "name": "thermal.overtemperature",
        "title": "GPU is too hot",
        "severity": Severity.DEGRADED,
        "scope": Scope.GPU,
        "ladder": (Rung.INSPECT,),
        "stateful": True,
        "clears": "below the threshold for a minute",
        "explanation": "The GPU or its memory is above the temperature at which its maker slows it down. It "
        "shuts itself off if it gets hotter. Look at the cooling of the node and its neighbours.",
        "source": f"{_NVML}: nvmlDeviceGetTemperature against the device's own thresholds",
        "open_after_readings": 3,
        "open_after_seconds": 10.0,
        "clear_after_seconds": 60.0,
    },
    {
        "name": "power.brake",
        "title": "Power brake slows the GPU down",
        "severity": Severity.DEGRADED,
        "scope": Scope.NODE,
        "ladder": (Rung.INSPECT,),
        "stateful": True,
        "clears": "no power brake for a minute",
        "explanation": "The power supply or the rack told the GPU to draw less. Look at the power supplies "
        "and feeds: one may have failed.",
        "source": f"{_NVML}: clocks event reason HW power brake slowdown (0x80)",
        "open_after_readings": 3,
        "open_after_seconds": 30.0,
        "clear_after_seconds": 60.0,
    },
    {
        "name": "driver.hung",
        "title": "NVIDIA driver does not answer",
        "severity": Severity.FATAL,
        "scope": Scope.NODE,
        "ladder": (Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE),
        "stateful": True,
        "clears": "the driver answers again",
        "explanation": "Questions to the driver did not return within their deadline, several times in a "
        "row. Likely causes: a GPU off the bus, a hung GSP, failing memory. Jobs on this node usually hang "
        "too. Only a reboot gets a hung driver back.",
        "source": "our own rule: the probe's deadline; NVML calls block 6 to 45 s after Xid 79, 119, 120",
        "open_after_readings": 2,
        "open_after_seconds": 30.0,
    },
    {
        "name": "driver.unavailable",
        "title": "The GPUs cannot be watched",
        "severity": Severity.UNKNOWN,
        "scope": Scope.NODE,
        "ladder": (Rung.INSPECT,),
        "stateful": True,
        "clears": "the probe works again",
        "explanation": "NVML cannot be loaded or refuses to start: the driver is not loaded, is being "
        "updated, or does not match its library. This is the watcher's own blindness and no proof of a bad "
        "GPU, so the node stays; but nobody sees its GPUs until it is mended.",
        "source": "our own rule: the probe's error",
        "open_after_readings": 3,
        "open_after_seconds": 30.0,
    },
)
