"""Gangs and the processes of their ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import Field

from domain.model import Word
from domain.workloads import SaveMethod


class JobSpec(Word):
    """A gang to run.

    Attributes:
        steps_per_second: speed of a healthy gang, in steps per simulated second.
        own_checkpoint_every: the application saves by itself every so many steps, 0 for never.
        stubborn: its processes do not leave when they are told to.
    """

    id: str
    name: str = ""
    owner: str = ""
    nodes: tuple[str, ...] = Field(min_length=1)
    gpus_per_node: int = Field(8, ge=1)
    priority: int = 0
    save_method: SaveMethod = SaveMethod.TRANSPARENT
    steps_per_second: float = Field(2.0, gt=0)
    own_checkpoint_every: int = Field(50, ge=0)
    stubborn: bool = False


class JobState(StrEnum):
    """How a gang is."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    STALLED = "stalled"
    RESTARTING = "restarting"
    STOPPING = "stopping"


@dataclass
class Rank:
    """The processes of one gang on one node in one start. They exist until they are known to be gone.

    Attributes:
        pid: of the process on its first GPU; the others follow.
        leaving: told to go.
    """

    job: str
    start: int
    node: str
    pid: int
    gpu_uuids: tuple[str, ...]
    leaving: bool = False

    def pid_on(self, gpu_uuid: str) -> int:
        """Return the process that holds this GPU of it."""
        return self.pid + self.gpu_uuids.index(gpu_uuid)


@dataclass
class Job:
    """A gang.

    Attributes:
        nodes: where it runs or will run; empty while it waits for nodes.
        start: number of its latest start, from 1.
        base_step: step at ``base_time``, from which the present one is computed.
        start_step: step from which the latest start went on.
        wanted: how many nodes it needs.
        avoid: nodes that it must not start on.
        held: it waits to be resumed by whoever drained it.
        crashes: how often the application died of its own error and was started again in place.
        resumed_by: what the latest resume was called with, so that a repeated call changes nothing.
        images: checkpoints made from outside, by name.
    """

    spec: JobSpec
    nodes: tuple[str, ...]
    state: JobState = JobState.PENDING
    start: int = 0
    base_step: float = 0.0
    base_time: float = 0.0
    speed: float = 0.0
    start_step: int = 0
    own_checkpoint: int = -1
    wanted: int = 0
    avoid: frozenset[str] = frozenset()
    held: bool = False
    crashes: int = 0
    resumed_by: str = ""
    detail: str = ""
    images: dict[str, int] = field(default_factory=dict)

    def exact_step(self, now: float) -> float:
        """Return its progress at a time, fractions of a step included."""
        return self.base_step + (now - self.base_time) * self.speed

    def step(self, now: float) -> int:
        """Return how many steps it has completed."""
        return int(self.exact_step(now) + 1e-9)

    def newest_own_checkpoint(self, now: float) -> int:
        """Return the step of the newest checkpoint it made by itself, -1 for none."""
        every = self.spec.own_checkpoint_every
        if every <= 0:
            return -1
        latest = self.step(now) // every * every
        return max(self.own_checkpoint, latest) if latest > 0 else self.own_checkpoint

    def settle(self, now: float, speed: float) -> None:
        """Go on at another speed (steps per second) from now."""
        self.own_checkpoint = self.newest_own_checkpoint(now)
        self.base_step = self.exact_step(now)
        self.base_time = now
        self.speed = speed
