"""What is recorded for replay: one entry a way that a repair or a pool can go, played in the laboratory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from domain.faults import Rung, Transition
from domain.policy import Policy
from domain.pool import PoolView
from domain.repair import Abort, Approve, Outcome, Override, OverrideAction, Pause, Phase, Reject, Resume
from simulator.faults import FaultKind, Injection
from tests.workflows.lab import Lab, acting, automatic

BAD = "gpu-01"
FALLEN = Injection(node=BAD, kind=FaultKind.FALLEN_OFF_BUS, gpu=0, heals_at=Rung.REBOOT)
THERMAL = Injection(node=BAD, kind=FaultKind.THERMAL, gpu=0)

AFRESH_AFTER_EVENTS = 60
"""History length at which the recorder's server suggests to continue as new, in events; 4,096 in production."""


@dataclass(frozen=True)
class Scenario:
    """One recording.

    Attributes:
        play: brings it about in a lab, and returns when it is over.
        policy: the policy in force.
        pools: whether the pool's runs are recorded too, besides the repairs.
    """

    play: Callable[[Lab], Awaitable[None]]
    policy: Policy
    nodes: int = 3
    spares: int = 0
    job_nodes: int = 0
    pools: bool = False


async def _ends(lab: Lab, outcome: Outcome, node: str = BAD, number: int = 1) -> None:
    result = await lab.result(node, number)
    if result.outcome is not outcome:
        raise AssertionError(f"the repair of {node} ended {result.outcome} ({result.detail}), not {outcome}")


async def _asked(lab: Lab) -> Approve:
    await lab.world.inject(FALLEN)
    await lab.fault(BAD)
    state = await lab.waits_for(BAD, "reboot")
    assert state.wait is not None
    return Approve(by="ana", step="reboot", digest=state.wait.digest)


async def returned(lab: Lab) -> None:
    """A GPU off the bus: the work moves to a spare, a reboot heals the node."""
    await lab.world.inject(FALLEN)
    await lab.fault(BAD)
    await _ends(lab, Outcome.RETURNED)


async def checkpointed(lab: Lab) -> None:
    """A GPU that still answers: the work is saved first, a reset heals it."""
    await lab.world.inject(Injection(node=BAD, kind=FaultKind.ECC_ROW_REMAP, gpu=0))
    await lab.fault(BAD, "gpu.row_remap_pending")
    await _ends(lab, Outcome.RETURNED)


async def fenced(lab: Lab) -> None:
    """A node that is silent: switched off before its work goes on elsewhere."""
    await lab.world.inject(Injection(node=BAD, kind=FaultKind.HOST_HANG))
    await lab.lost(BAD)
    await _ends(lab, Outcome.RETURNED)


async def burn_in_failed(lab: Lab) -> None:
    """A burn-in that fails once: the next rung, and another burn-in."""
    await lab.world.inject(FALLEN)
    await lab.world.inject(Injection(node=BAD, kind=FaultKind.BURN_IN_FAILURE, times=1))
    await lab.fault(BAD)
    await _ends(lab, Outcome.RETURNED)


async def observed(lab: Lab) -> None:
    """The built-in policy: nothing is done."""
    await lab.fault(BAD)
    await _ends(lab, Outcome.OBSERVED)


async def rejected_then_overridden(lab: Lab) -> None:
    """A no, then a person's own order."""
    await _asked(lab)
    repair = lab.repair(BAD)
    await repair.execute_update("reject_update", Reject(by="ana", step="reboot", reason="firmware first"))
    await lab.waits_for(BAD, "reboot")
    order = Override(by="ana", action=OverrideAction.POWER_CYCLE, reason="firmware is in")
    await repair.execute_update("override_update", order)
    await _ends(lab, Outcome.RETURNED)


async def aborted(lab: Lab) -> None:
    """A person takes the node."""
    await _asked(lab)
    await lab.repair(BAD).signal("abort", Abort(by="ana", reason="I take it"))
    await _ends(lab, Outcome.ABORTED)


async def cancelled(lab: Lab) -> None:
    """Temporal's own cancel button."""
    await _asked(lab)
    await lab.repair(BAD).cancel()
    await _ends(lab, Outcome.ABORTED)


async def approved_by_update(lab: Lab) -> None:
    """An update, after one that was refused."""
    approval = await _asked(lab)
    await lab.repair(BAD).execute_update("approve_update", approval)
    await _ends(lab, Outcome.RETURNED)


async def approved_by_signal(lab: Lab) -> None:
    """A signal that cannot be understood, a pause, and then the signal that counts."""
    approval = await _asked(lab)
    repair = lab.repair(BAD)
    await repair.signal("aprove", approval)
    await repair.signal("pause", Pause(by="ben"))
    await repair.signal("approve", approval)
    await repair.signal("resume", Resume(by="ben"))
    await _ends(lab, Outcome.RETURNED)


async def nobody_answered(lab: Lab) -> None:
    """The policy goes on when nobody answers in time."""
    await lab.world.inject(FALLEN)
    await lab.fault(BAD)
    await _ends(lab, Outcome.RETURNED)


async def second_fault_joined(lab: Lab) -> None:
    """A worse fault while a person thinks: the ladder rises and the question is put anew."""
    await lab.world.inject(Injection(node=BAD, kind=FaultKind.ECC_ROW_REMAP, gpu=0))
    await lab.fault(BAD, "gpu.row_remap_pending")
    await lab.waits_for(BAD, "reset_gpu")
    await lab.world.inject(FALLEN.model_copy(update={"gpu": 1}))
    await lab.fault(BAD, "gpu.fallen_off_bus", gpu=1)
    state = await lab.waits_for(BAD, "reboot")
    assert state.wait is not None
    await lab.repair(BAD).signal("approve", Approve(by="ana", step="reboot", digest=state.wait.digest))
    await _ends(lab, Outcome.RETURNED)


async def cleared_in_grace(lab: Lab) -> None:
    """A fault that goes away by itself: no rung, but a burn-in."""
    await lab.world.inject(THERMAL)
    await lab.fault(BAD, "thermal.slowdown")

    async def waits() -> bool:
        return (await lab.state(BAD)).phase is Phase.GRACE

    await lab.until(waits, "the repair gives the fault time")
    await lab.world.clear(BAD, FaultKind.THERMAL)
    await lab.fault(BAD, "thermal.slowdown", transition=Transition.CLEARED)
    await _ends(lab, Outcome.RETURNED)


async def taken_over(lab: Lab) -> None:
    """A person gives the node back by hand while the repair waits."""
    await _asked(lab)
    await lab.world.unmark(BAD)
    await _ends(lab, Outcome.TAKEN_OVER)


async def pool_of_several(lab: Lab) -> None:
    """Faults on three nodes, a budget of one, an application's fault, and a silence that ends."""
    names = [f"gpu-0{number}" for number in (1, 2, 3)]
    await lab.fault("gpu-04", "application.memory_fault", xid=31)
    for name in names:
        await lab.world.inject(FALLEN.model_copy(update={"node": name}))
        await lab.fault(name)
    for name in names:
        await _ends(lab, Outcome.RETURNED, name)


async def pool_afresh(lab: Lab) -> None:
    """Repairs and a waiting incident across several runs of the pool."""
    for name in ("gpu-01", "gpu-02", "gpu-03"):
        await lab.world.inject(FALLEN.model_copy(update={"node": name}))
        await lab.fault(name)
    for name in ("gpu-01", "gpu-02", "gpu-03"):
        await _ends(lab, Outcome.RETURNED, name)

    async def settled() -> bool:
        view = await lab.pool.query("get_pool", result_type=PoolView)
        return not view.waiting and not any(node.repair_id for node in view.nodes)

    await lab.until(settled, "the pool knows that all repairs have ended")


ONE_AT_A_TIME = automatic(pools={"*": {"budget": {"max_nodes": 1, "max_percent": 100}, "breaker": {"nodes": 9}}})
ASKS_FOR_A_MOMENT = automatic(
    rules=[
        {
            "name": "soon",
            "match": {"action": "reboot"},
            "decide": "approve",
            "answer_within": "200ms",
            "no_answer": "proceed",
        },
        {"name": "rest", "decide": "auto"},
    ]
)

SCENARIOS: dict[str, Scenario] = {
    "returned": Scenario(returned, automatic(), spares=1, job_nodes=2, pools=True),
    "checkpointed": Scenario(checkpointed, automatic(), spares=1, job_nodes=2),
    "fenced": Scenario(fenced, automatic(), spares=1, job_nodes=2, pools=True),
    "burn_in_failed": Scenario(burn_in_failed, automatic()),
    "observed": Scenario(observed, Policy()),
    "rejected_then_overridden": Scenario(rejected_then_overridden, acting()),
    "aborted": Scenario(aborted, acting()),
    "cancelled": Scenario(cancelled, acting()),
    "approved_by_update": Scenario(approved_by_update, acting()),
    "approved_by_signal": Scenario(approved_by_signal, acting()),
    "nobody_answered": Scenario(nobody_answered, ASKS_FOR_A_MOMENT),
    "second_fault_joined": Scenario(second_fault_joined, acting()),
    "cleared_in_grace": Scenario(cleared_in_grace, automatic(grace=[{"fault": "thermal.*", "wait": "30s"}])),
    "taken_over": Scenario(taken_over, acting()),
    "pool_of_several": Scenario(pool_of_several, ONE_AT_A_TIME, nodes=4, pools=True),
    "pool_afresh": Scenario(pool_afresh, ONE_AT_A_TIME, nodes=4, spares=1, job_nodes=1, pools=True),
}
