"""Who may speak for a node: the one whose certificate carries its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_NAME_PROPERTIES = ("x509_common_name", "x509_subject_alternative_name")
"""gRPC's names for a peer certificate's CN and alternative names (``grpc_security_constants.h``). URIs and mail
addresses among the latter can never equal a node's name, which has neither ``:`` nor ``@``."""


class NotPermittedError(Exception):
    """The peer may not speak for this node; the text says why and what to do."""


def certificate_names(auth_context: Mapping[str, Iterable[bytes]]) -> frozenset[str]:
    """Return the names in the peer's verified certificate, as gRPC's authentication context lists them."""
    return frozenset(
        value.decode("utf-8", "replace") for name in _NAME_PROPERTIES for value in auth_context.get(name, ())
    )


def check_speaker(names: frozenset[str], node_name: str) -> None:
    """Return when one of the certificate's names is the node's; a wildcard speaks for nobody.

    Raises:
        NotPermittedError: the certificate was made for another node, or carries no name.
    """
    if node_name in names:
        return
    held = ", ".join(sorted(names)[:5]) or "no name at all"
    raise NotPermittedError(
        f"this certificate speaks for {held}, not for node {node_name}: give the agent a certificate whose CN"
        f" or DNS name is {node_name}, or correct the node's name in the agent's settings"
    )
