"""Starting kintsugi's other processes from this installation, and no other package of the same name."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
"""Directory that holds the rooms (``agents``, ``gateway`` …)."""

DEBUG_VARIABLE = "KINTSUGI_DEBUG"
"""When set, an unexpected error is shown with its traceback."""


def module_command(module: str, arguments: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a module. ``-P`` keeps the current directory from shadowing it."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment with what a child needs to find the same code."""
    found = dict(os.environ)
    if str(ROOT) not in [*site.getsitepackages(), site.getusersitepackages()]:
        paths = [str(ROOT), *filter(None, found.get("PYTHONPATH", "").split(os.pathsep))]
        found["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    found.update(extra or {})
    return found


def become(module: str, arguments: Sequence[str]) -> NoReturn:
    """Replace this process by a module's."""
    command = module_command(module, arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, environment())
