"""``kintsugi up``: the control plane on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.control_plane import default_state_dir


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel="Run",
        epilog="Examples: kintsugi up   kintsugi up --policy policy.yaml   TEMPORAL_ADDRESS=temporal:7233 kintsugi up",
    )(up)


def up(
    policy: Annotated[Path | None, typer.Option("--policy", help="Policy file. Without one, only observe.")] = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="Data and logs.", show_default="~/.local/state/kintsugi")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port of the embedded Temporal.")] = 7233,
    ui_port: Annotated[int, typer.Option("--ui-port", min=1, max=65535, help="Port of its web UI.")] = 8233,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warn or error.")] = "info",
) -> None:
    """Run the control plane here: Temporal (unless one is configured), gateway and worker."""
    from cli import plane
    from cli.client import run
    from cli.errors import CouldNotError
    from cli.policy_commands import read_policy

    if log_level not in ("debug", "info", "warn", "error"):
        raise CouldNotError(f"--log-level {log_level!r}: write debug, info, warn or error")
    if policy is not None:
        read_policy(policy)
    run(
        plane.run_until_stopped(
            plane.Wanted(
                state_dir=(state_dir or default_state_dir()).absolute(),
                policy=policy.absolute() if policy else None,
                port=port,
                ui_port=ui_port,
                log_level=log_level,
            )
        )
    )
