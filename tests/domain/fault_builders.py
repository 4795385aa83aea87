"""Words for tests of detection: observations as the checks make them, and kernel lines turned into them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from domain.kernel_log import KernelKind, MessageJoiner
from domain.nodes import NodeRef
from domain.observations import Component, ComponentKind, Observation, Source

DATA = Path(__file__).parents[1] / "data"
NODE = NodeRef(cluster="c1", pool="train", name="gpu-3")
BOOT = "boot-1"
START = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
GPU = Component(kind=ComponentKind.GPU, id="0000:1b:00")
OTHER_GPU = Component(kind=ComponentKind.GPU, id="0000:2c:00")
WHOLE_NODE = Component(kind=ComponentKind.NODE)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def field_case(number: str) -> list[str]:
    [path] = (DATA / "field_cases").glob(f"{number}-*.json")
    lines: list[str] = json.loads(path.read_text(encoding="utf-8"))["input"]
    return lines


def from_lines(lines: Iterable[str], seconds: float = 0.0, boot_id: str = BOOT) -> list[Observation]:
    """Return what the kernel log check makes of lines, one a millisecond."""
    joiner = MessageJoiner()
    made = []
    for number, line in enumerate(lines):
        found = joiner.parse(line)
        if found is None:
            continue
        kind = ComponentKind.SWITCH if found.kind is KernelKind.SXID else ComponentKind.GPU
        address = found.pci.split(".")[0] if kind is ComponentKind.GPU else found.pci
        made.append(
            Observation(
                source=Source.KERNEL_LOG,
                kind=found.kind,
                at=at(seconds + number / 1000),
                boot_id=boot_id,
                component=Component(kind=kind, id=address) if address else WHOLE_NODE,
                code=found.code,
                trusted=found.by_kernel,
                text=line,
            )
        )
    return made


def xid(
    code: int,
    detail: str = "",
    *,
    seconds: float = 0.0,
    component: Component = GPU,
    trusted: bool = True,
    boot_id: str = BOOT,
) -> Observation:
    return Observation(
        source=Source.KERNEL_LOG,
        kind="xid",
        at=at(seconds),
        boot_id=boot_id,
        component=component,
        code=code,
        trusted=trusted,
        text=f"NVRM: Xid (PCI:{component.id or '0000:00:00'}): {code}, {detail}",
    )


def reading(
    kind: str,
    active: bool,
    *,
    seconds: float = 0.0,
    component: Component = GPU,
    code: int | None = None,
    source: Source = Source.NVML,
) -> Observation:
    return Observation(
        source=source,
        kind=kind,
        at=at(seconds),
        boot_id=BOOT,
        component=component,
        code=code,
        active=active,
        stateful=True,
        text=f"{kind} at {seconds}" if active else "",
    )
