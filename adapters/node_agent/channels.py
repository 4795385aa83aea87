"""Connections to agents, one an address, kept while they are of use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import grpc
import grpc.aio

from domain.errors import PermanentError

MAX_IDLE = 512
"""So many connections without a call are kept; a node gets a new address at each boot when its port is free."""

_OPTIONS = (
    # A host that hangs keeps its connection open: pings find out. Agents allow one every 5 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A node that comes back from a reboot is found soon.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.enable_http_proxy", 0),
)


class CertificateFiles(Protocol):
    """PEM files for mutual TLS; all None for none.

    The host in an agent's address must be a name in its certificate.
    """

    @property
    def ca(self) -> Path | None:
        """Authority that signed the agents' certificates."""

    @property
    def cert(self) -> Path | None:
        """Our certificate."""

    @property
    def key(self) -> Path | None:
        """Our private key."""


def credentials_from(files: CertificateFiles | None) -> grpc.ChannelCredentials | None:
    """Return what a worker presents to agents, None without TLS.

    Raises:
        PermanentError: a file cannot be read, or only some of the three are named.
    """
    if files is None or (files.ca is None and files.cert is None and files.key is None):
        return None
    if files.ca is None or files.cert is None or files.key is None:
        raise PermanentError("TLS to the agents needs all three files: set tls.ca, tls.cert and tls.key")
    try:
        ca, cert, key = (path.read_bytes() for path in (files.ca, files.cert, files.key))
    except OSError as error:
        raise PermanentError(f"the TLS file {error.filename} cannot be read: {error.strerror}") from None
    return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=cert)


@dataclass
class _Kept:
    channel: grpc.aio.Channel
    calls: int = 0


class Channels:
    """Channels by address; those without a call are closed when there are too many."""

    def __init__(self, credentials: grpc.ChannelCredentials | None) -> None:
        self._credentials = credentials
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    @asynccontextmanager
    async def to(self, address: str) -> AsyncIterator[grpc.aio.Channel]:
        """Lend the channel to an address for one call."""
        kept = self._kept.get(address)
        if kept is None:
            kept = self._kept[address] = _Kept(self._open(address))
        self._kept.move_to_end(address)
        kept.calls += 1
        try:
            yield kept.channel
        finally:
            kept.calls -= 1
            await self._close_surplus()

    async def close(self) -> None:
        """Close all of them."""
        kept, self._kept = self._kept, OrderedDict()
        for entry in kept.values():
            await entry.channel.close()

    def _open(self, address: str) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(address, options=_OPTIONS)
        return grpc.aio.secure_channel(address, self._credentials, options=_OPTIONS)

    async def _close_surplus(self) -> None:
        idle = [address for address, entry in self._kept.items() if entry.calls == 0]
        for address in idle[: max(len(idle) - MAX_IDLE, 0)]:
            await self._kept.pop(address).channel.close()
