"""Real parts that several rooms' tests use."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter


def free_port() -> int:
    """Return a TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class TemporalServer:
    """A Temporal development server as a child process, its data in memory unless a file is given.

    Args:
        dynamic_config: the server's own settings, such as ``limit.historyCount.suggestContinueAsNew``.
    """

    def __init__(
        self,
        log: Path,
        port: int | None = None,
        database: Path | None = None,
        dynamic_config: Mapping[str, str] | None = None,
    ) -> None:
        self.port = port or free_port()
        self.address = f"127.0.0.1:{self.port}"
        # The one of this environment first: another may be older.
        beside = Path(sys.executable).with_name("temporal")
        command = str(beside) if beside.exists() else shutil.which("temporal") or "temporal"
        arguments = ["server", "start-dev", "--headless", "--port", str(self.port), "--log-level", "error"]
        for name, value in (dynamic_config or {}).items():
            arguments += ["--dynamic-config-value", f"{name}={value}"]
        if database is not None:
            arguments += ["--db-filename", str(database)]
            arguments += ["--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=1"]
        with log.open("wb") as output:
            self.process = subprocess.Popen([command, *arguments], stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 30
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"the Temporal server did not start: {log.read_text()[-2000:]}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        async def ask() -> None:
            async with asyncio.timeout(2):
                client = await Client.connect(self.address)
                await client.count_workflows()

        try:
            asyncio.run(ask())
        except Exception:
            return False
        return True

    def stop(self) -> None:
        """End the server."""
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def temporal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a Temporal server that all tests share: each uses ids of its own."""
    server = TemporalServer(tmp_path_factory.mktemp("temporal") / "server.log")
    yield server.address
    server.stop()


@pytest.fixture
async def temporal_client(temporal_server: str) -> Client:
    """A client of the shared Temporal server."""
    return await Client.connect(temporal_server, data_converter=pydantic_data_converter)
