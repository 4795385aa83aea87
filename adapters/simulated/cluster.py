"""The simulated cluster behind the ports of a scheduler, of power control and of provisioning."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from domain.nodes import NodeRef
from domain.scheduling import Capacity, DrainProgress, DrainRequest, Mark, SchedulingState, Spare
from domain.workloads import SavedWork, Workload, WorkloadStatus
from simulator.client import WorldClient


class SimulatedCluster:
    """Implements ``Scheduler``, ``Power`` and ``Provisioner`` of ``domain.ports``.

    Args:
        address: ``host:port`` of the served world.
    """

    def __init__(self, address: str) -> None:
        self._world = WorldClient(address)

    async def close(self) -> None:
        """Close the connection."""
        await self._world.close()

    async def quarantine(self, node: NodeRef, mark: Mark) -> SchedulingState:
        """See ``Scheduler.quarantine``."""
        return await self._world.quarantine(node, mark)

    async def scheduling_state(self, node: NodeRef) -> SchedulingState:
        """See ``Scheduler.scheduling_state``."""
        return await self._world.scheduling_state(node)

    async def release(self, node: NodeRef, mark: Mark) -> SchedulingState:
        """See ``Scheduler.release``."""
        return await self._world.release(node, mark)

    async def workloads(self, node: NodeRef) -> Sequence[Workload]:
        """See ``Scheduler.workloads``."""
        return await self._world.workloads(node)

    def drain(self, node: NodeRef, request: DrainRequest) -> AsyncIterator[DrainProgress]:
        """See ``Scheduler.drain``."""
        return self._world.drain(node, request)

    async def confirm_stopped(self, node: NodeRef, workload_id: str) -> bool:
        """See ``Scheduler.confirm_stopped``."""
        return await self._world.confirm_stopped(node, workload_id)

    async def capacity(self, node: NodeRef) -> Capacity:
        """See ``Scheduler.capacity``."""
        return await self._world.capacity(node)

    async def spares(self, cluster: str, pool: str) -> Sequence[Spare]:
        """See ``Scheduler.spares``."""
        return await self._world.spares(cluster, pool)

    async def lease_spare(self, node: NodeRef, repair_id: str) -> Spare:
        """See ``Scheduler.lease_spare``."""
        return await self._world.lease_spare(node, repair_id)

    async def return_spare(self, node: NodeRef, repair_id: str) -> None:
        """See ``Scheduler.return_spare``."""
        await self._world.return_spare(node, repair_id)

    async def resume_workload(self, saved: SavedWork, away_from: NodeRef, spare: str) -> WorkloadStatus:
        """See ``Scheduler.resume_workload``."""
        return await self._world.resume_workload(saved, away_from, spare)

    async def workload_status(self, cluster: str, workload_id: str) -> WorkloadStatus:
        """See ``Scheduler.workload_status``."""
        return await self._world.workload_status(cluster, workload_id)

    async def power_cycle(self, node: NodeRef, token: str) -> None:
        """See ``Power.power_cycle``."""
        await self._world.power_cycle(node, token)

    async def fence(self, node: NodeRef, token: str) -> None:
        """See ``Power.fence``."""
        await self._world.fence(node, token)

    async def is_off(self, node: NodeRef) -> bool:
        """See ``Power.is_off``."""
        return await self._world.is_off(node)

    async def reprovision(self, node: NodeRef, token: str) -> None:
        """See ``Provisioner.reprovision``."""
        await self._world.reprovision(node, token)

    async def replace(self, node: NodeRef, token: str, evidence: str) -> str:
        """See ``Provisioner.replace``."""
        return await self._world.replace(node, token, evidence)
