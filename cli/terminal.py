"""What people see: one console, and text from outside made harmless."""

from __future__ import annotations

import os
import sys
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PIPE_COLUMNS = 160
"""Width when nobody looks directly (a pipe, a log): tables are not squeezed into 80 columns."""


@cache
def console() -> Console:
    """Return the console on standard output."""
    from rich.console import Console

    wide = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else PIPE_COLUMNS
    return Console(width=wide, highlight=False, soft_wrap=False)


def plain(text: str) -> str:
    """Return a text from outside with control characters made visible: it cannot move a cursor or hide a line."""
    return "".join(
        char if char.isprintable() else " " if char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text
    )


def took(span: timedelta | float) -> str:
    """Return a duration as people say it: ``0.3 s``, ``42 s``, ``3 min 05 s``, ``2 h 10 min``."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def clock(at: datetime) -> str:
    """Return a time of day in this machine's zone, with the date when it is not today."""
    local = at.astimezone()
    today = datetime.now().astimezone().date()
    return f"{local:%H:%M:%S}" if local.date() == today else f"{local:%Y-%m-%d %H:%M:%S}"
