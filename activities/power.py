"""The node's power, through its baseboard management controller."""

from __future__ import annotations

from temporalio import activity

from activities.heartbeat import heartbeating
from domain.model import Message
from domain.nodes import NodeRef
from domain.ports import Power


class PowerInput(Message):
    """The node, and a token that makes a second call a no-op."""

    node: NodeRef
    token: str


class PowerResult(Message):
    """What the controller confirmed, in words."""

    detail: str


class PowerActivities:
    """Power cycle and fencing."""

    def __init__(self, power: Power) -> None:
        self._power = power

    @activity.defn(name="fence")
    async def fence(self, order: PowerInput) -> PowerResult:
        """Switch the node off; done only when its controller confirms that it is off."""
        async with heartbeating():
            await self._power.fence(order.node, order.token)
        return PowerResult(detail="the BMC confirms that the node is off")

    @activity.defn(name="power_cycle")
    async def power_cycle(self, order: PowerInput) -> PowerResult:
        """Switch the node off and on. That it came back is proven elsewhere, by its new boot id."""
        async with heartbeating():
            await self._power.power_cycle(order.node, order.token)
        return PowerResult(detail="the BMC accepted the power cycle")
