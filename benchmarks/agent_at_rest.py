"""What an agent costs a node on which nothing happens: memory, and percent of one core.

One real agent as a process, connected to a real gateway, watching this machine's kernel log (root) and the GPUs of a
stand-in for NVIDIA's library, eight of them, through the same probe process as on a GPU node. Beside it in the same
run: a Python process that imports grpc and pydantic, which the agent cannot do without, and sleeps.

    python -m benchmarks.agent_at_rest [--seconds 30] [--gpus 8]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psutil

from runtime import exits
from tests.nvml.fake_driver import FakeDriver, build_library

MIB = 1024 * 1024
SETTLE_SECONDS = 8.0
"""From the start of the processes until measuring begins, in seconds: imports, first look, hello."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long is measured (default 30)")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs of the stand-in for NVIDIA's library (default 8)")
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _measure(options, directory, stack)
    exits.leave(exits.OK)


def _measure(options: argparse.Namespace, directory: Path, stack: ExitStack) -> None:
    environment = dict(os.environ)
    gpus = "none: there is no C compiler for the stand-in of NVIDIA's library"
    if shutil.which("cc") or shutil.which("gcc"):
        environment = FakeDriver(build_library(directory), directory / "steering", options.gpus).environment
        gpus = f"{options.gpus} of the stand-in for NVIDIA's library, looked at every second"
    kernel_log = Path("/dev/kmsg")
    log = "/dev/kmsg"
    if not os.access(kernel_log, os.R_OK):
        kernel_log, log = directory / "empty", "none: /dev/kmsg needs root"
    gateway = _start(stack, ["-m", "benchmarks.gateway_agents", "--serve"], dict(os.environ), pipe=True)
    assert gateway.stdout is not None
    port = int(gateway.stdout.readline())
    given = {
        "KINTSUGI_AGENT_CLUSTER": "bench",
        "KINTSUGI_AGENT_NODE": "bench",
        "KINTSUGI_AGENT_GATEWAY": f"127.0.0.1:{port}",
        "KINTSUGI_AGENT_LISTEN": "127.0.0.1:0",
        "KINTSUGI_AGENT_STATE_DIR": str(directory / "state"),
        "KINTSUGI_AGENT_KERNEL_LOG": str(kernel_log),
        "KINTSUGI_AGENT_LOG_LEVEL": "ERROR",
    }
    agent = _start(stack, ["-m", "agents"], {**environment, **given})
    floor = _start(stack, ["-c", "import grpc.aio, pydantic, time; time.sleep(3600)"], dict(os.environ))
    time.sleep(SETTLE_SECONDS)
    watched = psutil.Process(agent.pid)
    found = {
        "agent": [watched],
        "its GPU probe": watched.children(recursive=True),
        "Python with grpc and pydantic": [psutil.Process(floor.pid)],
    }
    before = {name: _cpu(processes) for name, processes in found.items()}
    time.sleep(options.seconds)
    print(f"kernel log: {log}; GPUs: {gpus}")
    print(f"{'over ' + format(options.seconds, 'g') + ' s':32} {'resident':>12} {'own memory':>12} {'of a core':>10}")
    for name, processes in found.items():
        used = (_cpu(processes) - before[name]) / options.seconds
        resident = sum(process.memory_info().rss for process in processes) / MIB
        own = sum(process.memory_full_info().uss for process in processes) / MIB
        print(f"{name:32} {resident:8.1f} MiB {own:8.1f} MiB {100 * used:8.2f} %")


def _start(
    stack: ExitStack, arguments: list[str], environment: dict[str, str], pipe: bool = False
) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env=environment,
        stdin=subprocess.PIPE if pipe else subprocess.DEVNULL,
        stdout=subprocess.PIPE if pipe else subprocess.DEVNULL,
        text=True,
    )
    stack.callback(_end, process)
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _cpu(processes: list[psutil.Process]) -> float:
    times = [process.cpu_times() for process in processes]
    return sum(each.user + each.system for each in times)


if __name__ == "__main__":
    main()
