"""Catalog entries of faults of one GPU that are told by events, which are kernel lines.

Plain literals, so that an entry reads as a table row; ``domain.catalog`` checks them. NVIDIA's catalogue
is the Xid catalogue at docs.nvidia.com/deploy/xid-errors; the names in brackets are its actions.
"""

from __future__ import annotations

from collections.abc import Mapping

from domain.faults import Rung, Scope, Severity

Entry = Mapping[str, object]

_RESET_FIRST = (Rung.RESET_GPU, Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE)
_REBOOT_FIRST = (Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE)
_AFTER_RESET = "a GPU reset that the driver confirms, a reboot, or a repair"
_XID = "NVIDIA Xid catalogue"
_TEARDOWN = "application.teardown"
_VERDICTS = ("gpu.reset_required", "gpu.reboot_required", "gpu.p2p_drain_required")
_QUIET_INFO = 600.0

GPU_CLASSES: tuple[Entry, ...] = (
    {
        "name": "gpu.fallen_off_bus",
        "title": "GPU has fallen off the bus",
        "severity": Severity.FATAL,
        "scope": Scope.NODE,
        "ladder": _REBOOT_FIRST,
        "clears": "a reboot; the GPU must then be found again",
        "explanation": "The GPU no longer answers on PCIe. Every process on it is lost, a GPU reset cannot "
        "reach it, and questions to it may hang the driver for up to 45 s each. The node is rebooted, then "
        "power-cycled; if the GPU stays away, it is seated or replaced by hand. Errors of its NVLink peers "
        "are consequences.",
        "source": f"{_XID}: 79 [RESTART_BM, CONTACT_SUPPORT]",
        "absorbs": ("gpu.*", "nvlink.*", "application.*", "thermal.*", "power.*"),
    },
    {
        "name": "gpu.ecc_uncorrectable",
        "title": "Uncorrectable memory error, not contained",
        "severity": Severity.FATAL,
        "scope": Scope.GPU,
        "ladder": _RESET_FIRST,
        "clears": _AFTER_RESET,
        "explanation": "GPU memory returned data that ECC could not correct, and the damage may have "
        "reached every process on this GPU. Their results are not to be trusted. The GPU is reset; if the "
        "error comes back, the memory is failing and the board is replaced.",
        "source": f"{_XID}: 48 [WORKFLOW_XID_48], 95, 140 [RESET_GPU], 171, 172",
        "ends_with_recovery": True,
        "absorbs": (*_VERDICTS, _TEARDOWN, "gpu.ecc_counter", "gpu.ecc_contained"),
        "absorb_seconds": 60.0,
    },
    {
        "name": "gpu.ecc_contained",
        "title": "Memory error, contained to one application",
        "severity": Severity.APPLICATION,
        "scope": Scope.WORKLOAD,
        "ladder": (Rung.RESTART_WORKLOAD,),
        "clears": "no further error for an hour",
        "explanation": "An uncorrectable memory error killed one process and reached no other. Restart that "
        "job. The node goes on working; a row that waits for remapping is a fault of its own "
        "(gpu.row_remap_pending).",
        "source": f"{_XID}: 94 [RESTART_APP]; NVIDIA GPU memory error management",
        "quiet_seconds": 3600.0,
        "absorbs": (_TEARDOWN, "gpu.ecc_counter"),
    },
    {
        "name": "gpu.gsp_timeout",
        "title": "GPU system processor does not answer",
        "severity": Severity.FATAL,
        "scope": Scope.GPU,
        "ladder": _RESET_FIRST,
        "clears": _AFTER_RESET,
        "explanation": "The processor on the GPU that runs most of the driver (GSP) hangs or has crashed. "
        "Each driver call to this GPU now waits 6 to 45 s; the driver prints only one of many time-outs, so "
        "silence is no recovery. The GPU is reset, then the node rebooted. Right after a driver update, "
        "suspect the driver.",
        "source": f"{_XID}: 119, 120 [RESET_GPU, INVESTIGATE_SW]; 175 in driver 595",
        "ends_with_recovery": True,
        "absorbs": (*_VERDICTS, _TEARDOWN, "gpu.channel_timeout", "gpu.init_failed"),
        "absorb_seconds": 60.0,
    },
    {
        "name": "gpu.microcontroller_halt",
        "title": "Micro-controller on the GPU has stopped",
        "severity": Severity.FATAL,
        "scope": Scope.GPU,
        "ladder": _RESET_FIRST,
        "clears": _AFTER_RESET,
        "explanation": "A controller inside the GPU (power management or security) has halted. Work on this "
        "GPU stops or is about to. The GPU is reset; a second halt points to the board.",
        "source": f"{_XID}: 62 [RESET_GPU]; 61, 59 in older drivers; 169",
        "ends_with_recovery": True,
        "absorbs": (*_VERDICTS, _TEARDOWN, "gpu.gsp_timeout"),
        "absorb_seconds": 60.0,
    },
    {
        "name": "gpu.channel_timeout",
        "title": "GPU engine stopped processing",
        "severity": Severity.FATAL,
        "scope": Scope.GPU,
        "ladder": _RESET_FIRST,
        "clears": _AFTER_RESET,
        "explanation": "An engine of the GPU no longer finishes its work or cannot switch between "
        "processes. New work on this GPU would hang too, so it is reset.",
        "source": f"{_XID}: 46, 109, 158 [RESET_GPU]",
        "ends_with_recovery": True,
        "absorbs": (*_VERDICTS, _TEARDOWN),
        "absorb_seconds": 60.0,
    },
    {
        "name": "gpu.security_fault",
        "title": "Security fault in the GPU",
        "severity": Severity.FATAL,
        "scope": Scope.GPU,
        "ladder": _RESET_FIRST,
        "clears": _AFTER_RESET,
        "explanation": "The GPU's security hardware refused to go on. The GPU is reset; if that does not "
        "help, a cold start by power cycle often does.",
        "source": f"{_XID}: 110 [RESET_GPU]",
        "ends_with_recovery": True,
        "absorbs": (*_VERDICTS, _TEARDOWN),
        "absorb_seconds": 60.0,
    },
    {
        "name": "gpu.init_failed",
        "title": "GPU does not initialise",
        "severity": Severity.FATAL,
        "scope": Scope.GPU,
        "ladder": _RESET_FIRST,
        "clears": _AFTER_RESET,
        "explanation": "The driver cannot start this GPU, so no job can use it. A reset, a reboot and a "
        "power cycle are tried in this order. Right after a driver update, suspect the driver, not the "
        "board.",
        "source": f"{_XID}: 143 [RESET_GPU]; driver text 'RmInitAdapter failed'",
        "ends_with_recovery": True,
        "absorbs": (*_VERDICTS, _TEARDOWN),
        "absorb_seconds": 60.0,
    },
    {
        "name": "gpu.pcie_fatal",
        "title": "Fatal PCIe or chip-to-chip link error",
        "severity": Severity.FATAL,
        "scope": Scope.NODE,
        "ladder": _REBOOT_FIRST,
        "clears": "a reboot or a repair",
        "explanation": "The link between the GPU and its host failed for good. What the host reads from the "
        "GPU is no longer reliable, so the node is rebooted, then power-cycled.",
        "source": "nverror.h of driver 595: 167, 173; NVIDIA's catalogue gives no action",
        "absorbs": (*_VERDICTS, _TEARDOWN),
        "absorb_seconds": 60.0,
    },
    {
        "name": "gpu.retirement_pending",
        "title": "Part of the GPU waits for retirement",
        "severity": Severity.DEGRADED,
        "scope": Scope.GPU,
        "ladder": _RESET_FIRST,
        "clears": _AFTER_RESET,
        "explanation": "The driver wants to take a faulty part of the GPU out of use, which happens at the "
        "next reset. The GPU works until then, so running jobs may end first if the policy says so.",
        "source": f"{_XID}: 156 [RESET_GPU]",
        "ends_with_recovery": True,
        "absorbs": (*_VERDICTS, _TEARDOWN),
        "absorb_seconds": 60.0,
    },
    {
        "name": "gpu.reduced_memory",
        "title": "GPU runs with less memory",
        "severity": Severity.DEGRADED,
        "scope": Scope.GPU,
        "ladder": (Rung.REBOOT, Rung.REPLACE),
        "clears": "a reboot or a repair",
        "explanation": "Errors in a protected region made the driver give up part of the GPU's memory. Jobs "
        "that need all of it fail. A reboot lets the driver choose another region.",
        "source": "Xid 168: name in NVIDIA's catalogue, without an action there",
    },
    {
        "name": "gpu.key_rotation",
        "title": "Key rotation failed (confidential computing)",
        "severity": Severity.DEGRADED,
        "scope": Scope.GPU,
        "ladder": (Rung.REBOOT, Rung.REPLACE),
        "clears": "a reboot or a repair",
        "explanation": "The encrypted channel between the virtual machine and the GPU could not change its "
        "key. The machine that owns the GPU has to restart.",
        "source": f"{_XID}: 151 [RESTART_VM]",
    },
    {
        "name": "gpu.power_connector",
        "title": "Auxiliary power is not connected",
        "severity": Severity.FATAL,
        "scope": Scope.NODE,
        "ladder": (Rung.INSPECT,),
        "clears": "a person has looked at the cables and the node was booted again",
        "explanation": "The board says that its power cable is missing or loose. No software can mend that: "
        "a person must look at the cable and the power supply before the node works again.",
        "source": f"{_XID}: 54 [CHECK_MECHANICALS]",
        "ends_with_recovery": True,
    },
    {
        "name": "gpu.inspection_wanted",
        "title": "Known GPU event that a person should look at",
        "severity": Severity.UNKNOWN,
        "scope": Scope.GPU,
        "ladder": (Rung.INSPECT,),
        "clears": "not seen again for an hour",
        "explanation": "The code is known, but no automatic step is right for it: it depends on how this "
        "node is used. The node stays in service. Read the evidence and decide.",
        "source": _XID,
        "quiet_seconds": 3600.0,
    },
    {
        "name": "gpu.unknown_xid",
        "title": "Xid that no table knows",
        "severity": Severity.UNKNOWN,
        "scope": Scope.GPU,
        "ladder": (Rung.INSPECT,),
        "clears": "not seen again for an hour",
        "explanation": "The driver reported a code that is not in use according to NVIDIA, or newer than "
        "our table. It is neither harmless nor harmful until somebody knows it: nothing is done, and you "
        "are told. Look the code up in NVIDIA's Xid catalogue.",
        "source": "our own rule: unknown is told, never nothing",
        "quiet_seconds": 3600.0,
    },
    {
        "name": "gpu.event",
        "title": "Harmless GPU event",
        "severity": Severity.INFO,
        "scope": Scope.GPU,
        "ladder": (Rung.NONE,),
        "clears": "not seen again for ten minutes",
        "explanation": "The driver noted something that it has dealt with itself, or a test message. "
        "Nothing to do; many of them on one GPU are a reason to watch it.",
        "source": f"{_XID}: [IGNORE]",
        "quiet_seconds": _QUIET_INFO,
    },
    {
        "name": "power.smoothing_off",
        "title": "Power smoothing is off or wears out",
        "severity": Severity.INFO,
        "scope": Scope.GPU,
        "ladder": (Rung.NONE,),
        "clears": "Xid 162 (re-engaged), or not seen again for a day",
        "explanation": "The circuit that evens out the GPU's power draw was switched off or nears its end "
        "of life. Computing is not affected. Where the site's power feed needs it, reset the GPU at a quiet "
        "time.",
        "source": "Xids 163, 164, 165 (Blackwell): names in NVIDIA's catalogue, without actions there",
        "quiet_seconds": 86400.0,
    },
)
