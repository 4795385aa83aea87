from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pydantic import SecretStr

from adapters.notify import AppriseNotifier
from domain.errors import PermanentError, TransientError
from domain.ledger import Notice

# Apprise's plugins import it when the first URL is added.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

NOTICE = Notice(notice_id="n/1", audience="operators", title="gpu-3 waits for you", body="reboot?", urgent=True)


class Hook:
    """A web hook that remembers what it was told and answers what it is set to."""

    def __init__(self) -> None:
        self.told: list[dict[str, str]] = []
        self.status = 200
        self.port = 0


@contextmanager
def hook() -> Iterator[Hook]:
    state = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if state.status == 200:
                state.told.append(body)
            self.send_response(state.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


async def test_people_read_title_and_body() -> None:
    with hook() as place:
        await AppriseNotifier([SecretStr(f"json://127.0.0.1:{place.port}/")]).tell(NOTICE)

    assert [(told["title"], told["message"], told["type"]) for told in place.told] == [
        ("gpu-3 waits for you", "reboot?", "warning")
    ]


async def test_without_urls_the_log_tells(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await AppriseNotifier().tell(NOTICE)

    assert "gpu-3 waits for you: reboot?" in caplog.text


async def test_failing_to_reach_one_is_transient_and_a_repeat_goes_only_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with hook() as good, hook() as bad, caplog.at_level(logging.DEBUG):
        bad.status = 500
        notifier = AppriseNotifier([f"json://127.0.0.1:{good.port}/hunter2/", f"json://127.0.0.1:{bad.port}/hunter2/"])
        with pytest.raises(TransientError, match=r"notify_urls\[1\] \(json\)"):
            await notifier.tell(NOTICE)
        assert (len(good.told), len(bad.told)) == (1, 0)

        bad.status = 200
        await notifier.tell(NOTICE)
        await notifier.tell(NOTICE)
        assert (len(good.told), len(bad.told)) == (1, 1)
    assert "hunter2" not in caplog.text


async def test_nobody_listening_is_transient() -> None:
    with hook() as place:
        pass
    with pytest.raises(TransientError):
        await AppriseNotifier([f"json://127.0.0.1:{place.port}/"]).tell(NOTICE)


@pytest.mark.parametrize("url", ["nonsense", "nosuch://hunter2@host/token", ""])
def test_a_url_that_nobody_understands_is_named_by_its_place_and_not_shown(url: str) -> None:
    with pytest.raises(PermanentError) as caught:
        AppriseNotifier(["json://127.0.0.1/", SecretStr(url)])

    assert "notify_urls[1]" in str(caught.value)
    assert "hunter2" not in str(caught.value)
