"""What an operation that succeeded says about the node's faults."""

from __future__ import annotations

from datetime import datetime

from domain.classify import GPU_RESET_DONE
from domain.observations import Component, ComponentKind, Observation, Source
from domain.operations import OperationKind, OperationRequest


def what_it_ended(request: OperationRequest, boot_id: str, at: datetime) -> tuple[Observation, ...]:
    """Return what an operation proves: a GPU reset that the driver confirms ends what waited for it.

    Drivers before Xid 154 say nothing by themselves after a reset, so the agent that carried it out does.
    """
    if request.kind is not OperationKind.RESET_GPU:
        return ()
    gpus = [Component(kind=ComponentKind.GPU, id=uuid) for uuid in request.gpu_uuids]
    return tuple(
        Observation(
            source=Source.AGENT,
            kind=GPU_RESET_DONE,
            at=at,
            boot_id=boot_id,
            component=component,
            text=f"reset by operation {request.operation_id}",
        )
        for component in gpus or [Component(kind=ComponentKind.NODE)]
    )
