"""Where the demonstration's people are told: a web hook on the loopback, as a chat service would offer one."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cli.ports import LOOPBACK

MAX_BYTES = 64 * 1024


class Inbox:
    """Collects notices. ``url`` is in Apprise's notation."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self._server = ThreadingHTTPServer((LOOPBACK, 0), _handler(self.notices))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        self.url = f"json://{LOOPBACK}:{self._server.server_address[1]}/"

    def open(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(timeout=5)
        self._server.server_close()


def _handler(notices: list[str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = min(int(self.headers.get("Content-Length") or 0), MAX_BYTES)
            try:
                told = json.loads(self.rfile.read(size))
                notices.append(f"{told.get('title', '')}: {told.get('message', '')}")
                status = 200
            except (ValueError, AttributeError):
                status = 400
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: the screen belongs to the picture."""

    return Handler
