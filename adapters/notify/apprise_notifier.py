"""Telling people through Apprise: chat, mail, pagers, each named by one URL."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import apprise
from pydantic import SecretStr

from domain.errors import PermanentError, TransientError
from domain.ledger import Notice

log = logging.getLogger(__name__)

REMEMBERED = 2000
"""Deliveries remembered, so that a repeated notice reaches each place once."""

DEADLINE_SECONDS = 20.0
"""How long one place may take to accept a notice, in seconds."""

# They log the addresses that they post to, and an address is the secret of most of these services.
for _talkative in ("apprise", "urllib3", "requests", "httpx"):
    logging.getLogger(_talkative).setLevel(logging.CRITICAL + 1)


@dataclass(frozen=True)
class _Place:
    """One URL. ``label`` is what may be said about it: its position and its scheme, never the URL."""

    label: str
    sender: apprise.Apprise


class AppriseNotifier:
    """Port ``Notifier``. Without URLs, notices go to the log alone."""

    def __init__(self, urls: Sequence[SecretStr | str] = ()) -> None:
        """Check the URLs.

        Raises:
            PermanentError: Apprise understands one of them not; the text names its position, not the URL.
        """
        self._places = tuple(_place(number, url) for number, url in enumerate(urls))
        self._delivered: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def tell(self, notice: Notice) -> None:
        """Tell people, each place once for a ``notice_id``.

        Raises:
            TransientError: at least one place did not accept it; a repeat goes only to those.
        """
        level = logging.WARNING if notice.urgent else logging.INFO
        log.log(level, "%s: %s", notice.title, notice.body, extra={"audience": notice.audience})
        open_places = [place for place in self._places if (notice.notice_id, place.label) not in self._delivered]
        accepted = await asyncio.gather(*(_send(place, notice) for place in open_places))
        for place, told in zip(open_places, accepted, strict=True):
            if told:
                self._remember((notice.notice_id, place.label))
        missed = [place.label for place, told in zip(open_places, accepted, strict=True) if not told]
        if missed:
            raise TransientError(f"could not tell {', '.join(missed)}: {notice.title}")

    def _remember(self, delivery: tuple[str, str]) -> None:
        self._delivered[delivery] = None
        while len(self._delivered) > REMEMBERED:
            self._delivered.popitem(last=False)


def _place(number: int, url: SecretStr | str) -> _Place:
    text = url.get_secret_value() if isinstance(url, SecretStr) else url
    sender = apprise.Apprise()
    if not sender.add(text):
        raise PermanentError(
            f"notify_urls[{number}] is no URL that Apprise understands (scheme {_scheme(text)!r});"
            " its documentation lists them"
        )
    return _Place(label=f"notify_urls[{number}] ({_scheme(text)})", sender=sender)


def _scheme(url: str) -> str:
    scheme, found, _rest = url.partition("://")
    return scheme if found and scheme.isalnum() else "?"


async def _send(place: _Place, notice: Notice) -> bool:
    kind = apprise.NotifyType.WARNING if notice.urgent else apprise.NotifyType.INFO
    audience = "" if notice.audience == "operators" else f"\n\nFor: {notice.audience}"
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return bool(
                await place.sender.async_notify(
                    title=notice.title, body=(notice.body or notice.title) + audience, notify_type=kind
                )
            )
    except Exception as error:
        # Every plugin has errors of its own, whose texts may carry the address.
        log.warning("%s failed: %s", place.label, type(error).__name__)
        return False
