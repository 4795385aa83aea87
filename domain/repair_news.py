"""What news of its node changes in a running repair: faults that come, repeat and clear, and the agent's hello."""

from __future__ import annotations

from datetime import datetime

from domain.faults import Fault, FaultEvent, Severity, Transition
from domain.incident import merge_fault
from domain.ladder import ladder_for
from domain.nodes import NodeIdentity
from domain.repair import Phase, RepairState, StepState
from domain.runbook import latest, open_faults
from domain.saving import UNREACHABLE


def fault_reported(state: RepairState, event: FaultEvent, now: datetime) -> RepairState:
    """Return the state after a fault of the node opened, repeated or cleared during the repair.

    Faults of the application, records that a process wrote, and news of an earlier boot change nothing. Silence
    is expected while a rung is under way. A fault that is new, or back after a rung, raises the ladder.
    """
    fault = event.fault
    if event.transition is Transition.CLEARED:
        return _fault_cleared(state, fault)
    if not fault.trusted or fault.severity not in (Severity.DEGRADED, Severity.FATAL):
        return state
    if fault.fault_class == UNREACHABLE:
        if state.phase is Phase.ACT or state.fenced:
            return state
    elif fault.boot_id and state.identity.boot_id and fault.boot_id != state.identity.boot_id:
        return state
    was_open = any(known.key == fault.key for known in open_faults(state))
    changed = state.model_copy(
        update={
            "faults": merge_fault(state.faults, fault),
            "cleared": tuple(key for key in state.cleared if key != fault.key),
        }
    )
    if was_open:
        return changed
    history = (*state.input.history, *state.rungs_run)
    ladder = ladder_for(open_faults(changed), state.input.policy, history, now)
    return changed.model_copy(update={"ladder": ladder, "needs_rung": True, "proven": False, "vouched_by": ""})


def _fault_cleared(state: RepairState, fault: Fault) -> RepairState:
    if all(known.key != fault.key for known in state.faults) or fault.key in state.cleared:
        return state
    after = state.model_copy(update={"cleared": (*state.cleared, fault.key)})
    if not open_faults(after) and not state.fenced:
        after = after.model_copy(update={"needs_rung": False})
    return after


def node_seen(state: RepairState, identity: NodeIdentity) -> RepairState:
    """Return the state after the node's agent said hello: a node that answers is not unreachable any more.

    While a rung or the fencing is under way the hello is its proof, or old news; nothing clears then.
    """
    after = state.model_copy(update={"identity": identity})
    fence = latest(state, "fence")
    fencing = state.fenced or (fence is not None and fence.state is StepState.RUNNING)
    acting = any(step.state is StepState.RUNNING and step.phase is Phase.ACT for step in state.steps)
    unreachable = tuple(fault.key for fault in open_faults(state) if fault.fault_class == UNREACHABLE)
    if not unreachable or fencing or acting:
        return after
    after = after.model_copy(update={"cleared": (*state.cleared, *unreachable)})
    return after if open_faults(after) else after.model_copy(update={"needs_rung": False})
