"""A deterministic model of a GPU cluster. Pure: it has no clock but the one it is moved by, and a seeded random.

The rest of the room acts on it: ``life`` (power and boots), ``gangs`` (work), ``injection`` (faults),
``scheduling`` (what a scheduler offers), ``node_work`` (what a node's agent can do).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

from domain.errors import PermanentError
from domain.nodes import NodeRef
from simulator.jobs import Job, JobState, Rank
from simulator.kernel_text import BOOT_LINES, FACILITY_KERNEL, LEVEL_INFO
from simulator.machine import KernelLine, Machine, new_gpus, new_uuid
from simulator.states import Violation, ViolationKind
from simulator.timing import Timing

NODES_PER_RACK = 4
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Layout:
    """What a world starts with.

    Attributes:
        nodes: named ``gpu-01`` and so on; spares ``spare-01`` and so on.
    """

    cluster: str = "local"
    pool: str = "h100"
    nodes: int = 8
    spares: int = 1
    gpus: int = 8


@dataclass(order=True)
class Timer:
    """Something that happens at a simulated time; equal times in the order of setting."""

    due: float
    order: int
    action: Callable[[], None] = field(compare=False)


class World:
    """The cluster as it really is.

    Args:
        began: calendar time at simulated second 0.
        speed: simulated seconds in a second of the calendar, for the times on kernel records.
    """

    def __init__(
        self,
        layout: Layout | None = None,
        *,
        seed: int = 1,
        timing: Timing | None = None,
        began: datetime = BEGINNING,
        speed: float = 1.0,
    ) -> None:
        self.layout = layout or Layout()
        self.timing = timing or Timing()
        self.random = Random(seed)
        self.now = 0.0
        self.version = 0
        self.violations: list[Violation] = []
        self.jobs: dict[str, Job] = {}
        self.ranks: list[Rank] = []
        self.counter = 0
        self._began = began
        self._speed = speed
        self._timers: list[Timer] = []
        self.machines: dict[str, Machine] = {}
        self.spares_wanted = self.layout.spares
        for index in range(self.layout.nodes + self.layout.spares):
            machine = self._new_machine(index)
            self.machines[machine.name] = machine

    def _new_machine(self, index: int) -> Machine:
        spare = index >= self.layout.nodes
        name = f"spare-{index - self.layout.nodes + 1:02d}" if spare else f"gpu-{index + 1:02d}"
        rack = index // NODES_PER_RACK + 1
        machine = Machine(
            name=name,
            gpus=new_gpus(self.random, self.layout.gpus),
            topology={"rack": f"rack-{rack}", "leaf": f"leaf-{rack}"},
            boot_id=new_uuid(self.random),
            machine_id=new_uuid(self.random),
            disk_id=new_uuid(self.random),
            spare=spare,
        )
        for line in BOOT_LINES:
            self.log(machine, line, level=LEVEL_INFO)
        return machine

    def next_number(self) -> int:
        """Return 1, 2, 3 …: process ids, tickets and the like, in the order of asking."""
        self.counter += 1
        return self.counter

    def machine(self, name: str) -> Machine:
        """Return a node by name.

        Raises:
            PermanentError: there is no such node.
        """
        machine = self.machines.get(name)
        if machine is None:
            raise PermanentError(f"no node {name} in the simulated cluster: it has {', '.join(self.machines)}")
        return machine

    def at(self, node: NodeRef) -> Machine:
        """Return a node by reference, which must name this cluster and pool."""
        if (node.cluster, node.pool) != (self.layout.cluster, self.layout.pool):
            raise PermanentError(
                f"{node} is not in the simulated cluster, whose pool is {self.layout.cluster}/{self.layout.pool}"
            )
        return self.machine(node.name)

    def job(self, job_id: str) -> Job:
        """Return a gang by id; PermanentError when there is none."""
        job = self.jobs.get(job_id)
        if job is None:
            raise PermanentError(f"no job {job_id} in the simulated cluster: it has {', '.join(self.jobs) or 'none'}")
        return job

    def ref(self, machine: Machine) -> NodeRef:
        """Return the reference of a node."""
        return NodeRef(cluster=self.layout.cluster, pool=self.layout.pool, name=machine.name)

    def calendar(self, at: float) -> datetime:
        """Return the calendar time of a simulated second."""
        return self._began + timedelta(seconds=at / self._speed)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something in so many simulated seconds."""
        heapq.heappush(self._timers, Timer(self.now + seconds, self.next_number(), action))

    @property
    def next_due(self) -> float | None:
        """Simulated time at which something happens next by itself; None when nothing will."""
        return self._timers[0].due if self._timers else None

    def advance(self, seconds: float) -> None:
        """Let so many simulated seconds pass."""
        self.advance_to(self.now + seconds)

    def advance_to(self, moment: float) -> None:
        """Let time pass until a simulated second; a moment that has passed changes nothing."""
        while self._timers and self._timers[0].due <= moment:
            timer = heapq.heappop(self._timers)
            self.now = max(self.now, timer.due)
            timer.action()
            self.changed()
        self.now = max(self.now, moment)

    def changed(self) -> None:
        """Bring all work up to date with the state of the nodes. Called after every change."""
        self.version += 1
        for job in self.jobs.values():
            if job.state not in (JobState.RUNNING, JobState.STALLED):
                continue
            speed = self._speed_of(job)
            job.state = JobState.RUNNING if speed else JobState.STALLED
            if speed != job.speed:
                job.settle(self.now, speed)

    def _speed_of(self, job: Job) -> float:
        ranks = [rank for rank in self.ranks if rank.job == job.spec.id and rank.start == job.start]
        if len(ranks) < len(job.nodes):
            return 0.0
        dead = any(
            not self.machines[rank.node].responsive or self.machines[rank.node].dead_gpus().intersection(rank.gpu_uuids)
            for rank in ranks
        )
        return 0.0 if dead else job.spec.steps_per_second * min(self.machines[rank.node].speed for rank in ranks)

    def ranks_on(self, machine: Machine, job_id: str = "") -> list[Rank]:
        """Return the ranks whose processes can still run on a node, of one job or of all."""
        return [rank for rank in self.ranks if rank.node == machine.name and job_id in ("", rank.job)]

    def busy(self, machine: Machine) -> list[Rank]:
        """Return the ranks on a node that work there and were not told to go."""
        return [rank for rank in self.ranks_on(machine) if not rank.leaving]

    def violate(self, kind: ViolationKind, node: str, text: str) -> None:
        """Record that a rule was broken."""
        self.violations.append(Violation(kind=kind, at=self.now, node=node, text=text))

    def log(self, machine: Machine, text: str, *, facility: int = FACILITY_KERNEL, level: int = 3) -> None:
        """Write a kernel log record on a node."""
        sequence = machine.kernel[-1].sequence + 1 if machine.kernel else 0
        machine.kernel.append(KernelLine(sequence, facility, level, self.now, text))
