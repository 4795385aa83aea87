"""Ending a command with the right exit status.

temporalio's runtime sometimes aborts while the interpreter shuts down, after all work is done (exit 134 instead
of the status asked for). Command entry points therefore flush and leave without the interpreter's shutdown.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import NoReturn

OK = 0
FAULTS_FOUND = 1
USAGE = 2
COULD_NOT_LOOK = 2
INTERRUPTED = 130


def leave(status: int) -> NoReturn:
    """Flush what was written and end the process with this status, at once."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            # The reader went away (a closed pipe); there is nobody left to tell.
            pass
    os._exit(status)


def complain(message: str) -> None:
    """Print what went wrong for a person, without a traceback."""
    print(f"kintsugi: {message}", file=sys.stderr)
