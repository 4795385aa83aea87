"""Ending a command with the right exit status.

temporalio's runtime sometimes aborts while the interpreter shuts down, after all work is done (exit 134 instead
of the status asked for). Command entry points therefore flush and leave without the interpreter's shutdown.
"""

from __future__ import annotations

import contextlib
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
        # The reader may have gone away (a closed pipe); there is nobody left to tell then.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def complain(message: str) -> None:
    """Print what went wrong for a person, without a traceback."""
    print(f"kintsugi: {message}", file=sys.stderr)
