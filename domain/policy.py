"""The policy: who decides what, how many nodes may be out at once, and how long everything may take.

One YAML file in this shape. What it does not say is observed only. Durations are written ``30s``, ``10m``,
``2h``, ``7d``.
"""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, field_validator

from domain.faults import Rung, Severity
from domain.model import Message
from domain.operations import BurnInLevel

_DURATION = re.compile(r"^(\d+(?:\.\d+)?)(ms|s|m|h|d)$")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(value: object) -> object:
    """Return ``10m`` and the like as a timedelta; other values are left to pydantic."""
    if not isinstance(value, str):
        return value
    match = _DURATION.match(value.strip())
    if match is None:
        raise ValueError("a duration is a number with a unit: 30s, 10m, 2h, 7d")
    return timedelta(seconds=float(match[1]) * _UNIT_SECONDS[match[2]])


def _seconds(value: timedelta) -> str:
    return f"{value.total_seconds():g}s"


Duration = Annotated[timedelta, BeforeValidator(parse_duration), PlainSerializer(_seconds), Field(ge=timedelta(0))]


class Decision(StrEnum):
    """Who decides: the policy itself, a person, or nobody (``observe``: say what would be done)."""

    AUTO = "auto"
    APPROVE = "approve"
    OBSERVE = "observe"


class Action(StrEnum):
    """Everything that changes the world and that a policy can speak about."""

    QUARANTINE = "quarantine"
    CHECKPOINT = "checkpoint"
    DRAIN = "drain"
    FENCE = "fence"
    RECOVER = "recover"
    RESTART_WORKLOAD = "restart_workload"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    POWER_CYCLE = "power_cycle"
    REPROVISION = "reprovision"
    REPLACE = "replace"
    BURN_IN = "burn_in"
    RETURN = "return"


class NoAnswer(StrEnum):
    """What happens when nobody answers in time.

    ``hold`` keeps waiting, ``escalate`` keeps waiting and tells people urgently each time, ``proceed`` goes on as
    if it had been approved.
    """

    HOLD = "hold"
    ESCALATE = "escalate"
    PROCEED = "proceed"


class Match(Message):
    """To what a rule applies. Names are shell patterns; an empty list means any."""

    cluster: tuple[str, ...] = ()
    pool: tuple[str, ...] = ()
    fault: tuple[str, ...] = ()
    severity: tuple[Severity, ...] = ()
    action: tuple[Action, ...] = ()

    @field_validator("*", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    def applies(self, cluster: str, pool: str, fault_class: str, severity: Severity, action: Action) -> bool:
        """Return whether all of the rule's conditions hold."""
        return (
            _any_pattern(self.cluster, cluster)
            and _any_pattern(self.pool, pool)
            and _any_pattern(self.fault, fault_class)
            and (not self.severity or severity in self.severity)
            and (not self.action or action in self.action)
        )


def _any_pattern(patterns: tuple[str, ...], value: str) -> bool:
    return not patterns or any(fnmatchcase(value, pattern) for pattern in patterns)


class Rule(Message):
    """One line of the policy. The first rule that matches decides.

    Attributes:
        name: how the rule is named in the ledger and to people.
        approvals: how many different people must approve.
        answer_within: how long a person has; afterwards ``no_answer`` says what happens.
    """

    name: str
    match: Match = Match()
    decide: Decision
    approvals: int = Field(1, ge=1, le=5)
    answer_within: Duration = timedelta(hours=1)
    no_answer: NoAnswer = NoAnswer.HOLD


class Budget(Message):
    """How many nodes of a pool may be out at once: the stricter of the two, but never less than one node."""

    max_nodes: int = Field(1, ge=0)
    max_percent: float = Field(10.0, ge=0, le=100)


class Breaker(Message):
    """When too much fails together, repairs stop and a person is asked.

    Attributes:
        nodes: so many nodes with the same fault class within the window open the breaker.
    """

    nodes: int = Field(5, ge=2)
    window: Duration = timedelta(minutes=10)


class WithoutSpare(StrEnum):
    """What happens to work when no spare is free."""

    WAIT = "wait"
    REQUEUE = "requeue"


class PoolPolicy(Message):
    """What holds for a pool.

    Attributes:
        cool_down: time between two repairs of the same node.
        lost_grace: how long a silent node may be away before it counts as unreachable.
        spare_wait: how long to wait for a spare before the work is requeued without one.
    """

    budget: Budget = Budget()
    breaker: Breaker = Breaker()
    cool_down: Duration = timedelta(minutes=10)
    lost_grace: Duration = timedelta(seconds=60)
    without_spare: WithoutSpare = WithoutSpare.REQUEUE
    spare_wait: Duration = timedelta(minutes=10)


class GraceRule(Message):
    """How long a fault may clear by itself before a rung is run."""

    fault: str
    wait: Duration


class LadderRule(Message):
    """The rungs for a fault class, in place of the catalog's."""

    fault: str
    rungs: tuple[Rung, ...] = Field(min_length=1)


class Attempts(Message):
    """Bounds on trying again.

    Attributes:
        per_incident: rungs run in one repair before a person is asked.
        per_hardware: repairs of the same component within the look-back before a person is asked.
        look_back: how far back history raises the ladder.
    """

    per_incident: int = Field(4, ge=1)
    per_hardware: int = Field(3, ge=1)
    look_back: Duration = timedelta(days=7)


class Limits(Message):
    """Hard bounds on each step."""

    checkpoint: Duration = timedelta(minutes=10)
    drain_patience: Duration = timedelta(0)
    drain: Duration = timedelta(minutes=30)
    recover: Duration = timedelta(minutes=15)
    reset_gpu: Duration = timedelta(minutes=5)
    reboot: Duration = timedelta(minutes=20)
    power_cycle: Duration = timedelta(minutes=30)
    reprovision: Duration = timedelta(hours=2)
    burn_in: Duration = timedelta(hours=4)


class BurnInPolicy(Message):
    """How a node is proven before it returns."""

    level: BurnInLevel = BurnInLevel.QUICK
    allow_warn: bool = False


class Policy(Message):
    """The whole policy. ``Policy()`` is the built-in one: it observes and acts on nothing."""

    version: Literal[1] = 1
    rules: tuple[Rule, ...] = ()
    pools: dict[str, PoolPolicy] = {}
    grace: tuple[GraceRule, ...] = ()
    ladders: tuple[LadderRule, ...] = ()
    attempts: Attempts = Attempts()
    limits: Limits = Limits()
    burn_in: BurnInPolicy = BurnInPolicy()

    def for_pool(self, pool: str) -> PoolPolicy:
        """Return what holds for a pool: its own entry, else the first pattern that fits, else the defaults."""
        if pool in self.pools:
            return self.pools[pool]
        return next((entry for name, entry in self.pools.items() if fnmatchcase(pool, name)), PoolPolicy())

    def rule(self, cluster: str, pool: str, fault_class: str, severity: Severity, action: Action) -> Rule:
        """Return the rule that decides; without a match, a rule that observes."""
        for rule in self.rules:
            if rule.match.applies(cluster, pool, fault_class, severity, action):
                return rule
        return NO_RULE

    def grace_for(self, fault_class: str) -> timedelta:
        """Return how long this fault may clear by itself; without a rule, no time at all."""
        for entry in self.grace:
            if fnmatchcase(fault_class, entry.fault):
                return entry.wait
        return timedelta(0)

    def ladder_for(self, fault_class: str) -> tuple[Rung, ...] | None:
        """Return the policy's own ladder for this fault, or None to use the catalog's."""
        for entry in self.ladders:
            if fnmatchcase(fault_class, entry.fault):
                return entry.rungs
        return None


NO_RULE = Rule(name="no rule matches", decide=Decision.OBSERVE)
"""What decides when the policy is silent: observe."""
