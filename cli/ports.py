"""Finding ports that are free on the loopback."""

from __future__ import annotations

import asyncio
import contextlib
import socket

LOOPBACK = "127.0.0.1"


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Return whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Return distinct free ports. Nothing reserves them: they are used at once."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def prefer(port: int) -> int:
    """Return this port when it is free, else another that is."""
    return port if is_free(port) else free_ports(1)[0]


async def answers(address: str) -> bool:
    """Return whether something accepts connections at ``host:port``."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(2):
            _reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError, ValueError):
        return False
    writer.close()
    return True
