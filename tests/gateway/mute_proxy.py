"""A TCP proxy that can keep the server's answers from the client."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class MuteProxy:
    """Stands before a server on loopback. While ``mute``, requests arrive and their answers vanish.

    Attributes:
        port: where clients connect.
        swallowed: bytes of answers that vanished.
    """

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._listener: asyncio.Server | None = None
        self.mute = False
        self.swallowed = 0
        self.port = 0

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    def hang_up(self) -> None:
        """Break all connections: after answers vanished, what follows would make no sense."""
        for writer in self._writers:
            writer.close()

    async def stop(self) -> None:
        self.hang_up()
        if self._listener is not None:
            self._listener.close()
            await self._listener.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._writers |= {writer, server_writer}
        await asyncio.gather(
            self._pump(reader, server_writer, answers=False), self._pump(server_reader, writer, answers=True)
        )
        self._writers -= {writer, server_writer}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if answers and self.mute:
                    self.swallowed += len(data)
                    continue
                writer.write(data)
                await writer.drain()
        writer.close()
