"""Saving the work on a node before the node is taken."""

from __future__ import annotations

from temporalio import activity

from activities.heartbeat import heartbeating
from activities.node_operations import OperationInput, follow, must_succeed
from domain.errors import KintsugiError
from domain.model import Message
from domain.operations import OperationKind, OperationRequest
from domain.ports import NodeAgent
from domain.saving import SaveChoice, own_checkpoint
from domain.workloads import SavedWork, SaveMethod, Workload


class ChosenSave(Message):
    """One workload and the way chosen for it."""

    workload: Workload
    choice: SaveChoice


class CheckpointInput(Message):
    """What to save, on which node.

    Attributes:
        token: prefix of the operation ids, one operation a workload.
        deadline_seconds: bound on each workload's checkpoint, in seconds.
    """

    address: str
    boot_id: str
    token: str
    deadline_seconds: float
    saves: tuple[ChosenSave, ...]


class CheckpointResult(Message):
    """What was saved, one entry a workload."""

    saved: tuple[SavedWork, ...]


class CheckpointActivities:
    """Checkpoints. One that fails is no reason to keep a bad node: the newest older one is used, and that is said."""

    def __init__(self, agents: NodeAgent) -> None:
        self._agents = agents

    @activity.defn(name="checkpoint")
    async def checkpoint(self, order: CheckpointInput) -> CheckpointResult:
        """Save each workload the way that was chosen for it, falling back to its own newest checkpoint."""
        saved = []
        async with heartbeating() as heartbeat:
            for save in order.saves:
                if save.choice.method is SaveMethod.NONE:
                    saved.append(own_checkpoint(save.workload, save.choice.explanation))
                    continue
                request = OperationRequest(
                    operation_id=f"{order.token}/{save.workload.id}",
                    kind=OperationKind.CHECKPOINT,
                    boot_id=order.boot_id,
                    workload_id=save.workload.id,
                    deadline_seconds=order.deadline_seconds,
                )
                try:
                    progress = must_succeed(
                        await follow(self._agents, OperationInput(address=order.address, request=request), heartbeat)
                    )
                except KintsugiError as error:
                    saved.append(own_checkpoint(save.workload, f"the checkpoint failed ({error})"))
                    continue
                saved.append(
                    SavedWork(
                        workload=save.workload,
                        method=save.choice.method,
                        image=progress.image,
                        step=progress.step,
                        explanation=save.choice.explanation,
                    )
                )
        return CheckpointResult(saved=tuple(saved))
