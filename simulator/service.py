"""Serves a world over gRPC: generic handlers for the methods of ``protocol``, and for nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import grpc.aio
from pydantic import ValidationError

from domain.errors import KintsugiError, TransientError
from domain.operations import OperationProgress
from domain.scheduling import DrainProgress
from simulator import gangs, injection, life, protocol, readings, scheduling, view
from simulator.clock import LiveWorld
from simulator.machine import Machine, Phase
from simulator.node_work import NodeWork
from simulator.protocol import AnswerT, Method, Nothing, RequestT
from simulator.world import World

log = logging.getLogger(__name__)

PROGRESS_SECONDS = 0.25
"""How often a running operation says how far it is, in seconds of the clock."""


class WorldService:
    """The methods of one served world."""

    def __init__(self, world: World, speed: float = 1.0) -> None:
        self._live = LiveWorld(world, speed)
        self._node_work = NodeWork(world)
        self._stopped = asyncio.Event()
        self._handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {}
        self._scheduler_methods()
        self._machine_methods()
        self._node_methods()
        self._admin_methods()

    async def serve(self, listen: str, serving: Callable[[str], None]) -> None:
        """Serve until ``Shutdown`` is called or the task is cancelled.

        Args:
            listen: ``host:port``; port 0 picks a free one.
            serving: called once with the address bound.

        Raises:
            OSError: the address cannot be bound.
        """
        server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(protocol.SERVICE, self._handlers),))
        try:
            port = server.add_insecure_port(listen)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {listen}: {error}") from None
        await server.start()
        clock = asyncio.create_task(self._live.run(), name="world clock")
        try:
            serving(f"{listen.rpartition(':')[0]}:{port}")
            await self._stopped.wait()
        finally:
            clock.cancel()
            await server.stop(grace=0.2)

    def _answer(self, method: Method[RequestT, AnswerT], act: Callable[[World, RequestT], AnswerT]) -> None:
        async def awaited(request: RequestT) -> AnswerT:
            return act(self._live.now(), request)

        self._answer_later(method, awaited)

    def _do(self, method: Method[RequestT, Nothing], act: Callable[[World, RequestT], object]) -> None:
        async def awaited(request: RequestT) -> Nothing:
            act(self._live.now(), request)
            return Nothing()

        self._answer_later(method, awaited)

    def _answer_later(self, method: Method[RequestT, AnswerT], act: Callable[[RequestT], Awaitable[AnswerT]]) -> None:
        async def handle(body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            request = await _read(method, body, context)
            try:
                answer = await act(request)
            except KintsugiError as error:
                await context.abort(grpc.StatusCode.ABORTED, protocol.error_body(error))
            finally:
                self._live.announce()
            return answer.model_dump_json().encode()

        self._handlers[method.name] = grpc.unary_unary_rpc_method_handler(handle)

    def _stream(self, method: Method[RequestT, AnswerT], act: Callable[[RequestT], AsyncIterator[AnswerT]]) -> None:
        async def handle(body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> AsyncIterator[bytes]:
            request = await _read(method, body, context)
            try:
                async for answer in act(request):
                    yield answer.model_dump_json().encode()
            except KintsugiError as error:
                await context.abort(grpc.StatusCode.ABORTED, protocol.error_body(error))

        self._handlers[method.name] = grpc.unary_stream_rpc_method_handler(handle)

    def _scheduler_methods(self) -> None:
        self._answer(protocol.QUARANTINE, lambda w, r: scheduling.quarantine(w, r.node, r.mark))
        self._answer(protocol.SCHEDULING_STATE, lambda w, r: scheduling.scheduling_state(w, r.node))
        self._answer(protocol.RELEASE, lambda w, r: scheduling.release(w, r.node, r.mark))
        self._answer(protocol.WORKLOADS, lambda w, r: protocol.Workloads(workloads=scheduling.workloads(w, r.node)))
        self._stream(protocol.DRAIN, self._drain)
        self._answer(
            protocol.CONFIRM_STOPPED,
            lambda w, r: protocol.Answer(yes=scheduling.confirm_stopped(w, r.node, r.workload_id)),
        )
        self._answer(protocol.CAPACITY, lambda w, r: scheduling.capacity(w, r.node))
        self._answer(protocol.SPARES, lambda w, r: protocol.Spares(spares=scheduling.spares(w, r.cluster, r.pool)))
        self._answer(protocol.LEASE_SPARE, lambda w, r: scheduling.lease_spare(w, r.node, r.repair_id))
        self._do(protocol.RETURN_SPARE, lambda w, r: scheduling.return_spare(w, r.node, r.repair_id))
        self._answer(
            protocol.RESUME_WORKLOAD, lambda w, r: scheduling.resume_workload(w, r.saved, r.away_from, r.spare)
        )
        self._answer(protocol.WORKLOAD_STATUS, lambda w, r: scheduling.workload_status(w, r.workload_id))

    async def _drain(self, order: protocol.NodeDrain) -> AsyncIterator[DrainProgress]:
        scheduling.begin_drain(self._live.now(), order.node, order.request.mark, order.request.patience_seconds)
        self._live.announce()
        last: DrainProgress | None = None
        while True:
            progress = scheduling.drain_progress(self._live.now(), order.node)
            if progress != last:
                yield progress
                last = progress
            if progress.done:
                return
            await self._live.changed()

    def _machine_methods(self) -> None:
        self._do(protocol.POWER_CYCLE, lambda w, r: life.power_cycle(w, w.at(r.node), r.token))
        self._answer_later(protocol.FENCE, self._fence)
        self._answer(protocol.IS_OFF, lambda w, r: protocol.Answer(yes=life.is_off(w.at(r.node))))
        self._do(protocol.REPROVISION, lambda w, r: life.reprovision(w, w.at(r.node), r.token))
        self._answer(protocol.REPLACE, lambda w, r: protocol.Ticket(ticket=life.replace(w, w.at(r.node), r.token)))

    async def _fence(self, order: protocol.NodeToken) -> Nothing:
        machine = self._live.now().at(order.node)
        life.power_off(self._live.now(), machine, order.token)
        fenced_life = machine.life
        self._live.announce()
        while machine.phase is not Phase.OFF:
            if machine.life != fenced_life:
                raise TransientError(f"{machine.name} was switched on again while it was being fenced: look again")
            await self._live.changed()
        return Nothing()

    def _node_methods(self) -> None:
        self._stream(protocol.WATCH_NODES, self._watch_nodes)
        self._stream(protocol.WATCH_KERNEL, self._watch_kernel)
        self._answer(protocol.GPU_SNAPSHOT, lambda w, r: readings.snapshot_of(w, _answering(w, r.node)))
        self._stream(protocol.RUN_OPERATION, self._run_operation)
        self._do(protocol.CANCEL_OPERATION, lambda w, r: self._node_work.cancel(r.node, r.operation_id))

    async def _watch_nodes(self, _: Nothing) -> AsyncIterator[protocol.NodeLives]:
        last: protocol.NodeLives | None = None
        while True:
            lives = protocol.NodeLives(nodes=view.lives_of(self._live.now()))
            if lives != last:
                yield lives
                last = lives
            await self._live.changed()

    async def _watch_kernel(self, order: protocol.KernelAfter) -> AsyncIterator[protocol.KernelRecords]:
        machine = self._live.now().machine(order.node)
        after = order.after
        while machine.boot_id == order.boot_id:
            records = view.kernel_records_of(self._live.now(), machine, after) if machine.responsive else ()
            if records:
                yield protocol.KernelRecords(records=records)
                after = records[-1].sequence
            await self._live.changed()
        raise TransientError(f"boot {order.boot_id} of {order.node} is over")

    async def _run_operation(self, order: protocol.NodeOperation) -> AsyncIterator[OperationProgress]:
        """Start or join an operation. A node that is down or hung says nothing: the stream waits with it."""
        machine = _answering(self._live.now(), order.node)
        if machine.boot_id != order.boot_id:
            raise TransientError(f"{order.node} has rebooted: boot {order.boot_id} is over")
        self._node_work.start(order.node, order.request)
        self._live.announce()
        last: OperationProgress | None = None
        while True:
            self._live.now()
            if machine.boot_id != order.boot_id:
                raise TransientError(f"{order.node} has rebooted: boot {order.boot_id} is over")
            if machine.responsive:
                progress = self._node_work.progress(order.node, order.request.operation_id)
                if progress != last:
                    yield progress
                    last = progress
                if progress.state.final:
                    return
            await self._live.changed(PROGRESS_SECONDS)

    def _admin_methods(self) -> None:
        self._answer(protocol.STATE, lambda w, _: view.state_of(w))
        self._do(protocol.INJECT, injection.inject)
        self._do(protocol.CLEAR, lambda w, r: injection.clear(w, r.node, r.kind))
        self._do(protocol.HOLD, lambda w, r: scheduling.hold(w, r.node, r.who, r.reason))
        self._do(protocol.UNHOLD, lambda w, r: scheduling.unhold(w, r.node, r.who))
        self._do(protocol.UNMARK, lambda w, r: scheduling.unmark(w, r.node))
        self._do(protocol.SUBMIT, gangs.submit)
        self._do(protocol.KERNEL_WRITE, _kernel_write)
        self._do(protocol.ADVANCE, lambda _, r: self._live.skip(r.seconds))
        self._do(protocol.SHUTDOWN, lambda _, __: self._stopped.set())


def _kernel_write(world: World, order: protocol.KernelWrite) -> None:
    world.log(world.machine(order.node), order.text, facility=order.facility, level=order.level)
    world.changed()


def _answering(world: World, node: str) -> Machine:
    machine = world.machine(node)
    if not machine.responsive:
        raise TransientError(f"{node} does not answer (it is {machine.phase}{', hung' if machine.hung else ''})")
    return machine


async def _read(
    method: Method[RequestT, AnswerT], body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]
) -> RequestT:
    try:
        return method.request.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        await context.abort(
            grpc.StatusCode.INVALID_ARGUMENT, f"{method.name}: {where or 'the request'}: {first['msg']}"
        )
