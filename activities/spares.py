"""Hot spares: leased to one repair at a time."""

from __future__ import annotations

from temporalio import activity

from domain.errors import NotOursError
from domain.model import Message
from domain.nodes import NodeRef
from domain.ports import Scheduler
from domain.repair import SpareAnswer, SpareRequest
from domain.spares import candidates


class LeaseInput(Message):
    """What a repair needs, and the spares that the pool has given to others."""

    cluster: str
    pool: str
    request: SpareRequest
    taken: tuple[str, ...] = ()


class ReturnSpareInput(Message):
    """A spare that was leased and not used."""

    spare: NodeRef
    repair_id: str


class SpareActivities:
    """Leasing and returning spares."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    @activity.defn(name="lease_spare")
    async def lease(self, order: LeaseInput) -> SpareAnswer:
        """Lease the best spare that fits; a retry gets the one that is already leased to this repair."""
        spares = await self._scheduler.spares(order.cluster, order.pool)
        fitting = candidates(order.request, spares, order.taken)
        for spare in sorted(fitting, key=lambda spare: spare.leased_to != order.request.repair_id):
            try:
                await self._scheduler.lease_spare(spare.node, order.request.repair_id)
            except NotOursError:
                continue
            return SpareAnswer(spare=spare.node.name, detail=f"{spare.node.name} is leased")
        held = len(spares)
        return SpareAnswer(detail=f"no spare fits: {held} in the pool, {request_in_words(order.request)} needed")

    @activity.defn(name="return_spare")
    async def give_back(self, order: ReturnSpareInput) -> None:
        """Give an unused spare back to the pool."""
        await self._scheduler.return_spare(order.spare, order.repair_id)


def request_in_words(request: SpareRequest) -> str:
    """Return what a repair needs, for people."""
    return f"{request.gpus} × {request.model or 'any GPU'}"
