"""Waiting for a condition, with a deadline instead of hope."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    """Return as soon as the condition holds; fail when it does not within ``seconds``."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - what is waited for sets no event
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None
