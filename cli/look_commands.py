"""Commands that look: ``repairs``, ``show``, ``watch``, ``pool``, ``ledger``."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.client import Address, Namespace, address_to_show, connected, run
from cli.errors import CouldNotError, RefusedError

if TYPE_CHECKING:
    from domain.ledger import LedgerEntry

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program instead.")]
Repair = Annotated[str, typer.Argument(metavar="REPAIR|NODE", help="repair/<cluster>/<node>/<n>, or a node's name.")]
PANEL = "Look"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel=PANEL, epilog="Example: kintsugi repairs --all")(repairs)
    app.command(rich_help_panel=PANEL, epilog="Example: kintsugi show gpu-3")(show)
    app.command(rich_help_panel=PANEL, epilog="Example: kintsugi watch gpu-3")(watch)
    app.command(rich_help_panel=PANEL, epilog="Example: kintsugi pool local/train")(pool)
    app.command(rich_help_panel=PANEL, epilog="Example: kintsugi ledger repair/local/gpu-3/1")(ledger)


def repairs(
    everything: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    as_json: AsJson = False,
    address: Address = None,
    namespace: Namespace = None,
) -> None:
    """List the repairs that run."""
    from cli import lookup, render
    from cli.terminal import console

    async def look() -> list[lookup.RepairLine]:
        async with connected(address, namespace) as client:
            return await lookup.list_repairs(client, everything)

    lines = run(look())
    if as_json:
        print("[" + ",\n".join(line.model_dump_json() for line in lines) + "]")
    elif lines:
        console().print(render.repairs_table(lines, datetime.now(UTC)))
    else:
        console().print(
            "no repair was ever started" if everything else "no repair runs; --all lists those that are over"
        )


def show(repair: Repair, as_json: AsJson = False, address: Address = None, namespace: Namespace = None) -> None:
    """Show a repair: what happened, what was done, what it waits for."""
    from cli import lookup, render
    from cli.terminal import console

    async def look() -> None:
        async with connected(address, namespace) as client:
            repair_id = await lookup.find_repair(client, repair)
            view = await lookup.get_repair(client, repair_id)
            if as_json:
                print(view.model_dump_json(indent=2))
                return
            progress = await lookup.progress(client, repair_id)
            console().print(render.repair(view, datetime.now(UTC), address_to_show(client), progress))

    run(look())


def watch(repair: Repair, address: Address = None, namespace: Namespace = None) -> None:
    """Follow a repair until it is over (Ctrl-C leaves it running)."""
    from rich.live import Live

    from cli import lookup, render
    from cli.step_lines import StepLines
    from cli.terminal import console

    async def look() -> None:
        async with connected(address, namespace) as client:
            repair_id = await lookup.find_repair(client, repair)
            if not console().is_terminal:
                lines = StepLines(print, address_to_show(client))
                async for view in lookup.follow(client, repair_id, 0.5):
                    lines.show(view.state)
                return
            with Live(console=console(), auto_refresh=False) as live:
                async for view in lookup.follow(client, repair_id, 0.5):
                    progress = await lookup.progress(client, repair_id)
                    live.update(render.repair(view, datetime.now(UTC), address_to_show(client), progress), refresh=True)

    run(look())


def pool(
    named: Annotated[str | None, typer.Argument(metavar="[CLUSTER/POOL]", help="All pools when left out.")] = None,
    as_json: AsJson = False,
    address: Address = None,
    namespace: Namespace = None,
) -> None:
    """Show pools: nodes, budget, breaker, spares, and what waits."""
    from cli import lookup, render
    from cli.terminal import console
    from domain.pool import PoolView

    async def look() -> list[PoolView]:
        async with connected(address, namespace) as client:
            names = [await lookup.find_pool(client, named)] if named else await lookup.list_pools(client)
            return list(await asyncio.gather(*(lookup.get_pool(client, *name) for name in names)))

    views = run(look())
    if as_json:
        print("[" + ",\n".join(view.model_dump_json() for view in views) + "]")
    elif not views:
        console().print("no pool is known yet; the first node that reports makes its pool: `kintsugi agent`")
    else:
        for view in views:
            console().print(render.pool(view, datetime.now(UTC)))


def ledger(
    repair: Annotated[str | None, typer.Argument(metavar="[REPAIR]", help="Only this repair's entries.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="The worker's ledger. Else that of `kintsugi up`.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many, the newest.")] = 200,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines for a program instead.")] = False,
) -> None:
    """Print the permanent record: what was seen, decided, done and lost, and who said so."""
    from rich.table import Table
    from rich.text import Text

    from adapters.ledger import SqliteLedger
    from cli.terminal import clock, console, plain
    from domain.errors import KintsugiError

    try:
        entries = SqliteLedger(file or _ledger_in_use(), create=False).entries(repair, limit)
    except KintsugiError as error:
        raise CouldNotError(str(error)) from None
    if as_json:
        for entry in entries:
            print(entry.model_dump_json())
        return
    if not entries:
        raise RefusedError(f"the ledger has no entry of {repair}" if repair else "the ledger is empty")
    table = Table("at", "node", "kind", "who", "what", box=None, padding=(0, 1))
    for entry in entries:
        table.add_row(clock(entry.at), entry.node.name, entry.kind, plain(entry.who), Text(plain(_in_words(entry))))
    console().print(table)


def _in_words(entry: LedgerEntry) -> str:
    """Return an entry's sentence, with the reason that a person gave."""
    import json

    try:
        said = json.loads(entry.data)
    except ValueError:
        return entry.text
    reason = said.get("reason") if isinstance(said, dict) else None
    return f"{entry.text} (reason: {reason})" if reason else entry.text


def _ledger_in_use() -> Path:
    from cli import control_plane
    from runtime.settings import SettingsError, WorkerSettings, load

    try:
        configured = load(WorkerSettings)
    except SettingsError as error:
        raise CouldNotError(str(error)) from None
    plane = control_plane.running()
    default = control_plane.default_state_dir() / "ledger.db"
    if "ledger" in configured.model_fields_set:
        return configured.ledger
    if plane is not None:
        return plane.ledger
    return default if default.is_file() else configured.ledger
