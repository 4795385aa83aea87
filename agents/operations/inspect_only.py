"""The driver ``none``: a node that is watched and never touched."""

from __future__ import annotations

from collections.abc import AsyncIterator

from domain.errors import UnsupportedError
from domain.operations import OperationProgress, OperationRequest


class InspectOnlyDriver:
    """Carries out nothing. Implements ``OperationDriver``."""

    def run(self, request: OperationRequest) -> AsyncIterator[OperationProgress]:
        """Raise ``UnsupportedError``, naming the setting to change."""
        raise UnsupportedError(
            f"this agent only inspects and cannot carry out {request.kind}: its setting `driver`"
            " (KINTSUGI_AGENT_DRIVER) is 'none'. Set it to what can act on this node, and restart the agent"
        )
