"""Where the control plane of this machine is: written by ``kintsugi up``, read by every other command."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import ValidationError

from domain.model import Message

FILE_NAME = "control-plane.json"


class ControlPlane(Message):
    """What runs where.

    Attributes:
        pid: process of the supervisor.
        temporal: ``host:port`` of Temporal.
        namespace: Temporal namespace.
        web_ui: URL of Temporal's web UI, empty when it is not ours.
        gateway: ``host:port`` of the gateway.
        ledger: file of the permanent record.
    """

    pid: int
    temporal: str
    namespace: str = "default"
    web_ui: str = ""
    gateway: str
    ledger: Path


def default_state_dir() -> Path:
    """Return ``$XDG_STATE_HOME/kintsugi`` or ``~/.local/state/kintsugi``."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "kintsugi"


def announce(state_dir: Path, plane: ControlPlane) -> None:
    """Write down where the control plane is."""
    target = state_dir / FILE_NAME
    draft = target.with_suffix(".new")
    draft.write_text(json.dumps(json.loads(plane.model_dump_json()), indent=2) + "\n")
    draft.replace(target)


def withdraw(state_dir: Path) -> None:
    """Remove what ``announce`` wrote."""
    (state_dir / FILE_NAME).unlink(missing_ok=True)


def running(state_dir: Path | None = None) -> ControlPlane | None:
    """Return the control plane that runs on this machine, or None. One that has died is none."""
    try:
        text = ((state_dir or default_state_dir()) / FILE_NAME).read_text()
        plane = ControlPlane.model_validate_json(text)
        os.kill(plane.pid, 0)
    except (OSError, ValidationError, ValueError, RuntimeError):
        return None
    return plane
