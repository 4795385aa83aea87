"""The policy in force."""

from __future__ import annotations

from temporalio import activity

from domain.policy import Policy
from domain.ports import PolicySource


class PolicyActivities:
    """Brings the policy into a workflow, which itself reads no file."""

    def __init__(self, source: PolicySource) -> None:
        self._source = source

    @activity.defn(name="current_policy")
    async def current(self) -> Policy:
        """Return the newest valid policy."""
        return await self._source.current()
