"""Catalog entries of faults of the fabric, of applications and of nodes, as in ``catalog_gpu_data``."""

from __future__ import annotations

from collections.abc import Mapping

from domain.faults import Rung, Scope, Severity

Entry = Mapping[str, object]

_RESET_FIRST = (Rung.RESET_GPU, Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE)
_REBOOT_FIRST = (Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE)
_XID = "NVIDIA Xid catalogue"
_TEARDOWN = "application.teardown"
_VERDICTS = ("gpu.reset_required", "gpu.reboot_required", "gpu.p2p_drain_required")
_QUIET_JOB = 300.0
_QUIET_INFO = 600.0

FABRIC_CLASSES: tuple[Entry, ...] = (
    {
        "name": "nvlink.error",
        "title": "Fatal NVLink error",
        "severity": Severity.FATAL,
        "scope": Scope.FABRIC,
        "ladder": _RESET_FIRST,
        "clears": "a GPU reset that the driver confirms, a reboot, or a repair",
        "explanation": "A link between GPUs failed and stays down until a reset. Jobs that use several GPUs "
        "fail or crawl. The cause may sit at the other end of the link: look at the peers that reported at "
        "the same moment.",
        "source": f"{_XID}: 74, 136, 155 [RESET_GPU], 144 to 150 with the word Fatal",
        "ends_with_recovery": True,
        "absorbs": (*_VERDICTS, _TEARDOWN, "nvlink.nonfatal"),
        "absorb_seconds": 60.0,
    },
    {
        "name": "nvlink.nonfatal",
        "title": "NVLink error that the hardware survived",
        "severity": Severity.INFO,
        "scope": Scope.FABRIC,
        "ladder": (Rung.NONE,),
        "clears": "not seen again for ten minutes",
        "explanation": "A link reported errors and goes on. One job may have failed for it, often because "
        "of another GPU. Errors that come back on the same link are an early sign of a bad link or cable.",
        "source": f"{_XID}: 144 to 150 with the word Nonfatal",
        "quiet_seconds": _QUIET_INFO,
        "absorbs": (_TEARDOWN,),
        "absorb_seconds": 60.0,
    },
    {
        "name": "nvlink.undecoded",
        "title": "NVLink error whose weight cannot be read",
        "severity": Severity.UNKNOWN,
        "scope": Scope.FABRIC,
        "ladder": (Rung.INSPECT,),
        "clears": "not seen again for an hour",
        "explanation": "The line does not say whether the error is fatal (cut off, or a form that we do not "
        "know). If it is, the driver's own verdict (Xid 154) follows and is acted on. Until then you are "
        "told.",
        "source": f"{_XID}: 144 to 150, no rule fits",
        "quiet_seconds": 3600.0,
        "absorbs": (_TEARDOWN,),
        "absorb_seconds": 60.0,
    },
    {
        "name": "nvlink.imex_recovery",
        "title": "IMEX domain needs recovery",
        "severity": Severity.DEGRADED,
        "scope": Scope.FABRIC,
        "ladder": (Rung.INSPECT,),
        "clears": "the driver's verdict goes back to None, or a reboot",
        "explanation": "The service that lets nodes share GPU memory over NVLink must be recovered for its "
        "whole domain, which concerns other nodes too. A person decides when.",
        "source": "ctrl2080gpu.h of driver 595: recovery action 5",
        "ends_with_recovery": True,
    },
    {
        "name": "nvswitch.error",
        "title": "Fatal NVSwitch error",
        "severity": Severity.FATAL,
        "scope": Scope.NODE,
        "ladder": _REBOOT_FIRST,
        "clears": "a reboot or a repair",
        "explanation": "A switch between the GPUs of this node failed. All GPUs and switches have to be "
        "reset together, which a reboot does. If a GPU fell off the bus at the same moment, that GPU is the "
        "cause, not the switch.",
        "source": "NVIDIA Fabric Manager user guide, appendix D; the word Fatal in the SXid line",
    },
    {
        "name": "nvswitch.nonfatal",
        "title": "NVSwitch error that the switch survived",
        "severity": Severity.INFO,
        "scope": Scope.FABRIC,
        "ladder": (Rung.NONE,),
        "clears": "not seen again for ten minutes",
        "explanation": "The switch noted an error and goes on; there are many of them while links train at "
        "boot. Nothing to do unless they keep coming on one link.",
        "source": "the word Non-fatal in the SXid line",
        "quiet_seconds": _QUIET_INFO,
    },
    {
        "name": "nvswitch.undecoded",
        "title": "NVSwitch error whose weight cannot be read",
        "severity": Severity.UNKNOWN,
        "scope": Scope.FABRIC,
        "ladder": (Rung.INSPECT,),
        "clears": "not seen again for an hour",
        "explanation": "The line says neither Fatal nor Non-fatal, and no table knows the code as fatal. "
        "Code numbers shift between driver branches, so nothing is done on the number alone. Look it up.",
        "source": "our own rule: unknown is told, never nothing",
        "quiet_seconds": 3600.0,
    },
)

APPLICATION_CLASSES: tuple[Entry, ...] = tuple(
    {
        "severity": Severity.APPLICATION,
        "scope": Scope.WORKLOAD,
        "ladder": (Rung.RESTART_WORKLOAD,),
        "clears": "not seen again for five minutes",
        "quiet_seconds": _QUIET_JOB,
        **entry,
    }
    for entry in (
        {
            "name": "application.gpu_exception",
            "title": "The job's own GPU code failed",
            "explanation": "A kernel of the job did something illegal (out of range, illegal instruction, "
            "bad command stream). The GPU is well; the job's owner must look. The same spot failing on one "
            "GPU under several jobs would point to the board.",
            "source": f"{_XID}: 13, 8, 11, 25, 32, 69, 80 [RESTART_APP], 43 [IGNORE]",
            "absorbs": (_TEARDOWN,),
        },
        {
            "name": "application.memory_fault",
            "title": "The job read or wrote memory that is not its own",
            "explanation": "A GPU page fault by the job's own address. The GPU is well. When it follows one "
            "GPU over several jobs, have that GPU inspected.",
            "source": f"{_XID}: 31 [RESTART_APP]",
            "absorbs": (_TEARDOWN,),
        },
        {
            "name": "application.engine_exception",
            "title": "A copy or video engine refused the job's work",
            "explanation": "A copy, video, image or optical-flow engine reported an error for work that the "
            "job gave it. The job is restarted; the same engine failing under several jobs is a reason to "
            "inspect the GPU.",
            "source": f"{_XID}: 39 to 41, 68, 70 to 77, 82 to 104 and others [RESTART_APP]",
            "absorbs": (_TEARDOWN,),
        },
        {
            "name": "application.illegal_access",
            "title": "The job asked the GPU for something it may not do",
            "explanation": "The GPU refused an access by the job or its driver (privileges, peer memory). "
            "The hardware did its duty. Tell the job's owner.",
            "source": f"{_XID}: 66, 67, 108, 137, 141, 152, 153 [IGNORE]",
        },
        {
            "name": "application.teardown",
            "title": "Channels of a process were removed",
            "explanation": "Clean-up after another error or after the job was killed. It never is the "
            "cause: look for the Xid before it, on this GPU or on a peer. Without one, the job simply "
            "ended.",
            "source": f"{_XID}: 45 [WORKFLOW_XID_45], 174",
        },
    )
)

NODE_CLASSES: tuple[Entry, ...] = (
    {
        "name": "node.unreachable",
        "title": "Node does not answer",
        "severity": Severity.FATAL,
        "scope": Scope.NODE,
        "ladder": (Rung.POWER_CYCLE, Rung.REPROVISION, Rung.REPLACE),
        "stateful": True,
        "clears": "the node's agent says hello again",
        "explanation": "The node's agent has been silent for longer than the grace time, at every gateway. "
        "It may be down, hung, or cut off with its jobs still running: silence is no proof that they "
        "stopped. Nothing starts elsewhere before the node is fenced by its BMC.",
        "source": "our own rule: made by the pool from the gateways' reports",
    },
    {
        "name": "node.kernel_log_gap",
        "title": "Kernel log records were lost",
        "severity": Severity.INFO,
        "scope": Scope.NODE,
        "ladder": (Rung.NONE,),
        "clears": "no further loss for ten minutes",
        "explanation": "The kernel overwrote log records before they were read, so an Xid may have been "
        "missed. The driver's own state (NVML) is still read and would show most faults.",
        "source": "Documentation/ABI/testing/dev-kmsg: EPIPE, and gaps in the sequence numbers",
        "quiet_seconds": _QUIET_INFO,
    },
    {
        "name": "node.unknown_observation",
        "title": "Observation that no rule knows",
        "severity": Severity.UNKNOWN,
        "scope": Scope.NODE,
        "ladder": (Rung.INSPECT,),
        "clears": "not seen again for an hour",
        "explanation": "A check reported something for which there is no rule, perhaps because the agent is "
        "newer than its tables. Nothing is done, and you are told.",
        "source": "our own rule: unknown is told, never nothing",
        "quiet_seconds": 3600.0,
    },
)
