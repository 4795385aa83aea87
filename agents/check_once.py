"""``kintsugi check``: look at this node once, with the code that the agent uses, and print its health."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agents.boot import BootFacts, read_boot_facts
from agents.checks.gpus import nvidia_gpus_on_bus
from agents.checks.kernel_log import KernelLogReading
from agents.errors import StartError
from agents.health_report import HealthReport, as_json, render
from agents.kernel.kmsg import KmsgReader
from agents.kernel.log_file import findings_in, last_change
from agents.probe.nvml_probe import NvmlProbe
from agents.probe.reader import GpuReader, ProbeError, ProbeHungError
from domain.fault_tracker import FaultTracker
from domain.faults import Transition
from domain.gpu_snapshot import GpuSnapshot, GpuState, inventory_from, states_from
from domain.nodes import Inventory, NodeRef, normalise_pci
from domain.observations import MAX_TEXT, Component, ComponentKind, Observation, Source
from runtime import exits
from runtime.settings import AgentSettings, SettingsError, load

_EXAMPLES = """\
examples:
  sudo kintsugi check                          this node now: kernel log of this boot, GPUs
  sudo kintsugi check --json | jq .verdict     for scripts
  kintsugi check --kernel-log dmesg.txt        a log that somebody sent, next to this node's GPUs
  sudo kintsugi check --accept-injected        a drill: count lines that a process wrote to /dev/kmsg

exit status: 0 healthy, 1 faults, 2 could not look
"""
_LOOKS = 3
_LOOK_SECONDS = 0.5
_SPREAD = (timedelta(seconds=-60), timedelta(seconds=-30), timedelta())
"""A state must last before the tracker believes it. What all looks of this report agree on is told to it as if it
had lasted a minute: a person asks how the node is now."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="kintsugi check",
        description="Look at this node once and print a health report.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    made.add_argument("--kernel-log", metavar="PATH", type=Path, help="a device like /dev/kmsg, or a plain file")
    made.add_argument(
        "--accept-injected", action="store_true", default=None, help="count what processes wrote to the kernel log"
    )
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Look once, print, and leave with the exit status."""
    options = parser().parse_args(arguments)
    logging.disable(logging.CRITICAL)  # what was found and what could not be read is in the report
    try:
        settings = load(AgentSettings, kernel_log=options.kernel_log, accept_injected=options.accept_injected)
        report = asyncio.run(look(settings, read_boot_facts(), NvmlProbe(settings.probe_deadline_seconds)))
        status = report.exit_status
        _print(as_json(report) if options.json else render(report, _colour(), _width()))
    except (SettingsError, StartError) as error:
        exits.complain(str(error))
        status = exits.COULD_NOT_LOOK
    except KeyboardInterrupt:
        status = exits.INTERRUPTED
    except Exception as error:
        exits.complain(f"the check broke: {type(error).__name__}: {error}")
        status = exits.COULD_NOT_LOOK
    exits.leave(status)


@dataclass
class _Look:
    """What is found while looking."""

    looked_at: list[str] = field(default_factory=list)
    blind_spots: list[str] = field(default_factory=list)
    could_not_look: bool = False
    log_until: datetime | None = None
    gpus: GpuSnapshot = field(default_factory=GpuSnapshot)


async def look(settings: AgentSettings, boot: BootFacts, gpus: NvmlProbe) -> HealthReport:
    """Return the health of this node as one look shows it."""
    node = NodeRef(cluster=settings.cluster, pool=settings.pool, name=settings.node)
    tracker = FaultTracker(node, boot.boot_id)
    found = _Look()
    try:
        states, of_probe = await _look_at_gpus(gpus, found)
    finally:
        await gpus.close()
    over = 0
    now = datetime.now(UTC)
    inventory = inventory_from(found.gpus, boot.kernel_release)
    for observation in _kernel_observations(settings, boot.boot_id, inventory, found):
        told = tracker.apply((observation,), observation.at) + tracker.tick(observation.at)
        over += sum(transition is Transition.CLEARED for transition, _ in told)
    for offset in _SPREAD:
        at = now + offset
        observations = [state.observed(boot.boot_id, at) for state in states]
        observations += [_of_probe(kind, text, boot.boot_id, at) for kind, text in of_probe]
        told = tracker.apply(observations, at)
        over += sum(transition is Transition.CLEARED for transition, _ in told)
    # What went quiet is over: by the end of a file that was written long ago, not by today.
    over += sum(transition is Transition.CLEARED for transition, _ in tracker.tick(found.log_until or now))
    return HealthReport(
        node=settings.node,
        boot_id=boot.boot_id,
        taken_at=now,
        looked_at=tuple(found.looked_at),
        blind_spots=tuple(found.blind_spots),
        could_not_look=found.could_not_look,
        gpus=found.gpus.readings,
        faults=tracker.open_faults,
        over=over,
    )


def _kernel_observations(
    settings: AgentSettings, boot_id: str, inventory: Inventory, found: _Look
) -> tuple[Observation, ...]:
    path = settings.kernel_log
    try:
        if stat.S_ISREG(path.stat().st_mode):
            # Somebody's log may come from another machine: its addresses are not translated to this one's GPUs.
            reading = KernelLogReading(boot_id, Inventory, settings.accept_injected)
            observations = tuple(reading.observation(record, finding) for record, finding in findings_in(path))
            found.log_until = last_change(path)
            found.looked_at.append(f"kernel log in the file {path}, written until {found.log_until:%Y-%m-%d %H:%M}Z")
            return observations
        reader = KmsgReader(path)
        try:
            records = reader.read_all()
        finally:
            reader.close()
    except OSError as error:
        hint = ": only root may read it" if isinstance(error, PermissionError) else f": {error.strerror or error}"
        found.blind_spots.append(f"kernel log {path}{hint}")
        found.could_not_look = True
        return ()
    lost = records[0].lost_before if records else 0
    found.looked_at.append(f"kernel log {path}: {len(records)} records of this boot")
    if lost:
        found.blind_spots.append(f"the first {lost} records of this boot: the kernel has overwritten them")
    reading = KernelLogReading(boot_id, lambda: inventory, settings.accept_injected)
    return tuple(o for o in reading.observations(records) if not (o.kind == "kernel_log_gap" and lost))


async def _look_at_gpus(gpus: GpuReader, found: _Look) -> tuple[list[GpuState], list[tuple[str, str]]]:
    """Return the states that several looks agree on, and what is wrong with the probe itself."""
    on_bus = nvidia_gpus_on_bus()
    try:
        snapshot = await gpus.read()
        states = _states(snapshot, on_bus)
        for _ in range(_LOOKS - 1):
            if not any(state.active for state in states):
                break
            await asyncio.sleep(_LOOK_SECONDS)
            snapshot = await gpus.read()
            active = {(state.uuid, state.kind) for state in states if state.active}
            states = [s for s in _states(snapshot, on_bus) if not s.active or (s.uuid, s.kind) in active]
    except ProbeHungError as error:
        found.blind_spots.append(f"GPUs: {error}")
        found.could_not_look = True
        return [], [("probe_hung", str(error))]
    except ProbeError as error:
        if not on_bus:
            found.looked_at.append(f"GPUs: no GPU on this machine ({error})")
            return [], []
        found.blind_spots.append(f"GPUs: {error}")
        found.could_not_look = True
        return [], [("probe_failed", str(error))]
    found.gpus = snapshot
    found.looked_at.append(f"GPUs through NVML: {len(snapshot.readings)}, driver {snapshot.driver_version}")
    found.blind_spots += snapshot.problems
    return states, []


def _states(snapshot: GpuSnapshot, on_bus: Sequence[str]) -> list[GpuState]:
    listed = {normalise_pci(reading.pci_bus_id) for reading in snapshot.readings}
    missing = [
        GpuState(address, "gpu_missing", True, f"the PCI bus shows an NVIDIA GPU at {address}, NVML does not list it")
        for address in on_bus
        if normalise_pci(address) not in listed
    ]
    return states_from(snapshot, inventory_from(snapshot, "")) + missing


def _of_probe(kind: str, text: str, boot_id: str, at: datetime) -> Observation:
    return Observation(
        source=Source.AGENT,
        kind=kind,
        at=at,
        boot_id=boot_id,
        component=Component(kind=ComponentKind.NODE),
        stateful=True,
        text=text[:MAX_TEXT],
    )


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        pass  # the reader has seen enough; the exit status still counts
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding or "ascii"
        print(text.encode(encoding, "replace").decode(encoding))


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _width() -> int:
    return shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 100


if __name__ == "__main__":
    main()
