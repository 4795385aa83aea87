"""Starts, resumes, watches and cancels operations: each at most once, whatever happens to the agent."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

from agents.operations.driver import OperationDriver
from agents.operations.errors import RefusedError, UnknownOperationError
from agents.operations.journal import Entry, Journal
from agents.operations.rules import UNSTOPPABLE, check_request, same_request
from agents.operations.running import RunningOperation
from domain.errors import KintsugiError, UnsupportedError
from domain.operations import (
    NodeInspection,
    OperationKind,
    OperationProgress,
    OperationRequest,
    OperationState,
)

log = logging.getLogger(__name__)

_STOP_PATIENCE_SECONDS = 10.0


class OperationManager:
    """The operations of one node.

    Args:
        journal: where operations are written down before they start.
        driver: what carries them out.
        boot_id: of the present boot.
        inspect: looks at the node now; answers operations of the kind ``inspect``.
        done: told of each operation that succeeded, before its end is written down (so at least once).
    """

    def __init__(
        self,
        journal: Journal,
        driver: OperationDriver,
        boot_id: str,
        inspect: Callable[[], Awaitable[NodeInspection]],
        done: Callable[[OperationRequest], Awaitable[None]] | None = None,
    ) -> None:
        self._journal = journal
        self._driver = driver
        self._boot_id = boot_id
        self._inspect = inspect
        self._done = done
        self._running: dict[str, RunningOperation] = {}
        self._starting = asyncio.Lock()

    async def resume(self) -> None:
        """Take up what an earlier run of the agent left unfinished. Called once, before the first request.

        A reboot that finds a new boot id has succeeded. Anything else that a reboot interrupted has failed: what
        it worked on is gone. Within the same boot the driver is called again with the same request.
        """
        for entry in await self._journal.running():
            request = entry.request
            if entry.boot_id == self._boot_id:
                log.info("resuming %s %s", request.kind, request.operation_id)
                self._launch(RunningOperation(request, entry.progress, entry.started_at))
                continue
            change = f"boot id changed from {entry.boot_id} to {self._boot_id}"
            if request.kind is OperationKind.REBOOT:
                progress = _final(request, OperationState.SUCCEEDED, f"the node was rebooted: {change}")
            else:
                progress = _final(
                    request,
                    OperationState.FAILED,
                    f"the node was rebooted while {request.kind} was running: {change}",
                )
            log.info("%s %s: %s", request.kind, request.operation_id, progress.message)
            await self._journal.end(progress, datetime.now(UTC))

    async def start(self, request: OperationRequest) -> OperationProgress:
        """Start an operation, or return the state of the one that has this id already.

        Raises:
            IncompleteRequestError: the request lacks something.
            RefusedError: another request has this id, or it was meant for another boot.
            BusyError: it does not go together with what is running.
        """
        async with self._starting:
            known = await self._journal.find(request.operation_id)
            if known is not None:
                if not same_request(known.request, request):
                    raise RefusedError(
                        f"the operation id {request.operation_id} was used before, for a different"
                        f" {known.request.kind}: an id is for one request only"
                    )
                running = self._running.get(request.operation_id)
                return running.progress if running is not None else known.progress
            check_request(request, self._boot_id, [operation.request for operation in self._running.values()])
            progress = OperationProgress(
                operation_id=request.operation_id,
                kind=request.kind,
                state=OperationState.RUNNING,
                message="started",
            )
            operation = RunningOperation(request, progress, datetime.now(UTC))
            entry = Entry(request, progress, self._boot_id, operation.started_at)
            # Shielded: a caller that goes away must not leave an operation written down and not launched.
            await asyncio.shield(asyncio.ensure_future(self._begin(operation, entry)))
            return operation.progress

    async def watch(self, operation_id: str) -> AsyncIterator[OperationProgress]:
        """Yield the present state at once, then each change, until it is final.

        Raises:
            UnknownOperationError: there is no such operation.
        """
        operation = self._running.get(operation_id)
        if operation is None:
            yield await self._ended(operation_id)
            return
        async for progress in operation.watch():
            yield progress

    async def cancel(self, operation_id: str) -> OperationProgress:
        """Ask an operation to stop and return its state. One that cannot be stopped goes on and says so.

        Raises:
            UnknownOperationError: there is no such operation.
        """
        operation = self._running.get(operation_id)
        if operation is None or operation.task is None:
            return await self._ended(operation_id)
        kind = operation.request.kind
        if kind in UNSTOPPABLE:
            return operation.progress.model_copy(
                update={"message": f"{operation.progress.message} (a {kind} that has begun cannot be stopped)"}
            )
        if not operation.cancel_asked and not operation.ending:
            operation.cancel_asked = True
            operation.task.cancel()
        await asyncio.wait([operation.task], timeout=_STOP_PATIENCE_SECONDS)
        return operation.progress

    async def close(self) -> None:
        """Stop for the end of the agent. What is running stays written down as running, to be resumed."""
        tasks = [operation.task for operation in self._running.values() if operation.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_PATIENCE_SECONDS)

    async def _begin(self, operation: RunningOperation, entry: Entry) -> None:
        # Known as running at once, so that nothing that conflicts with it starts meanwhile.
        operation_id = operation.request.operation_id
        self._running[operation_id] = operation
        try:
            await self._journal.begin(entry)
        except sqlite3.Error:
            del self._running[operation_id]
            raise
        self._launch(operation)

    async def _ended(self, operation_id: str) -> OperationProgress:
        entry = await self._journal.find(operation_id)
        if entry is None:
            raise UnknownOperationError(
                f"no operation {operation_id} is known here: start it, or see that this is the right node"
            )
        return entry.progress

    def _launch(self, operation: RunningOperation) -> None:
        operation_id = operation.request.operation_id
        self._running[operation_id] = operation
        operation.task = asyncio.create_task(self._carry_out(operation), name=f"operation {operation_id}")

    async def _carry_out(self, operation: RunningOperation) -> None:
        """Run one operation to its end; when the agent stops, leave it as it is written down."""
        request = operation.request
        log.info("%s %s begins", request.kind, request.operation_id)
        try:
            progress = await self._drive(operation)
        except asyncio.CancelledError:
            if not operation.cancel_asked:
                del self._running[request.operation_id]
                raise
            progress = _final(request, OperationState.CANCELLED, "cancelled on request", operation.progress)
        log.info("%s %s %s: %s", request.kind, request.operation_id, progress.state, progress.message)
        operation.ending = True
        if progress.state is OperationState.SUCCEEDED and self._done is not None:
            await self._done(request)
        await self._write_end(progress)
        del self._running[request.operation_id]
        operation.update(progress)

    async def _write_end(self, progress: OperationProgress) -> None:
        delay = 0.1
        while True:
            try:
                await self._journal.end(progress, datetime.now(UTC))
            except sqlite3.Error as error:
                # An end that is not written down would be run again after a restart: try until it is.
                log.error("the end of %s cannot be written, trying again: %s", progress.operation_id, error)
                await asyncio.sleep(delay)
                delay = min(2 * delay, 10.0)
            else:
                return

    async def _drive(self, operation: RunningOperation) -> OperationProgress:
        request = operation.request
        elapsed = max((datetime.now(UTC) - operation.started_at).total_seconds(), 0.0)
        try:
            async with asyncio.timeout(max(request.deadline_seconds - elapsed, 0.0)) as deadline:
                return await self._until_final(operation)
        except TimeoutError as error:
            if not deadline.expired():
                return _failed(request, f"the driver gave up: {error or 'timed out'}", operation.progress)
            return _failed(request, _deadline_sentence(request), operation.progress)
        except UnsupportedError as error:
            return _final(request, OperationState.UNSUPPORTED, str(error), operation.progress)
        except KintsugiError as error:
            return _failed(request, str(error), operation.progress)
        except Exception as error:
            log.exception("the driver broke in %s %s", request.kind, request.operation_id)
            return _failed(
                request,
                f"the driver broke ({type(error).__name__}: {error}); see the agent's log",
                operation.progress,
            )

    async def _until_final(self, operation: RunningOperation) -> OperationProgress:
        request = operation.request
        if request.kind is OperationKind.INSPECT:
            return _final(request, OperationState.SUCCEEDED, _in_words(await self._inspect()))
        # Past its deadline already: the timeout fires here, before the driver is called.
        await asyncio.sleep(0)
        stream = self._driver.run(request)
        try:
            async for said in stream:
                progress = _checked(request, said)
                if not progress.state.final:
                    operation.update(progress)
                elif request.kind is OperationKind.REBOOT and progress.state is OperationState.SUCCEEDED:
                    break
                else:
                    return progress
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()
        if request.kind is not OperationKind.REBOOT:
            return _failed(request, "the driver ended without saying how it went", operation.progress)
        # A reboot is proven by a new boot id and by nothing else: this process must not live to see the end.
        operation.update(
            operation.progress.model_copy(update={"message": "reboot requested, waiting for the node to go down"})
        )
        never: asyncio.Future[OperationProgress] = asyncio.get_running_loop().create_future()
        return await never


def _checked(request: OperationRequest, progress: OperationProgress) -> OperationProgress:
    return progress.model_copy(
        update={
            "operation_id": request.operation_id,
            "kind": request.kind,
            "fraction": min(max(progress.fraction, 0.0), 1.0),
        }
    )


def _final(
    request: OperationRequest, state: OperationState, message: str, last: OperationProgress | None = None
) -> OperationProgress:
    fraction = 1.0 if state is OperationState.SUCCEEDED else last.fraction if last is not None else 0.0
    return OperationProgress(
        operation_id=request.operation_id,
        kind=request.kind,
        state=state,
        fraction=fraction,
        message=message,
        image=last.image if last is not None else "",
        step=last.step if last is not None else -1,
        tests=last.tests if last is not None else (),
    )


def _failed(request: OperationRequest, message: str, last: OperationProgress) -> OperationProgress:
    return _final(request, OperationState.FAILED, message, last)


def _deadline_sentence(request: OperationRequest) -> str:
    if request.kind is OperationKind.REBOOT:
        return f"the node did not go down within {request.deadline_seconds:g} s: the boot id is still the same"
    return f"not done within its deadline of {request.deadline_seconds:g} s"


def _in_words(inspection: NodeInspection) -> str:
    faults = ", ".join(inspection.open_faults) or "none"
    spots = "; ".join(inspection.blind_spots) or "none"
    return (
        f"{len(inspection.identity.inventory.gpus)} GPUs, {len(inspection.processes)} processes on them;"
        f" open faults: {faults}; blind spots: {spots}"
    )
