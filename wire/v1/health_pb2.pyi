import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ComponentKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPONENT_KIND_UNSPECIFIED: _ClassVar[ComponentKind]
    COMPONENT_KIND_NODE: _ClassVar[ComponentKind]
    COMPONENT_KIND_GPU: _ClassVar[ComponentKind]
    COMPONENT_KIND_LINK: _ClassVar[ComponentKind]
    COMPONENT_KIND_PORT: _ClassVar[ComponentKind]
    COMPONENT_KIND_SWITCH: _ClassVar[ComponentKind]
    COMPONENT_KIND_MOUNT: _ClassVar[ComponentKind]
    COMPONENT_KIND_PROCESS: _ClassVar[ComponentKind]

class Severity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEVERITY_UNSPECIFIED: _ClassVar[Severity]
    SEVERITY_INFO: _ClassVar[Severity]
    SEVERITY_APPLICATION: _ClassVar[Severity]
    SEVERITY_UNKNOWN: _ClassVar[Severity]
    SEVERITY_DEGRADED: _ClassVar[Severity]
    SEVERITY_FATAL: _ClassVar[Severity]

class Scope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCOPE_UNSPECIFIED: _ClassVar[Scope]
    SCOPE_WORKLOAD: _ClassVar[Scope]
    SCOPE_GPU: _ClassVar[Scope]
    SCOPE_FABRIC: _ClassVar[Scope]
    SCOPE_NODE: _ClassVar[Scope]

class Source(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SOURCE_UNSPECIFIED: _ClassVar[Source]
    SOURCE_KERNEL_LOG: _ClassVar[Source]
    SOURCE_NVML: _ClassVar[Source]
    SOURCE_AGENT: _ClassVar[Source]
    SOURCE_GATEWAY: _ClassVar[Source]

class Rung(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUNG_UNSPECIFIED: _ClassVar[Rung]
    RUNG_NONE: _ClassVar[Rung]
    RUNG_INSPECT: _ClassVar[Rung]
    RUNG_RESTART_WORKLOAD: _ClassVar[Rung]
    RUNG_RESET_GPU: _ClassVar[Rung]
    RUNG_REBOOT: _ClassVar[Rung]
    RUNG_POWER_CYCLE: _ClassVar[Rung]
    RUNG_REPROVISION: _ClassVar[Rung]
    RUNG_REPLACE: _ClassVar[Rung]

class Transition(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSITION_UNSPECIFIED: _ClassVar[Transition]
    TRANSITION_OPENED: _ClassVar[Transition]
    TRANSITION_REPEATED: _ClassVar[Transition]
    TRANSITION_CLEARED: _ClassVar[Transition]
COMPONENT_KIND_UNSPECIFIED: ComponentKind
COMPONENT_KIND_NODE: ComponentKind
COMPONENT_KIND_GPU: ComponentKind
COMPONENT_KIND_LINK: ComponentKind
COMPONENT_KIND_PORT: ComponentKind
COMPONENT_KIND_SWITCH: ComponentKind
COMPONENT_KIND_MOUNT: ComponentKind
COMPONENT_KIND_PROCESS: ComponentKind
SEVERITY_UNSPECIFIED: Severity
SEVERITY_INFO: Severity
SEVERITY_APPLICATION: Severity
SEVERITY_UNKNOWN: Severity
SEVERITY_DEGRADED: Severity
SEVERITY_FATAL: Severity
SCOPE_UNSPECIFIED: Scope
SCOPE_WORKLOAD: Scope
SCOPE_GPU: Scope
SCOPE_FABRIC: Scope
SCOPE_NODE: Scope
SOURCE_UNSPECIFIED: Source
SOURCE_KERNEL_LOG: Source
SOURCE_NVML: Source
SOURCE_AGENT: Source
SOURCE_GATEWAY: Source
RUNG_UNSPECIFIED: Rung
RUNG_NONE: Rung
RUNG_INSPECT: Rung
RUNG_RESTART_WORKLOAD: Rung
RUNG_RESET_GPU: Rung
RUNG_REBOOT: Rung
RUNG_POWER_CYCLE: Rung
RUNG_REPROVISION: Rung
RUNG_REPLACE: Rung
TRANSITION_UNSPECIFIED: Transition
TRANSITION_OPENED: Transition
TRANSITION_REPEATED: Transition
TRANSITION_CLEARED: Transition

class AgentMessage(_message.Message):
    __slots__ = ("hello", "heartbeat", "fault")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    heartbeat: Heartbeat
    fault: FaultEvent
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., fault: _Optional[_Union[FaultEvent, _Mapping]] = ...) -> None: ...

class GatewayMessage(_message.Message):
    __slots__ = ("welcome", "ack", "settings")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    ack: Ack
    settings: Settings
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., settings: _Optional[_Union[Settings, _Mapping]] = ...) -> None: ...

class NodeRef(_message.Message):
    __slots__ = ("cluster", "pool", "name")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    pool: str
    name: str
    def __init__(self, cluster: _Optional[str] = ..., pool: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class Gpu(_message.Message):
    __slots__ = ("uuid", "serial", "pci_bus_id", "model", "index")
    UUID_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    PCI_BUS_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    serial: str
    pci_bus_id: str
    model: str
    index: int
    def __init__(self, uuid: _Optional[str] = ..., serial: _Optional[str] = ..., pci_bus_id: _Optional[str] = ..., model: _Optional[str] = ..., index: _Optional[int] = ...) -> None: ...

class Inventory(_message.Message):
    __slots__ = ("gpus", "driver_version", "kernel_release")
    GPUS_FIELD_NUMBER: _ClassVar[int]
    DRIVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    KERNEL_RELEASE_FIELD_NUMBER: _ClassVar[int]
    gpus: _containers.RepeatedCompositeFieldContainer[Gpu]
    driver_version: str
    kernel_release: str
    def __init__(self, gpus: _Optional[_Iterable[_Union[Gpu, _Mapping]]] = ..., driver_version: _Optional[str] = ..., kernel_release: _Optional[str] = ...) -> None: ...

class NodeIdentity(_message.Message):
    __slots__ = ("node", "boot_id", "machine_id", "operations_address", "agent_version", "inventory", "topology")
    class TopologyEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    INVENTORY_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    node: NodeRef
    boot_id: str
    machine_id: str
    operations_address: str
    agent_version: str
    inventory: Inventory
    topology: _containers.ScalarMap[str, str]
    def __init__(self, node: _Optional[_Union[NodeRef, _Mapping]] = ..., boot_id: _Optional[str] = ..., machine_id: _Optional[str] = ..., operations_address: _Optional[str] = ..., agent_version: _Optional[str] = ..., inventory: _Optional[_Union[Inventory, _Mapping]] = ..., topology: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("identity", "spool_id", "clock")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SPOOL_ID_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    identity: NodeIdentity
    spool_id: str
    clock: _timestamp_pb2.Timestamp
    def __init__(self, identity: _Optional[_Union[NodeIdentity, _Mapping]] = ..., spool_id: _Optional[str] = ..., clock: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("sequence", "clock", "backlog", "dropped", "ailing_checks")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    AILING_CHECKS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    clock: _timestamp_pb2.Timestamp
    backlog: int
    dropped: int
    ailing_checks: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, sequence: _Optional[int] = ..., clock: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., backlog: _Optional[int] = ..., dropped: _Optional[int] = ..., ailing_checks: _Optional[_Iterable[str]] = ...) -> None: ...

class Component(_message.Message):
    __slots__ = ("kind", "id")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    kind: ComponentKind
    id: str
    def __init__(self, kind: _Optional[_Union[ComponentKind, str]] = ..., id: _Optional[str] = ...) -> None: ...

class Fault(_message.Message):
    __slots__ = ("fault_class", "component", "severity", "scope", "source", "boot_id", "first_seen", "last_seen", "count", "trusted", "suggested_rung", "evidence", "xid")
    FAULT_CLASS_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEEN_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TRUSTED_FIELD_NUMBER: _ClassVar[int]
    SUGGESTED_RUNG_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    XID_FIELD_NUMBER: _ClassVar[int]
    fault_class: str
    component: Component
    severity: Severity
    scope: Scope
    source: Source
    boot_id: str
    first_seen: _timestamp_pb2.Timestamp
    last_seen: _timestamp_pb2.Timestamp
    count: int
    trusted: bool
    suggested_rung: Rung
    evidence: _containers.RepeatedScalarFieldContainer[str]
    xid: int
    def __init__(self, fault_class: _Optional[str] = ..., component: _Optional[_Union[Component, _Mapping]] = ..., severity: _Optional[_Union[Severity, str]] = ..., scope: _Optional[_Union[Scope, str]] = ..., source: _Optional[_Union[Source, str]] = ..., boot_id: _Optional[str] = ..., first_seen: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_seen: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., count: _Optional[int] = ..., trusted: _Optional[bool] = ..., suggested_rung: _Optional[_Union[Rung, str]] = ..., evidence: _Optional[_Iterable[str]] = ..., xid: _Optional[int] = ...) -> None: ...

class FaultEvent(_message.Message):
    __slots__ = ("sequence", "transition", "fault")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TRANSITION_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    transition: Transition
    fault: Fault
    def __init__(self, sequence: _Optional[int] = ..., transition: _Optional[_Union[Transition, str]] = ..., fault: _Optional[_Union[Fault, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("heartbeat_seconds", "acked_sequence")
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ACKED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    heartbeat_seconds: float
    acked_sequence: int
    def __init__(self, heartbeat_seconds: _Optional[float] = ..., acked_sequence: _Optional[int] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class Settings(_message.Message):
    __slots__ = ("heartbeat_seconds",)
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    heartbeat_seconds: float
    def __init__(self, heartbeat_seconds: _Optional[float] = ...) -> None: ...
