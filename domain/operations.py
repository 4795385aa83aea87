"""Operations that an agent runs on its node: an allow-list, idempotent by operation id, observable."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from domain.model import Message
from domain.nodes import NodeIdentity


class OperationKind(StrEnum):
    """Everything a node may be asked to do. There is no other verb, and never a shell string."""

    INSPECT = "inspect"
    CLEAN_UP = "clean_up"
    CHECKPOINT = "checkpoint"
    RESTORE = "restore"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    BURN_IN = "burn_in"


class OperationState(StrEnum):
    """Life of an operation. The last four are final."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNSUPPORTED = "unsupported"

    @property
    def final(self) -> bool:
        """Whether the state never changes again."""
        return self is not OperationState.RUNNING


class BurnInLevel(StrEnum):
    """How thorough a burn-in is: about two minutes, about twenty, hours."""

    QUICK = "quick"
    STANDARD = "standard"
    DEEP = "deep"


class Verdict(StrEnum):
    """Outcome of one burn-in test. Only PASS returns a node (a WARN if the policy allows it)."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    ERROR = "error"
    SKIP = "skip"


class TestResult(Message):
    """One test of a burn-in.

    Attributes:
        seconds: how long the test ran.
        detail: what was measured and against which floor, in words.
    """

    __test__ = False  # not a pytest class

    name: str
    verdict: Verdict
    detail: str = ""
    seconds: float = 0.0


class OperationRequest(Message):
    """What to do, under an id that makes a second call a look at the first.

    Attributes:
        operation_id: ``<workflow id>/<step>/<attempt>``.
        boot_id: the boot for which the request was made; an agent on another boot refuses a destructive
            operation, since the node has been rebooted in between.
        gpu_uuids: GPUs concerned; empty means all.
        workload_id: the workload to checkpoint, restore or clean up.
        image: checkpoint to restore.
        deadline_seconds: hard bound on the operation's run time, in seconds.
    """

    operation_id: str
    kind: OperationKind
    boot_id: str = ""
    gpu_uuids: tuple[str, ...] = ()
    workload_id: str = ""
    image: str = ""
    burn_in_level: BurnInLevel = BurnInLevel.QUICK
    deadline_seconds: float = 600.0


class OperationProgress(Message):
    """Where an operation is. The last one of a watch has a final state.

    Attributes:
        fraction: done so far, 0.0 to 1.0.
        message: what is going on, or how it ended, in words a person can act on.
        image: checkpoint written, for ``checkpoint``.
        step: the workload's own step number at the checkpoint, -1 when unknown.
        tests: results of a burn-in.
    """

    operation_id: str
    kind: OperationKind
    state: OperationState
    fraction: float = 0.0
    message: str = ""
    image: str = ""
    step: int = -1
    tests: tuple[TestResult, ...] = ()


class GpuProcess(Message):
    """A process that holds a GPU.

    Attributes:
        used_bytes: GPU memory held, in bytes, -1 when the driver does not say.
        workload_id: the workload it belongs to; empty when nobody owns it (a zombie).
    """

    gpu_uuid: str
    pid: int
    name: str = ""
    used_bytes: int = -1
    workload_id: str = ""


class NodeInspection(Message):
    """One look at a node, taken now and without disturbing it.

    Attributes:
        open_faults: keys of the faults that the agent holds open.
        blind_spots: what could not be looked at and why (a driver that hangs, NVML missing).
    """

    identity: NodeIdentity
    taken_at: datetime
    open_faults: tuple[str, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    blind_spots: tuple[str, ...] = ()
