"""Who may ask this node for operations: the workers, by the names in their certificates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_NAME_PROPERTIES = ("x509_common_name", "x509_subject_alternative_name")
"""gRPC's names for a peer certificate's CN and alternative names (``grpc_security_constants.h``)."""


class CallerError(Exception):
    """The caller's certificate carries none of the permitted names."""


def check_caller(auth_context: Mapping[str, Iterable[bytes]], permitted: Iterable[str]) -> None:
    """Return when one of the certificate's names is permitted, or when every name is.

    Args:
        auth_context: of the call, as gRPC has verified it.
        permitted: names of the workers' certificates; none permits every certificate of the authority.

    Raises:
        CallerError: naming what the certificate carries and the setting to change.
    """
    wanted = frozenset(permitted)
    if not wanted:
        return
    names = {value.decode("utf-8", "replace") for name in _NAME_PROPERTIES for value in auth_context.get(name, ())}
    if wanted.isdisjoint(names):
        held = ", ".join(sorted(names)[:5]) or "no name"
        raise CallerError(
            f"a certificate for {held} may not ask this node for operations; KINTSUGI_AGENT_CALLERS permits"
            f" {', '.join(sorted(wanted))}"
        )
