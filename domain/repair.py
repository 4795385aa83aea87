"""A repair: its input, its state, and what people and the pool say to it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from domain.faults import Fault, FaultEvent, Rung
from domain.incident import Incident
from domain.model import Message
from domain.nodes import NodeIdentity
from domain.policy import Action, NoAnswer, Policy
from domain.workloads import MovedWork, SavedWork, Workload


class Phase(StrEnum):
    """Where a repair is. Shown to people and kept as the search attribute ``KintsugiPhase``."""

    DETECTED = "detected"
    QUARANTINE = "quarantine"
    GRACE = "grace"
    CHECKPOINT = "checkpoint"
    DRAIN = "drain"
    RECOVER = "recover"
    ACT = "act"
    BURN_IN = "burn_in"
    RETURN = "return"
    HELD = "held"
    ENDED = "ended"


class Outcome(StrEnum):
    """How a repair ended.

    ``returned``: proven and given back. ``observed``: the policy only observes. ``cleared``: the fault went away
    before anything was done. ``taken_over``: a person or another tool changed the node by hand. ``aborted``: a
    person stopped it. ``replaced``: the machine was taken out for good. ``gone``: its workflow was terminated or
    lost, as far as the pool can tell.
    """

    RETURNED = "returned"
    OBSERVED = "observed"
    CLEARED = "cleared"
    TAKEN_OVER = "taken_over"
    ABORTED = "aborted"
    REPLACED = "replaced"
    GONE = "gone"


class StepState(StrEnum):
    """Where a step is."""

    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


class StepRecord(Message):
    """One step of the repair, as it happened.

    Attributes:
        step_id: unique within the repair, such as ``reboot`` or ``burn_in-2``; approvals name it.
        decided_by: the rule of the policy or the person that let it run.
        could_not: it could not be carried out, which says nothing about the node.
    """

    step_id: str
    action: Action | None = None
    phase: Phase
    state: StepState
    started_at: datetime
    ended_at: datetime | None = None
    decided_by: str = ""
    detail: str = ""
    could_not: bool = False


class PastRung(Message):
    """A rung that an earlier repair ran on a component of this node."""

    component: str
    fault_class: str
    rung: Rung
    at: datetime


class RepairInput(Message):
    """What a repair starts with. The policy is the one in force at that moment and stays for the whole repair."""

    identity: NodeIdentity
    incident: Incident
    policy: Policy
    history: tuple[PastRung, ...] = ()


class RepairResult(Message):
    """What a repair leaves behind.

    Attributes:
        rungs: rungs it ran, for the ladder of the next one.
        handled: keys of the faults that are over with it.
        held_by: the person in whose hands the node stays, quarantined; empty when it does not.
    """

    outcome: Outcome
    detail: str
    rungs: tuple[PastRung, ...] = ()
    moved: tuple[MovedWork, ...] = ()
    handled: tuple[str, ...] = ()
    held_by: str = ""


class Wait(Message):
    """What a repair waits for a person to decide.

    Attributes:
        digest: short hash of what is shown: node identity, action, evidence, plan. An approval must carry it.
        until: when ``no_answer`` happens, None for never.
        approved_by: who has approved so far.
        override_only: the policy only observes here, or a person said no: an approval is not enough.
    """

    step_id: str
    action: Action | None = None
    digest: str
    since: datetime
    until: datetime | None = None
    needed: int = 1
    approved_by: tuple[str, ...] = ()
    no_answer: NoAnswer = NoAnswer.HOLD
    rule: str = ""
    reason: str = ""
    override_only: bool = False


class StepProgress(Message):
    """Heartbeat of a long step: shown as a progress bar.

    Attributes:
        fraction: done so far, 0.0 to 1.0, -1.0 when nobody can know.
        cursor: what a retried activity needs to join what it started (an operation id).
    """

    fraction: float = -1.0
    message: str = ""
    cursor: str = ""


# What people say, as signals and as updates. Every one is JSON that a person can type.


class Approve(Message):
    """``{"by": "ana", "step": "reboot", "digest": "3f9c2a1b"}``. The digest is the one that was shown."""

    by: str = Field(min_length=1, max_length=200)
    step: str = Field(min_length=1, max_length=100)
    digest: str = Field(min_length=1, max_length=64)
    reason: str = Field("", max_length=1000)


class Reject(Message):
    """``{"by": "ana", "step": "reboot", "reason": "firmware update first"}``. The repair then holds."""

    by: str = Field(min_length=1, max_length=200)
    step: str = Field(min_length=1, max_length=100)
    reason: str = Field("", max_length=1000)


class Pause(Message):
    """``{"by": "ana", "reason": "…"}``: no further step begins until ``resume``."""

    by: str = Field(min_length=1, max_length=200)
    reason: str = Field("", max_length=1000)


class Resume(Message):
    """``{"by": "ana"}``: go on after a pause."""

    by: str = Field(min_length=1, max_length=200)
    reason: str = Field("", max_length=1000)


class Abort(Message):
    """``{"by": "ana", "reason": "…"}``: stop the repair; the node stays out, in the person's hands.

    Attributes:
        give_back: also undo our quarantine, on the person's word and without proof.
    """

    by: str = Field(min_length=1, max_length=200)
    reason: str = Field("", max_length=1000)
    give_back: bool = False


class OverrideAction(StrEnum):
    """What a person may order, by name, in place of what the plan proposes."""

    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    POWER_CYCLE = "power_cycle"
    REPROVISION = "reprovision"
    REPLACE = "replace"
    BURN_IN = "burn_in"
    RETURN = "return"
    PROCEED = "proceed"


class Override(Message):
    """``{"by": "ana", "action": "burn_in", "reason": "reseated the card"}``: do this now instead.

    ``return`` gives the node back without burn-in; ``burn_in`` skips the rungs; a rung runs that rung;
    ``proceed`` does the waiting step although the policy only observes it or somebody said no.
    """

    by: str = Field(min_length=1, max_length=200)
    action: OverrideAction
    reason: str = Field(min_length=1, max_length=1000)


class Answer(Message):
    """What an update answers: whether it applied and what happens now."""

    accepted: bool
    message: str


# What the pool says to a repair, and a repair to its pool.


class FaultReported(Message):
    """A fault of this node opened, repeated or cleared while the repair runs."""

    event: FaultEvent


class NodeSeen(Message):
    """The node's agent said hello: a new boot id is the proof of a reboot."""

    identity: NodeIdentity


class SpareAnswer(Message):
    """The pool's answer to a request for a spare; an empty name says that none is free."""

    spare: str = ""
    detail: str = ""


class SpareRequest(Message):
    """A repair asks its pool for a spare that fits."""

    repair_id: str
    node: str
    model: str = ""
    gpus: int = 0
    topology: dict[str, str] = {}


class RepairEnded(Message):
    """A repair tells its pool that it is over."""

    repair_id: str
    node: str
    at: datetime
    result: RepairResult
    identity: NodeIdentity


class RepairState(Message):
    """Everything a repair knows. Changed only by the pure functions of ``domain.runbook`` and ``domain.approvals``.

    Attributes:
        faults: open and cleared faults of the incident, merged by key.
        cleared: keys of those that have cleared.
        ladder: rungs still to be tried, the next one first.
        rungs_run: rungs run in this repair.
        identity: the node as it was last seen; ``input.identity`` is what was recorded at the start.
        needs_rung: whether something is still to be repaired; a rung that succeeded or a fault that cleared ends it.
        proven: whether a burn-in passed since the last rung (or a person vouched for the node).
        ordered: what a person ordered and has not been done yet; ordered_step: the step that ``proceed`` names.
        vouched_by: who gave the node back without proof.
    """

    input: RepairInput
    repair_id: str
    identity: NodeIdentity
    started_at: datetime
    phase: Phase = Phase.DETECTED
    steps: tuple[StepRecord, ...] = ()
    faults: tuple[Fault, ...] = ()
    cleared: tuple[str, ...] = ()
    ladder: tuple[Rung, ...] = ()
    rungs_run: tuple[PastRung, ...] = ()
    quarantined: bool = False
    foreign_holds: tuple[str, ...] = ()
    workloads: tuple[Workload, ...] = ()
    saved: tuple[SavedWork, ...] = ()
    moved: tuple[MovedWork, ...] = ()
    spare: str = ""
    needs_rung: bool = True
    proven: bool = False
    vouched_by: str = ""
    fenced: bool = False
    ordered: Override | None = None
    ordered_step: str = ""
    abort: Abort | None = None
    wait: Wait | None = None
    paused_by: str = ""
    last_refusal: str = ""
    outcome: Outcome | None = None
    outcome_detail: str = ""

    def step(self, step_id: str) -> StepRecord | None:
        """Return the latest record of a step, or None when it has not begun."""
        return next((step for step in reversed(self.steps) if step.step_id == step_id), None)


class RepairView(Message):
    """What a repair shows (query ``get_repair``)."""

    repair_id: str
    state: RepairState
