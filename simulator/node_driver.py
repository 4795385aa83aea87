"""The hand of an agent on a simulated node: operations are carried out in the served world."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from domain.errors import TransientError
from domain.operations import OperationProgress, OperationRequest
from simulator.client import WorldClient

REJOIN_SECONDS = 0.5


class NodeDriver:
    """Carries out operations of one node in one boot (``agents.operations.driver.OperationDriver``)."""

    def __init__(self, world: WorldClient, node: str, boot_id: str) -> None:
        self._world = world
        self._node = node
        self._boot_id = boot_id
        self._dead = False

    def die(self) -> None:
        """Let the agent's end be that of a killed process: what runs on the node goes on without it."""
        self._dead = True

    async def run(self, request: OperationRequest) -> AsyncIterator[OperationProgress]:
        """Start or join an operation and yield its progress. Cancelled, it stops the operation too.

        A node that goes down says nothing any more, so neither does this: the agent dies with its node.
        """
        try:
            while True:
                try:
                    async for progress in self._world.run_operation(self._node, self._boot_id, request):
                        yield progress
                        if progress.state.final:
                            return
                except TransientError:
                    pass
                await asyncio.sleep(REJOIN_SECONDS)
        except (asyncio.CancelledError, GeneratorExit):
            if not self._dead:
                await asyncio.shield(self._world.cancel_operation(self._node, request.operation_id))
            raise
