"""The client of a served world; raises the errors of ``domain.errors`` and no other."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import grpc.aio
from pydantic import ValidationError

from domain.errors import KintsugiError, PermanentError, TransientError
from domain.gpu_snapshot import GpuSnapshot
from domain.nodes import NodeRef
from domain.operations import OperationProgress, OperationRequest
from domain.scheduling import Capacity, DrainProgress, DrainRequest, Mark, SchedulingState, Spare
from domain.workloads import SavedWork, Workload, WorkloadStatus
from simulator import protocol
from simulator.faults import FaultKind, Injection
from simulator.jobs import JobSpec
from simulator.protocol import AnswerT, Method, Nothing, RequestT
from simulator.states import KernelRecordView, NodeLife, WorldState

CALL_SECONDS = 30.0
"""Longest time for a call without a stream, in seconds; fencing waits for the power to go."""

_OPTIONS = (
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class WorldClient:
    """A served world, seen from outside.

    Args:
        address: ``host:port`` of ``python -m simulator``.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._channel: grpc.aio.Channel | None = None

    async def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def quarantine(self, node: NodeRef, mark: Mark) -> SchedulingState:
        """Mark a node; see ``domain.ports.Scheduler``, also for the other methods of the ports."""
        return await self._call(protocol.QUARANTINE, protocol.NodeMark(node=node, mark=mark))

    async def scheduling_state(self, node: NodeRef) -> SchedulingState:
        """Return who holds a node back."""
        return await self._call(protocol.SCHEDULING_STATE, protocol.NodeOnly(node=node))

    async def release(self, node: NodeRef, mark: Mark) -> SchedulingState:
        """Take our mark off a node."""
        return await self._call(protocol.RELEASE, protocol.NodeMark(node=node, mark=mark))

    async def workloads(self, node: NodeRef) -> tuple[Workload, ...]:
        """Return what runs on a node."""
        return (await self._call(protocol.WORKLOADS, protocol.NodeOnly(node=node))).workloads

    def drain(self, node: NodeRef, request: DrainRequest) -> AsyncIterator[DrainProgress]:
        """Empty a node; yields until it is empty."""
        return self._stream(protocol.DRAIN, protocol.NodeDrain(node=node, request=request))

    async def confirm_stopped(self, node: NodeRef, workload_id: str) -> bool:
        """Return whether it is proven that a workload has stopped on a node."""
        request = protocol.NodeWorkload(node=node, workload_id=workload_id)
        return (await self._call(protocol.CONFIRM_STOPPED, request)).yes

    async def capacity(self, node: NodeRef) -> Capacity:
        """Return the GPUs counted on a node."""
        return await self._call(protocol.CAPACITY, protocol.NodeOnly(node=node))

    async def spares(self, cluster: str, pool: str) -> tuple[Spare, ...]:
        """Return a pool's hot spares."""
        return (await self._call(protocol.SPARES, protocol.PoolName(cluster=cluster, pool=pool))).spares

    async def lease_spare(self, node: NodeRef, repair_id: str) -> Spare:
        """Lease a spare."""
        return await self._call(protocol.LEASE_SPARE, protocol.SpareLease(node=node, repair_id=repair_id))

    async def return_spare(self, node: NodeRef, repair_id: str) -> None:
        """End a lease."""
        await self._call(protocol.RETURN_SPARE, protocol.SpareLease(node=node, repair_id=repair_id))

    async def resume_workload(self, saved: SavedWork, away_from: NodeRef, spare: str) -> WorkloadStatus:
        """Start a workload again."""
        request = protocol.Resume(saved=saved, away_from=away_from, spare=spare)
        return await self._call(protocol.RESUME_WORKLOAD, request)

    async def workload_status(self, cluster: str, workload_id: str) -> WorkloadStatus:
        """Return how a workload is."""
        request = protocol.WorkloadId(cluster=cluster, workload_id=workload_id)
        return await self._call(protocol.WORKLOAD_STATUS, request)

    async def power_cycle(self, node: NodeRef, token: str) -> None:
        """Switch a node off and on."""
        await self._call(protocol.POWER_CYCLE, protocol.NodeToken(node=node, token=token))

    async def fence(self, node: NodeRef, token: str) -> None:
        """Switch a node off; returns once it is off."""
        await self._call(protocol.FENCE, protocol.NodeToken(node=node, token=token))

    async def is_off(self, node: NodeRef) -> bool:
        """Return whether a node is confirmed to be off."""
        return (await self._call(protocol.IS_OFF, protocol.NodeOnly(node=node))).yes

    async def reprovision(self, node: NodeRef, token: str) -> None:
        """Reinstall a node."""
        await self._call(protocol.REPROVISION, protocol.NodeToken(node=node, token=token))

    async def replace(self, node: NodeRef, token: str, evidence: str) -> str:
        """Replace a machine; returns the ticket."""
        request = protocol.NodeToken(node=node, token=token, evidence=evidence)
        return (await self._call(protocol.REPLACE, request)).ticket

    async def watch_nodes(self) -> AsyncIterator[tuple[NodeLife, ...]]:
        """Yield at once and on each change which nodes' agents can run."""
        async for lives in self._stream(protocol.WATCH_NODES, Nothing()):
            yield lives.nodes

    async def kernel_records(
        self, node: str, boot_id: str, after: int = -1
    ) -> AsyncIterator[tuple[KernelRecordView, ...]]:
        """Yield kernel log records of this boot as they come; ends with ``TransientError`` when the boot is over."""
        request = protocol.KernelAfter(node=node, boot_id=boot_id, after=after)
        async for batch in self._stream(protocol.WATCH_KERNEL, request):
            yield batch.records

    async def gpu_snapshot(self, node: str) -> GpuSnapshot:
        """Return what NVML says on a node now."""
        return await self._call(protocol.GPU_SNAPSHOT, protocol.NodeName(node=node))

    def run_operation(self, node: str, boot_id: str, request: OperationRequest) -> AsyncIterator[OperationProgress]:
        """Start or join an operation on a node; yields until it is final."""
        order = protocol.NodeOperation(node=node, boot_id=boot_id, request=request)
        return self._stream(protocol.RUN_OPERATION, order)

    async def cancel_operation(self, node: str, operation_id: str) -> None:
        """Stop an operation that can be stopped."""
        await self._call(protocol.CANCEL_OPERATION, protocol.OperationOnNode(node=node, operation_id=operation_id))

    async def state(self) -> WorldState:
        """Return the truth about everything, violations included."""
        return await self._call(protocol.STATE, Nothing())

    async def inject(self, order: Injection) -> None:
        """Inject a fault."""
        await self._call(protocol.INJECT, order)

    async def clear(self, node: str, kind: FaultKind) -> None:
        """Take a kind of fault away from a node."""
        await self._call(protocol.CLEAR, protocol.FaultOnNode(node=node, kind=kind))

    async def hold(self, node: str, who: str, reason: str = "") -> None:
        """Hold a node back as somebody else does."""
        await self._call(protocol.HOLD, protocol.Hold(node=node, who=who, reason=reason))

    async def unhold(self, node: str, who: str) -> None:
        """Lift somebody else's hold."""
        await self._call(protocol.UNHOLD, protocol.Hold(node=node, who=who))

    async def unmark(self, node: str) -> None:
        """Take our mark off by hand, as a person does."""
        await self._call(protocol.UNMARK, protocol.NodeName(node=node))

    async def submit(self, job: JobSpec) -> None:
        """Start a new gang."""
        await self._call(protocol.SUBMIT, job)

    async def kernel_write(self, node: str, text: str, facility: int = 1) -> None:
        """Write to a node's kernel log as a process does; facility 0 speaks as the kernel."""
        await self._call(protocol.KERNEL_WRITE, protocol.KernelWrite(node=node, text=text, facility=facility))

    async def advance(self, seconds: float) -> None:
        """Let simulated seconds pass at once."""
        await self._call(protocol.ADVANCE, protocol.Advance(seconds=seconds))

    async def shutdown(self) -> None:
        """Stop the server."""
        await self._call(protocol.SHUTDOWN, Nothing())

    def _connected(self) -> grpc.aio.Channel:
        # Made on first use: a channel belongs to the event loop in which it is made.
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self._address, options=_OPTIONS)
        return self._channel

    async def _call(self, method: Method[RequestT, AnswerT], request: RequestT) -> AnswerT:
        ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._connected().unary_unary(method.path)
        try:
            body = await ask(request.model_dump_json().encode(), timeout=CALL_SECONDS)
            return method.answer.model_validate_json(body)
        except grpc.aio.AioRpcError as error:
            raise self._as_domain_error(error) from None
        except ValidationError as error:
            raise _not_understood(method.name, error) from None

    async def _stream(self, method: Method[RequestT, AnswerT], request: RequestT) -> AsyncIterator[AnswerT]:
        ask: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = self._connected().unary_stream(method.path)
        call = ask(request.model_dump_json().encode())
        try:
            async for body in call:
                yield method.answer.model_validate_json(body)
        except grpc.aio.AioRpcError as error:
            raise self._as_domain_error(error) from None
        except ValidationError as error:
            raise _not_understood(method.name, error) from None
        finally:
            call.cancel()

    def _as_domain_error(self, error: grpc.aio.AioRpcError) -> KintsugiError:
        text = error.details() or ""
        if error.code() is grpc.StatusCode.ABORTED:
            told = protocol.error_from(text)
            if told is not None:
                return told
        if error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED):
            return PermanentError(f"the simulated cluster refused the request: {text}")
        return TransientError(
            f"the simulated cluster at {self._address} cannot be reached ({error.code().name}: {text}):"
            " is `python -m simulator` running?"
        )


def _not_understood(method: str, error: ValidationError) -> PermanentError:
    first = error.errors(include_url=False)[0]
    return PermanentError(f"the simulated cluster answered {method} in a way that this version cannot read: {first}")
