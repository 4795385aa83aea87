"""The catalog of fault classes: how bad each is, how far it reaches, what may mend it, and when it is over.

The entries are data (``domain.catalog_*_data``), checked when this module is loaded: a wrong entry stops
every process at its start instead of one repair at night.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pydantic import Field, model_validator

from domain.catalog_fabric_data import APPLICATION_CLASSES, FABRIC_CLASSES, NODE_CLASSES
from domain.catalog_gpu_data import GPU_CLASSES, Entry
from domain.catalog_state_data import STATE_CLASSES
from domain.faults import Rung, Scope, Severity
from domain.model import Word

NODE_TAKING_RUNGS = frozenset({Rung.RESET_GPU, Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPROVISION, Rung.REPLACE})
"""Rungs for which the node must leave the pool."""


class FaultClass(Word):
    """One class of fault.

    Attributes:
        name: ``<part>.<what>``, such as ``gpu.fallen_off_bus``. Policies name it; it never changes.
        title: a headline of a few words.
        severity: how bad it is for the node, unless the observation itself says otherwise.
        ladder: rungs that may mend it, first rung first.
        stateful: a reading that is taken again and again says when it is over.
        clears: in words, what ends it.
        explanation: what it means and what happens now, for a person who was woken up.
        source: whose word this rests on.
        open_after_readings: active readings in a row before it opens.
        open_after_seconds: how long the readings must have been active before it opens, in seconds.
        clear_after_seconds: how long the readings must have been inactive before it clears, in seconds.
        quiet_seconds: an event that is not seen again for so long is over, in seconds; None: silence proves
            nothing, only a reset that the driver confirms, a reboot or a repair ends it.
        ends_with_recovery: over when the driver says that the GPU needs no recovery (Xid 154 to None).
        absorbs: classes that it explains on the same component: they become its evidence. A name that ends
            with ``*`` stands for all names with that beginning.
        absorb_seconds: how long after its last sighting it explains them, in seconds; None: while open.
    """

    name: str = Field(pattern=r"^[a-z0-9]+\.[a-z0-9_]+$")
    title: str = Field(min_length=3, max_length=80)
    severity: Severity
    scope: Scope
    ladder: tuple[Rung, ...] = Field(min_length=1)
    stateful: bool = False
    clears: str = Field(min_length=3)
    explanation: str = Field(min_length=20)
    source: str = Field(min_length=3)
    open_after_readings: int = Field(1, ge=1)
    open_after_seconds: float = Field(0.0, ge=0)
    clear_after_seconds: float = Field(0.0, ge=0)
    quiet_seconds: float | None = Field(None, gt=0)
    ends_with_recovery: bool = False
    absorbs: tuple[str, ...] = ()
    absorb_seconds: float | None = Field(None, gt=0)

    @property
    def concerns_node(self) -> bool:
        """Whether a repair of the node may follow from it; the other severities are only told."""
        return self.severity in (Severity.DEGRADED, Severity.FATAL)

    @property
    def takes_node(self) -> bool:
        """Whether any rung of its ladder takes the node out of service."""
        return any(rung in NODE_TAKING_RUNGS for rung in self.ladder)

    def explains(self, name: str) -> bool:
        """Return whether a fault of class ``name`` on the same component is a consequence of this one."""
        return any(
            name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern for pattern in self.absorbs
        )

    @model_validator(mode="after")
    def _consistent(self) -> FaultClass:
        order = tuple(Rung)
        ranks = [order.index(rung) for rung in self.ladder]
        if ranks != sorted(set(ranks)):
            raise ValueError(f"{self.name}: a ladder climbs, each rung once")
        if self.takes_node and not self.concerns_node:
            raise ValueError(f"{self.name}: a fault of severity {self.severity} never takes a node away")
        if self.severity is Severity.APPLICATION and self.scope is not Scope.WORKLOAD:
            raise ValueError(f"{self.name}: an application fault reaches the workload, no further")
        if not self.stateful and self.quiet_seconds is None and not self.takes_node and not self.ends_with_recovery:
            raise ValueError(f"{self.name}: nothing would ever end it, give it quiet_seconds")
        return self


def load(entries: tuple[Entry, ...]) -> Mapping[str, FaultClass]:
    """Return the entries as classes by name.

    Raises:
        ValueError: an entry is wrong (pydantic's message names the field), two have one name, or one absorbs
            a class that is not there.
    """
    classes: dict[str, FaultClass] = {}
    for entry in entries:
        loaded = FaultClass.model_validate(entry)
        if loaded.name in classes:
            raise ValueError(f"the catalog has {loaded.name} twice")
        classes[loaded.name] = loaded
    for loaded in classes.values():
        for pattern in loaded.absorbs:
            if not pattern.endswith("*") and pattern not in classes:
                raise ValueError(f"{loaded.name} absorbs {pattern}, which the catalog does not have")
        for other in classes.values():
            if loaded.explains(other.name) and other.concerns_node and not loaded.concerns_node:
                raise ValueError(f"{loaded.name} would hide {other.name}, which concerns the node")
    return MappingProxyType(classes)


CATALOG: Mapping[str, FaultClass] = load(
    (*GPU_CLASSES, *FABRIC_CLASSES, *APPLICATION_CLASSES, *NODE_CLASSES, *STATE_CLASSES)
)
"""Every class of fault by name."""


def fault_class(name: str) -> FaultClass:
    """Return a class of the catalog.

    Raises:
        KeyError: no such class; the message says what to do.
    """
    try:
        return CATALOG[name]
    except KeyError:
        raise KeyError(
            f"the catalog has no fault class {name!r}: correct the name or add it to domain/catalog_*_data.py"
        ) from None
