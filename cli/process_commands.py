"""Commands that become one of kintsugi's processes: ``agent``, ``check``, ``gateway``, ``worker``."""

from __future__ import annotations

import typer

from cli.launch import become

PANEL = "Run"
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["--help"]}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        rich_help_panel=PANEL,
        context_settings=_PASS_ON,
        epilog="Example: KINTSUGI_AGENT_GATEWAY=10.0.0.5:7443 KINTSUGI_AGENT_POOL=train kintsugi agent",
    )(agent)
    app.command(
        rich_help_panel=PANEL,
        context_settings=_PASS_ON,
        epilog="Examples: kintsugi check   kintsugi check --json. Exit status: 0 healthy, 1 faults, 2 could not look.",
    )(check)
    app.command(
        rich_help_panel=PANEL,
        context_settings=_PASS_ON,
        epilog="Example: kintsugi gateway --listen 127.0.0.1:7443",
    )(gateway)
    app.command(
        rich_help_panel=PANEL,
        context_settings=_PASS_ON,
        epilog="Example: KINTSUGI_WORKER_POLICY=policy.yaml kintsugi worker",
    )(worker)


def agent(context: typer.Context) -> None:
    """Run the agent of this node. Settings: KINTSUGI_AGENT_*, or the table agent of kintsugi.toml."""
    become("agents", context.args)


def check(context: typer.Context) -> None:
    """Look at this node once and print its health. Further options go to the check."""
    become("agents.check_once", context.args)


def gateway(context: typer.Context) -> None:
    """Run the gateway that agents report to. Settings: KINTSUGI_GATEWAY_*, or the table gateway."""
    become("gateway", context.args)


def worker(context: typer.Context) -> None:
    """Run a worker. Settings: KINTSUGI_WORKER_*, or the table worker of kintsugi.toml."""
    become("worker", context.args)
