"""The demonstration's course: wait for the cluster, strike, watch, answer, judge."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import quote

from temporalio.service import RPCError

from cli import lookup
from cli.answers_commands import tell
from cli.demo import summary
from cli.demo.expectations import EXPECTATIONS, Ending, Expectation, objections
from cli.demo.picture import Picture
from cli.demo.screen import Screen
from cli.demo.stage import CLUSTER, NODES, POOL, SPARES, Stage
from cli.errors import CouldNotError, RefusedError
from cli.terminal import console
from domain.errors import KintsugiError
from domain.pool import NodeHealth, PoolView
from domain.repair import Abort, Approve, Reject, RepairState, StepProgress, Wait
from simulator.jobs import JobState
from simulator.scenarios import VICTIM, Scenario
from simulator.states import JobView, WorldState
from workflows.ids import repair_workflow_id

WHO = "demo"
STEPS_AT_STAKE = 4
"""Steps since its own checkpoint that the job stands to lose when the fault strikes."""
LOOK_SECONDS = 0.4
"""Pause between two looks, in seconds."""
ANSWER_AFTER_SECONDS = 8.0
"""How long the demonstration lets a question stand before it answers by itself, in seconds."""
ALL_SEEN_SECONDS = 90.0
"""How long the agents may take until the pool knows them all, in seconds."""
QUIET_SECONDS = 6.0
"""How long nothing must have happened for "nothing happened" to be believed, in seconds."""
SETTLE_SECONDS = 20.0
"""How long the job may take to run again after the repair is over, in seconds."""


class Story:
    """One scenario from beginning to end.

    Attributes:
        held: whether the scenario's expectation held; None until it is over.
    """

    def __init__(self, stage: Stage, scenario: Scenario, interactive: bool, screen: Screen) -> None:
        self._stage = stage
        self._scenario = scenario
        self._expectation = EXPECTATIONS.get(scenario.name, Expectation())
        self._interactive = interactive
        self._screen = screen
        self._repair_id = repair_workflow_id(CLUSTER, VICTIM, 1)
        self._asked_since: tuple[tuple[object, ...], float] | None = None
        self._waited = 0.0
        self._last_look = 0.0
        self.held: bool | None = None

    async def play(self) -> bool:
        """Play it; return whether the scenario's expectation held."""
        await self._all_seen()
        await self._job_under_way()
        before = await self._stage.world.state()
        self._screen.note(f"fault: {self._scenario.title}")
        injected_at = datetime.now(UTC)
        for fault in self._scenario.faults:
            await self._stage.world.inject(fault)
        late = await self._watch()
        ending = await self._ending(before)
        self._screen.close()
        against = [*late, *objections(self._expectation, ending)]
        summary.show(console(), ending, injected_at, self._waited, against)
        self.held = not against
        return self.held

    async def _all_seen(self) -> None:
        wanted = NODES + SPARES
        said = -1
        try:
            async with asyncio.timeout(ALL_SEEN_SECONDS):
                while True:
                    view = await self._pool()
                    healthy = [node for node in view.nodes if node.health is NodeHealth.HEALTHY] if view else []
                    if len(healthy) != said:
                        said = len(healthy)
                        self._screen.note(f"{said} of {wanted} nodes have reported")
                    if said >= wanted:
                        return
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise CouldNotError(
                f"only {said} of {wanted} nodes reported within {ALL_SEEN_SECONDS:.0f} s; see the logs in"
                f" {self._stage.directory} (--keep keeps them)"
            ) from None

    async def _job_under_way(self) -> None:
        """Wait until the job is some steps beyond a checkpoint of its own: what it goes on from, and what it loses."""
        try:
            async with asyncio.timeout(ALL_SEEN_SECONDS):
                while True:
                    world = await self._world()
                    jobs = world.jobs if world is not None else ()
                    if jobs and all(_beyond_a_checkpoint(job) for job in jobs):
                        self._screen.note(f"{jobs[0].name} runs on {', '.join(jobs[0].nodes)}, step {jobs[0].step}")
                        return
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise CouldNotError(f"the training job does not run; see {self._stage.directory}/simulator.log") from None

    async def _watch(self) -> list[str]:
        """Show and answer until it is over; return what is to be said against how long it took."""
        loop = asyncio.get_running_loop()
        began = self._last_look = loop.time()
        told_at: float | None = None
        while True:
            picture = await self._look()
            self._screen.show(picture)
            if picture.told and told_at is None:
                told_at = loop.time()
            if picture.repair is not None:
                await self._answer(picture.repair)
                if picture.repair.outcome is not None:
                    return []
            elif not self._expectation.repaired and told_at is not None and loop.time() - told_at > QUIET_SECONDS:
                return []
            if not self._interactive and loop.time() - began > self._expectation.patience_seconds:
                return [f"it was not over within {self._expectation.patience_seconds:.0f} s"]
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> Picture:
        world, pool, repair, progress = await asyncio.gather(
            self._world(), self._pool(), self._repair(), self._progress()
        )
        link = self._stage.web_ui
        if repair is not None:
            link += f"/namespaces/default/workflows/{quote(self._repair_id, safe='')}"
        return Picture(
            scenario=self._scenario,
            link=link,
            address=self._stage.temporal,
            now=datetime.now(UTC),
            repair=repair,
            progress=progress,
            world=world,
            pool=pool,
            told=tuple(self._stage.inbox.notices),
            answers_in=self._answers_in(repair),
        )

    # What is away for a moment is left out of the picture; it comes back or the story runs out of time.

    async def _world(self) -> WorldState | None:
        try:
            return await self._stage.world.state()
        except KintsugiError:
            return None

    async def _pool(self) -> PoolView | None:
        try:
            return await lookup.get_pool(self._stage.client, CLUSTER, POOL)
        except RPCError:
            return None

    async def _repair(self) -> RepairState | None:
        try:
            return (await lookup.get_repair(self._stage.client, self._repair_id)).state
        except RPCError:
            return None

    async def _progress(self) -> Sequence[StepProgress]:
        return await lookup.progress(self._stage.client, self._repair_id)

    def _answers_in(self, repair: RepairState | None) -> float | None:
        """Return how long a question still stands, and count how long people were waited for."""
        now = asyncio.get_running_loop().time()
        since_last, self._last_look = now - self._last_look, now
        wait = repair.wait if repair is not None and repair.outcome is None else None
        if wait is None:
            self._asked_since = None
            return None
        self._waited += since_last
        key = (wait.step_id, wait.digest, wait.override_only, wait.approved_by)
        if self._asked_since is None or self._asked_since[0] != key:
            self._asked_since = (key, now)
        return None if self._interactive else max(self._asked_since[1] + ANSWER_AFTER_SECONDS - now, 0.0)

    async def _answer(self, repair: RepairState) -> None:
        wait = repair.wait
        if self._interactive or wait is None or repair.outcome is not None or self._asked_since is None:
            return
        if asyncio.get_running_loop().time() - self._asked_since[1] < ANSWER_AFTER_SECONDS:
            return
        try:
            await self._say(wait)
        except (RefusedError, CouldNotError) as error:
            # The plan changed in between, or a worker was away: the next look asks again.
            self._screen.note(f"the answer did not apply: {error}")

    async def _say(self, wait: Wait) -> None:
        client = self._stage.client
        if wait.override_only:
            answer = await tell(client, self._repair_id, "abort", Abort(by=WHO, reason="the demonstration ends here"))
        elif self._expectation.says_no:
            said = Reject(by=WHO, step=wait.step_id, reason="not during working hours")
            answer = await tell(client, self._repair_id, "reject", said)
        else:
            approval = Approve(by=WHO, step=wait.step_id, digest=wait.digest, reason="nobody else answered")
            answer = await tell(client, self._repair_id, "approve", approval)
        self._asked_since = None
        self._screen.note(f"{WHO} answers: {answer.message}")

    async def _ending(self, before: WorldState) -> Ending:
        """Return how it ended, once the job runs again (or has had its time to)."""
        loop = asyncio.get_running_loop()
        until = loop.time() + SETTLE_SECONDS
        while True:
            picture = await self._look()
            self._screen.show(picture)
            world = picture.world
            running = world is not None and all(job.state is JobState.RUNNING for job in world.jobs)
            if world is not None and (running or loop.time() > until):
                return Ending(before=before, after=world, repair=picture.repair, told=picture.told)
            if loop.time() > until:
                raise CouldNotError("the simulated world does not answer any more; see its log (--keep keeps it)")
            await asyncio.sleep(LOOK_SECONDS)


def _beyond_a_checkpoint(job: JobView) -> bool:
    return job.state is JobState.RUNNING and 0 < job.own_checkpoint <= job.step - STEPS_AT_STAKE
