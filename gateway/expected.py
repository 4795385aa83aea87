"""Nodes that this gateway saw before it was restarted and that do not come back: nobody else would miss them.

A gateway keeps nothing over a restart, and the watch for silence knows only nodes that have said hello to this
process. The pools know the others: which gateway saw a node last.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from temporalio.client import Client
from temporalio.exceptions import TemporalError

from domain.nodes import NodeRef
from domain.pool import NodeHealth, NodeView, PoolView
from gateway.sessions import Sessions
from workflows.ids import POOL_WORKFLOW

log = logging.getLogger(__name__)

RUNNING_POOLS: Final = f"WorkflowType = '{POOL_WORKFLOW}' AND ExecutionStatus = 'Running'"
POOL_QUERY: Final = "get_pool"

ANSWER_SECONDS: Final = 10.0
"""How long Temporal, or a worker that answers for a pool, may take, in seconds."""

AT_ONCE: Final = 8
"""Pools asked at the same time: each costs a worker the replay of a pool's history."""

FIRST_RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 60.0
_SLICE_SECONDS: Final = 0.5


class ExpectedNodes:
    """Reports those nodes lost, once after the gateway's start.

    Args:
        gateway: this gateway's name.
        sessions: which nodes have come, and the way to report the others.
        client: resolves when Temporal was reached.
        since: when the gateway began to listen. A pool that heard of the node after that knows better.
        wait_seconds: how long agents may take to come back, in seconds.
    """

    def __init__(
        self,
        gateway: str,
        sessions: Sessions,
        client: asyncio.Future[Client],
        since: datetime,
        wait_seconds: Callable[[], float],
    ) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._connected = client
        self._since = since
        self._wait_seconds = wait_seconds
        self._views: dict[str, PoolView] = {}
        self._settled: set[str] = set()

    async def run(self) -> None:
        """Return when every pool was asked and every missing node is on its way to its pool."""
        client = await asyncio.shield(self._connected)
        missing = 0
        while True:
            # Agents come back first; and what other gateways could not hand over while Temporal was away, arrives.
            await self._wait()
            unanswered = await self._ask(client)
            missing += self._report()
            if not unanswered:
                break
            await self._until_answered(client, unanswered)
        log.info(
            "looked for the nodes that gateway %s saw before its start: %d missing in %d pools",
            self._gateway,
            missing,
            len(self._settled),
        )

    async def _wait(self) -> None:
        left = self._wait_seconds()
        while left > 0:
            # In slices: time in which this process stood still is no time in which an agent could come back.
            now = min(left, _SLICE_SECONDS)
            await asyncio.sleep(now)
            left -= now

    async def _until_answered(self, client: Client, unanswered: str) -> None:
        failures = 0
        while unanswered:
            failures += 1
            ceiling = min(FIRST_RETRY_SECONDS * 2 ** min(failures - 1, 10), MAX_RETRY_SECONDS)
            log.warning(
                "cannot learn yet which nodes gateway %s saw before its start, trying on: %s",
                self._gateway,
                unanswered,
                extra={"failures": failures},
            )
            await asyncio.sleep(random.uniform(ceiling / 2, ceiling))
            unanswered = await self._ask(client)

    async def _ask(self, client: Client) -> str:
        """Ask the pools that are not settled yet; return why one of them has not answered, empty when all have."""
        self._views = {name: view for name, view in self._views.items() if name in self._settled}
        try:
            names = [
                found.id
                async for found in client.list_workflows(RUNNING_POOLS, rpc_timeout=timedelta(seconds=ANSWER_SECONDS))
            ]
        except (TemporalError, RuntimeError) as error:
            # The SDK's runtime raises RuntimeError for connections that break in unforeseen ways.
            return f"the pools cannot be listed: {error}"
        few = asyncio.Semaphore(AT_ONCE)

        async def ask(name: str) -> str:
            async with few:
                return await self._ask_pool(client, name)

        answers = await asyncio.gather(*(ask(name) for name in names if name not in self._settled))
        return next((why for why in answers if why), "")

    async def _ask_pool(self, client: Client, name: str) -> str:
        try:
            view: PoolView = await client.get_workflow_handle(name).query(
                POOL_QUERY, result_type=PoolView, rpc_timeout=timedelta(seconds=ANSWER_SECONDS)
            )
        except (TemporalError, RuntimeError, ValueError) as error:
            return f"{name} does not answer, does a worker run? {error}"
        self._views[name] = view
        return ""

    def _report(self) -> int:
        """Report the missing nodes of every pool that has just answered; return how many there were."""
        missing = 0
        for name, view in self._views.items():
            if name in self._settled:
                continue
            self._settled.add(name)
            for node in view.nodes:
                if self._is_mine(node) and not self._is_elsewhere(view, node):
                    ref = NodeRef(cluster=view.cluster, pool=view.pool, name=node.name)
                    missing += self._sessions.lose_absent(ref, self._since)
        return missing

    def _is_mine(self, node: NodeView) -> bool:
        return node.gateway == self._gateway and node.health is not NodeHealth.LOST

    def _is_elsewhere(self, pool: PoolView, node: NodeView) -> bool:
        """Return whether the node lives on in another pool of its cluster, at another gateway."""
        return any(
            other.name == node.name and other.gateway not in ("", self._gateway) and other.health is not NodeHealth.LOST
            for view in self._views.values()
            if view.cluster == pool.cluster and view.pool != pool.pool
            for other in view.nodes
        )
