"""What holds in the simulated cluster whatever is done to it, and that a seed repeats it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from domain.errors import KintsugiError
from domain.nodes import NodeRef
from domain.operations import OperationKind, OperationRequest
from domain.scheduling import Mark
from domain.workloads import SavedWork, SaveMethod
from simulator import gangs, injection, life, scheduling
from simulator.faults import FaultKind, Injection
from simulator.jobs import JobState
from simulator.machine import Phase
from simulator.node_work import NodeWork
from simulator.scenarios import training_job
from simulator.states import ViolationKind, WorldState
from simulator.view import state_of
from simulator.world import Layout, World

NODES = ("gpu-01", "gpu-02", "gpu-03", "gpu-04", "gpu-05", "spare-01")


class Monkey:
    """Does anything to a small cluster, in any order; what is refused is refused."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.world = World(Layout(nodes=5, spares=1, gpus=2), seed=11)
        self.work = NodeWork(self.world)
        gangs.submit(self.world, training_job(3, 2))
        self.deeds: list[Callable[[NodeRef, Mark], object]] = [
            self.inject,
            self.operate,
            self.resume,
            lambda node, mark: scheduling.quarantine(self.world, node, mark),
            lambda node, mark: scheduling.begin_drain(self.world, node, mark),
            lambda node, mark: scheduling.release(self.world, node, mark),
            lambda node, mark: scheduling.lease_spare(self.world, node, mark.repair_id),
            lambda node, mark: scheduling.return_spare(self.world, node, mark.repair_id),
            lambda node, mark: life.power_cycle(self.world, self.world.at(node), self.token()),
            lambda node, mark: life.power_off(self.world, self.world.at(node), self.token()),
            lambda node, mark: life.reprovision(self.world, self.world.at(node), self.token()),
            lambda node, mark: life.replace(self.world, self.world.at(node), self.token()),
            lambda node, mark: injection.clear(self.world, node.name, self.random.choice(list(FaultKind))),
            lambda node, mark: scheduling.hold(self.world, node.name, "alice", ""),
            lambda node, mark: scheduling.unhold(self.world, node.name, "alice"),
        ]

    def token(self) -> str:
        return str(self.random.randrange(5))

    def inject(self, node: NodeRef, mark: Mark) -> None:
        kind = self.random.choice(list(FaultKind))
        injection.inject(self.world, Injection(node=node.name, kind=kind, gpu=self.random.randrange(2)))

    def operate(self, node: NodeRef, mark: Mark) -> None:
        kind = self.random.choice(list(OperationKind))
        request = OperationRequest(operation_id=f"{kind}-{self.token()}", kind=kind, workload_id="train-1")
        self.work.start(node.name, request)

    def resume(self, node: NodeRef, mark: Mark) -> None:
        job = self.world.jobs["train-1"]
        workload = scheduling._workload(self.world, job)
        image = self.random.choice(["", *job.images])
        saved = SavedWork(workload=workload, method=SaveMethod.NONE, image=image)
        scheduling.resume_workload(self.world, saved, node, self.random.choice(["", "spare-01", "gpu-05"]))

    def act(self) -> None:
        node = NodeRef(cluster="local", pool="h100", name=self.random.choice(NODES))
        mark = Mark(repair_id=f"repair/local/{node.name}/{self.random.randrange(2)}", reason="kintsugi: test")
        with suppress(KintsugiError):
            self.random.choice(self.deeds)(node, mark)
        self.world.advance(self.random.choice([0, 0.1, 1, 5, 30]))


def check(world: World, before: WorldState, after: WorldState) -> None:
    job, was = after.job("train-1"), before.job("train-1")
    again = job.starts + job.crashes > was.starts + was.crashes
    if not again and job.state not in (JobState.PENDING, JobState.STARTING):
        assert job.step >= was.step, "steps go back only at a start"
    if again:
        assert job.started_from_step <= max(was.step, was.own_checkpoint, job.step)
    latest = [rank for rank in world.ranks if rank.start == job.starts]
    earlier = [rank for rank in world.ranks if rank.start < job.starts]
    assert len({rank.node for rank in latest}) == len(latest)
    if latest and earlier:
        assert any(violation.kind is ViolationKind.TWO_COPIES for violation in after.violations)
    for machine in world.machines.values():
        if machine.phase in (Phase.OFF, Phase.BOOTING, Phase.STUCK):
            assert not world.ranks_on(machine), "nothing runs without power"
        held = [uuid for rank in world.ranks_on(machine) for uuid in rank.gpu_uuids]
        assert len(held) == len(set(held)), "a GPU has one owner"
        assert [line.sequence for line in machine.kernel] == list(range(len(machine.kernel)))
    if job.steps_per_second > 0:
        assert len(latest) == len(job.nodes)
        assert all(world.machines[rank.node].responsive for rank in latest)
    uuids = [uuid for node in after.nodes for uuid in node.gpu_uuids]
    assert len(set(uuids)) == len(uuids)


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_invariants_hold_whatever_is_done(random: Random) -> None:
    monkey = Monkey(random)
    before = state_of(monkey.world)
    for _ in range(60):
        monkey.act()
        after = state_of(monkey.world)
        check(monkey.world, before, after)
        before = after


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32))
def test_the_same_seed_and_the_same_calls_give_the_same_world(seed: int) -> None:
    twins = [Monkey(Random(seed)) for _ in range(2)]
    for monkey in twins:
        for _ in range(80):
            monkey.act()
    assert state_of(twins[0].world) == state_of(twins[1].world)


def test_another_seed_gives_other_hardware() -> None:
    assert state_of(World(seed=1)).nodes[0].gpu_uuids != state_of(World(seed=2)).nodes[0].gpu_uuids


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 7), min_size=1, max_size=30))
def test_how_time_is_cut_does_not_matter(pieces: list[float]) -> None:
    worlds = World(seed=5), World(seed=5)
    for world in worlds:
        gangs.submit(world, training_job())
        injection.inject(world, Injection(node="gpu-02", kind=FaultKind.THERMAL, after=3, clears_after=9))
        injection.inject(world, Injection(node="gpu-03", kind=FaultKind.APPLICATION_XID, after=20))
    for piece in pieces:
        worlds[0].advance(piece)
    worlds[1].advance_to(worlds[0].now)
    assert state_of(worlds[0]) == state_of(worlds[1])
