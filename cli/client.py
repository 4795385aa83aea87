"""Talking to Temporal for a person at a terminal: short waits, and errors that say what to do."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from cli import control_plane
from cli.errors import CouldNotError, RefusedError

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.service import RPCError

QUERY_TIMEOUT = timedelta(seconds=10)
"""How long a worker may take to answer a query."""

ANSWER_SECONDS = 20.0
"""How long a worker may take to answer an update, in seconds."""

Address = Annotated[
    str | None,
    typer.Option("--address", help="Temporal's host:port. Else TEMPORAL_ADDRESS, the profile, or `kintsugi up` here."),
]
Namespace = Annotated[str | None, typer.Option("--namespace", help="Temporal namespace. Else TEMPORAL_NAMESPACE.")]

T = TypeVar("T")


@asynccontextmanager
async def connected(address: str | None, namespace: str | None) -> AsyncIterator[Client]:
    """Yield a Temporal client; what goes wrong inside becomes a sentence.

    Raises:
        CouldNotError: Temporal or the worker does not answer.
        RefusedError: what was asked for is not there.
    """
    from temporalio.client import WorkflowQueryFailedError
    from temporalio.service import RPCError

    from runtime import temporal
    from runtime.settings import SettingsError

    target = address or _local_address()
    try:
        async with asyncio.timeout(15):
            client = await temporal.connect(target, namespace, attempts=1)
    except TimeoutError:
        raise CouldNotError(
            f"Temporal at {target or temporal.DEFAULT_ADDRESS} does not answer within 15 s. Start it with"
            " `kintsugi up`, or set TEMPORAL_ADDRESS to where it runs."
        ) from None
    except (ConnectionError, SettingsError) as error:
        raise CouldNotError(_shortened(str(error))) from None
    except (ValueError, RuntimeError) as error:
        raise CouldNotError(f"the Temporal settings (TEMPORAL_*, --address) cannot be used: {error}") from None
    try:
        yield client
    except WorkflowQueryFailedError as error:
        raise CouldNotError(f"the workflow could not answer: {error}") from None
    except RPCError as error:
        raise _in_words(error) from None


def _local_address() -> str | None:
    """Return where `kintsugi up` runs Temporal, when nothing else says where it is."""
    if os.environ.get("TEMPORAL_ADDRESS") or os.environ.get("TEMPORAL_PROFILE"):
        return None
    plane = control_plane.running()
    return plane.temporal if plane else None


def address_to_show(client: Client) -> str:
    """Return the address that a command must name, empty when every Temporal tool finds it without."""
    from runtime import temporal

    target = client.service_client.config.target_host
    if os.environ.get("TEMPORAL_ADDRESS") == target or target == temporal.DEFAULT_ADDRESS:
        return ""
    return target


def _shortened(text: str) -> str:
    """Return an error without the nested Rust errors around its reason."""
    return re.sub(r"\(Failed client connect: .*?message: \"([^\"]*)\".*\)\.", r"(\1).", text)


def _in_words(error: RPCError) -> Exception:
    from temporalio.service import RPCStatusCode

    if error.status is RPCStatusCode.NOT_FOUND:
        if "already completed" in error.message:
            return RefusedError("this repair is over; `kintsugi show` tells how it ended")
        return RefusedError(
            f"not found: {error.message}. `kintsugi repairs --all` and `kintsugi pool` list what is there"
        )
    if error.status in (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED) or "no poller" in error.message:
        return CouldNotError("no worker answers: `kintsugi up` or `kintsugi worker` starts one")
    if error.status is RPCStatusCode.INVALID_ARGUMENT and "search attribute" in error.message:
        return CouldNotError(
            "no worker has ever run against this Temporal, so nothing can be listed: `kintsugi worker`"
        )
    if error.status is RPCStatusCode.PERMISSION_DENIED:
        return CouldNotError(f"Temporal does not permit this: {error.message}")
    return CouldNotError(f"Temporal: {error.message} ({error.status.name})")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the asynchronous body of a command."""
    return asyncio.run(work)
