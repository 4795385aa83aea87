"""The way to the GPUs through NVML: a child process with a deadline, started again when it must be."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Mapping
from typing import NoReturn

from pydantic import BaseModel, ValidationError

from agents.probe.child_process import ChildDiedError, ChildHungError, ProbeChild
from agents.probe.reader import ProbeError, ProbeHungError, ProbeUnavailableError
from domain.gpu_snapshot import GpuSnapshot

log = logging.getLogger(__name__)

_START_SECONDS = 30.0
_TOTAL_FACTOR = 6.0
"""A look of many slow calls, each within the deadline, is a hang too: after six deadlines."""
_FIRST_REST_SECONDS = 5.0
_LONGEST_REST_SECONDS = 300.0
_MAX_STUCK = 3
"""Processes left behind in the driver, at most; with so many the driver is not asked before one is let go."""


class _Answer(BaseModel):
    snapshot: GpuSnapshot | None = None
    unavailable: str = ""


class NvmlProbe:
    """Looks at the GPUs in a process apart. Implements ``GpuReader``.

    Args:
        deadline_seconds: longest time that a single driver call may take, in seconds.
        environment: of the child; None means ours.
        first_rest_seconds: how long the driver is left alone after a first failure; it doubles up to five minutes.
        start_seconds: longest time until the child is up, in seconds.
    """

    def __init__(
        self,
        deadline_seconds: float = 10.0,
        *,
        environment: Mapping[str, str] | None = None,
        first_rest_seconds: float = _FIRST_REST_SECONDS,
        start_seconds: float = _START_SECONDS,
    ) -> None:
        self._deadline = deadline_seconds
        self._environment = environment
        self._first_rest = first_rest_seconds
        self._start_seconds = max(start_seconds, deadline_seconds)
        self._child: ProbeChild | None = None
        self._stuck: list[ProbeChild] = []
        self._failures = 0
        self._rest_until = 0.0
        self._last_error: ProbeError | None = None
        self._one_at_a_time = asyncio.Lock()

    @property
    def child_pid(self) -> int | None:
        """Process id of the child that answers now, if there is one."""
        return self._child.pid if self._child else None

    @property
    def stuck_pids(self) -> tuple[int, ...]:
        """Processes that could not be killed: they sleep in the driver."""
        return tuple(child.pid for child in self._stuck)

    async def read(self) -> GpuSnapshot:
        """Return a fresh snapshot.

        Raises:
            ProbeHungError: the driver did not answer in time, or has not recovered from that.
            ProbeUnavailableError: there is nothing to ask.
        """
        async with self._one_at_a_time:
            self._bury()
            if self._last_error is not None and time.monotonic() < self._rest_until:
                raise _reminder(self._last_error)
            if len(self._stuck) >= _MAX_STUCK:
                first = self._stuck[0]
                self._fail(_hung(first.last_call, f"process {first.pid} still sleeps in it and cannot be killed"))
            child = self._start()
            answered = False
            try:
                line = await child.ask(self._deadline, self._start_seconds, _TOTAL_FACTOR * self._deadline)
                answer = _Answer.model_validate_json(line)
                answered = answer.snapshot is not None
            except ChildHungError as error:
                await self._give_up(child)
                self._fail(_hung(error.call, f"no answer for {error.seconds:.1f} s"))
            except ChildDiedError as error:
                self._fail(ProbeUnavailableError(str(error)))
            except (ValidationError, json.JSONDecodeError) as error:
                self._fail(ProbeUnavailableError(f"the probe's answer cannot be read: {error}"))
            finally:
                if not answered:
                    # Cancelled or failed: an answer that comes later must not be taken for the next one.
                    self._drop()
            if answer.snapshot is None:
                self._fail(ProbeUnavailableError(answer.unavailable or "the probe gave an empty answer"))
            self._failures = 0
            self._last_error = None
            return answer.snapshot

    async def close(self) -> None:
        """End the child. The driver is released, as a GPU reset needs it; the next ``read`` starts another."""
        async with self._one_at_a_time:
            if self._child is not None:
                child, self._child = self._child, None
                await self._retire(child)
            for child in self._stuck:
                await child.end()
            self._bury()

    def _start(self) -> ProbeChild:
        if self._child is None:
            try:
                self._child = ProbeChild(dict(os.environ) if self._environment is None else self._environment)
            except OSError as error:
                self._fail(ProbeUnavailableError(f"the probe's process cannot be started: {error}"))
        return self._child

    async def _give_up(self, child: ProbeChild) -> None:
        self._child = None
        if not await self._retire(child):
            log.error("process %d hangs in the NVIDIA driver (%s) and cannot be killed", child.pid, child.last_call)

    async def _retire(self, child: ProbeChild) -> bool:
        self._stuck.append(child)
        ended = await child.end()
        self._bury()
        return ended

    def _drop(self) -> None:
        if self._child is not None:
            child, self._child = self._child, None
            child.kill()
            self._stuck.append(child)
            self._bury()

    def _bury(self) -> None:
        """Forget the processes that have ended."""
        for child in [child for child in self._stuck if child.gone]:
            child.close()
            self._stuck.remove(child)

    def _fail(self, error: ProbeError) -> NoReturn:
        rest = min(_LONGEST_REST_SECONDS, self._first_rest * 2 ** min(self._failures, 16))
        self._failures += 1
        self._rest_until = time.monotonic() + rest
        self._last_error = error
        raise error from None


def _hung(call: str, what: str) -> ProbeHungError:
    where = call or "the probe, between two calls"
    return ProbeHungError(
        f"the NVIDIA driver does not answer: {what} ({where}). Likely causes: a GPU off the bus, a hung GSP, failing"
        " memory; the kernel log (NVRM) says more",
        call=call,
    )


def _reminder(error: ProbeError) -> ProbeError:
    if isinstance(error, ProbeHungError):
        return ProbeHungError(str(error), call=error.call, asked=False)
    return ProbeUnavailableError(str(error), asked=False)
