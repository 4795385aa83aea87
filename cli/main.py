"""Entry point of the ``kintsugi`` command."""

from __future__ import annotations

import sys
from typing import NoReturn

from runtime import exits


def main() -> NoReturn:
    """Run the command and leave with its exit status."""
    try:
        # Imported here, so that Ctrl-C while it loads is no traceback either.
        from cli.application import run_app

        status = run_app(sys.argv[1:])
    except KeyboardInterrupt:
        status = exits.INTERRUPTED
    exits.leave(status)
