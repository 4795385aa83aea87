"""A repair in words: the Markdown that the Temporal UI shows, the mark on the node, what people are told."""

from __future__ import annotations

import json

from domain.approvals import only_observes
from domain.faults import Fault
from domain.incident import Incident, severity_rank
from domain.ladder import explain_ladder
from domain.policy import Action
from domain.pool import PoolView
from domain.pool_notices import admit_command, close_breaker_command
from domain.repair import RepairState, StepRecord, StepState, Wait
from domain.runbook import ACTION_OF_RUNG, open_faults, rule_for
from domain.workloads import MovedWork

MAX_REASON = 255
"""Slurm cuts a node's reason at 256 characters."""

SHOWN_FAULTS = 8
"""A node whose kernel log overflows has hundreds of faults: so many are shown, the others counted."""

_SIGNS = {
    StepState.RUNNING: "▶",
    StepState.WAITING: "…",
    StepState.DONE: "✔",
    StepState.FAILED: "✘",
    StepState.SKIPPED: "–",
}


def mark_reason(incident: Incident, repair_id: str) -> str:
    """Return the reason left on a quarantined node: ``kintsugi: [class] component (repair id)``."""
    lead = incident.lead
    text = f"kintsugi: [{lead.fault_class}] {lead.component} ({repair_id})"
    return text if len(text) <= MAX_REASON else text[: MAX_REASON - 1] + "…"


def summary(incident: Incident) -> str:
    """Return the one line by which a repair is listed (at most 200 bytes in Temporal's UI)."""
    return incident.headline[:180]


def details(state: RepairState) -> str:
    """Return the repair as Markdown: what happened, what was done, what it waits for, and how to answer."""
    parts = [f"# {state.input.incident.headline}", _standing(state)]
    if state.wait is not None and state.outcome is None:
        parts.append(_waiting(state, state.wait))
    if state.paused_by:
        parts.append(f"**Paused** by {state.paused_by}. {_signal(state, 'resume', {'by': 'YOUR NAME'})}")
    if state.last_refusal:
        parts.append(f"> Last message refused: {state.last_refusal}")
    parts.append(_faults(state))
    parts.append(_steps(state))
    if state.moved:
        parts.append("## Work\n" + "\n".join(f"- {moved_in_words(moved)}" for moved in state.moved))
    return "\n\n".join(parts)


def _standing(state: RepairState) -> str:
    node = state.identity.node
    place = f"Node **{node.name}**, pool {node.pool}, cluster {node.cluster}, boot `{state.identity.boot_id}`."
    if state.outcome is not None:
        return f"{place}\n\n**Ended: {state.outcome}.** {state.outcome_detail}"
    holds = f" Others hold it back too: {'; '.join(state.foreign_holds)}." if state.foreign_holds else ""
    plan = explain_ladder(open_faults(state), state.ladder)
    return f"{place}{holds}\n\nPhase **{state.phase}**. Ladder: {plan}."


def _waiting(state: RepairState, wait: Wait) -> str:
    what = wait.action or "a decision"
    until = f" until {wait.until:%Y-%m-%d %H:%M:%S} UTC, then: {wait.no_answer}" if wait.until else ""
    lines = [
        f"## Waits for a person: {what}{until}",
        f"Why: {wait.reason}.",
        "Type one of these, or use *More Actions*, *Send a Signal* on this page with the same name and JSON.",
    ]
    if wait.override_only:
        lines += [
            "To order what comes next (`reboot`, `power_cycle`, `burn_in`, `return`, `proceed` …):",
            _signal(state, "override", {"by": "YOUR NAME", "action": "burn_in", "reason": "WHY"}),
        ]
    else:
        given = (
            f" ({len(wait.approved_by)} of {wait.needed}: {', '.join(wait.approved_by)})" if wait.approved_by else ""
        )
        lines += [
            f"To approve step `{wait.step_id}` of plan `{wait.digest}`{given}:",
            approve_command(state.repair_id, wait),
            "To say no (the node then stays out and the repair holds):",
            _signal(state, "reject", {"by": "YOUR NAME", "step": wait.step_id, "reason": "WHY"}),
        ]
    lines += ["To stop the repair:", _signal(state, "abort", {"by": "YOUR NAME", "reason": "WHY"})]
    return "\n\n".join(lines)


def approve_command(repair_id: str, wait: Wait) -> str:
    """Return the exact command that approves what a repair waits for."""
    said = {"by": "YOUR NAME", "step": wait.step_id, "digest": wait.digest}
    return _command(repair_id, "approve", said)


def _signal(state: RepairState, name: str, said: dict[str, str]) -> str:
    return _command(state.repair_id, name, said)


def _command(repair_id: str, name: str, said: dict[str, str]) -> str:
    # Short lines: the UI's details pane does not wrap code.
    typed = json.dumps(said)
    return f"```\ntemporal workflow signal --name {name} \\\n  --workflow-id {repair_id} \\\n  --input '{typed}'\n```"


def _faults(state: RepairState) -> str:
    rows = []
    shown = worst_first(state)[:SHOWN_FAULTS]
    for fault in shown:
        gone = " (cleared)" if fault.key in state.cleared else ""
        times = f", {fault.count} times" if fault.count > 1 else ""
        rows.append(f"- **{fault.fault_class}** on {fault.component}: {fault.severity}{times}{gone}")
        rows += [f"    - `{text}`" for text in fault.evidence[-2:]]
    if len(state.faults) > len(shown):
        rows.append(f"- and {len(state.faults) - len(shown)} more")
    return "## Faults\n" + "\n".join(rows)


def worst_first(state: RepairState) -> list[Fault]:
    """Return the faults as people should read them: open before cleared, then the worst, then the earliest."""
    return sorted(
        state.faults,
        key=lambda fault: (fault.key in state.cleared, -severity_rank(fault.severity), fault.first_seen, fault.key),
    )


def _steps(state: RepairState) -> str:
    return "## Steps\n" + ("\n".join(_step(step) for step in state.steps) or "none yet")


def _step(step: StepRecord) -> str:
    took = f" {(step.ended_at - step.started_at).total_seconds():.1f} s" if step.ended_at else ""
    by = f" — {step.decided_by}" if step.decided_by else ""
    detail = f": {step.detail}" if step.detail else ""
    return f"- {_SIGNS[step.state]} `{step.started_at:%H:%M:%S}` **{step.step_id}**{took}{by}{detail}"


def moved_in_words(moved: MovedWork) -> str:
    """Return how a workload came out, in one sentence."""
    name = moved.workload.name or moved.workload.id
    if not moved.running:
        return moved.detail or f"{name} does NOT run: look at it in the scheduler."
    where = f"goes on with {moved.spare}" if moved.spare else "was requeued"
    lost = "unknown" if moved.steps_lost < 0 else str(moved.steps_lost)
    return f"{name} {where}, steps lost: {lost}, GPU-seconds lost: {moved.gpu_seconds_lost:g}. {moved.detail}"


def would_do(state: RepairState) -> str:
    """Return what the repair would have done, were the policy more than an observer."""
    if not only_observes(state):
        return ""
    rungs = [ACTION_OF_RUNG[rung].value for rung in state.ladder] or ["ask a person"]
    plan = ["quarantine", "checkpoint", "drain", "recover", rungs[0], "burn_in", "return"]
    rule = rule_for(state, Action.QUARANTINE)
    climb = f"; if that does not hold: {', '.join(rungs[1:])}" if len(rungs) > 1 else ""
    return f"would have done: {' → '.join(plan)}{climb}. Only observed: {rule.name}."


def pool_details(pool: PoolView) -> str:
    """Return a pool as Markdown: who is out, who waits and why, whether the breaker is open."""
    lines = [
        f"# Pool {pool.pool}, cluster {pool.cluster}",
        f"{pool.out} of at most {pool.budget} nodes are out.",
    ]
    if pool.breaker.open:
        lines.append(
            f"**The breaker is open**: {pool.breaker.reason}.\n\n"
            f"```\n{close_breaker_command(pool.cluster, pool.pool)}\n```"
        )
    lines += [f"- waits: {entry.incident.headline} ({entry.why})" for entry in pool.waiting]
    if pool.waiting:
        # One command for all: with a large pool's whole queue the details would be too long.
        first = pool.waiting[0].incident.node
        lines.append(f"To start one of them all the same, by its node:\n\n```\n{admit_command(first)}\n```")
    rows = [f"| {node.name} | {node.health} | {', '.join(node.faults)} | {node.repair_id} |" for node in pool.nodes]
    if rows:
        lines.append("\n".join(["| node | health | faults | repair |", "| --- | --- | --- | --- |", *rows[:200]]))
    return "\n\n".join(lines)
