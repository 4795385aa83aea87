"""The hand of an agent: what carries out an operation on this node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from domain.operations import OperationProgress, OperationRequest


class OperationDriver(Protocol):
    """Carries out operations. One implementation per way of doing it, chosen by the agent's ``driver`` setting.

    ``inspect`` is not here: the agent answers it by itself.
    """

    def run(self, request: OperationRequest) -> AsyncIterator[OperationProgress]:
        """Carry out an operation; yields progress, the last one final.

        The manager persists the request before it calls this, and calls it again with the same request after a
        restart of the agent when the operation had not ended: an implementation looks first at how far it got.
        Raises ``UnsupportedError`` for a kind it cannot do and ``PermanentError`` or ``TransientError`` when
        it fails.
        """
