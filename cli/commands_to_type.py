"""The exact commands by which a person answers a repair, ready to be pasted."""

from __future__ import annotations

import getpass
import json
import os
import shlex
from collections.abc import Sequence

from domain.repair import Wait


def me() -> str:
    """Return who is at the terminal."""
    named = os.environ.get("USER") or os.environ.get("LOGNAME")
    if named:
        return named
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def approve_with_temporal(repair_id: str, wait: Wait, address: str) -> list[str]:
    """Return the approval with nothing but Temporal's own command."""
    said = json.dumps({"by": me(), "step": wait.step_id, "digest": wait.digest}, ensure_ascii=False)
    signal = ["--workflow-id", repair_id, "--name", "approve", "--input", said]
    return ["temporal", "workflow", "signal", *_at(address), *signal]


def approve_here(repair_id: str, wait: Wait, address: str) -> list[str]:
    """Return the approval with the ``kintsugi`` command."""
    return ["kintsugi", "approve", repair_id, *_at(address), "--step", wait.step_id, "--digest", wait.digest]


def reject_here(repair_id: str, wait: Wait, address: str) -> list[str]:
    """Return the refusal with the ``kintsugi`` command."""
    return ["kintsugi", "reject", repair_id, *_at(address), "--step", wait.step_id, "--reason", "WHY"]


def override_here(repair_id: str, address: str) -> list[str]:
    """Return an order in place of the plan with the ``kintsugi`` command."""
    return ["kintsugi", "override", repair_id, "burn_in", *_at(address), "--reason", "WHY"]


def abort_here(repair_id: str, address: str) -> list[str]:
    """Return the end of a repair with the ``kintsugi`` command."""
    return ["kintsugi", "abort", repair_id, *_at(address), "--reason", "WHY"]


def folded(command: Sequence[str], width: int, indent: str = "  ") -> str:
    """Return a command over as many lines as it needs, each but the last ending with a backslash: it can be pasted.

    An option stays on one line with its value; what is wider than ``width`` in itself is left whole.
    """
    groups: list[str] = []
    for word in command:
        quoted = shlex.quote(word)
        if groups and groups[-1].startswith("--") and " " not in groups[-1] and not word.startswith("--"):
            groups[-1] += f" {quoted}"
        else:
            groups.append(quoted)
    lines = [indent + groups[0]]
    for group in groups[1:]:
        if len(lines[-1]) + len(group) + 3 <= width:
            lines[-1] += f" {group}"
        else:
            lines.append(f"{indent}    {group}")
    return " \\\n".join(lines)


def _at(address: str) -> list[str]:
    return ["--address", address] if address else []
