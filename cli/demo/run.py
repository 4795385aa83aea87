"""The demonstration as a whole: a directory, the stage, the story, and nothing left behind."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from cli.demo.screen import open_screen
from cli.demo.stage import Stage, forget_settings
from cli.demo.story import Story
from cli.supervisor import Supervisor
from cli.terminal import console
from runtime import exits
from simulator.scenarios import Scenario


async def run(scenario: Scenario, interactive: bool, speed: float, keep: bool) -> int:
    """Play a scenario and return the exit status: 0 as expected, 1 not as expected, 130 interrupted.

    Raises:
        CouldNotError: something could not be started or did not answer.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stopping.set)
    directory = Path(tempfile.mkdtemp(prefix="kintsugi-demo-"))
    forget_settings(directory)
    screen = open_screen()
    stage = Stage(directory, Supervisor(screen.note), speed)
    story = Story(stage, scenario, interactive, screen)
    playing = asyncio.create_task(_play(stage, story, screen.note, interactive))
    stopped = asyncio.create_task(stopping.wait())
    failed = True
    try:
        await asyncio.wait({playing, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not playing.done() and story.held is None:
            failed = False
            return exits.INTERRUPTED
        held = story.held if not playing.done() else playing.result()
        failed = not held
        return exits.OK if held else exits.FAULTS_FOUND
    finally:
        for task in (playing, stopped):
            task.cancel()
        await asyncio.gather(playing, stopped, return_exceptions=True)
        screen.close()
        await stage.tear_down()
        _leave_behind(directory, stage, keep, failed)


async def _play(stage: Stage, story: Story, note: Callable[[str], None], interactive: bool) -> bool:
    note("starting Temporal, gateway, worker and a simulated cluster of real agents …")
    await stage.set_up()
    note(f"web UI {stage.web_ui}   Temporal {stage.temporal}")
    held = await story.play()
    if interactive:
        console().print("Everything stays up for you to look at; Ctrl-C ends it.", style="bold")
        await asyncio.Event().wait()
    return held


def _leave_behind(directory: Path, stage: Stage, keep: bool, failed: bool) -> None:
    """Keep the record when asked to, or when something went wrong; a person wants to see the logs then."""
    out = console()
    if keep or failed:
        out.print(f"record: {stage.ledger}   logs and Temporal's data: {directory}", markup=False, soft_wrap=True)
        out.print(f"  kintsugi ledger --file {stage.ledger}", markup=False, soft_wrap=True)
        return
    shutil.rmtree(directory, ignore_errors=True)
    out.print("The record went with the demonstration; --keep keeps it.", style="dim")
