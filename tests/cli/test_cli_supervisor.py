from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from cli.errors import CouldNotError
from cli.launch import environment
from cli.supervisor import Child, Supervisor

ROOT = Path(__file__).parents[2]
DEADLINE = 20.0


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    made = Supervisor(print)
    yield made
    await made.stop()


async def at_once() -> bool:
    return True


def child(tmp_path: Path, code: str, stop_seconds: float = 5.0) -> Child:
    return Child("thing", [sys.executable, "-c", code], tmp_path / "thing.log", environment(), stop_seconds)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def soon(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(until, condition)


def words(log: Path) -> list[str]:
    return log.read_text().split()


def has_lines(log: Path, count: int) -> bool:
    return log.exists() and len(log.read_text().splitlines()) >= count


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_a_child_that_dies_is_started_again(supervisor: Supervisor, tmp_path: Path) -> None:
    log = tmp_path / "thing.log"
    thing = child(tmp_path, "import os,time; print(os.getpid(), flush=True); time.sleep(600)")
    await supervisor.add(thing, at_once, within_seconds=DEADLINE)
    await soon(lambda: has_lines(log, 1))
    first = int(words(log)[0])

    os.kill(first, signal.SIGKILL)

    await soon(lambda: len(words(log)) >= 2)
    second = int(words(log)[1])
    assert thing.restarts == 1
    await supervisor.stop()
    assert gone(first)
    assert gone(second)


async def test_a_child_that_does_not_start_is_told_with_the_end_of_its_log(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    async def never() -> bool:
        return False

    with pytest.raises(CouldNotError, match=r"(?s)ended with status 3.*the port is taken"):
        await supervisor.add(child(tmp_path, "print('the port is taken'); exit(3)"), never, within_seconds=DEADLINE)
    with pytest.raises(CouldNotError, match="was not ready within 0 s"):
        await supervisor.add(child(tmp_path, "import time; time.sleep(600)"), never, within_seconds=0.2)


async def test_stopping_kills_what_does_not_listen_and_what_it_started(supervisor: Supervisor, tmp_path: Path) -> None:
    log = tmp_path / "thing.log"
    code = (
        "import os,signal,subprocess,sys,time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "below = subprocess.Popen([sys.executable, '-c', "
        "'import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)'])\n"
        "print(os.getpid(), below.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    await supervisor.add(child(tmp_path, code, stop_seconds=0.5), at_once, DEADLINE)
    await soon(lambda: has_lines(log, 1))
    pids = [int(word) for word in words(log)]

    await supervisor.stop()

    await soon(lambda: all(gone(pid) for pid in pids))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has died")
def test_children_die_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "thing.log"
    code = (
        "import asyncio,sys\n"
        "from pathlib import Path\n"
        "from cli.launch import environment\n"
        "from cli.supervisor import Child\n"
        "async def main():\n"
        "    code = 'import os,time; print(os.getpid(), flush=True); time.sleep(600)'\n"
        f"    await Child('x', [sys.executable, '-c', code], Path({str(log)!r}), environment()).start()\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        until(lambda: has_lines(log, 1))
        pid = int(log.read_text())
        assert not gone(pid)
    finally:
        parent.kill()
        parent.wait(timeout=10)
    until(lambda: gone(pid))
