"""The gRPC server: agents' reports, gRPC health and reflection, with or without mutual TLS."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
from grpc_health.v1 import health as grpc_health
from grpc_health.v1 import health_pb2 as grpc_health_pb2
from grpc_health.v1 import health_pb2_grpc as grpc_health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from temporalio.client import Client

from gateway.expected import ExpectedNodes
from gateway.hand_over import HandOver, PoolSender
from gateway.metrics import GatewayMetrics
from gateway.report_stream import Context, ReportStream
from gateway.sessions import Sessions
from runtime.settings import GatewaySettings, SettingsError, TlsFiles
from wire.v1 import health_pb2, health_pb2_grpc

log = logging.getLogger(__name__)

SERVICE: Final = "wire.v1.Health"
DRAIN_SECONDS: Final = 2.0
_GRACE_SECONDS: Final = 1.0


class _Health(health_pb2_grpc.HealthServicer):
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def Report(self, request_iterator: AsyncIterator[health_pb2.AgentMessage], context: Context) -> None:
        """Serve one node's stream."""
        await self._gateway.stream(context).serve()


class Gateway:
    """A gateway: ``start``, then ``stop``.

    Args:
        sender: how reports reach the pools.

    Attributes:
        port: where it listens, once started.
    """

    def __init__(self, settings: GatewaySettings, sender: PoolSender, metrics: GatewayMetrics | None = None) -> None:
        self._settings = settings
        self.metrics = metrics or GatewayMetrics()
        self._hand_over = HandOver(sender, self.metrics)
        self._sessions = Sessions(
            settings.name, self._hand_over, self.metrics, settings.silence_seconds, settings.fault_rate_per_node
        )
        self._health = grpc_health.aio.HealthServicer()
        self._server: grpc.aio.Server | None = None
        self._watch: asyncio.Task[None] | None = None
        self._expecting: asyncio.Task[None] | None = None
        self._since = datetime.now(UTC)
        self.port = 0

    def stream(self, context: Context) -> ReportStream:
        """Return what serves a new stream."""
        return ReportStream(
            context,
            self._sessions,
            self.metrics,
            mutual_tls=self._settings.tls.enabled,
            heartbeat_seconds=self._settings.heartbeat_seconds,
        )

    async def start(self) -> None:
        """Listen.

        Raises:
            SettingsError: the address cannot be used, or not without TLS, or a TLS file cannot be read.
        """
        check_exposure(self._settings)
        server = grpc.aio.server(options=_options(self._settings))
        health_pb2_grpc.add_HealthServicer_to_server(_Health(self), server)  # type: ignore[no-untyped-call]
        grpc_health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection((SERVICE, "grpc.health.v1.Health", reflection.SERVICE_NAME), server)
        self.port = _bind(server, self._settings)
        self._since = datetime.now(UTC)
        await server.start()
        for service in (SERVICE, ""):
            await self._health.set(service, grpc_health_pb2.HealthCheckResponse.SERVING)
        self._server = server
        self._watch = asyncio.create_task(self._sessions.watch(), name="silence watch")
        log.info("listening for agents on %s", self._settings.listen, extra={"port": self.port})

    def expect(self, client: asyncio.Future[Client]) -> None:
        """Have the nodes reported lost that a gateway of this name saw before and that do not come back.

        Args:
            client: resolves when Temporal was reached.
        """
        expected = ExpectedNodes(self._settings.name, self._sessions, client, self._since, self._time_to_come_back)
        self._expecting = asyncio.create_task(expected.run(), name="expected nodes")

    def _time_to_come_back(self) -> float:
        # With the defaults longer than an agent's longest pause between two attempts, 30 s: a healthy node that is
        # reported lost for a moment would be noise, and would count in its pool's budget.
        return 2 * self._settings.silence_seconds + self._settings.heartbeat_seconds

    def change(self, settings: GatewaySettings) -> None:
        """Put another heartbeat and another silence limit in force, for connected agents too.

        What else changed in the settings waits for a restart.
        """
        self._settings = self._settings.model_copy(
            update={
                "heartbeat_seconds": settings.heartbeat_seconds,
                "silence_seconds": settings.silence_seconds,
            }
        )
        self._sessions.change(settings.heartbeat_seconds, settings.silence_seconds)

    async def stop(self) -> None:
        """Hand over what is queued if Temporal takes it soon, end the streams. No node is lost by it."""
        if self._server is None:
            return
        await self._health.enter_graceful_shutdown()
        watching = [task for task in (self._watch, self._expecting) if task is not None]
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        self._sessions.flush()
        if not await self._hand_over.drain(DRAIN_SECONDS):
            log.warning("stopping before Temporal accepted everything; the agents keep it and send it again")
        self._sessions.end_all("stopping", "this gateway is stopping; connect again")
        await self._server.stop(_GRACE_SECONDS)
        await self._hand_over.close()
        log.info("stopped")


def check_exposure(settings: GatewaySettings) -> None:
    """Refuse to take reports from the network without TLS: anybody could have any node taken away.

    Raises:
        SettingsError: the address is not loopback and there is no TLS, or TLS is configured in part only.
    """
    tls = settings.tls
    if not tls.enabled and any((tls.ca, tls.cert, tls.key)):
        missing = [name for name in ("ca", "cert", "key") if getattr(tls, name) is None]
        raise SettingsError(
            f"mutual TLS needs ca, cert and key, but there is no {' and no '.join(missing)}: set"
            f" {' and '.join(f'KINTSUGI_GATEWAY_TLS__{name.upper()}' for name in missing)}"
        )
    if tls.enabled or settings.allow_insecure or _is_loopback(_host_of(settings.listen)):
        return
    raise SettingsError(
        f"listening on {settings.listen} without TLS would let anybody speak for any node: set"
        " KINTSUGI_GATEWAY_TLS__CA, __CERT and __KEY, or listen on 127.0.0.1, or, on a network that you trust"
        " altogether, set KINTSUGI_GATEWAY_ALLOW_INSECURE=true"
    )


def check_silence(settings: GatewaySettings) -> None:
    """Refuse a silence limit that every healthy node would break between two heartbeats; ``SettingsError``."""
    if settings.silence_seconds < 2 * settings.heartbeat_seconds:
        raise SettingsError(
            f"silence_seconds is {settings.silence_seconds:g}, but must be at least twice heartbeat_seconds"
            f" ({settings.heartbeat_seconds:g}): one late heartbeat would have a healthy node reported lost"
        )


def split_address(address: str, setting: str) -> tuple[str, int]:
    """Return host and port of ``host:port``; raises ``SettingsError`` naming the setting."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise SettingsError(f"{setting} is {address!r}, but must be host:port, such as 127.0.0.1:7443")
    return host, int(port)


def _host_of(listen: str) -> str:
    return split_address(listen, "listen")[0]


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _options(settings: GatewaySettings) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_metadata_size", 8 * 1024),
        ("grpc.so_reuseport", 0),  # a second gateway on the port is an error, not a lottery
        # Notices connections that the network forgot; health is judged on heartbeats alone.
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # Agents ping too; more often than this ends their connection (GOAWAY, "too many pings").
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_ping_strikes", 5),
    ]


def _bind(server: grpc.aio.Server, settings: GatewaySettings) -> int:
    try:
        if settings.tls.enabled:
            port = server.add_secure_port(settings.listen, _credentials(settings.tls))
        else:
            port = server.add_insecure_port(settings.listen)
    except RuntimeError:
        port = 0
    if port == 0:
        raise SettingsError(
            f"cannot listen on {settings.listen}: is the port taken by another process, and is the address"
            " this machine's? Choose another with --listen or KINTSUGI_GATEWAY_LISTEN"
        )
    return port


def _credentials(tls: TlsFiles) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials(
        [(_pem(tls.key, "KEY"), _pem(tls.cert, "CERT"))],
        root_certificates=_pem(tls.ca, "CA"),
        require_client_auth=True,
    )


def _pem(path: Path | None, name: str) -> bytes:
    setting = f"KINTSUGI_GATEWAY_TLS__{name}"
    if path is None:
        raise SettingsError(f"{setting} is not set")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{setting} is {path}, which cannot be read: {error.strerror}") from None
    if b"-----BEGIN" not in content:
        raise SettingsError(f"{setting} is {path}, which is no PEM file")
    return content
