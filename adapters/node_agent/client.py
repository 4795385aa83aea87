"""The port ``NodeAgent`` over gRPC: one client for all agents of a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import grpc
import grpc.aio

from adapters.node_agent.channels import CertificateFiles, Channels, credentials_from
from domain.errors import KintsugiError, PermanentError, TransientError, UnsupportedError
from domain.operations import NodeInspection, OperationProgress, OperationRequest
from wire import convert
from wire.v1 import operations_pb2, operations_pb2_grpc

START_SECONDS = 10.0
CANCEL_SECONDS = 20.0
"""An agent waits up to 10 s for what it cancels."""
INSPECT_SECONDS = 30.0
"""An inspection waits for the driver, which the agent itself bounds."""

_REFUSED = {
    grpc.StatusCode.INVALID_ARGUMENT: "the request is malformed",
    grpc.StatusCode.FAILED_PRECONDITION: "it does not fit the node's present state",
    grpc.StatusCode.NOT_FOUND: "it is not known there",
    grpc.StatusCode.OUT_OF_RANGE: "the request is out of range",
    grpc.StatusCode.PERMISSION_DENIED: "not permitted; check this worker's certificate",
    grpc.StatusCode.UNAUTHENTICATED: "not authenticated; check this worker's certificate",
}


class NodeAgentClient:
    """Agents, reached at the addresses that they report.

    Every call is safe to repeat: an operation is started once an id, so an answer that was lost is got by asking
    again. Hence whatever is not clearly a refusal is a ``TransientError``.

    Args:
        tls: for mutual TLS; without files it speaks without, for loopback only.

    Raises:
        PermanentError: the files cannot be used; the text says why.
    """

    def __init__(self, tls: CertificateFiles | None = None) -> None:
        self._channels = Channels(credentials_from(tls))

    async def close(self) -> None:
        """Close all connections."""
        await self._channels.close()

    async def start(self, address: str, request: OperationRequest) -> OperationProgress:
        """See ``NodeAgent.start``."""
        with _domain_errors(address):
            message = convert.request_to_pb(request)
            async with self._channels.to(address) as channel:
                answer = await _stub(channel).Start(message, timeout=START_SECONDS)
            return convert.progress_from_pb(answer)

    async def watch(self, address: str, operation_id: str) -> AsyncIterator[OperationProgress]:
        """See ``NodeAgent.watch``."""
        final = False
        with _domain_errors(address):
            async with self._channels.to(address) as channel:
                call = _stub(channel).Watch(operations_pb2.WatchRequest(operation_id=operation_id))
                try:
                    async for message in call:
                        progress = convert.progress_from_pb(message)
                        final = progress.state.final
                        yield progress
                finally:
                    call.cancel()
        if not final:
            raise TransientError(f"agent at {address}: the stream ended before {operation_id} did; watch it again")

    async def cancel(self, address: str, operation_id: str) -> OperationProgress:
        """See ``NodeAgent.cancel``."""
        with _domain_errors(address):
            async with self._channels.to(address) as channel:
                message = operations_pb2.CancelRequest(operation_id=operation_id)
                answer = await _stub(channel).Cancel(message, timeout=CANCEL_SECONDS)
            return convert.progress_from_pb(answer)

    async def inspect(self, address: str) -> NodeInspection:
        """See ``NodeAgent.inspect``."""
        with _domain_errors(address):
            async with self._channels.to(address) as channel:
                answer = await _stub(channel).Inspect(operations_pb2.InspectRequest(), timeout=INSPECT_SECONDS)
            return convert.inspection_from_pb(answer)


def _stub(channel: grpc.aio.Channel) -> operations_pb2_grpc.NodeOperationsStub:
    return operations_pb2_grpc.NodeOperationsStub(channel)  # type: ignore[no-untyped-call]


@contextmanager
def _domain_errors(address: str) -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise _as_domain_error(address, error.code(), error.details() or "no details") from None
    except grpc.aio.UsageError as error:
        # The channel was closed under the call: this worker is shutting down.
        raise TransientError(f"agent at {address}: the connection was closed ({error})") from None
    except convert.MalformedError as error:
        raise PermanentError(
            f"agent at {address}: {error}; see that agent and worker are of versions that go together"
        ) from None


def _as_domain_error(address: str, code: grpc.StatusCode, text: str) -> KintsugiError:
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return UnsupportedError(f"agent at {address}: it cannot do that ({text}); update the agent")
    if code in _REFUSED:
        return PermanentError(f"agent at {address}: {_REFUSED[code]}: {text}")
    if code is grpc.StatusCode.UNAVAILABLE:
        return TransientError(f"agent at {address} cannot be reached ({text}): is the node up, and does its agent run?")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TransientError(f"agent at {address} did not answer in time: the host may hang; trying again is safe")
    return TransientError(f"agent at {address}: {code.name}: {text}")
