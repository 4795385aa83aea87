"""Which rungs a repair may run, in which order: catalog, policy, the driver's verdict and history decide."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from domain.catalog import fault_class
from domain.faults import Fault, Rung
from domain.incident import lead_fault, rung_rank
from domain.policy import Policy
from domain.repair import PastRung

ACTING_RUNGS = (Rung.RESET_GPU, Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPROVISION, Rung.REPLACE)
"""Rungs that change a node. ``inspect`` asks a person; ``restart_workload`` and ``none`` leave the node alone."""


def ladder_for(faults: Iterable[Fault], policy: Policy, history: Iterable[PastRung], now: datetime) -> tuple[Rung, ...]:
    """Return the rungs to try, lightest first; empty when only a person can help.

    The ladders of all faults are joined; nothing lighter than the heaviest first rung is tried, nor lighter than
    the driver's own verdict. Rungs that were run on the same component for the same class within the look-back did
    not hold, so the ladder goes on above them; too many repairs of one component leave it to a person.
    """
    present = list(faults)
    past = [entry for entry in history if now - entry.at <= policy.attempts.look_back]
    ladders = [_ladder_of(fault, policy, past) for fault in present]
    if any(not ladder for ladder in ladders) or not ladders:
        return ()
    floor = max(rung_rank(ladder[0]) for ladder in ladders)
    rungs = {rung for ladder in ladders for rung in ladder if rung_rank(rung) >= floor}
    return tuple(sorted(rungs, key=rung_rank))


def _ladder_of(fault: Fault, policy: Policy, past: list[PastRung]) -> tuple[Rung, ...]:
    rungs = policy.ladder_for(fault.fault_class) or fault_class(fault.fault_class).ladder
    rungs = tuple(rung for rung in rungs if rung in ACTING_RUNGS)
    verdict = fault.suggested_rung
    if verdict in ACTING_RUNGS:
        rungs = tuple(rung for rung in rungs if rung_rank(rung) >= rung_rank(verdict))
        if verdict not in rungs:
            rungs = (verdict, *rungs)
    mine = [entry for entry in past if _same_hardware(entry, fault)]
    if len({entry.at for entry in mine}) >= policy.attempts.per_hardware:
        return ()
    held_not = [rung_rank(entry.rung) for entry in mine if entry.fault_class == fault.fault_class]
    if held_not:
        rungs = tuple(rung for rung in rungs if rung_rank(rung) > max(held_not))
    return rungs


def _same_hardware(entry: PastRung, fault: Fault) -> bool:
    return entry.component == str(fault.component)


def explain_ladder(faults: Iterable[Fault], ladder: tuple[Rung, ...]) -> str:
    """Return in one sentence why this ladder."""
    present = list(faults)
    if not present:
        return "no fault is open"
    lead = lead_fault(present)
    if not ladder:
        return f"{lead.fault_class}: no rung of the ladder is left, a person must look"
    verdict = f", the driver asks for {lead.suggested_rung}" if lead.suggested_rung else ""
    return f"{lead.fault_class}{verdict}: " + " → ".join(ladder)
