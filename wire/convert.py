"""The border between protobuf and the domain: messages stop here.

``…_to_pb`` cuts free text (evidence, sentences) to the wire's limits, so no fault is lost for being wordy.
``…_from_pb`` trusts nothing. Both raise ``MalformedError``, whose text names the field, and no other error.
"""

from wire.checked import MalformedError, time_from_pb, time_to_pb
from wire.convert_health import (
    fault_event_from_pb,
    fault_event_to_pb,
    fault_from_pb,
    fault_to_pb,
    identity_from_pb,
    identity_to_pb,
    node_from_pb,
    node_to_pb,
)
from wire.convert_operations import (
    inspection_from_pb,
    inspection_to_pb,
    operation_id,
    progress_from_pb,
    progress_to_pb,
    request_from_pb,
    request_to_pb,
)

__all__ = [
    "MalformedError",
    "fault_event_from_pb",
    "fault_event_to_pb",
    "fault_from_pb",
    "fault_to_pb",
    "identity_from_pb",
    "identity_to_pb",
    "inspection_from_pb",
    "inspection_to_pb",
    "node_from_pb",
    "node_to_pb",
    "operation_id",
    "progress_from_pb",
    "progress_to_pb",
    "request_from_pb",
    "request_to_pb",
    "time_from_pb",
    "time_to_pb",
]
