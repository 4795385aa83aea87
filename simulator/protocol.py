"""What can be asked of a served world: an allow-list of methods, each with its request and its answer.

Requests and answers are JSON of these models; errors carry the class name and the sentence of ``domain.errors``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, Field, ValidationError

from domain import errors
from domain.errors import KintsugiError, PermanentError
from domain.gpu_snapshot import GpuSnapshot
from domain.model import Message, Word
from domain.nodes import NodeRef
from domain.operations import OperationProgress, OperationRequest
from domain.scheduling import Capacity, DrainProgress, DrainRequest, Mark, SchedulingState, Spare
from domain.workloads import SavedWork, Workload, WorkloadStatus
from simulator.faults import FaultKind, Injection
from simulator.jobs import JobSpec
from simulator.states import KernelRecordView, NodeLife, WorldState

SERVICE = "kintsugi.simulator.World"

RequestT = TypeVar("RequestT", bound=BaseModel)
AnswerT = TypeVar("AnswerT", bound=BaseModel)


class Nothing(Word):
    """No content."""


class NodeOnly(Word):
    """A node."""

    node: NodeRef


class NodeName(Word):
    """A node of the served world, by its name alone."""

    node: str


class NodeMark(Word):
    """A node and our mark."""

    node: NodeRef
    mark: Mark


class NodeDrain(Word):
    """A node and how to empty it."""

    node: NodeRef
    request: DrainRequest


class NodeWorkload(Word):
    """A node and a workload."""

    node: NodeRef
    workload_id: str


class NodeToken(Word):
    """A node, a token that makes a second call a no-op, and why."""

    node: NodeRef
    token: str
    evidence: str = ""


class PoolName(Word):
    """A pool."""

    cluster: str
    pool: str


class SpareLease(Word):
    """A spare and the repair that holds or wants it."""

    node: NodeRef
    repair_id: str


class Resume(Word):
    """Work to start again."""

    saved: SavedWork
    away_from: NodeRef
    spare: str = ""


class WorkloadId(Word):
    """A workload."""

    cluster: str
    workload_id: str


class KernelAfter(Word):
    """Records of a node's boot after a sequence number."""

    node: str
    boot_id: str
    after: int = Field(-1, ge=-1)


class KernelWrite(Word):
    """A record that a process writes to a node's kernel log; facility 0 is the kernel's own."""

    node: str
    text: str = Field(max_length=8192)
    facility: int = Field(1, ge=0, le=23)
    level: int = Field(3, ge=0, le=7)


class NodeOperation(Word):
    """An operation on a node, asked for in a boot."""

    node: str
    boot_id: str
    request: OperationRequest


class OperationOnNode(Word):
    """An operation by id."""

    node: str
    operation_id: str


class FaultOnNode(Word):
    """A kind of fault on a node."""

    node: str
    kind: FaultKind


class Hold(Word):
    """Somebody else's hold on a node."""

    node: str
    who: str = Field(min_length=1)
    reason: str = ""


class Advance(Word):
    """Time to let pass at once, in simulated seconds."""

    seconds: float = Field(ge=0, le=86_400)


class Workloads(Message):
    """Workloads."""

    workloads: tuple[Workload, ...]


class Spares(Message):
    """Spares."""

    spares: tuple[Spare, ...]


class Answer(Message):
    """Yes or no."""

    yes: bool


class Ticket(Message):
    """A ticket's number."""

    ticket: str


class KernelRecords(Message):
    """Kernel log records."""

    records: tuple[KernelRecordView, ...]


class NodeLives(Message):
    """Which agents can run."""

    nodes: tuple[NodeLife, ...]


@dataclass(frozen=True)
class Method(Generic[RequestT, AnswerT]):
    """One method: its name on the wire and what goes in and out."""

    name: str
    request: type[RequestT]
    answer: type[AnswerT]

    @property
    def path(self) -> str:
        """Path of the method in gRPC."""
        return f"/{SERVICE}/{self.name}"


QUARANTINE = Method("Quarantine", NodeMark, SchedulingState)
SCHEDULING_STATE = Method("SchedulingState", NodeOnly, SchedulingState)
RELEASE = Method("Release", NodeMark, SchedulingState)
WORKLOADS = Method("Workloads", NodeOnly, Workloads)
DRAIN = Method("Drain", NodeDrain, DrainProgress)
CONFIRM_STOPPED = Method("ConfirmStopped", NodeWorkload, Answer)
CAPACITY = Method("Capacity", NodeOnly, Capacity)
SPARES = Method("Spares", PoolName, Spares)
LEASE_SPARE = Method("LeaseSpare", SpareLease, Spare)
RETURN_SPARE = Method("ReturnSpare", SpareLease, Nothing)
RESUME_WORKLOAD = Method("ResumeWorkload", Resume, WorkloadStatus)
WORKLOAD_STATUS = Method("WorkloadStatus", WorkloadId, WorkloadStatus)

POWER_CYCLE = Method("PowerCycle", NodeToken, Nothing)
FENCE = Method("Fence", NodeToken, Nothing)
IS_OFF = Method("IsOff", NodeOnly, Answer)
REPROVISION = Method("Reprovision", NodeToken, Nothing)
REPLACE = Method("Replace", NodeToken, Ticket)

WATCH_NODES = Method("WatchNodes", Nothing, NodeLives)
WATCH_KERNEL = Method("WatchKernel", KernelAfter, KernelRecords)
GPU_SNAPSHOT = Method("GpuSnapshot", NodeName, GpuSnapshot)
RUN_OPERATION = Method("RunOperation", NodeOperation, OperationProgress)
CANCEL_OPERATION = Method("CancelOperation", OperationOnNode, Nothing)

STATE = Method("State", Nothing, WorldState)
INJECT = Method("Inject", Injection, Nothing)
CLEAR = Method("Clear", FaultOnNode, Nothing)
HOLD = Method("Hold", Hold, Nothing)
UNHOLD = Method("Unhold", Hold, Nothing)
UNMARK = Method("Unmark", NodeName, Nothing)
SUBMIT = Method("Submit", JobSpec, Nothing)
KERNEL_WRITE = Method("KernelWrite", KernelWrite, Nothing)
ADVANCE = Method("Advance", Advance, Nothing)
SHUTDOWN = Method("Shutdown", Nothing, Nothing)


class ErrorBody(Message):
    """How an error crosses: the name of its class and its sentence."""

    error: str
    text: str


def error_body(error: KintsugiError) -> str:
    """Return an error as it crosses."""
    return ErrorBody(error=type(error).__name__, text=str(error)).model_dump_json()


def error_from(body: str) -> KintsugiError | None:
    """Return the error that a body tells of; None when it is no such body."""
    try:
        told = ErrorBody.model_validate_json(body)
    except ValidationError:
        return None
    kind = {
        name: getattr(errors, name)
        for name in ("TransientError", "PermanentError", "AmbiguousError", "UnsupportedError", "NotOursError")
    }.get(told.error, PermanentError)
    error: KintsugiError = kind(told.text)
    return error
