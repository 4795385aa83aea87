from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from adapters.standalone import NoPower, NoProvisioner, StandaloneScheduler
from domain.errors import NotOursError, PermanentError, UnsupportedError
from domain.nodes import NodeRef
from domain.scheduling import DrainProgress, DrainRequest, Mark
from domain.workloads import SavedWork, SaveMethod, Workload

NODE = NodeRef(cluster="c", pool="p", name="gpu-0")
MARK = Mark(repair_id="repair/c/gpu-0/1", reason="kintsugi: [gpu.missing] gpu/1")
LATER = Mark(repair_id="repair/c/gpu-0/2", reason="kintsugi: [gpu.missing] gpu/2")


def remove_by_hand(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM marks")


@pytest.fixture
def scheduler(tmp_path: Path) -> StandaloneScheduler:
    return StandaloneScheduler(tmp_path / "below" / "marks.db")


async def test_a_quarantine_survives_a_restart_and_is_released_once(
    scheduler: StandaloneScheduler, tmp_path: Path
) -> None:
    for _ in range(2):
        state = await scheduler.quarantine(NODE, MARK)
        assert (state.schedulable, state.our_mark, state.foreign_holds) == (False, MARK, ())

    again = StandaloneScheduler(tmp_path / "below" / "marks.db")
    assert (await again.scheduling_state(NODE)).our_mark == MARK
    other = NODE.model_copy(update={"name": "gpu-1"})
    assert (await again.scheduling_state(other)).schedulable

    assert (await again.release(NODE, MARK)).schedulable


async def test_a_release_whose_answer_was_lost_is_asked_for_again_and_has_happened(
    scheduler: StandaloneScheduler, tmp_path: Path
) -> None:
    await scheduler.quarantine(NODE, MARK)
    await scheduler.release(NODE, MARK)

    again = StandaloneScheduler(tmp_path / "below" / "marks.db")
    assert (await again.release(NODE, MARK)).schedulable
    with pytest.raises(NotOursError, match="no longer carries"):
        await again.release(NODE, LATER)


async def test_a_mark_that_somebody_else_removed_is_not_ours_to_release(
    scheduler: StandaloneScheduler, tmp_path: Path
) -> None:
    await scheduler.quarantine(NODE, MARK)
    await scheduler.release(NODE, MARK)
    await scheduler.quarantine(NODE, MARK)
    remove_by_hand(tmp_path / "below" / "marks.db")

    with pytest.raises(NotOursError, match="no longer carries"):
        await scheduler.release(NODE, MARK)


async def test_a_mark_that_an_earlier_repair_left_stays(scheduler: StandaloneScheduler) -> None:
    await scheduler.quarantine(NODE, MARK)

    state = await scheduler.quarantine(NODE, LATER)
    assert state.our_mark == LATER
    assert len(state.foreign_holds) == 1
    assert MARK.repair_id in state.foreign_holds[0]
    assert (await scheduler.scheduling_state(NODE)).our_mark == LATER

    after = await scheduler.release(NODE, LATER)
    assert not after.schedulable, "the earlier mark is a person's to lift"
    assert not (await scheduler.release(NODE, LATER)).schedulable


async def test_a_drain_is_done_at_once_but_only_under_our_mark(scheduler: StandaloneScheduler) -> None:
    request = DrainRequest(mark=MARK)
    with pytest.raises(NotOursError):
        [progress async for progress in scheduler.drain(NODE, request)]

    await scheduler.quarantine(NODE, MARK)
    assert [progress async for progress in scheduler.drain(NODE, request)] == [DrainProgress(done=True)]
    assert list(await scheduler.workloads(NODE)) == []


async def test_what_nobody_can_do_says_what_to_configure(scheduler: StandaloneScheduler) -> None:
    saved = SavedWork(workload=Workload(id="job-1"), method=SaveMethod.NONE)
    assert list(await scheduler.spares("c", "p")) == []
    assert await scheduler.confirm_stopped(NODE, "job-1") is False
    with pytest.raises(UnsupportedError, match="KINTSUGI_WORKER_SCHEDULER"):
        await scheduler.resume_workload(saved, NODE, "")
    with pytest.raises(UnsupportedError):
        await scheduler.lease_spare(NODE, MARK.repair_id)
    with pytest.raises(UnsupportedError):
        await scheduler.capacity(NODE)
    await scheduler.return_spare(NODE, MARK.repair_id)


async def test_no_power_and_no_provisioner_say_what_to_do_by_hand() -> None:
    assert await NoPower().is_off(NODE) is False
    for call in (NoPower().power_cycle(NODE, "t"), NoPower().fence(NODE, "t"), NoProvisioner().reprovision(NODE, "t")):
        with pytest.raises(UnsupportedError, match="by hand"):
            await call
    with pytest.raises(UnsupportedError, match="replaced"):
        await NoProvisioner().replace(NODE, "t", "evidence")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "marks.db"
    path.write_bytes(b"not a database, certainly not one" * 100)
    with pytest.raises(PermanentError, match="marks"):
        StandaloneScheduler(path)
