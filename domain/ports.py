"""Ports: what activities ask of the world. Adapters implement them; the simulator implements all of them.

Every call may raise ``TransientError``, ``PermanentError`` or ``AmbiguousError`` (see ``domain.errors``) and
nothing else. Every changing call is idempotent: made twice with the same arguments it changes the world once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Protocol

from domain.ledger import LedgerEntry, Notice
from domain.nodes import NodeRef
from domain.operations import NodeInspection, OperationProgress, OperationRequest
from domain.scheduling import Capacity, DrainProgress, DrainRequest, Mark, SchedulingState, Spare
from domain.workloads import SavedWork, Workload, WorkloadStatus

if TYPE_CHECKING:
    from domain.policy import Policy


class Scheduler(Protocol):
    """The cluster's scheduler. Invariant: it undoes only what carries our own mark."""

    async def quarantine(self, node: NodeRef, mark: Mark) -> SchedulingState:
        """Keep new work off the node and leave our mark. Others' holds are kept and named in the answer.

        The mark that an earlier repair left behind (aborted, terminated) is such a hold: a person's, by now.
        """

    async def scheduling_state(self, node: NodeRef) -> SchedulingState:
        """Return whether the node takes work and who holds it back."""

    async def release(self, node: NodeRef, mark: Mark) -> SchedulingState:
        """Undo our quarantine and nothing else; asked again by the same repair, it has happened already.

        Raises ``NotOursError`` when our mark is gone by somebody else's hand.
        """

    async def workloads(self, node: NodeRef) -> Sequence[Workload]:
        """Return what runs on the node, gangs as one workload."""

    def drain(self, node: NodeRef, request: DrainRequest) -> AsyncIterator[DrainProgress]:
        """Empty the node; yields progress until ``done`` or the deadline. A second call joins the first."""

    async def confirm_stopped(self, node: NodeRef, workload_id: str) -> bool:
        """Return True only when it is proven that no process of the workload can still run on the node."""

    async def capacity(self, node: NodeRef) -> Capacity:
        """Return the GPUs that the scheduler counts on the node."""

    async def spares(self, cluster: str, pool: str) -> Sequence[Spare]:
        """Return the pool's hot spares, leased ones included."""

    async def lease_spare(self, node: NodeRef, repair_id: str) -> Spare:
        """Take the spare for a repair. Raises ``NotOursError`` when another repair holds it."""

    async def return_spare(self, node: NodeRef, repair_id: str) -> None:
        """Give an unused spare back. A spare that took work over stays with it."""

    async def resume_workload(self, saved: SavedWork, away_from: NodeRef, spare: str) -> WorkloadStatus:
        """Start the workload again without the bad node, on the spare when one is named, else requeue it."""

    async def workload_status(self, cluster: str, workload_id: str) -> WorkloadStatus:
        """Return whether the workload runs, where, and how far it is."""


class NodeAgent(Protocol):
    """The agent on a node, reached at its ``operations_address``."""

    async def start(self, address: str, request: OperationRequest) -> OperationProgress:
        """Start an operation, or return the state of the one that has this id."""

    def watch(self, address: str, operation_id: str) -> AsyncIterator[OperationProgress]:
        """Yield progress until the operation is final. Raises ``TransientError`` when the stream is lost."""

    async def cancel(self, address: str, operation_id: str) -> OperationProgress:
        """Ask an operation to stop; one that cannot be stopped any more goes on."""

    async def inspect(self, address: str) -> NodeInspection:
        """Look at the node now."""


class Power(Protocol):
    """The node's baseboard management controller (BMC)."""

    async def power_cycle(self, node: NodeRef, token: str) -> None:
        """Switch the node off and on. A second call with the same token is a no-op."""

    async def fence(self, node: NodeRef, token: str) -> None:
        """Switch the node off and return only when it is confirmed to be off."""

    async def is_off(self, node: NodeRef) -> bool:
        """Return True only when the BMC confirms that the node is off."""


class Provisioner(Protocol):
    """Whatever reinstalls and replaces machines."""

    async def reprovision(self, node: NodeRef, token: str) -> None:
        """Reinstall the node as what it was. A second call with the same token is a no-op."""

    async def replace(self, node: NodeRef, token: str, evidence: str) -> str:
        """Take the node out for good and order a new one; returns the ticket."""


class Ledger(Protocol):
    """The permanent record."""

    async def record(self, entries: Sequence[LedgerEntry]) -> None:
        """Write entries; those already there (same ``entry_id``) are left as they are."""


class Notifier(Protocol):
    """Whatever people read."""

    async def tell(self, notice: Notice) -> None:
        """Tell people. Failing to reach them is a ``TransientError``."""


class PolicySource(Protocol):
    """Where the policy comes from."""

    async def current(self) -> Policy:
        """Return the newest valid policy; an invalid edit keeps the last valid one."""
