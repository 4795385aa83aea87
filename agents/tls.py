"""Mutual TLS for the agent's two connections: to the gateway, and from the workers."""

from __future__ import annotations

import grpc

from agents.errors import StartError
from runtime.settings import TlsFiles


def channel_credentials(tls: TlsFiles) -> grpc.ChannelCredentials | None:
    """Return what a client presents, None when TLS is not configured.

    Raises:
        StartError: a file is missing or only some of the three are named.
    """
    material = _read(tls)
    if material is None:
        return None
    ca, cert, key = material
    return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=cert)


def server_credentials(tls: TlsFiles) -> grpc.ServerCredentials | None:
    """Return what a server presents; clients must present a certificate of the same authority.

    Raises:
        StartError: a file is missing or only some of the three are named.
    """
    material = _read(tls)
    if material is None:
        return None
    ca, cert, key = material
    return grpc.ssl_server_credentials([(key, cert)], root_certificates=ca, require_client_auth=True)


def _read(tls: TlsFiles) -> tuple[bytes, bytes, bytes] | None:
    if tls.ca is None and tls.cert is None and tls.key is None:
        return None
    if tls.ca is None or tls.cert is None or tls.key is None:
        raise StartError("TLS needs all three files: set tls.ca, tls.cert and tls.key (KINTSUGI_AGENT_TLS__CA …)")
    try:
        return tls.ca.read_bytes(), tls.cert.read_bytes(), tls.key.read_bytes()
    except OSError as error:
        raise StartError(f"the TLS file {error.filename} cannot be read ({error.strerror})") from None
