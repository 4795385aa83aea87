"""Giving a repaired node back to its pool."""

from __future__ import annotations

import asyncio

from temporalio import activity

from activities.heartbeat import Heartbeat, heartbeating
from domain.errors import NotOursError, UnsupportedError
from domain.give_back import objections
from domain.model import Message
from domain.nodes import Inventory, NodeRef
from domain.ports import NodeAgent, Scheduler
from domain.repair import StepProgress
from domain.scheduling import Mark

SETTLE_SECONDS = 60.0
"""How long what speaks against a node may take to go away by itself after the repair, in seconds."""

LOOK_SECONDS = 1.0
"""Pause between two looks, in seconds."""


class GiveBackInput(Message):
    """The node, our mark on it, and the hardware recorded when the repair began.

    Attributes:
        vouched_by: a person who gives it back without proof; the checks are then skipped.
    """

    node: NodeRef
    address: str
    mark: Mark
    recorded: Inventory
    vouched_by: str = ""


class GiveBackResult(Message):
    """How it went.

    Attributes:
        returned: the node takes work again as far as we are concerned.
        ours: False when somebody else had taken the node over.
        objections: why it was not returned.
        foreign_holds: others who still hold it back; left alone, and told.
    """

    returned: bool
    ours: bool = True
    objections: tuple[str, ...] = ()
    foreign_holds: tuple[str, ...] = ()
    detail: str = ""


class GiveBackActivities:
    """The last look before a node returns."""

    def __init__(self, scheduler: Scheduler, agents: NodeAgent) -> None:
        self._scheduler = scheduler
        self._agents = agents

    @activity.defn(name="give_back")
    async def give_back(self, order: GiveBackInput) -> GiveBackResult:
        """Return the node if nothing speaks against it; undo only what carries our mark."""
        async with heartbeating() as heartbeat:
            if not order.vouched_by:
                said = await self._objections_that_stay(order, heartbeat)
                if said:
                    return GiveBackResult(returned=False, objections=tuple(said))
            return await self._release(order)

    async def _release(self, order: GiveBackInput) -> GiveBackResult:
        try:
            state = await self._scheduler.release(order.node, order.mark)
        except NotOursError as error:
            return GiveBackResult(returned=False, ours=False, detail=str(error))
        return GiveBackResult(returned=True, foreign_holds=state.foreign_holds)

    async def _objections_that_stay(self, order: GiveBackInput, heartbeat: Heartbeat) -> list[str]:
        """Look until nothing speaks against the node, or it has had time enough.

        A state clears on the agent only after some good readings, and a device plugin counts a reset GPU again
        only after a while.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SETTLE_SECONDS
        while True:
            inspection = await self._agents.inspect(order.address)
            said = objections(order.recorded, inspection, await self._counted_gpus(order.node))
            if not said or loop.time() >= deadline:
                return said
            heartbeat.report(StepProgress(message=f"waits for: {'; '.join(said)}"))
            await asyncio.sleep(LOOK_SECONDS)

    async def _counted_gpus(self, node: NodeRef) -> int | None:
        try:
            return (await self._scheduler.capacity(node)).gpus
        except UnsupportedError:
            return None
