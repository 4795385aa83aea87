from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli import control_plane
from cli.client import _local_address
from cli.control_plane import ControlPlane


def plane(pid: int) -> ControlPlane:
    return ControlPlane(pid=pid, temporal="127.0.0.1:4711", gateway="127.0.0.1:1", ledger=Path("ledger.db"))


def test_a_control_plane_that_runs_is_found_and_a_dead_one_is_not(tmp_path: Path) -> None:
    assert control_plane.running(tmp_path) is None

    control_plane.announce(tmp_path, plane(os.getpid()))
    assert control_plane.running(tmp_path) == plane(os.getpid())

    over = subprocess.Popen([sys.executable, "-c", "pass"])
    over.wait(timeout=30)
    control_plane.announce(tmp_path, plane(over.pid))
    assert control_plane.running(tmp_path) is None

    control_plane.announce(tmp_path, plane(os.getpid()))
    control_plane.withdraw(tmp_path)
    assert control_plane.running(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}'])
def test_a_damaged_file_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / control_plane.FILE_NAME).write_text(text)
    assert control_plane.running(tmp_path) is None


def test_commands_find_it_by_themselves_unless_something_else_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("TEMPORAL_ADDRESS", raising=False)
    monkeypatch.delenv("TEMPORAL_PROFILE", raising=False)
    (tmp_path / "kintsugi").mkdir()
    control_plane.announce(tmp_path / "kintsugi", plane(os.getpid()))

    assert _local_address() == "127.0.0.1:4711"
    monkeypatch.setenv("TEMPORAL_ADDRESS", "elsewhere:7233")
    assert _local_address() is None
