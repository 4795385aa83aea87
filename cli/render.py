"""Repairs and pools as people see them at a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cli.commands_to_type import abort_here, approve_here, approve_with_temporal, folded, override_here, reject_here
from cli.terminal import clock, console, plain, took
from domain.narrate import SHOWN_FAULTS, worst_first
from domain.pool import NodeHealth, PoolView
from domain.repair import Outcome, Phase, RepairState, RepairView, StepProgress, StepRecord, StepState, Wait
from domain.runbook import open_faults

if TYPE_CHECKING:
    from cli.lookup import RepairLine

SIGN = {
    StepState.RUNNING: ("▶", "cyan"),
    StepState.WAITING: ("…", "yellow"),
    StepState.DONE: ("✔", "green"),
    StepState.FAILED: ("✘", "red"),
    StepState.SKIPPED: ("–", "dim"),
}
_HEALTH_STYLE = {
    NodeHealth.HEALTHY: "green",
    NodeHealth.SUSPECT: "yellow",
    NodeHealth.LOST: "red",
    NodeHealth.WAITING: "yellow",
    NodeHealth.IN_REPAIR: "cyan",
    NodeHealth.HELD: "yellow",
}
_GOOD_ENDS = (Outcome.RETURNED, Outcome.CLEARED, Outcome.OBSERVED)


def headline(state: RepairState) -> Text:
    """Return the repair in one line: what, where, and where it is now."""
    text = Text()
    text.append(plain(state.input.incident.headline), style="bold")
    if state.outcome is not None:
        text.append(f"  {state.outcome}", style="green" if state.outcome in _GOOD_ENDS else "yellow")
        text.append(f"  {plain(state.outcome_detail)}")
    elif state.wait is not None:
        text.append(f"  waits for a person ({state.wait.step_id})", style="bold yellow")
    elif state.paused_by:
        text.append(f"  paused by {plain(state.paused_by)}", style="yellow")
    else:
        text.append(f"  {state.phase}", style="cyan")
    return text


def steps_table(state: RepairState, now: datetime, progress: Sequence[StepProgress] = ()) -> Table:
    """Return the steps with their state and duration; the one under way with its progress bar."""
    table = Table(box=None, padding=(0, 1), show_header=False)
    for column in ("sign", "at", "step", "took"):
        table.add_column(column, no_wrap=True, justify="right" if column == "took" else "left")
    table.add_column("what", ratio=1)
    for step in state.steps:
        sign, style = SIGN[step.state]
        spent = (step.ended_at or now) - step.started_at
        table.add_row(
            Text(sign, style=style), clock(step.started_at), Text(step.step_id, style="bold"), took(spent),
            _what(step, progress),
        )  # fmt: skip
    return table


def _what(step: StepRecord, progress: Sequence[StepProgress]) -> RenderableType:
    if step.state is not StepState.RUNNING:
        by = f"  [{plain(step.decided_by)}]" if step.decided_by else ""
        return Text(plain(step.detail)).append(by, style="dim")
    said: list[RenderableType] = []
    for report in progress:
        if report.fraction >= 0:
            said.append(ProgressBar(total=1.0, completed=min(report.fraction, 1.0), width=30))
        if report.message:
            said.append(Text(plain(report.message), style="cyan"))
    return Group(*said) if said else Text("under way", style="cyan")


def faults_table(state: RepairState) -> Table:
    """Return the faults with their latest evidence."""
    table = Table("fault", "component", "severity", "seen", "evidence", box=None, padding=(0, 1))
    shown = worst_first(state)[:SHOWN_FAULTS]
    for fault in shown:
        gone = fault.key in state.cleared
        table.add_row(
            Text(fault.fault_class, style="strike dim" if gone else "bold"),
            plain(str(fault.component)),
            f"{fault.severity}{' (cleared)' if gone else ''}",
            f"{fault.count}x, last {clock(fault.last_seen)}",
            plain(fault.evidence[-1]) if fault.evidence else "",
        )
    if len(state.faults) > len(shown):
        table.add_row(f"… and {len(state.faults) - len(shown)} more", "", "", "", "")
    return table


def wait_text(state: RepairState, wait: Wait, address: str) -> Text:
    """Return what a repair waits for, what a person would approve, and the exact commands."""
    text = Text()
    text.append(
        f"Waits for a person: {wait.action or 'a decision'} on {state.identity.node.name}\n", style="bold yellow"
    )
    text.append(f"  why       {plain(wait.reason)}\n")
    text.append(f"  step      {wait.step_id}   plan {wait.digest}   ladder {' → '.join(state.ladder) or 'empty'}\n")
    waiting_for = open_faults(state)
    for fault in [fault for fault in worst_first(state) if fault in waiting_for][:SHOWN_FAULTS]:
        evidence = f": {plain(fault.evidence[-1])}" if fault.evidence else ""
        text.append(f"  evidence  {fault.fault_class} on {plain(str(fault.component))}{evidence}\n")
    if len(waiting_for) > SHOWN_FAULTS:
        text.append(f"  evidence  … and {len(waiting_for) - SHOWN_FAULTS} more faults\n")
    if wait.needed > 1 or wait.approved_by:
        given = ", ".join(plain(by) for by in wait.approved_by) or "nobody yet"
        text.append(f"  approvals {len(wait.approved_by)} of {wait.needed} ({given})\n")
    if wait.until is not None:
        text.append(f"  until     {clock(wait.until)}, then {wait.no_answer}\n")
    if wait.override_only:
        text.append("An approval is not enough here. To order what comes next, or to stop:\n")
        _commands(text, override_here(state.repair_id, address), abort_here(state.repair_id, address))
        return text
    text.append("To approve, either of:\n")
    approve = approve_here(state.repair_id, wait, address)
    _commands(text, approve, approve_with_temporal(state.repair_id, wait, address))
    text.append("To say no:\n")
    _commands(text, reject_here(state.repair_id, wait, address))
    return text


def _commands(text: Text, *commands: Sequence[str]) -> None:
    for command in commands:
        text.append(folded(command, console().width) + "\n", style="bold")


def repair(view: RepairView, now: datetime, address: str, progress: Sequence[StepProgress] = ()) -> Group:
    """Return everything about one repair."""
    state = view.state
    node = state.identity.node
    parts: list[RenderableType] = [
        headline(state),
        Text(f"{view.repair_id}   pool {node.pool}   boot {state.identity.boot_id}   since {clock(state.started_at)}",
             style="dim"),
    ]  # fmt: skip
    if state.foreign_holds:
        parts.append(Text(f"others hold the node back too: {plain('; '.join(state.foreign_holds))}", style="yellow"))
    if state.last_refusal:
        parts.append(Text(f"last message refused: {plain(state.last_refusal)}", style="yellow"))
    parts += [Text(), faults_table(state), Text(), steps_table(state, now, progress)]
    parts += [Text("  " + moved, style="green") for moved in moved_lines(state)]
    if state.wait is not None and state.outcome is None:
        parts += [Text(), wait_text(state, state.wait, address)]
    return Group(*parts)


def moved_lines(state: RepairState) -> list[str]:
    """Return how each workload came out, one line each."""
    lines = []
    for moved in state.moved:
        name = plain(moved.workload.name or moved.workload.id)
        if not moved.running:
            lines.append(plain(moved.detail or f"{name} does NOT run"))
            continue
        where = f"goes on with {moved.spare}" if moved.spare else "was requeued"
        lost = "unknown" if moved.steps_lost < 0 else str(moved.steps_lost)
        lines.append(f"{name} {where}: {lost} steps lost, {moved.gpu_seconds_lost:g} GPU-seconds lost")
    return lines


def repairs_table(lines: Sequence[RepairLine], now: datetime) -> Table:
    """Return a list of repairs."""
    table = Table("repair", "pool", "fault", "phase", "waits for", "age", box=None, padding=(0, 1))
    for line in lines:
        age = took((line.ended_at or now) - line.started_at)
        phase = line.phase if line.ended_at is None or line.status == "COMPLETED" else line.status.lower()
        waits = Text(line.waiting_for if line.ended_at is None else "", style="bold yellow")
        table.add_row(line.repair_id, line.pool, line.fault_class, _phase(phase), waits, age)
    return table


def _phase(phase: str) -> Text:
    style = "yellow" if phase == Phase.HELD else "dim" if phase == Phase.ENDED else "cyan"
    return Text(phase, style=style)


def pool(view: PoolView, now: datetime) -> Group:
    """Return a pool: its budget, its breaker, its nodes and what waits."""
    parts: list[RenderableType] = [
        Text(f"{view.cluster}/{view.pool}", style="bold").append(
            f"   {len(view.nodes)} nodes, {view.out} out of {view.budget} that may be out", style="dim"
        )
    ]
    if view.breaker.open:
        since = f" since {clock(view.breaker.since)}" if view.breaker.since else ""
        parts.append(Text(f"breaker open{since}: {plain(view.breaker.reason)}", style="bold red"))
        parts.append(Text(f"  kintsugi close-breaker {view.cluster}/{view.pool} --reason 'WHY'", style="bold"))
    table = Table("node", "health", "faults", "repair", box=None, padding=(0, 1))
    for node in view.nodes:
        health = Text(node.health.value, style=_HEALTH_STYLE[node.health])
        table.add_row(node.name, health, _few(node.faults), node.repair_id)
    parts.append(table)
    for waiting in view.waiting:
        said = f"waits {took(now - waiting.since)}: {plain(waiting.incident.headline)}: {plain(waiting.why)}"
        parts.append(Text(said, style="yellow"))
    for spare, repair_id in view.leased.items():
        parts.append(Text(f"spare {spare} is leased to {repair_id}", style="dim"))
    return Group(*parts)


def _few(faults: tuple[str, ...], most: int = 3) -> str:
    more = f" and {len(faults) - most} more" if len(faults) > most else ""
    return plain(", ".join(faults[:most])) + more
