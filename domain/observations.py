"""Observations: one raw reading or event on a node, before anybody has judged it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from domain.model import Message

MAX_TEXT = 1024
"""Longest evidence text kept, in characters. A kernel log record is at most 8 KiB (``/dev/kmsg``)."""


class Source(StrEnum):
    """Where an observation was made."""

    KERNEL_LOG = "kernel_log"
    NVML = "nvml"
    AGENT = "agent"
    GATEWAY = "gateway"


class ComponentKind(StrEnum):
    """What kind of part is concerned."""

    NODE = "node"
    GPU = "gpu"
    LINK = "link"
    PORT = "port"
    SWITCH = "switch"
    MOUNT = "mount"
    PROCESS = "process"


class Component(Message):
    """The part concerned: a GPU by UUID (by PCI address while its UUID is unknown), the node itself, a link …"""

    kind: ComponentKind
    id: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.id}" if self.id else str(self.kind)


class Observation(Message):
    """One raw reading or event.

    Attributes:
        kind: what was seen, in the check's words: ``xid``, ``gpu_lost``, ``ecc_uncorrected``, ``probe_hung`` …
        at: when it happened (UTC), from the event itself where it carries a time.
        boot_id: the boot in which it happened.
        code: number of a coded event (the Xid), else None.
        trusted: False when a process, not the kernel or the driver, wrote it. Never acted on.
        active: for a state: whether it holds now. An event is always active.
        stateful: whether the source will say again when it no longer holds (a state), or not (an event).
        text: the evidence as read, cut at ``MAX_TEXT``.
        values: readings with their unit in the name, such as ``temperature_c``.
        count: how many equal readings this one stands for.
    """

    source: Source
    kind: str
    at: datetime
    boot_id: str
    component: Component
    code: int | None = None
    trusted: bool = True
    active: bool = True
    stateful: bool = False
    text: str = ""
    values: dict[str, float] = {}
    count: int = 1
