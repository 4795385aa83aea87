"""What can be read of a simulated cluster: the truth, for people and for tests."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from domain.model import Message
from simulator.jobs import JobState
from simulator.machine import Phase


class ViolationKind(StrEnum):
    """Something that must never happen."""

    TWO_COPIES = "two_copies"
    RELEASED_WITH_FAULT = "released_with_fault"
    BURN_IN_ON_BUSY_NODE = "burn_in_on_busy_node"
    BUSY_NODE_TAKEN_DOWN = "busy_node_taken_down"
    REPEATED_ACTION = "repeated_action"


class Violation(Message):
    """A rule that was broken; ``at`` in simulated seconds, ``text`` in words."""

    kind: ViolationKind
    at: float
    node: str
    text: str


class FaultState(Message):
    """A fault that a node has; ``dormant`` until its next boot."""

    kind: str
    gpu_uuid: str = ""
    heals_at: str = ""
    dormant: bool = False


class NodeState(Message):
    """A node as it really is.

    Attributes:
        phase: ``up`` also when hung.
        busy: workloads with processes on it.
        spare: held back as a hot spare.
        resets, reboots, power_cycles, fences, reprovisions, replacements, burn_ins, checkpoints: how often each
            was carried out.
    """

    name: str
    phase: Phase
    hung: bool
    agent_up: bool
    boot_id: str
    gpu_uuids: tuple[str, ...]
    faults: tuple[FaultState, ...]
    schedulable: bool
    mark: str = ""
    holds: tuple[str, ...] = ()
    spare: bool = False
    leased_to: str = ""
    busy: tuple[str, ...] = ()
    resets: int = 0
    reboots: int = 0
    power_cycles: int = 0
    fences: int = 0
    reprovisions: int = 0
    replacements: int = 0
    burn_ins: int = 0
    checkpoints: int = 0


class JobView(Message):
    """A gang as it really is.

    Attributes:
        steps_per_second: present speed, 0 when it stands still.
        started_from_step: where its latest start went on.
        starts: how often the scheduler started it.
        crashes: how often its application died of its own error and was started again in place.
    """

    id: str
    name: str
    state: JobState
    nodes: tuple[str, ...]
    step: int
    steps_per_second: float
    own_checkpoint: int
    started_from_step: int
    starts: int
    crashes: int = 0
    detail: str = ""


class WorldState(Message):
    """Everything; ``now`` in simulated seconds since the world began."""

    cluster: str
    pool: str
    now: float
    nodes: tuple[NodeState, ...]
    jobs: tuple[JobView, ...]
    violations: tuple[Violation, ...] = ()

    def node(self, name: str) -> NodeState:
        """Return a node by name; KeyError when there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(f"no node {name} in the simulated cluster: it has {', '.join(n.name for n in self.nodes)}")

    def job(self, job_id: str) -> JobView:
        """Return a gang by id; KeyError when there is none."""
        for job in self.jobs:
            if job.id == job_id:
                return job
        raise KeyError(f"no job {job_id} in the simulated cluster: it has {', '.join(j.id for j in self.jobs)}")


class NodeLife(Message):
    """Whether the agent of a node can run, in which boot and with which disk.

    Attributes:
        disk_id: changes when the disk was emptied (reprovisioned, replaced).
    """

    node: str
    agent_up: bool
    boot_id: str
    machine_id: str
    disk_id: str
    topology: dict[str, str] = {}


class KernelRecordView(Message):
    """One kernel log record; ``at`` in UTC."""

    sequence: int
    facility: int
    level: int
    at: datetime
    text: str
