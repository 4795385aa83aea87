"""Reinstalling and replacing machines."""

from __future__ import annotations

from temporalio import activity

from activities.heartbeat import heartbeating
from domain.model import Message
from domain.nodes import NodeRef
from domain.ports import Provisioner


class ProvisionInput(Message):
    """The node, a token that makes a second call a no-op, and why."""

    node: NodeRef
    token: str
    evidence: str = ""


class ProvisionResult(Message):
    """What was ordered, in words (the ticket of a replacement)."""

    detail: str


class ProvisionActivities:
    """Reprovision and replace."""

    def __init__(self, provisioner: Provisioner) -> None:
        self._provisioner = provisioner

    @activity.defn(name="reprovision")
    async def reprovision(self, order: ProvisionInput) -> ProvisionResult:
        """Reinstall the node as what it was."""
        async with heartbeating():
            await self._provisioner.reprovision(order.node, order.token)
        return ProvisionResult(detail="the node is being reinstalled")

    @activity.defn(name="replace")
    async def replace(self, order: ProvisionInput) -> ProvisionResult:
        """Take the machine out for good and order another."""
        async with heartbeating():
            ticket = await self._provisioner.replace(order.node, order.token, order.evidence)
        return ProvisionResult(detail=f"replacement ordered: {ticket}")
