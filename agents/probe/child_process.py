"""The probe's process as the agent sees it: ask it, notice that it hangs, end it, or give it up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import agents
from agents.probe.call_mark import SIZE, CallMark

_STARTING = "the start of the probe"
_MAX_ANSWER = 8 * 1024 * 1024
_KILL_SECONDS = 1.0
_KILL_POLL_SECONDS = 0.01
_STDERR_TAIL = 600


class ChildHungError(Exception):
    """The probe did not answer in time.

    Attributes:
        call: what it was in; empty when it was between calls.
        seconds: for how long.
    """

    def __init__(self, call: str, seconds: float) -> None:
        super().__init__(call)
        self.call = call
        self.seconds = seconds


class ChildDiedError(Exception):
    """The probe ended instead of answering; the text says how."""


class ProbeChild:
    """One process of the probe.

    Args:
        environment: of the process.
        module: what it runs.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, environment: Mapping[str, str], module: str = "agents.probe.nvml_child") -> None:
        page = os.memfd_create("kintsugi-probe", os.MFD_CLOEXEC)
        answers_read, answers_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # Not blocking: a library that writes much to standard error must not come to a stop there.
        errors_read, errors_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._answers, self._errors = answers_read, errors_read
        self._buffer = bytearray()
        self._closed = False
        self._last_call = ""
        try:
            os.set_blocking(answers_write, True)
            os.ftruncate(page, SIZE)
            self._mark = CallMark(page)
            self._mark.begin(_STARTING)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(answers_write), str(page)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors_write,
                pass_fds=(answers_write, page),
                env=_with_our_packages(environment),
            )
        except OSError:
            os.close(answers_read)
            os.close(errors_read)
            raise
        finally:
            os.close(answers_write)
            os.close(errors_write)
            os.close(page)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def last_call(self) -> str:
        """The call in which it hung, once ``ChildHungError`` was raised."""
        return self._last_call

    @property
    def gone(self) -> bool:
        """Whether the process has ended (it is reaped then)."""
        return self._process.poll() is not None

    async def ask(self, call_seconds: float, start_seconds: float, total_seconds: float) -> bytes:
        """Return one answer, a line.

        Args:
            call_seconds: longest time that a single call may take.
            start_seconds: longest time until the process is up.
            total_seconds: longest time for the whole answer.

        Raises:
            ChildHungError: it did not answer in time.
            ChildDiedError: it ended.
        """
        begun = time.monotonic()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"look\n")
            self._process.stdin.flush()
        except OSError:
            raise ChildDiedError(await self._how_it_died()) from None
        latest = begun + max(total_seconds, start_seconds)
        while True:
            call, since = self._mark.current() or ("", begun)
            allowed = {_STARTING: start_seconds, "": total_seconds}.get(call, call_seconds)
            left = min(since + allowed, latest) - time.monotonic()
            if left <= 0:
                self._last_call = call
                raise ChildHungError(call, time.monotonic() - since)
            try:
                # Not longer than a call may take: another one may begin meanwhile, with a deadline of its own.
                async with asyncio.timeout(min(left, call_seconds)):
                    return await self._line()
            except TimeoutError:
                continue

    async def _line(self) -> bytes:
        while True:
            end = self._buffer.find(b"\n")
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                return line
            await _readable(self._answers)
            try:
                data = os.read(self._answers, 1 << 16)
            except BlockingIOError:
                continue
            if not data:
                raise ChildDiedError(await self._how_it_died())
            self._buffer += data
            if len(self._buffer) > _MAX_ANSWER:
                raise ChildDiedError(f"the probe answered more than {_MAX_ANSWER} bytes")

    async def _how_it_died(self) -> str:
        call, _ = self._mark.current() or ("", 0.0)
        if not await self.end():
            return "the probe closed its answers but did not end"
        try:
            tail = os.read(self._errors, 1 << 16)[-_STDERR_TAIL:].decode("utf-8", "replace").strip()
        except OSError:
            tail = ""
        status = self._process.returncode
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        where = f" in {call}" if call else ""
        last = tail.splitlines()[-1] if tail else ""
        return f"the probe ended {how}{where}" + (f": {last}" if last else "")

    async def end(self) -> bool:
        """Kill the process and wait for its end, for a second; return whether it is gone.

        A process that sleeps uninterruptibly inside the driver (state D) does not die before the driver lets go.
        """
        until = time.monotonic() + _KILL_SECONDS
        self.kill()
        while not self.gone:
            if time.monotonic() > until:
                return False
            await asyncio.sleep(_KILL_POLL_SECONDS)
        return True

    def kill(self) -> None:
        """Send SIGKILL, unless the process has already been reaped."""
        if not self.gone:
            self._process.kill()

    def close(self) -> None:
        """Give back descriptors and memory; the process sees the end of its input."""
        if self._closed:
            return
        self._closed = True
        os.close(self._answers)
        os.close(self._errors)
        self._mark.close()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # a request that never went out; nobody waits for it
            self._process.stdin.close()


def _with_our_packages(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which the child finds the very same `agents` as we do."""
    ours = str(Path(str(agents.__file__)).resolve().parent.parent)
    inherited = environment.get("PYTHONPATH")
    return {**environment, "PYTHONPATH": f"{ours}{os.pathsep}{inherited}" if inherited else ours}


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def resolve() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, resolve)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
