"""When the reporter tries again, and what it tells a person meanwhile."""

from __future__ import annotations

import random
from dataclasses import dataclass

import grpc

_REFUSALS = {
    grpc.StatusCode.PERMISSION_DENIED: (
        "the gateway does not let this certificate speak for this node: the certificate's name must be the node's"
        " name (KINTSUGI_AGENT_NODE)"
    ),
    grpc.StatusCode.UNAUTHENTICATED: (
        "the gateway does not accept this certificate: see that it is signed by the gateway's authority and not"
        " expired (KINTSUGI_AGENT_TLS__CERT)"
    ),
    grpc.StatusCode.INVALID_ARGUMENT: (
        "the gateway cannot read what this agent sent: see that the names of cluster, pool and node are right and"
        " that agent and gateway are of the same release"
    ),
    grpc.StatusCode.FAILED_PRECONDITION: (
        "the gateway does not take this node in its present state: see the gateway's log, and that no second agent"
        " reports under the same node name"
    ),
    grpc.StatusCode.ABORTED: (
        "another stream of this node took over: see that no second agent reports under the same node name"
    ),
    grpc.StatusCode.UNIMPLEMENTED: (
        "what answers there is no Kintsugi gateway: see that KINTSUGI_AGENT_GATEWAY names its host and port"
    ),
}


@dataclass(frozen=True)
class RetryTimes:
    """How long to wait for what, in seconds.

    Attributes:
        first: bound of the first delay; each further failure doubles it.
        longest: bound that no delay exceeds.
        refused: bound of the delay after a refusal, which only a person can change.
        welcome_seconds: how long the gateway may take to answer a hello.
    """

    first: float = 0.5
    longest: float = 30.0
    refused: float = 60.0
    welcome_seconds: float = 10.0


DEFAULT_TIMES = RetryTimes()


@dataclass
class Ending:
    """How a stream ended.

    Attributes:
        sentence: why, in words.
        code: the gRPC status, None when the agent ended it.
        welcomed: whether the gateway had welcomed the node.
        wanted: the agent ended it on purpose and opens the next one at once.
        suspect: the gateway called an event malformed; which one, the next stream finds out.
    """

    sentence: str
    code: grpc.StatusCode | None = None
    welcomed: bool = False
    wanted: bool = False
    suspect: bool = False


def advice(code: grpc.StatusCode | None) -> str:
    """Return what a person should do about a refusal, empty when there is nothing to do but wait."""
    text = _REFUSALS.get(code) if code is not None else None
    return f" ({text})" if text else ""


def retry_delay(ending: Ending, failures: int, times: RetryTimes) -> float:
    """Return how long to wait before the next stream, in seconds.

    Full jitter (uniform between nothing and the bound) spreads thousands of agents whose gateway restarts
    (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
    """
    if ending.wanted:
        return 0.0
    if ending.code in _REFUSALS and not ending.suspect:
        return random.uniform(times.refused / 2, times.refused)
    return random.uniform(0.0, min(times.longest, times.first * 2 ** min(failures, 30)))
