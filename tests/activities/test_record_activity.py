from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from activities.record import TELLING_ATTEMPTS, RecordActivities, RecordInput
from adapters.ledger import SqliteLedger
from domain.errors import PermanentError, TransientError
from domain.ledger import Notice

PAGE = Notice(notice_id="1", audience="operators", title="gpu-3 waits for you", body="approve it", urgent=True)
NEWS = Notice(notice_id="2", audience="operators", title="gpu-3 is back", body="")


class Pager:
    """Tells what it can, each notice once."""

    def __init__(self, failures: int, error: type[Exception] = TransientError) -> None:
        self.failures = failures
        self.error = error
        self.told: list[str] = []

    async def tell(self, notice: Notice) -> None:
        if notice is PAGE and self.failures:
            self.failures -= 1
            raise self.error("the pager is away")
        if notice.notice_id not in self.told:
            self.told.append(notice.notice_id)


async def attempts(pager: Pager, path: Path, most: int) -> int:
    """Record as Temporal does, again after each error; return how many attempts it took."""
    record = RecordActivities(SqliteLedger(path), pager).record
    for attempt in range(1, most + 1):
        environment = ActivityEnvironment()
        environment.info = replace(environment.info, attempt=attempt)
        try:
            await environment.run(record, RecordInput(notices=(PAGE, NEWS)))
        except TransientError:
            continue
        return attempt
    raise AssertionError("never ended")


async def test_a_page_is_told_although_the_pager_hiccuped(tmp_path: Path) -> None:
    pager = Pager(failures=2)

    assert await attempts(pager, tmp_path / "ledger.db", 10) == 3
    assert sorted(pager.told) == ["1", "2"]


async def test_a_pager_that_stays_away_does_not_hold_the_record_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pager = Pager(failures=1000)

    with caplog.at_level(logging.ERROR):
        assert await attempts(pager, tmp_path / "ledger.db", 20) == TELLING_ATTEMPTS + 1
    assert pager.told == ["2"]
    assert "could not tell operators 'gpu-3 waits for you'" in caplog.text


async def test_what_can_never_be_told_is_not_tried_again(tmp_path: Path) -> None:
    assert await attempts(Pager(failures=1000, error=PermanentError), tmp_path / "ledger.db", 20) == 1


async def test_one_notice_does_not_wait_for_another(tmp_path: Path) -> None:
    class Slow(Pager):
        async def tell(self, notice: Notice) -> None:
            if notice is PAGE:
                async with asyncio.timeout(30):
                    while "2" not in self.told:  # noqa: ASYNC110 - the other notice has no event
                        await asyncio.sleep(0.01)
            await super().tell(notice)

    pager = Slow(failures=0)
    assert await attempts(pager, tmp_path / "ledger.db", 1) == 1
    assert pager.told == ["2", "1"]
