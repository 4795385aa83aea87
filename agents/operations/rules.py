"""Which operation may start now: pure decisions from data to data."""

from __future__ import annotations

from collections.abc import Iterable

from agents.operations.errors import BusyError, IncompleteRequestError, RefusedError
from domain.operations import OperationKind, OperationRequest

BOUND_TO_BOOT = frozenset({OperationKind.RESET_GPU, OperationKind.REBOOT, OperationKind.CLEAN_UP})
"""Kinds that destroy what runs on the node: a request for an earlier boot is about work that is gone."""

NEEDS_BOOT_ID = frozenset({OperationKind.RESET_GPU, OperationKind.REBOOT})
"""Kinds that must say for which boot they were meant."""

UNSTOPPABLE = frozenset({OperationKind.RESET_GPU, OperationKind.REBOOT})
"""Kinds that, once begun, end by themselves: half of a reset or of a reboot is worse than the whole."""

_ALONE = frozenset({OperationKind.RESET_GPU, OperationKind.REBOOT, OperationKind.BURN_IN})
_ONE_PER_WORKLOAD = frozenset({OperationKind.CHECKPOINT, OperationKind.RESTORE})


def check_request(request: OperationRequest, boot_id: str, running: Iterable[OperationRequest]) -> None:
    """Return when the operation may start now.

    A reset, a reboot and a burn-in run alone; checkpoints and restores of different workloads run side by side;
    a clean-up and an inspection go together with everything, since they are what unblocks the others.

    Args:
        request: what is asked.
        boot_id: of the boot that the node is in.
        running: what is running on the node.

    Raises:
        IncompleteRequestError: something is missing that this kind needs.
        RefusedError: it was meant for another boot.
        BusyError: it does not go together with what is running.
    """
    kind = request.kind
    if kind in NEEDS_BOOT_ID and not request.boot_id:
        raise IncompleteRequestError(f"a {kind} must name the boot_id for which it is meant")
    if kind in _ONE_PER_WORKLOAD and not request.workload_id:
        raise IncompleteRequestError(f"a {kind} must name its workload_id")
    if kind in BOUND_TO_BOOT and request.boot_id and request.boot_id != boot_id:
        raise RefusedError(
            f"this {kind} was meant for boot {request.boot_id}, and the node was rebooted since (it is in boot"
            f" {boot_id}): look at the node again before asking for anything destructive"
        )
    for other in running:
        if _conflict(request, other):
            raise BusyError(
                f"the node is busy with {other.kind} {other.operation_id}: wait for its end or cancel it, then"
                f" ask for this {kind} again"
            )


def same_request(first: OperationRequest, second: OperationRequest) -> bool:
    """Return whether two requests under one id ask for the same; the time left for it may differ."""
    return first.model_copy(update={"deadline_seconds": second.deadline_seconds}) == second


def _conflict(request: OperationRequest, other: OperationRequest) -> bool:
    involved = {request.kind, other.kind}
    if not involved <= _ALONE | _ONE_PER_WORKLOAD:
        return False
    if involved & _ALONE:
        return True
    return request.workload_id == other.workload_id
