"""The NodeOperations service: what the control plane may ask of this node, over gRPC."""

from __future__ import annotations

import ipaddress
import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NoReturn

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from agents.callers import CallerError, check_caller
from agents.errors import StartError
from agents.operations.errors import (
    BusyError,
    IncompleteRequestError,
    RefusedError,
    UnknownOperationError,
)
from agents.operations.manager import OperationManager
from agents.tls import server_credentials
from domain.operations import NodeInspection
from runtime.settings import TlsFiles
from wire import convert
from wire.v1 import operations_pb2, operations_pb2_grpc

log = logging.getLogger(__name__)

SERVICE = operations_pb2.DESCRIPTOR.services_by_name["NodeOperations"].full_name

_OPTIONS = (
    # Two agents on one port would answer for each other.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 64 * 1024),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Clients may ping while they watch a long burn-in; pings that come oftener than this end in GOAWAY.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
)
_CODES: tuple[tuple[type[Exception], grpc.StatusCode], ...] = (
    (convert.MalformedError, grpc.StatusCode.INVALID_ARGUMENT),
    (IncompleteRequestError, grpc.StatusCode.INVALID_ARGUMENT),
    (UnknownOperationError, grpc.StatusCode.NOT_FOUND),
    (RefusedError, grpc.StatusCode.FAILED_PRECONDITION),
    # ABORTED: nothing was done, and the same request may succeed later.
    (BusyError, grpc.StatusCode.ABORTED),
    (CallerError, grpc.StatusCode.PERMISSION_DENIED),
)
_ANSWERED = tuple(kind for kind, _ in _CODES)

Context = grpc.aio.ServicerContext[object, object]


class NodeOperationsService(operations_pb2_grpc.NodeOperationsServicer):
    """Turns messages into words, asks the manager, and turns its errors into status codes with sentences."""

    def __init__(
        self,
        manager: OperationManager,
        inspect: Callable[[], Awaitable[NodeInspection]],
        callers: Sequence[str] = (),
    ) -> None:
        self._manager = manager
        self._inspect = inspect
        self._callers = callers

    async def Start(self, request: operations_pb2.StartRequest, context: Context) -> operations_pb2.Progress:
        """Start an operation, or return the state of the one that has this id."""
        try:
            check_caller(context.auth_context(), self._callers)
            return convert.progress_to_pb(await self._manager.start(convert.request_from_pb(request)))
        except _ANSWERED as error:
            await _refuse(context, error)
        except sqlite3.Error as error:
            log.error("operation %r cannot be written down and is not started: %s", request.operation_id, error)
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                f"the operation cannot be written down on the node ({error}), so it was not started",
            )

    async def Watch(
        self, request: operations_pb2.WatchRequest, context: Context
    ) -> AsyncIterator[operations_pb2.Progress]:
        """Stream progress until the operation is final."""
        try:
            check_caller(context.auth_context(), self._callers)
            async for progress in self._manager.watch(convert.operation_id(request.operation_id)):
                yield convert.progress_to_pb(progress)
        except _ANSWERED as error:
            await _refuse(context, error)

    async def Cancel(self, request: operations_pb2.CancelRequest, context: Context) -> operations_pb2.Progress:
        """Ask an operation to stop."""
        try:
            check_caller(context.auth_context(), self._callers)
            return convert.progress_to_pb(await self._manager.cancel(convert.operation_id(request.operation_id)))
        except _ANSWERED as error:
            await _refuse(context, error)

    async def Inspect(self, request: operations_pb2.InspectRequest, context: Context) -> operations_pb2.Inspection:
        """Look at the node now."""
        try:
            check_caller(context.auth_context(), self._callers)
            return convert.inspection_to_pb(await self._inspect())
        except _ANSWERED as error:
            await _refuse(context, error)


class OperationsServer:
    """The gRPC server of an agent: NodeOperations, health and reflection.

    Args:
        listen: ``host:port``; port 0 picks a free one.
        tls: certificates; without them only loopback is served.
        allow_insecure: serve any address without TLS.
        service: what answers.

    Raises:
        StartError: the address is not loopback and TLS is missing, or a certificate cannot be read.
    """

    def __init__(self, listen: str, tls: TlsFiles, allow_insecure: bool, service: NodeOperationsService) -> None:
        self._host, _ = split_address(listen)
        self._listen = listen
        self._credentials = server_credentials(tls)
        if self._credentials is None and not allow_insecure and not is_loopback(self._host):
            raise StartError(
                f"NodeOperations can reboot this node and is not served on {listen} without TLS: set"
                " KINTSUGI_AGENT_TLS__CA, __CERT and __KEY, or listen on 127.0.0.1, or set"
                " KINTSUGI_AGENT_ALLOW_INSECURE=true on a network where everybody may reboot it"
            )
        self._service = service
        self._server: grpc.aio.Server | None = None
        self._health: health.aio.HealthServicer | None = None

    async def start(self) -> str:
        """Serve, and return the ``host:port`` that is listened on.

        Raises:
            StartError: the address cannot be listened on.
        """
        server = grpc.aio.server(options=_OPTIONS)
        operations_pb2_grpc.add_NodeOperationsServicer_to_server(self._service, server)  # type: ignore[no-untyped-call]
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        try:
            if self._credentials is None:
                port = server.add_insecure_port(self._listen)
            else:
                port = server.add_secure_port(self._listen, self._credentials)
        except RuntimeError:
            port = 0
        if port == 0:
            await server.stop(None)
            raise StartError(
                f"cannot listen on {self._listen}: the port is in use or the address is not this machine's. Set"
                " KINTSUGI_AGENT_LISTEN (or --listen) to another one"
            )
        await server.start()
        self._server = server
        for name in ("", SERVICE):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return f"{self._host}:{port}"

    async def stop(self, grace_seconds: float = 1.0) -> None:
        """Tell health watchers, then stop; calls get ``grace_seconds`` to end."""
        if self._health is not None:
            await self._health.enter_graceful_shutdown()
        if self._server is not None:
            await self._server.stop(grace_seconds)


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port``; the host of an IPv6 address keeps its brackets.

    Raises:
        StartError: it is no such address.
    """
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise StartError(f"{address!r} is no address: write host:port, such as 127.0.0.1:7444 or [::1]:7444")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


async def _refuse(context: Context, error: Exception) -> NoReturn:
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    await context.abort(code, str(error))
    raise AssertionError("abort returned")
