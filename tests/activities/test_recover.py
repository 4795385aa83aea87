"""Recovery of several workloads: none of them holds up the others, and a second attempt starts nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from activities import recover
from activities.recover import RecoverActivities, RecoverInput, RecoverResult
from adapters.standalone import NoPower, StandaloneScheduler
from domain.errors import AmbiguousError, KintsugiError, PermanentError, TransientError
from domain.nodes import NodeRef
from domain.workloads import SavedWork, SaveMethod, Workload, WorkloadStatus

BAD = NodeRef(cluster="c", pool="p", name="gpu-0")
SPARE = "spare-0"


class Cluster(StandaloneScheduler):
    """Two workloads can be started again: one on the spare, others on gpu-9 when they are requeued."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.not_proven: set[str] = set()
        self.refused: set[str] = set()
        self.where: dict[str, str] = {}
        self.steps: dict[str, int] = {}
        self.starts: list[tuple[str, str]] = []
        self.trouble: list[KintsugiError] = []
        self.lost_answers = 0
        self.status_unknown = False

    async def confirm_stopped(self, node: NodeRef, workload_id: str) -> bool:
        return workload_id not in self.not_proven

    async def resume_workload(self, saved: SavedWork, away_from: NodeRef, spare: str) -> WorkloadStatus:
        if self.trouble:
            raise self.trouble.pop()
        name = saved.workload.id
        if name in self.refused or (spare and spare in self.where.values() and self.where.get(name) != spare):
            raise PermanentError(f"{spare or 'the queue'} does not take {name}")
        if self.where.get(name) != (spare or "gpu-9"):
            self.where[name] = spare or "gpu-9"
            self.steps[name] = 10
            self.starts.append((name, self.where[name]))
        if self.lost_answers:
            self.lost_answers -= 1
            raise AmbiguousError("the answer was lost")
        return await self.workload_status(away_from.cluster, name)

    async def workload_status(self, cluster: str, workload_id: str) -> WorkloadStatus:
        if workload_id not in self.where or self.status_unknown:
            raise PermanentError(f"no {workload_id}")
        self.steps[workload_id] += 1
        return WorkloadStatus(
            id=workload_id, running=True, nodes=(self.where[workload_id],), step=self.steps[workload_id]
        )


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(recover, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(recover, "RETRY_SECONDS", 0.01)
    return Cluster(tmp_path / "marks.db")


def saved(*names: str) -> tuple[SavedWork, ...]:
    return tuple(
        SavedWork(workload=Workload(id=name, nodes=("gpu-0",), gpus_per_node=1), method=SaveMethod.NONE, step=10)
        for name in names
    )


async def recovered(
    cluster: Cluster,
    *names: str,
    spare: str = SPARE,
    deadline: float = 5.0,
    on_heartbeat: Callable[..., None] = lambda *_: None,
    attempt: int = 1,
    scheduled_ago: float = 0.0,
) -> RecoverResult:
    environment = ActivityEnvironment()
    environment.on_heartbeat = on_heartbeat
    environment.info = replace(
        environment.info,
        attempt=attempt,
        scheduled_time=datetime.now(UTC) - timedelta(seconds=scheduled_ago),
        schedule_to_close_timeout=timedelta(seconds=60),
    )
    order = RecoverInput(node=BAD, saved=saved(*names), spare=spare, deadline_seconds=deadline)
    return await environment.run(RecoverActivities(cluster, NoPower()).recover, order)


async def test_the_second_workload_is_requeued_when_the_first_has_taken_the_spare(cluster: Cluster) -> None:
    first, second = (await recovered(cluster, "one", "two")).moved

    assert (first.spare, first.running) == (SPARE, True)
    assert (second.spare, second.running) == ("", True)
    assert "spare-0 does not take two" in second.detail
    assert cluster.where == {"one": SPARE, "two": "gpu-9"}


async def test_a_workload_that_nothing_starts_comes_out_as_not_running_and_says_what_to_do(cluster: Cluster) -> None:
    cluster.refused = {"one"}

    first, second = (await recovered(cluster, "one", "two")).moved

    assert (first.spare, first.running) == ("", False)
    assert "one does NOT run" in first.detail
    assert "Start it yourself" in first.detail
    assert (second.spare, second.running) == (SPARE, True)


async def test_a_workload_that_is_not_proven_stopped_is_not_started_and_holds_up_no_other(cluster: Cluster) -> None:
    cluster.not_proven = {"one"}

    first, second = (await recovered(cluster, "one", "two")).moved

    assert (first.spare, first.running) == ("", False)
    assert "nothing proves that it has stopped on gpu-0" in first.detail
    assert (second.spare, second.running) == (SPARE, True)
    assert cluster.starts == [("two", SPARE)]


async def test_a_scheduler_that_is_away_is_asked_again_within_the_deadline(cluster: Cluster) -> None:
    cluster.trouble = [TransientError("away"), TransientError("away")]
    said: list[str] = []

    (moved,) = (await recovered(cluster, "one", on_heartbeat=lambda beat: said.append(beat.message))).moved

    assert (moved.spare, moved.running) == (SPARE, True)
    assert "one: asking again: away" in said


async def test_a_scheduler_that_stays_away_costs_one_workload_and_not_the_others(cluster: Cluster) -> None:
    cluster.trouble = [TransientError("away")]

    first, second = (await recovered(cluster, "one", "two", deadline=0.0)).moved

    assert (first.spare, first.running) == ("", False)
    assert "away" in first.detail
    assert second.spare == SPARE
    assert cluster.starts == [("two", SPARE)]


async def test_a_start_whose_answer_was_lost_is_looked_for_before_it_is_asked_for_again(cluster: Cluster) -> None:
    cluster.lost_answers = 1

    (moved,) = (await recovered(cluster, "one")).moved

    assert (moved.spare, moved.running) == (SPARE, True)
    assert cluster.starts == [("one", SPARE)]


async def test_a_start_that_nobody_can_look_at_keeps_the_spare(cluster: Cluster) -> None:
    cluster.lost_answers = 1
    cluster.status_unknown = True

    (moved,) = (await recovered(cluster, "one", deadline=0.0)).moved

    assert (moved.spare, moved.running) == (SPARE, False)
    assert "nobody knows" in moved.detail


async def test_a_second_attempt_starts_nothing_again_even_when_the_spare_is_free_by_then(cluster: Cluster) -> None:
    await recovered(cluster, "one", "two")
    before = list(cluster.starts)
    del cluster.where["one"]

    (second,) = (await recovered(cluster, "two", attempt=2)).moved

    assert cluster.starts == before
    assert (second.spare, second.running) == ("", True)


async def test_a_late_attempt_reports_before_its_time_is_over(cluster: Cluster) -> None:
    cluster.trouble = [TransientError("away")] * 1000

    (moved,) = (await recovered(cluster, "one", deadline=600.0, attempt=2, scheduled_ago=49.9)).moved

    assert not moved.running
