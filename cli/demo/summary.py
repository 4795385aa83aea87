"""The end of the demonstration in numbers."""

from __future__ import annotations

from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli import render
from cli.demo.expectations import Ending
from cli.terminal import plain, took
from domain.policy import Action
from domain.repair import RepairState, StepState


def show(out: Console, ending: Ending, injected_at: datetime, waited_seconds: float, against: list[str]) -> None:
    """Print the time of each step, what the job lost, how it ended, and whether that is as expected."""
    out.print()
    state = ending.repair
    if state is None:
        out.print(Text("No repair was started.", style="bold"))
    else:
        out.print(
            Text(f"{state.repair_id}: {state.outcome or 'not over'}. {plain(state.outcome_detail)}", style="bold")
        )
        out.print(_steps(state))
        for name, value in _times(state, injected_at, waited_seconds):
            out.print(f"  {name:<34} {value}", markup=False)
        for line in render.moved_lines(state):
            out.print(f"  {line}", markup=False)
    for notice in ending.told:
        out.print(Text(f"  told: {plain(notice.splitlines()[0])}", style="magenta"))
    out.print(f"  rules broken: {len(ending.after.violations)}")
    if against:
        out.print(Text("not as expected:", style="bold red"))
        for said in against:
            out.print(Text(f"  {plain(said)}", style="red"))
    else:
        out.print(Text("as expected", style="bold green"))


def _steps(state: RepairState) -> Table:
    table = Table("step", "state", "took", "decided by", "", box=None, padding=(0, 1))
    for step in state.steps:
        sign, style = render.SIGN[step.state]
        spent = took(step.ended_at - step.started_at) if step.ended_at else ""
        table.add_row(
            step.step_id, Text(f"{sign} {step.state}", style=style), spent, plain(step.decided_by), plain(step.detail)
        )
    return table


def _times(state: RepairState, injected_at: datetime, waited_seconds: float) -> list[tuple[str, str]]:
    def until(action: Action) -> str | None:
        ends = [s.ended_at for s in state.steps if s.action is action and s.state is StepState.DONE and s.ended_at]
        return took(ends[0] - injected_at) if ends else None

    rows = [
        ("fault to repair open", took(state.started_at - injected_at)),
        ("fault to node quarantined", until(Action.QUARANTINE)),
        ("fault to job running elsewhere", until(Action.RECOVER)),
        ("fault to node back in its pool", until(Action.RETURN)),
        ("of which waiting for a person", took(waited_seconds) if waited_seconds else None),
    ]
    return [(name, value) for name, value in rows if value is not None]
