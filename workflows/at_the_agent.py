"""Activities that speak to a node's agent, wherever the agent is by now."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

Result = TypeVar("Result")


async def at_the_agent(
    ask: Callable[[str], workflow.ActivityHandle[Result]], address: Callable[[], str], over: Callable[[], bool]
) -> Result | None:
    """Run an activity at the agent's address; ask anew when the agent turns up at another one.

    An agent that was started again may listen elsewhere (another port, another pod), and the retries of an activity
    only ever know the address with which it was scheduled. Operations join by their id, so asking twice is safe.

    Args:
        ask: starts the activity at an address.
        address: where the agent was last seen.
        over: whether what the activity is for has come true without it.

    Returns:
        The activity's result; None when it was over first.

    Raises:
        ActivityError: the activity failed.
    """
    while not over():
        asked = address()
        running = ask(asked)
        try:
            await workflow.wait_condition(partial(_settled, running, asked, address, over))
        except asyncio.CancelledError:
            running.cancel()
            raise
        if running.done():
            return await running
        running.cancel()
        with contextlib.suppress(ActivityError):
            return await running
    return None


def _settled(
    running: workflow.ActivityHandle[Result], asked: str, address: Callable[[], str], over: Callable[[], bool]
) -> bool:
    return running.done() or over() or address() != asked
