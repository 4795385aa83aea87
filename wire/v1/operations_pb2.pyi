import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from wire.v1 import health_pb2 as _health_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OperationKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATION_KIND_UNSPECIFIED: _ClassVar[OperationKind]
    OPERATION_KIND_INSPECT: _ClassVar[OperationKind]
    OPERATION_KIND_CLEAN_UP: _ClassVar[OperationKind]
    OPERATION_KIND_CHECKPOINT: _ClassVar[OperationKind]
    OPERATION_KIND_RESTORE: _ClassVar[OperationKind]
    OPERATION_KIND_RESET_GPU: _ClassVar[OperationKind]
    OPERATION_KIND_REBOOT: _ClassVar[OperationKind]
    OPERATION_KIND_BURN_IN: _ClassVar[OperationKind]

class OperationState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATION_STATE_UNSPECIFIED: _ClassVar[OperationState]
    OPERATION_STATE_RUNNING: _ClassVar[OperationState]
    OPERATION_STATE_SUCCEEDED: _ClassVar[OperationState]
    OPERATION_STATE_FAILED: _ClassVar[OperationState]
    OPERATION_STATE_CANCELLED: _ClassVar[OperationState]
    OPERATION_STATE_UNSUPPORTED: _ClassVar[OperationState]

class BurnInLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BURN_IN_LEVEL_UNSPECIFIED: _ClassVar[BurnInLevel]
    BURN_IN_LEVEL_QUICK: _ClassVar[BurnInLevel]
    BURN_IN_LEVEL_STANDARD: _ClassVar[BurnInLevel]
    BURN_IN_LEVEL_DEEP: _ClassVar[BurnInLevel]

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERDICT_PASS: _ClassVar[Verdict]
    VERDICT_WARN: _ClassVar[Verdict]
    VERDICT_FAIL: _ClassVar[Verdict]
    VERDICT_ERROR: _ClassVar[Verdict]
    VERDICT_SKIP: _ClassVar[Verdict]
OPERATION_KIND_UNSPECIFIED: OperationKind
OPERATION_KIND_INSPECT: OperationKind
OPERATION_KIND_CLEAN_UP: OperationKind
OPERATION_KIND_CHECKPOINT: OperationKind
OPERATION_KIND_RESTORE: OperationKind
OPERATION_KIND_RESET_GPU: OperationKind
OPERATION_KIND_REBOOT: OperationKind
OPERATION_KIND_BURN_IN: OperationKind
OPERATION_STATE_UNSPECIFIED: OperationState
OPERATION_STATE_RUNNING: OperationState
OPERATION_STATE_SUCCEEDED: OperationState
OPERATION_STATE_FAILED: OperationState
OPERATION_STATE_CANCELLED: OperationState
OPERATION_STATE_UNSUPPORTED: OperationState
BURN_IN_LEVEL_UNSPECIFIED: BurnInLevel
BURN_IN_LEVEL_QUICK: BurnInLevel
BURN_IN_LEVEL_STANDARD: BurnInLevel
BURN_IN_LEVEL_DEEP: BurnInLevel
VERDICT_UNSPECIFIED: Verdict
VERDICT_PASS: Verdict
VERDICT_WARN: Verdict
VERDICT_FAIL: Verdict
VERDICT_ERROR: Verdict
VERDICT_SKIP: Verdict

class StartRequest(_message.Message):
    __slots__ = ("operation_id", "kind", "boot_id", "gpu_uuids", "workload_id", "image", "burn_in_level", "deadline_seconds")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    GPU_UUIDS_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    BURN_IN_LEVEL_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    kind: OperationKind
    boot_id: str
    gpu_uuids: _containers.RepeatedScalarFieldContainer[str]
    workload_id: str
    image: str
    burn_in_level: BurnInLevel
    deadline_seconds: float
    def __init__(self, operation_id: _Optional[str] = ..., kind: _Optional[_Union[OperationKind, str]] = ..., boot_id: _Optional[str] = ..., gpu_uuids: _Optional[_Iterable[str]] = ..., workload_id: _Optional[str] = ..., image: _Optional[str] = ..., burn_in_level: _Optional[_Union[BurnInLevel, str]] = ..., deadline_seconds: _Optional[float] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("operation_id",)
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    def __init__(self, operation_id: _Optional[str] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("operation_id",)
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    def __init__(self, operation_id: _Optional[str] = ...) -> None: ...

class InspectRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TestResult(_message.Message):
    __slots__ = ("name", "verdict", "detail", "seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    verdict: Verdict
    detail: str
    seconds: float
    def __init__(self, name: _Optional[str] = ..., verdict: _Optional[_Union[Verdict, str]] = ..., detail: _Optional[str] = ..., seconds: _Optional[float] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("operation_id", "kind", "state", "fraction", "message", "image", "step", "tests")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FRACTION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TESTS_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    kind: OperationKind
    state: OperationState
    fraction: float
    message: str
    image: str
    step: int
    tests: _containers.RepeatedCompositeFieldContainer[TestResult]
    def __init__(self, operation_id: _Optional[str] = ..., kind: _Optional[_Union[OperationKind, str]] = ..., state: _Optional[_Union[OperationState, str]] = ..., fraction: _Optional[float] = ..., message: _Optional[str] = ..., image: _Optional[str] = ..., step: _Optional[int] = ..., tests: _Optional[_Iterable[_Union[TestResult, _Mapping]]] = ...) -> None: ...

class GpuProcess(_message.Message):
    __slots__ = ("gpu_uuid", "pid", "name", "used_bytes", "workload_id")
    GPU_UUID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    gpu_uuid: str
    pid: int
    name: str
    used_bytes: int
    workload_id: str
    def __init__(self, gpu_uuid: _Optional[str] = ..., pid: _Optional[int] = ..., name: _Optional[str] = ..., used_bytes: _Optional[int] = ..., workload_id: _Optional[str] = ...) -> None: ...

class Inspection(_message.Message):
    __slots__ = ("identity", "taken_at", "open_faults", "processes", "blind_spots")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    TAKEN_AT_FIELD_NUMBER: _ClassVar[int]
    OPEN_FAULTS_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    BLIND_SPOTS_FIELD_NUMBER: _ClassVar[int]
    identity: _health_pb2.NodeIdentity
    taken_at: _timestamp_pb2.Timestamp
    open_faults: _containers.RepeatedScalarFieldContainer[str]
    processes: _containers.RepeatedCompositeFieldContainer[GpuProcess]
    blind_spots: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, identity: _Optional[_Union[_health_pb2.NodeIdentity, _Mapping]] = ..., taken_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., open_faults: _Optional[_Iterable[str]] = ..., processes: _Optional[_Iterable[_Union[GpuProcess, _Mapping]]] = ..., blind_spots: _Optional[_Iterable[str]] = ...) -> None: ...
