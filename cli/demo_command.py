"""``kintsugi demo``."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel="Run",
        epilog="Examples: kintsugi demo   kintsugi demo --scenario reject   kintsugi demo --interactive."
        " Exit status: 0 it went as it should, 1 it did not, 2 it could not be played.",
    )(demo)


def demo(
    scenario: Annotated[str, typer.Option("--scenario", help="What goes wrong; --list names them.")] = "fallen-off-bus",
    show_list: Annotated[bool, typer.Option("--list", help="List the scenarios.")] = False,
    interactive: Annotated[
        bool, typer.Option("--interactive", help="Wait for your answer instead of answering.")
    ] = False,
    speed: Annotated[float, typer.Option("--speed", min=0.1, max=20, help="Speed of the simulated cluster.")] = 1.0,
    keep: Annotated[bool, typer.Option("--keep", help="Keep record, logs and Temporal's data.")] = False,
) -> None:
    """Watch a bad GPU become a healthy node, on a simulated cluster with real agents and a real control plane."""
    import difflib

    from cli.client import run
    from cli.errors import CouldNotError
    from cli.terminal import console
    from simulator.scenarios import SCENARIOS

    if show_list:
        for known in SCENARIOS.values():
            console().print(f"{known.name:<16} {known.title}. {known.expectation}", markup=False)
        return
    if scenario not in SCENARIOS:
        close = difflib.get_close_matches(scenario, list(SCENARIOS), n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(SCENARIOS)}"
        raise CouldNotError(f"there is no scenario {scenario!r}: {hint}")
    from cli.demo.run import run as play

    status = run(play(SCENARIOS[scenario], interactive, speed, keep))
    if status:
        raise typer.Exit(status)
