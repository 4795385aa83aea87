"""Where the probe is right now: a page of memory that it shares with the agent.

A process that hangs inside the driver can tell nothing any more, so it writes down each call before it makes
it. Only the standard library is used here: the probe loads this.
"""

from __future__ import annotations

import mmap
import struct
import time

SIZE = 128
_NAME_AT = 16
_STARTED = struct.Struct("=q")


class CallMark:
    """The shared page: which call is under way, and since when.

    Args:
        descriptor: of a file of at least ``SIZE`` bytes that both sides map.
    """

    def __init__(self, descriptor: int) -> None:
        self._page = mmap.mmap(descriptor, SIZE)

    def begin(self, call: str) -> None:
        """Write down that a call begins now."""
        self._page[_NAME_AT:SIZE] = call.encode("ascii", "replace")[: SIZE - _NAME_AT].ljust(SIZE - _NAME_AT, b"\0")
        _STARTED.pack_into(self._page, 0, time.monotonic_ns())

    def end(self) -> None:
        """Write down that no call is under way."""
        _STARTED.pack_into(self._page, 0, 0)

    def current(self) -> tuple[str, float] | None:
        """Return the call under way and when it began (``time.monotonic``), or None."""
        started: int = _STARTED.unpack_from(self._page, 0)[0]
        if not started:
            return None
        name = bytes(self._page[_NAME_AT:SIZE]).rstrip(b"\0").decode("ascii", "replace")
        return name, started / 1e9

    def close(self) -> None:
        """Give the page back."""
        self._page.close()
