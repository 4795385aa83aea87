"""Child processes: started, started again when they die, and stopped in order, with nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from cli.errors import CouldNotError

LIVED_SECONDS = 30.0
"""A child that lived so long was healthy: the back-off begins anew, in seconds."""
LONGEST_PAUSE = 15.0
"""Longest pause before a child is started again, in seconds."""
TAIL_LINES = 12

# The child asks the kernel for SIGTERM when this process dies, however it dies, and then becomes the command.
# It looks at its parent afterwards: one that died in between sends no signal any more.
_TIED_TO_PARENT = (
    "import ctypes,os,signal,sys;"
    "ctypes.CDLL(None).prctl(1,signal.SIGTERM);"
    "os.getppid()==int(sys.argv[1]) or sys.exit(1);"
    "os.execv(sys.argv[2],sys.argv[2:])"
)


@dataclass
class Child:
    """One child process.

    Attributes:
        stop_seconds: how long it may take to end by itself before it is killed, in seconds.
    """

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str]
    stop_seconds: float = 10.0
    process: asyncio.subprocess.Process | None = field(default=None, repr=False)
    restarts: int = 0
    _group: int | None = field(default=None, repr=False)

    async def start(self) -> None:
        """Start it in a process group of its own.

        Raises:
            CouldNotError: it cannot be started.
        """
        command = list(self.command)
        if sys.platform == "linux":
            command = [sys.executable, "-I", "-S", "-c", _TIED_TO_PARENT, str(os.getpid()), *command]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self.process = await self._spawn(command, output)
        self._group = self.process.pid

    async def _spawn(self, command: list[str], output: IO[bytes]) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(self.environment),
                start_new_session=True,
            )
        except OSError as error:
            raise CouldNotError(f"{self.name} cannot be started ({command[0]}): {error.strerror}") from None

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self.process is not None and self.process.returncode is None

    async def ended(self) -> int:
        """Wait until it ends, end what it left behind, and return its exit status."""
        assert self.process is not None
        status = await self.process.wait()
        self._sweep()
        return status

    async def stop(self) -> None:
        """End it and all that it started: ask first, kill after ``stop_seconds``."""
        if self.process is None:
            return
        if self.running and self._group is not None:
            _signal_group(self._group, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.stop_seconds):
                    await self.process.wait()
        self._sweep()
        await self.process.wait()

    def _sweep(self) -> None:
        """Kill what is left of its group, once: later the number may be somebody else's."""
        if self._group is not None:
            _signal_group(self._group, signal.SIGKILL)
            self._group = None

    def tail(self) -> str:
        """Return the last lines of its log."""
        try:
            with self.log.open(errors="replace") as file:
                return "".join(deque(file, TAIL_LINES)).rstrip()
        except OSError:
            return ""


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


class Supervisor:
    """Keeps children running until it is told to stop. The order of ``add`` is the order of starting."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._children: list[Child] = []
        self._keepers: list[asyncio.Task[None]] = []

    async def add(
        self, child: Child, ready: Callable[[], Awaitable[bool]], within_seconds: float, keep: bool = True
    ) -> None:
        """Start a child, wait until it is ready, and from then on start it again when it dies.

        Args:
            child: what to start.
            ready: looked at several times a second.
            within_seconds: how long it may take to become ready, in seconds.
            keep: whether to start it again when it dies.

        Raises:
            CouldNotError: it died or was not ready in time; the text ends with the end of its log.
        """
        self._children.append(child)
        await child.start()
        try:
            async with asyncio.timeout(within_seconds):
                while not await ready():
                    if not child.running:
                        assert child.process is not None
                        raise CouldNotError(_failed(child, f"ended with status {child.process.returncode}"))
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise CouldNotError(_failed(child, f"was not ready within {within_seconds:.0f} s")) from None
        if keep:
            self._keepers.append(asyncio.create_task(self._keep(child), name=f"keep {child.name}"))

    async def _keep(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        pause = 0.5
        while True:
            began = loop.time()
            status = await child.ended()
            pause = 0.5 if loop.time() - began > LIVED_SECONDS else min(pause * 2, LONGEST_PAUSE)
            last = child.tail().splitlines()[-1:]
            self._say(
                f"{child.name} ended with status {status} ({''.join(last).strip()[:200] or 'without a word'}),"
                f" starting it again in {pause:g} s; log: {child.log}"
            )
            await asyncio.sleep(pause)
            child.restarts += 1
            try:
                await child.start()
            except CouldNotError as error:
                self._say(str(error))

    async def stop(self) -> None:
        """Stop all children, the last one first."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        self._keepers.clear()
        while self._children:
            await self._children[-1].stop()
            self._children.pop()


def _failed(child: Child, what: str) -> str:
    tail = child.tail()
    said = "\n".join(f"    {line}" for line in tail.splitlines())
    return f"{child.name} {what}; its log {child.log} ends with\n{said}" if said else f"{child.name} {what}"
