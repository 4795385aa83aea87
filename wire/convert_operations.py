"""Operations on a node between protobuf and domain words."""

from __future__ import annotations

from typing import Final

from domain.operations import (
    BurnInLevel,
    GpuProcess,
    NodeInspection,
    OperationKind,
    OperationProgress,
    OperationRequest,
    OperationState,
    TestResult,
    Verdict,
)
from wire import checked
from wire.checked import EnumTable, sendable
from wire.convert_health import MAX_GPUS, identity_from_pb, identity_to_pb
from wire.v1 import operations_pb2

MAX_TESTS: Final = 256
MAX_PROCESSES: Final = 4096
MAX_OPEN_FAULTS: Final = 1024
MAX_BLIND_SPOTS: Final = 64
MAX_PATH: Final = 4096
"""Longest checkpoint image name, in characters (Linux ``PATH_MAX``)."""
MAX_DEADLINE_SECONDS: Final = 7 * 86_400.0

_KINDS = EnumTable(OperationKind, operations_pb2.OperationKind.items(), "OPERATION_KIND")
_STATES = EnumTable(OperationState, operations_pb2.OperationState.items(), "OPERATION_STATE")
_LEVELS = EnumTable(BurnInLevel, operations_pb2.BurnInLevel.items(), "BURN_IN_LEVEL")
_VERDICTS = EnumTable(Verdict, operations_pb2.Verdict.items(), "VERDICT")


@sendable
def request_to_pb(request: OperationRequest) -> operations_pb2.StartRequest:
    """Return the message of a request; raises ``MalformedError``."""
    return operations_pb2.StartRequest(
        operation_id=request.operation_id,
        kind=_KINDS.pb_name(request.kind),
        boot_id=request.boot_id,
        gpu_uuids=request.gpu_uuids,
        workload_id=request.workload_id,
        image=request.image,
        burn_in_level=_LEVELS.pb_name(request.burn_in_level),
        deadline_seconds=request.deadline_seconds,
    )


def request_from_pb(pb: operations_pb2.StartRequest) -> OperationRequest:
    """Return a request; raises ``MalformedError``.

    A burn-in must say its level: a forgotten one must not become the weakest.
    """
    kind = _KINDS.word("kind", pb.kind)
    level = _LEVELS.optional("burn_in_level", pb.burn_in_level)
    if level is None and kind is OperationKind.BURN_IN:
        raise checked.MalformedError("burn_in_level is BURN_IN_LEVEL_UNSPECIFIED, but a burn-in needs one")
    uuids = checked.items("gpu_uuids", pb.gpu_uuids, len(pb.gpu_uuids), MAX_GPUS)
    return OperationRequest(
        operation_id=operation_id(pb.operation_id),
        kind=kind,
        boot_id=checked.label("boot_id", pb.boot_id),
        gpu_uuids=tuple(checked.label("gpu_uuids", uuid, required=True) for uuid in uuids),
        workload_id=checked.label("workload_id", pb.workload_id),
        image=checked.label("image", pb.image, limit=MAX_PATH),
        burn_in_level=level or BurnInLevel.QUICK,
        deadline_seconds=checked.number("deadline_seconds", pb.deadline_seconds, 0.001, MAX_DEADLINE_SECONDS),
    )


def operation_id(value: str) -> str:
    """Return an operation id as a request, a watch or a cancel names it; raises ``MalformedError``."""
    return checked.label("operation_id", value, required=True)


@sendable
def progress_to_pb(progress: OperationProgress) -> operations_pb2.Progress:
    """Return the message of a progress, sentences cut to what the wire allows; raises ``MalformedError``."""
    return operations_pb2.Progress(
        operation_id=progress.operation_id,
        kind=_KINDS.pb_name(progress.kind),
        state=_STATES.pb_name(progress.state),
        fraction=progress.fraction,
        message=checked.cut(progress.message, checked.MAX_MESSAGE),
        image=progress.image,
        step=progress.step,
        tests=[
            operations_pb2.TestResult(
                name=test.name,
                verdict=_VERDICTS.pb_name(test.verdict),
                detail=checked.cut(test.detail, checked.MAX_MESSAGE),
                seconds=test.seconds,
            )
            for test in progress.tests
        ],
    )


def progress_from_pb(pb: operations_pb2.Progress) -> OperationProgress:
    """Return a progress; raises ``MalformedError``."""
    tests = checked.items("tests", pb.tests, len(pb.tests), MAX_TESTS)
    return OperationProgress(
        operation_id=operation_id(pb.operation_id),
        kind=_KINDS.word("kind", pb.kind),
        state=_STATES.word("state", pb.state),
        fraction=checked.number("fraction", pb.fraction, 0.0, 1.0),
        message=checked.text("message", pb.message, checked.MAX_MESSAGE),
        image=checked.label("image", pb.image, limit=MAX_PATH),
        step=checked.integer("step", pb.step, -1),
        tests=tuple(_test_from_pb(f"tests[{n}]", test) for n, test in enumerate(tests)),
    )


def _test_from_pb(field: str, pb: operations_pb2.TestResult) -> TestResult:
    return TestResult(
        name=checked.label(f"{field}.name", pb.name, required=True),
        verdict=_VERDICTS.word(f"{field}.verdict", pb.verdict),
        detail=checked.text(f"{field}.detail", pb.detail, checked.MAX_MESSAGE),
        seconds=checked.number(f"{field}.seconds", pb.seconds, 0.0, MAX_DEADLINE_SECONDS),
    )


@sendable
def inspection_to_pb(inspection: NodeInspection) -> operations_pb2.Inspection:
    """Return the message of an inspection; raises ``MalformedError``."""
    return operations_pb2.Inspection(
        identity=identity_to_pb(inspection.identity),
        taken_at=checked.time_to_pb(inspection.taken_at),
        open_faults=inspection.open_faults,
        processes=[
            operations_pb2.GpuProcess(
                gpu_uuid=process.gpu_uuid,
                pid=process.pid,
                name=checked.cut(process.name, checked.MAX_MESSAGE),
                used_bytes=process.used_bytes,
                workload_id=process.workload_id,
            )
            for process in inspection.processes
        ],
        blind_spots=[checked.cut(spot, checked.MAX_MESSAGE) for spot in inspection.blind_spots],
    )


def inspection_from_pb(pb: operations_pb2.Inspection) -> NodeInspection:
    """Return an inspection; raises ``MalformedError``."""
    checked.present("identity", pb.HasField("identity"))
    checked.present("taken_at", pb.HasField("taken_at"))
    faults = checked.items("open_faults", pb.open_faults, len(pb.open_faults), MAX_OPEN_FAULTS)
    processes = checked.items("processes", pb.processes, len(pb.processes), MAX_PROCESSES)
    spots = checked.items("blind_spots", pb.blind_spots, len(pb.blind_spots), MAX_BLIND_SPOTS)
    return NodeInspection(
        identity=identity_from_pb(pb.identity),
        taken_at=checked.time_from_pb("taken_at", pb.taken_at),
        open_faults=tuple(
            checked.label("open_faults", key, required=True, limit=2 * checked.MAX_LABEL + 64) for key in faults
        ),
        processes=tuple(_process_from_pb(f"processes[{n}]", process) for n, process in enumerate(processes)),
        blind_spots=tuple(checked.text("blind_spots", spot, checked.MAX_MESSAGE) for spot in spots),
    )


def _process_from_pb(field: str, pb: operations_pb2.GpuProcess) -> GpuProcess:
    return GpuProcess(
        gpu_uuid=checked.label(f"{field}.gpu_uuid", pb.gpu_uuid, required=True),
        pid=checked.integer(f"{field}.pid", pb.pid, 0),
        name=checked.text(f"{field}.name", pb.name, checked.MAX_MESSAGE),
        used_bytes=checked.integer(f"{field}.used_bytes", pb.used_bytes, -1),
        workload_id=checked.label(f"{field}.workload_id", pb.workload_id),
    )
