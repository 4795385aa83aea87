"""``kintsugi up`` as a person runs it: real processes, killed and stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import free_port

ROOT = Path(__file__).parents[2]
DEADLINE = 60.0
pytestmark = pytest.mark.processes


class Up:
    """A running ``kintsugi up``."""

    def __init__(self, home: Path) -> None:
        self.state = home / "state"
        ports = [str(free_port()) for _ in range(3)]
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL", "KINTSUGI"))
        } | {
            "PYTHONPATH": str(ROOT),
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "xdg"),
            "KINTSUGI_GATEWAY_LISTEN": f"127.0.0.1:{ports[2]}",
        }
        self.command = [sys.executable, "-m", "cli", "up", "--state-dir", str(self.state)]
        self.command += ["--port", ports[0], "--ui-port", ports[1]]
        self.log = home / "up.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                self.command, env=self.environment, cwd=home, stdout=output, stderr=subprocess.STDOUT
            )
        until(lambda: (self.state / "control-plane.json").exists() or self.process.poll() is not None, self.log)
        assert self.process.poll() is None, self.log.read_text()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another command in the same environment."""
        return subprocess.run(
            [sys.executable, "-m", "cli", *arguments], env=self.environment, capture_output=True, text=True, timeout=60
        )

    def child(self, word: str) -> psutil.Process | None:
        """The child whose command line holds a word."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                if word in child.cmdline() and "-I" not in child.cmdline():
                    return child
            except psutil.Error:
                continue
        return None


def until(condition: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def gone(processes: list[psutil.Process]) -> bool:
    return not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(tmp_path)
    children = psutil.Process(running.process.pid).children(recursive=True)
    yield running
    if running.process.poll() is None:
        running.process.kill()
    running.process.wait(timeout=10)
    until(lambda: gone(children), running.log)


def test_the_control_plane_comes_up_mends_itself_and_stops(up: Up) -> None:
    plane = json.loads((up.state / "control-plane.json").read_text())
    assert up.run("pool", "--address", plane["temporal"]).returncode == 0
    for word in ("server", "gateway", "worker"):
        assert up.child(word) is not None, word

    second = subprocess.run(up.command, env=up.environment, capture_output=True, text=True, timeout=60)
    assert second.returncode == 2
    assert f"process {up.process.pid}" in second.stderr

    gateway = up.child("gateway")
    assert gateway is not None
    gateway.kill()
    until(lambda: (found := up.child("gateway")) is not None and found.pid != gateway.pid, up.log)
    assert "gateway ended with status -9" in up.log.read_text()

    children = psutil.Process(up.process.pid).children(recursive=True)
    assert len(children) == 3
    up.process.send_signal(signal.SIGTERM)
    assert up.process.wait(timeout=60) == 0, up.log.read_text()
    assert gone(children)
    assert not (up.state / "control-plane.json").exists()
    assert "Traceback" not in up.log.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has died")
def test_nothing_is_left_when_it_is_killed(up: Up) -> None:
    children = psutil.Process(up.process.pid).children(recursive=True)
    assert len(children) == 3
    up.process.kill()
    up.process.wait(timeout=10)

    until(lambda: gone(children), up.log)
    shown = up.run("repairs")
    assert shown.returncode == 2, "a control plane that died is not taken for one that runs"


def test_an_invalid_policy_starts_nothing(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\nruels: []\n")
    command = [sys.executable, "-m", "cli", "up", "--state-dir", str(tmp_path / "state"), "--policy", str(policy)]

    ended = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60
    )

    assert ended.returncode == 1
    assert f"{policy}:2: ruels" in ended.stderr
    assert not (tmp_path / "state").exists()
