"""The report of one look at a node, for a person's eyes or as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from domain.catalog import fault_class
from domain.faults import Fault, Rung, Severity
from domain.gpu_snapshot import GpuReading
from runtime import exits

_NEXT_STEPS = {
    Rung.NONE: "nothing to do",
    Rung.INSPECT: "somebody should look at the node",
    Rung.RESTART_WORKLOAD: "restart the job; the node is not at fault",
    Rung.RESET_GPU: "drain the node, then reset the GPU (nvidia-smi --gpu-reset -i <uuid>)",
    Rung.REBOOT: "drain the node, then reboot it",
    Rung.POWER_CYCLE: "drain the node, then power it off and on through its BMC",
    Rung.REPROVISION: "drain the node, then install it anew",
    Rung.REPLACE: "drain the node and have the part replaced",
}
_COLOURS = {Severity.FATAL: "31;1", Severity.DEGRADED: "33", Severity.UNKNOWN: "35"}
_MAX_ROWS = 20
_COUNTING = frozenset({Severity.DEGRADED, Severity.FATAL, Severity.UNKNOWN})


@dataclass(frozen=True)
class HealthReport:
    """What one look found.

    Attributes:
        node: name of the machine.
        taken_at: when (UTC).
        looked_at: in words, each source that was read.
        blind_spots: in words, what should have been read and could not be.
        could_not_look: whether a source that the verdict needs is among the blind spots.
        gpus: the GPUs as NVML answered.
        faults: open faults.
        over: faults of this boot that are over.
    """

    node: str
    boot_id: str
    taken_at: datetime
    looked_at: tuple[str, ...] = ()
    blind_spots: tuple[str, ...] = ()
    could_not_look: bool = False
    gpus: tuple[GpuReading, ...] = ()
    faults: tuple[Fault, ...] = ()
    over: int = 0

    @property
    def counting(self) -> tuple[Fault, ...]:
        """Faults for which the node is not healthy: what an application did or a process wrote is only told."""
        return tuple(fault for fault in self.faults if fault.trusted and fault.severity in _COUNTING)

    @property
    def exit_status(self) -> int:
        """0 healthy, 1 faults, 2 could not look."""
        if self.counting:
            return exits.FAULTS_FOUND
        return exits.COULD_NOT_LOOK if self.could_not_look else exits.OK

    @property
    def verdict(self) -> str:
        """The exit status in a word, for ``--json``."""
        return {exits.OK: "healthy", exits.FAULTS_FOUND: "faults"}.get(self.exit_status, "could_not_look")


def next_step(fault: Fault) -> str:
    """Return what to do first, in words."""
    rung = fault.suggested_rung or fault_class(fault.fault_class).ladder[0]
    return _NEXT_STEPS[rung]


def as_json(report: HealthReport) -> str:
    """Return the report as one JSON document."""
    return json.dumps(
        {
            "node": report.node,
            "boot_id": report.boot_id,
            "taken_at": report.taken_at.isoformat(),
            "verdict": report.verdict,
            "looked_at": report.looked_at,
            "blind_spots": report.blind_spots,
            "faults_over": report.over,
            "faults": [
                {
                    "class": fault.fault_class,
                    "title": fault_class(fault.fault_class).title,
                    "severity": fault.severity.value,
                    "component": {"kind": fault.component.kind.value, "id": fault.component.id},
                    "since": fault.first_seen.isoformat(),
                    "last_seen": fault.last_seen.isoformat(),
                    "count": fault.count,
                    "trusted": fault.trusted,
                    "xid": fault.xid,
                    "explanation": fault_class(fault.fault_class).explanation,
                    "next_step": next_step(fault),
                    "rung": (fault.suggested_rung or fault_class(fault.fault_class).ladder[0]).value,
                    "evidence": fault.evidence,
                }
                for fault in report.faults
            ],
            "gpus": [gpu.model_dump(mode="json") for gpu in report.gpus],
        },
        indent=2,
        ensure_ascii=False,
    )


def render(report: HealthReport, colour: bool, width: int) -> str:
    """Return the report for a person.

    Args:
        report: what was found.
        colour: whether to use ANSI colours.
        width: of a line, in characters.
    """
    lines = [f"Node {report.node}, boot {report.boot_id}, {_time(report.taken_at)}"]
    for words in report.looked_at:
        lines += _wrap("looked at    ", words, width)
    for words in report.blind_spots:
        lines += [_paint(line, "33", colour) for line in _wrap("could not    ", words, width)]
    if report.gpus:
        lines += ["", *_table(("GPU", "MODEL", "PCI ADDRESS", "UUID", "STATE"), map(_gpu_row, report.gpus))]
    told_only = [fault for fault in report.faults if fault not in report.counting]
    lines += _section("Faults", report.counting, colour, width)
    lines += _section("Told only, never acted on", told_only, colour, width)
    lines += ["", _conclusion(report, colour)]
    return "\n".join(lines)


def _section(title: str, faults: Sequence[Fault], colour: bool, width: int) -> list[str]:
    """Return a table of faults, and below it what each class means, once."""
    if not faults:
        return []
    rows = [
        (
            fault.severity.value,
            fault.fault_class,
            str(fault.component),
            _time(fault.first_seen),
            str(fault.count),
            "" if fault.trusted else "a process",
        )
        for fault in faults
    ]
    table = _table(("SEVERITY", "FAULT", "COMPONENT", "SINCE", "COUNT", "WRITTEN BY"), rows)
    lines = ["", f"{title} ({len(faults)})", table[0]]
    lines += [
        _paint(row, _COLOURS.get(fault.severity, ""), colour)
        for fault, row in zip(faults[:_MAX_ROWS], table[1:], strict=False)
    ]
    if len(faults) > _MAX_ROWS:
        lines.append(f"… and {len(faults) - _MAX_ROWS} more: --json lists all of them")
    first_of_class = {(fault.fault_class, fault.trusted): fault for fault in reversed(faults)}
    for fault in reversed(first_of_class.values()):
        lines += ["", *_details(fault, width)]
    return lines


def _details(fault: Fault, width: int) -> list[str]:
    entry = fault_class(fault.fault_class)
    parts = [("", f"{fault.fault_class}: {entry.title}. {entry.explanation}"), ("Next: ", next_step(fault))]
    if not fault.trusted:
        parts = [
            ("", f"{fault.fault_class}: a process wrote this to the kernel log; the kernel itself did not say it.")
        ]
    lines: list[str] = []
    for label, words in (*parts, *(("Seen: ", evidence) for evidence in fault.evidence[:2])):
        lines += _wrap(label, words, width, hang=0)
    return lines


def _wrap(label: str, words: str, width: int, hang: int | None = None) -> list[str]:
    """Return words behind their label in lines of at most ``width``, indented by two."""
    # Evidence is text that others wrote: it must not steer the terminal.
    shown = "".join(character if character.isprintable() else " " for character in words)
    indent = " " * (2 + (len(label) if hang is None else hang))
    return textwrap.wrap(label + shown, max(40, width), initial_indent="  ", subsequent_indent=indent)


def _conclusion(report: HealthReport, colour: bool) -> str:
    over = f" ({report.over} earlier on this boot, over)" if report.over else ""
    faults = report.counting
    if faults:
        return _paint(f"{len(faults)} fault{'s' if len(faults) > 1 else ''} on this node{over}.", "31;1", colour)
    if report.could_not_look:
        return _paint("This node cannot be called healthy: see what could not be looked at.", "33", colour)
    return _paint(f"Healthy{over}.", "32", colour)


def _gpu_row(gpu: GpuReading) -> tuple[str, ...]:
    parts = [] if gpu.temperature_c is None else [f"{gpu.temperature_c} °C"]
    if gpu.nvlinks:
        links = [active for active in gpu.nvlinks if active is not None]
        parts.append(f"NVLink {sum(links)}/{len(links)}")
    if gpu.mig_enabled:
        parts.append("MIG")
    if gpu.processes:
        parts.append(f"{len(gpu.processes)} process{'es' if len(gpu.processes) > 1 else ''}")
    state = "lost" if gpu.lost else ", ".join(parts) or "answers"
    return (str(gpu.index), gpu.model or "?", gpu.pci_bus_id or "?", gpu.uuid or "?", state)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return aligned lines, the head first."""
    everything = [head, *rows]
    widths = [max(len(row[column]) for row in everything) for column in range(len(head))]
    return ["  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in everything]


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%SZ")


def _paint(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour and code else text
