"""The border between protobuf and domain words: nothing changes on the way, nothing wrong gets through."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from domain.faults import Fault, FaultEvent, Rung, Scope, Severity, Transition
from domain.nodes import Gpu, Inventory, NodeIdentity, NodeRef
from domain.observations import MAX_TEXT, Component, ComponentKind, Source
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
from wire import convert
from wire.convert import MalformedError
from wire.v1 import health_pb2, operations_pb2

NODE = NodeRef(cluster="c1", pool="h100", name="gpu-0")
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

names = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9])?", fullmatch=True)
# No surrogates: they are no Unicode text and protobuf cannot carry them.
free_text = st.text(st.characters(codec="utf-8"), max_size=80)
labels = st.text(st.characters(codec="utf-8", exclude_characters="\x7f", min_codepoint=32), max_size=40)
ids = st.text(st.characters(codec="utf-8", exclude_characters="\x7f", min_codepoint=32), min_size=1, max_size=40)
times = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))
counts = st.integers(1, 2**53 - 1)
nodes = st.builds(NodeRef, cluster=names, pool=names, name=names)
gpus = st.builds(Gpu, uuid=ids, serial=labels, pci_bus_id=labels, model=labels, index=st.integers(0, 2**32 - 1))
inventories = st.builds(
    Inventory, gpus=st.lists(gpus, max_size=4).map(tuple), driver_version=labels, kernel_release=labels
)
identities = st.builds(
    NodeIdentity,
    node=nodes,
    boot_id=ids,
    machine_id=labels,
    operations_address=labels,
    agent_version=labels,
    inventory=inventories,
    topology=st.dictionaries(ids, labels, max_size=4),
)
faults = st.builds(
    Fault,
    fault_class=names,
    node=st.just(NODE),
    component=st.builds(Component, kind=st.sampled_from(ComponentKind), id=labels),
    severity=st.sampled_from(Severity),
    scope=st.sampled_from(Scope),
    source=st.sampled_from(Source),
    boot_id=ids,
    first_seen=times,
    last_seen=times,
    count=counts,
    trusted=st.booleans(),
    suggested_rung=st.none() | st.sampled_from(Rung),
    evidence=st.lists(free_text, max_size=5).map(tuple),
    xid=st.none() | st.integers(1, 2**32 - 1),
)
events = st.builds(
    FaultEvent, spool_id=st.just("s1"), sequence=counts, transition=st.sampled_from(Transition), fault=faults
)
requests = st.builds(
    OperationRequest,
    operation_id=ids,
    kind=st.sampled_from(OperationKind),
    boot_id=labels,
    gpu_uuids=st.lists(ids, max_size=8).map(tuple),
    workload_id=labels,
    image=labels,
    burn_in_level=st.sampled_from(BurnInLevel),
    deadline_seconds=st.floats(0.001, 600_000),
)
tests = st.builds(
    TestResult,
    name=ids,
    verdict=st.sampled_from(Verdict),
    detail=free_text,
    seconds=st.floats(0, 100_000),
)
progresses = st.builds(
    OperationProgress,
    operation_id=ids,
    kind=st.sampled_from(OperationKind),
    state=st.sampled_from(OperationState),
    fraction=st.floats(0, 1),
    message=free_text,
    image=labels,
    step=st.integers(-1, 2**53 - 1),
    tests=st.lists(tests, max_size=4).map(tuple),
)
inspections = st.builds(
    NodeInspection,
    identity=identities,
    taken_at=times,
    open_faults=st.lists(ids, max_size=4).map(tuple),
    processes=st.lists(
        st.builds(
            GpuProcess,
            gpu_uuid=ids,
            pid=st.integers(0, 2**31),
            name=free_text,
            used_bytes=st.integers(-1, 2**48),
            workload_id=labels,
        ),
        max_size=3,
    ).map(tuple),
    blind_spots=st.lists(free_text, max_size=3).map(tuple),
)


@given(identities)
def test_an_identity_survives_the_wire(identity: NodeIdentity) -> None:
    assert convert.identity_from_pb(_sent(convert.identity_to_pb(identity))) == identity


@given(faults)
def test_a_fault_survives_the_wire(fault: Fault) -> None:
    assert convert.fault_from_pb(_sent(convert.fault_to_pb(fault)), NODE) == fault


@given(events)
def test_a_fault_event_survives_the_wire(event: FaultEvent) -> None:
    assert convert.fault_event_from_pb(_sent(convert.fault_event_to_pb(event)), NODE, "s1") == event


@given(requests)
def test_a_request_survives_the_wire(request: OperationRequest) -> None:
    assert convert.request_from_pb(_sent(convert.request_to_pb(request))) == request


@given(progresses)
def test_progress_survives_the_wire(progress: OperationProgress) -> None:
    assert convert.progress_from_pb(_sent(convert.progress_to_pb(progress))) == progress


@given(inspections)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_an_inspection_survives_the_wire(inspection: NodeInspection) -> None:
    assert convert.inspection_from_pb(_sent(convert.inspection_to_pb(inspection))) == inspection


CONVERSIONS: dict[str, tuple[type[Message], Callable[[Any], object]]] = {
    "identity": (health_pb2.NodeIdentity, convert.identity_from_pb),
    "fault": (health_pb2.Fault, lambda pb: convert.fault_from_pb(pb, NODE)),
    "fault event": (health_pb2.FaultEvent, lambda pb: convert.fault_event_from_pb(pb, NODE, "s1")),
    "request": (operations_pb2.StartRequest, convert.request_from_pb),
    "progress": (operations_pb2.Progress, convert.progress_from_pb),
    "inspection": (operations_pb2.Inspection, convert.inspection_from_pb),
}


@pytest.mark.parametrize("word", CONVERSIONS)
@given(st.data())
def test_hostile_bytes_are_malformed_and_nothing_worse(word: str, data: st.DataObject) -> None:
    message_class, from_pb = CONVERSIONS[word]
    message = message_class()
    try:
        message.ParseFromString(data.draw(st.binary(max_size=200)))
    except DecodeError:
        return
    with suppress(MalformedError):
        from_pb(message)


@pytest.mark.parametrize("word", CONVERSIONS)
@given(st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_hostile_fields_are_malformed_and_nothing_worse(word: str, data: st.DataObject) -> None:
    message_class, from_pb = CONVERSIONS[word]
    message = message_class()
    _fill(message, data, depth=0)
    with suppress(MalformedError):
        from_pb(message)


def _good_fault() -> health_pb2.Fault:
    return convert.fault_to_pb(
        Fault(
            fault_class="gpu.fallen_off_bus",
            node=NODE,
            component=Component(kind=ComponentKind.GPU, id="GPU-1"),
            severity=Severity.FATAL,
            scope=Scope.GPU,
            source=Source.KERNEL_LOG,
            boot_id="b1",
            first_seen=NOW,
            last_seen=NOW,
        )
    )


def _good_identity() -> health_pb2.NodeIdentity:
    return convert.identity_to_pb(NodeIdentity(node=NODE, boot_id="b1", inventory=Inventory(gpus=(Gpu(uuid="GPU-1"),))))


@pytest.mark.parametrize(
    ("spoil", "field"),
    [
        (lambda pb: pb.ClearField("component"), "component is missing"),
        (lambda pb: pb.ClearField("first_seen"), "first_seen is missing"),
        (lambda pb: pb.ClearField("severity"), "SEVERITY_UNSPECIFIED"),
        (lambda pb: setattr(pb, "severity", 99), "severity is 99, which this version does not know"),
        (lambda pb: setattr(pb, "scope", 0), "SCOPE_UNSPECIFIED"),
        (lambda pb: setattr(pb, "source", 0), "SOURCE_UNSPECIFIED"),
        (lambda pb: setattr(pb.component, "kind", 0), "COMPONENT_KIND_UNSPECIFIED"),
        (lambda pb: setattr(pb.component, "id", "a\nb"), "control characters"),
        (lambda pb: setattr(pb, "fault_class", "a/b"), "fault_class is 'a/b'"),
        (lambda pb: setattr(pb, "boot_id", ""), "boot_id is missing"),
        (lambda pb: setattr(pb, "count", 0), "count is 0"),
        (lambda pb: setattr(pb, "count", 2**63), "count is"),
        (lambda pb: pb.evidence.extend(["x"] * 6), "evidence has 6 entries"),
        (lambda pb: pb.evidence.append("x" * (MAX_TEXT + 1)), r"evidence\[0\] has 1025 characters"),
        (lambda pb: pb.last_seen.CopyFrom(Timestamp(seconds=-1)), "last_seen is -1 s"),
        (lambda pb: pb.last_seen.CopyFrom(Timestamp(seconds=2**60)), "last_seen is"),
        (lambda pb: pb.last_seen.CopyFrom(Timestamp(seconds=1, nanos=-5)), "last_seen is"),
    ],
)
def test_a_fault_that_is_wrong_is_refused_by_name(spoil: Callable[[health_pb2.Fault], object], field: str) -> None:
    pb = _good_fault()
    spoil(pb)
    with pytest.raises(MalformedError, match=field):
        convert.fault_from_pb(pb, NODE)


@pytest.mark.parametrize(
    ("spoil", "field"),
    [
        (lambda pb: pb.ClearField("node"), "node is missing"),
        (lambda pb: setattr(pb.node, "name", "a/b"), "node.name is 'a/b'"),
        (lambda pb: setattr(pb.node, "pool", ""), "node.pool"),
        (lambda pb: setattr(pb.node, "cluster", "x" * 254), "node.cluster"),
        (lambda pb: setattr(pb, "boot_id", ""), "boot_id is missing"),
        (lambda pb: pb.inventory.gpus.extend([health_pb2.Gpu(uuid="u")] * 200), "gpus has 201 entries"),
        (lambda pb: setattr(pb.inventory.gpus[0], "uuid", ""), r"gpus\[0\].uuid is missing"),
        (lambda pb: pb.topology.update({f"k{n}": "v" for n in range(40)}), "topology has 40 entries"),
        (lambda pb: setattr(pb, "machine_id", "m" * 300), "machine_id has 300 characters"),
    ],
)
def test_an_identity_that_is_wrong_is_refused_by_name(
    spoil: Callable[[health_pb2.NodeIdentity], object], field: str
) -> None:
    pb = _good_identity()
    spoil(pb)
    with pytest.raises(MalformedError, match=field):
        convert.identity_from_pb(pb)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf, 1e9])
def test_a_deadline_must_be_a_time(seconds: float) -> None:
    pb = convert.request_to_pb(OperationRequest(operation_id="r/1", kind=OperationKind.INSPECT))
    pb.deadline_seconds = seconds
    with pytest.raises(MalformedError, match="deadline_seconds"):
        convert.request_from_pb(pb)


def test_a_burn_in_must_say_its_level() -> None:
    pb = convert.request_to_pb(OperationRequest(operation_id="r/1", kind=OperationKind.BURN_IN))
    pb.burn_in_level = operations_pb2.BURN_IN_LEVEL_UNSPECIFIED
    with pytest.raises(MalformedError, match="burn_in_level"):
        convert.request_from_pb(pb)
    pb.kind = operations_pb2.OPERATION_KIND_INSPECT
    assert convert.request_from_pb(pb).burn_in_level is BurnInLevel.QUICK


def test_wordy_evidence_is_cut_and_the_latest_kept() -> None:
    fault = convert.fault_from_pb(_good_fault(), NODE)
    wordy = fault.model_copy(update={"evidence": (*(f"line {n}" for n in range(9)), "x" * 5000)})
    sent = convert.fault_from_pb(convert.fault_to_pb(wordy), NODE)
    assert sent.evidence == ("line 5", "line 6", "line 7", "line 8", "x" * MAX_TEXT)


def test_evidence_that_is_no_unicode_still_goes_out() -> None:
    fault = convert.fault_from_pb(_good_fault(), NODE).model_copy(update={"evidence": ("a\udcffb",)})
    assert convert.fault_from_pb(convert.fault_to_pb(fault), NODE).evidence == ("a?b",)


def test_what_protobuf_cannot_carry_is_malformed_too() -> None:
    fault = convert.fault_from_pb(_good_fault(), NODE)
    for update in (
        {"count": -1},
        {"boot_id": "\udcff"},
        {"xid": 2**40},
        {"first_seen": NOW.replace(tzinfo=None)},
    ):
        with pytest.raises(MalformedError):
            convert.fault_to_pb(fault.model_copy(update=update))


def test_times_of_other_zones_arrive_as_the_same_moment() -> None:
    fault = convert.fault_from_pb(_good_fault(), NODE)
    tokyo = NOW.astimezone(timezone(timedelta(hours=9)))
    sent = convert.fault_from_pb(convert.fault_to_pb(fault.model_copy(update={"first_seen": tokyo})), NODE)
    assert sent.first_seen == NOW


def _sent(message: Any) -> Any:
    copy = type(message)()
    copy.ParseFromString(message.SerializeToString())
    return copy


def _fill(message: Message, data: st.DataObject, depth: int) -> None:
    """Fill a message with anything that its types allow."""
    numbers = {
        "int": st.integers(-(2**31), 2**31 - 1),
        "unsigned": st.integers(0, 2**32 - 1),
    }
    for field in message.DESCRIPTOR.fields:
        if data.draw(st.integers(0, 3)) == 0:
            continue
        repeated = field.is_repeated
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)[data.draw(st.text(st.characters(codec="utf-8"), max_size=5))] = "v"
        elif field.message_type is not None:
            if depth < 4:
                child = getattr(message, field.name)
                _fill(child.add() if repeated else child, data, depth + 1)
                if not repeated:
                    child.SetInParent()
        else:
            if field.cpp_type == field.CPPTYPE_STRING:
                value: Any = data.draw(st.text(st.characters(codec="utf-8"), max_size=300))
            elif field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
                value = data.draw(st.floats())
            elif field.cpp_type == field.CPPTYPE_BOOL:
                value = data.draw(st.booleans())
            else:
                unsigned = field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64)
                value = data.draw(numbers["unsigned" if unsigned else "int"])
            if repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
