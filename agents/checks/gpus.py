"""The GPUs as a check: one look per interval; a driver that does not answer is an observation too."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from agents.checks.base import Batch
from agents.probe.reader import GpuReader, ProbeHungError, ProbeUnavailableError
from domain.gpu_snapshot import GpuSnapshot, GpuState, LinkMemory, states_from
from domain.nodes import Inventory
from domain.observations import MAX_TEXT, Component, ComponentKind, Observation, Source

log = logging.getLogger(__name__)

PCI_DEVICES = Path("/sys/bus/pci/devices")
_NVIDIA = "0x10de"
_DISPLAY_CLASS = "0x03"
"""PCI base class 03h: VGA and 3D controllers; a GPU's audio function has another (PCI code and ID assignment)."""
_SLACK_SECONDS = 5.0
_SETTLED_SECONDS = 120.0
_REMIND_SECONDS = 15.0


def nvidia_gpus_on_bus(devices: Path = PCI_DEVICES) -> tuple[str, ...]:
    """Return the PCI addresses of NVIDIA GPUs, whether a driver serves them or not."""
    try:
        found = sorted(devices.iterdir())
    except OSError:
        return ()
    return tuple(
        device.name
        for device in found
        if _read(device / "vendor") == _NVIDIA and _read(device / "class").startswith(_DISPLAY_CLASS)
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip().lower()
    except (OSError, UnicodeDecodeError):
        return ""


class _News:
    """Leaves out what has been fine for long: dozens of such states come with each look.

    Whoever judges needs a state's end for a while (``clear_after_seconds`` of the catalog, a minute at most), and
    then only a reminder for a fault that another source opened.
    """

    def __init__(self) -> None:
        self._fine_since: dict[tuple[str, str], float] = {}
        self._told: dict[tuple[str, str], float] = {}

    def worth_telling(self, state: GpuState, now: float) -> bool:
        """Return whether to tell a state of this moment (``time.monotonic``)."""
        key = (state.uuid, state.kind)
        if state.active:
            self._fine_since.pop(key, None)
            return True
        since = self._fine_since.setdefault(key, now)
        if now - since > _SETTLED_SECONDS and now - self._told.get(key, now) < _REMIND_SECONDS:
            return False
        self._told[key] = now
        return True


class GpuCheck:
    """Looks at the GPUs again and again. Implements ``Check``.

    Args:
        reader: the way to the GPUs.
        interval_seconds: time between two looks, in seconds.
        boot_id: this boot.
        inventory: GPUs that belong to this node.
        gpus_on_bus: GPUs that the machine has, as the bus shows them: where there is none and none is known,
            a missing driver is no finding.
    """

    name = "gpus"

    def __init__(
        self,
        reader: GpuReader,
        interval_seconds: float,
        boot_id: str,
        inventory: Callable[[], Inventory],
        gpus_on_bus: Callable[[], tuple[str, ...]] = nvidia_gpus_on_bus,
    ) -> None:
        self._reader = reader
        self._interval = interval_seconds
        self._boot_id = boot_id
        self._inventory = inventory
        self._gpus_on_bus = gpus_on_bus
        self._links = LinkMemory()
        self._news = _News()
        self._problems: tuple[str, ...] = ()

    @property
    def expected_seconds(self) -> float | None:
        """Longest time between two looks while the driver answers."""
        return self._interval + _SLACK_SECONDS

    async def batches(self) -> AsyncIterator[Batch]:
        """Yield one batch per interval."""
        loop = asyncio.get_running_loop()
        while True:
            begun = loop.time()
            yield Batch(await self.look())
            await asyncio.sleep(max(0.0, begun + self._interval - loop.time()))

    async def look(self) -> tuple[Observation, ...]:
        """Return what one look shows."""
        try:
            snapshot = await self._reader.read()
        except ProbeHungError as error:
            # A reminder of an earlier time-out is no second reading.
            return (self._of_probe("probe_hung", True, str(error)),) if error.asked else ()
        except ProbeUnavailableError as error:
            if not error.asked or not (self._inventory().gpus or self._gpus_on_bus()):
                return ()
            return (self._of_probe("probe_failed", True, str(error)),)
        if snapshot.problems != self._problems:
            self._problems = snapshot.problems
            for problem in snapshot.problems:
                log.warning("NVML: %s", problem)
        return (
            self._of_probe("probe_hung", False),
            self._of_probe("probe_failed", False),
            *self._observations(snapshot),
        )

    def _observations(self, snapshot: GpuSnapshot) -> list[Observation]:
        self._links = self._links.after(snapshot)
        now, at = monotonic(), datetime.now(UTC)
        states = states_from(snapshot, self._inventory(), self._links)
        return [state.observed(self._boot_id, at) for state in states if self._news.worth_telling(state, now)]

    def _of_probe(self, kind: str, active: bool, text: str = "") -> Observation:
        return Observation(
            source=Source.AGENT,
            kind=kind,
            at=datetime.now(UTC),
            boot_id=self._boot_id,
            component=Component(kind=ComponentKind.NODE),
            active=active,
            stateful=True,
            text=text[:MAX_TEXT],
        )
