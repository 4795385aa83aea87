"""The demonstration on a terminal: a live picture, or plain lines where there is no terminal."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from cli import render
from cli.demo.picture import Picture
from cli.step_lines import StepLines
from cli.terminal import console, plain
from domain.pool import NodeHealth
from simulator.jobs import JobState
from simulator.states import JobView, NodeState

_JOB_STYLE = {JobState.RUNNING: "green", JobState.STALLED: "red"}


class Screen(Protocol):
    """Where a picture is shown."""

    def note(self, text: str) -> None:
        """Show one line that stays."""

    def show(self, picture: Picture) -> None:
        """Show how it is now."""

    def close(self) -> None:
        """End the picture and leave what was shown last."""


def open_screen() -> Screen:
    """Return a live picture on a terminal, plain lines elsewhere."""
    out = console()
    return LiveScreen(out) if out.is_terminal and not out.is_dumb_terminal else PlainScreen(out)


class PlainScreen:
    """One line for each thing that happens, as it happens."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._lines: StepLines | None = None
        self._told = 0
        self._jobs: dict[str, tuple[JobState, tuple[str, ...]]] = {}

    def note(self, text: str) -> None:
        """Print a line."""
        self._out.print(plain(text), markup=False, soft_wrap=True)
        self._out.file.flush()

    def show(self, picture: Picture) -> None:
        """Print what is new."""
        if self._lines is None:
            self._lines = StepLines(self.note, picture.address)
        if picture.repair is not None:
            self._lines.show(picture.repair)
        for notice in picture.told[self._told :]:
            self.note(f"people are told: {notice.splitlines()[0]}")
        self._told = len(picture.told)
        for job in picture.world.jobs if picture.world else ():
            now = (job.state, job.nodes)
            if self._jobs.get(job.id) != now:
                self._jobs[job.id] = now
                self.note(
                    f"job {job.id} ({job.name}): {job.state} on {', '.join(job.nodes) or 'no node'}, step {job.step}"
                )

    def close(self) -> None:
        """Do nothing: lines stay where they are."""


class LiveScreen:
    """One picture that changes in place."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._notes: deque[str] = deque(maxlen=4)
        self._live = Live(console=out, auto_refresh=False, vertical_overflow="ellipsis")
        self._shown = False

    def note(self, text: str) -> None:
        """Print a line above the picture, or plainly before there is one."""
        if self._shown:
            self._notes.append(text)
        else:
            self._out.print(Text(plain(text), style="dim"))

    def show(self, picture: Picture) -> None:
        """Draw the picture."""
        if not self._shown:
            self._shown = True
            self._live.start()
        self._live.update(self._draw(picture), refresh=True)

    def close(self) -> None:
        """Leave the last picture on the screen."""
        if self._shown:
            self._live.stop()

    def _draw(self, picture: Picture) -> RenderableType:
        parts: list[RenderableType] = [_header(picture)]
        state = picture.repair
        if state is None:
            parts.append(Text("no repair is open", style="dim"))
        else:
            parts += [render.headline(state), render.steps_table(state, picture.now, picture.progress)]
            if state.wait is not None and state.outcome is None:
                # No frame around it: the commands are there to be copied.
                parts += [Rule(style="yellow"), _question(picture), Rule(style="yellow")]
        if picture.world is not None:
            parts += [Text(), *(_job(job) for job in picture.world.jobs), _nodes(picture)]
        parts += [
            Text(f"people are told: {plain(notice.splitlines()[0])}", style="magenta") for notice in picture.told[-3:]
        ]
        parts += [Text(plain(note), style="dim") for note in self._notes]
        return Group(*parts)


def _header(picture: Picture) -> Text:
    text = Text(f"kintsugi demo: {picture.scenario.name}\n", style="bold")
    text.append(f"{picture.scenario.title}. {picture.scenario.expectation}\n", style="dim")
    text.append("web UI    ", style="dim")
    text.append(picture.link, style=f"underline link {picture.link}")
    text.append(f"\ntemporal  --address {picture.address}\n", style="dim")
    return text


def _question(picture: Picture) -> Text:
    assert picture.repair is not None
    assert picture.repair.wait is not None
    text = render.wait_text(picture.repair, picture.repair.wait, picture.address)
    if picture.answers_in is not None:
        text.append(f"The demonstration answers by itself in {picture.answers_in:.0f} s.", style="dim")
    return text


def _job(job: JobView) -> Text:
    text = Text(f"job {job.id} ", style="bold")
    text.append(job.state, style=_JOB_STYLE.get(job.state, "yellow"))
    text.append(f"  step {job.step}  on {', '.join(job.nodes) or 'no node'}")
    if job.starts > 1:
        text.append(f"  went on from step {job.started_from_step}", style="dim")
    return text


def _nodes(picture: Picture) -> Table:
    assert picture.world is not None
    health = {node.name: node for node in picture.pool.nodes} if picture.pool else {}
    table = Table("node", "health", "power", "takes work", "runs", "faults", box=None, padding=(0, 1))
    for node in picture.world.nodes:
        seen = health.get(node.name)
        word = seen.health if seen else None
        style = "green" if word is NodeHealth.HEALTHY else "yellow" if word else "dim"
        faults = ", ".join(seen.faults) if seen else ""
        table.add_row(
            node.name, Text(word or "not seen", style=style), _power(node), _takes_work(node),
            ", ".join(node.busy), plain(faults),
        )  # fmt: skip
    return table


def _power(node: NodeState) -> Text:
    if node.hung:
        return Text("hung", style="red")
    return Text(node.phase, style="" if node.phase == "up" else "yellow")


def _takes_work(node: NodeState) -> Text:
    if node.mark:
        return Text("no, quarantined", style="yellow")
    if node.leased_to:
        return Text("spare, leased", style="cyan")
    if node.spare:
        return Text("hot spare", style="cyan")
    return Text("yes" if node.schedulable else "no", style="green" if node.schedulable else "yellow")
