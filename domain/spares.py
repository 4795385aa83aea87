"""Choosing a hot spare that fits."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from domain.repair import SpareRequest
from domain.scheduling import Spare

DOMAIN_LABELS = ("nvlink_domain", "leaf", "rack")
"""Labels of shared parts, the closest first: a spare in the same domain is preferred in this order."""


def candidates(request: SpareRequest, spares: Iterable[Spare], taken: Collection[str]) -> list[Spare]:
    """Return the spares that fit, the best first.

    A spare fits when it is free, has passed its burn-in, and has the same GPU model and at least as many GPUs. Of
    those, one that shares more of the node's closest domains comes first; the name breaks ties.
    """
    fitting = [
        spare
        for spare in spares
        if (not spare.leased_to or spare.leased_to == request.repair_id)
        and spare.node.name not in taken
        and spare.validated
        and spare.gpus >= request.gpus
        and (not request.model or spare.model == request.model)
    ]
    return sorted(fitting, key=lambda spare: (_distance(request, spare), spare.node.name))


def _distance(request: SpareRequest, spare: Spare) -> tuple[bool, ...]:
    return tuple(
        spare.topology.get(label) != request.topology[label] for label in DOMAIN_LABELS if label in request.topology
    )
