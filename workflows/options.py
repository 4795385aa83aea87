"""Time-outs and retries of every activity, in one table.

Every destructive call is bounded, and so are its retries. ``non_retryable_error_types`` matches class names only
(never ancestors), so each permanent error of ``domain.errors`` is named.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TypedDict

from temporalio.common import RetryPolicy

NEVER_RETRIED = ["PermanentError", "UnsupportedError", "NotOursError"]

HEARTBEAT = timedelta(seconds=20)
"""A worker that dies is noticed after so long; heartbeats come every second."""

MARGIN = timedelta(seconds=30)
"""An activity may run for its step's own bound and so much longer, to report how it ended."""


class Options(TypedDict, total=False):
    """Keyword arguments of ``workflow.execute_activity_method``."""

    start_to_close_timeout: timedelta
    schedule_to_close_timeout: timedelta
    heartbeat_timeout: timedelta
    retry_policy: RetryPolicy


def _retry(attempts: int, longest: timedelta = timedelta(seconds=30)) -> RetryPolicy:
    return RetryPolicy(
        initial_interval=timedelta(seconds=0.5),
        backoff_coefficient=2.0,
        maximum_interval=longest,
        maximum_attempts=attempts,
        non_retryable_error_types=NEVER_RETRIED,
    )


PERSISTENT = _retry(0)
"""Tried until it works: calls that are safe to repeat and that nothing may lose."""

SCHEDULER_CALL = Options(start_to_close_timeout=timedelta(seconds=30), retry_policy=PERSISTENT)
"""Quarantine, release, give back, lease: short calls. The scheduler may be away for as long as it likes."""


RECORD = Options(start_to_close_timeout=timedelta(seconds=30), retry_policy=PERSISTENT)

IN_BACKGROUND = Options(
    start_to_close_timeout=timedelta(seconds=30),
    schedule_to_close_timeout=timedelta(minutes=2),
    retry_policy=PERSISTENT,
)
"""What a pool does beside deciding: bounded, since a pool can only start a new run when none of it is under way."""

POLICY_TIMEOUT = timedelta(seconds=5)
"""A local activity that reads the policy already loaded by the worker."""

WATCH_MARK = Options(start_to_close_timeout=timedelta(days=30), heartbeat_timeout=HEARTBEAT, retry_policy=PERSISTENT)


def bounded(limit: timedelta, attempts: int = 10) -> Options:
    """Return the options of a long step: bounded as a whole by its limit, heartbeats watched."""
    return Options(
        start_to_close_timeout=limit + MARGIN,
        schedule_to_close_timeout=limit + 2 * MARGIN,
        heartbeat_timeout=HEARTBEAT,
        retry_policy=_retry(attempts, longest=timedelta(seconds=10)),
    )


GIVE_BACK = bounded(timedelta(seconds=90))
"""The last look at a node, which has some time to settle."""
