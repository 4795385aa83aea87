"""What a pool tells people, with the commands that answer it."""

from __future__ import annotations

import shlex
from datetime import datetime

from domain.catalog import fault_class
from domain.faults import Fault, Severity
from domain.ledger import Notice
from domain.nodes import NodeRef
from domain.pool import PoolState, WaitingIncident

YOU = "YOUR NAME"
"""Stands in a command for the name that the person at the keyboard puts there."""


def close_breaker_command(cluster: str, pool: str) -> str:
    """Return the command that closes a pool's breaker."""
    return shlex.join(["kintsugi", "close-breaker", f"{cluster}/{pool}", "--by", YOU, "--reason", "WHY"])


def admit_command(node: NodeRef) -> str:
    """Return the command that starts the waiting repair of a node."""
    return shlex.join(["kintsugi", "admit", f"{node.cluster}/{node.pool}", node.name, "--by", YOU, "--reason", "WHY"])


def fault_notice(fault: Fault, now: datetime) -> Notice:
    """Return what people are told of a fault that takes no node away."""
    evidence = "\n".join(fault.evidence[-3:])
    if not fault.trusted:
        title = f"{fault.node.name}: a process wrote a kernel-like record ({fault.fault_class})"
        body = f"Not from the kernel, so nothing is done. Find out which process writes to /dev/kmsg.\n{evidence}"
    elif fault.severity is Severity.APPLICATION:
        title = f"{fault.node.name}: fault of an application ({fault.fault_class})"
        body = f"{fault_class(fault.fault_class).explanation}\nThe node stays in service.\n{evidence}"
    else:
        title = f"{fault.node.name}: {fault.fault_class}"
        body = f"{fault_class(fault.fault_class).explanation}\n{evidence}"
    audience = "workload-owner" if fault.severity is Severity.APPLICATION else "operators"
    return Notice(
        notice_id=f"{fault.node.name}/{fault.key}/{now:%Y%m%dT%H%M%S.%f}",
        audience=audience,
        title=title,
        body=body,
    )


def breaker_notice(state: PoolState) -> Notice:
    """Return what people are told when the breaker opens."""
    since = state.breaker.since
    return Notice(
        notice_id=f"{state.cluster}/{state.pool}/breaker/{since:%Y%m%dT%H%M%S.%f}",
        audience="operators",
        title=f"pool {state.pool}: the breaker is open, no new repair starts",
        body=f"{state.breaker.reason}.\nWhen you know better:\n{close_breaker_command(state.cluster, state.pool)}",
        urgent=True,
    )


def waiting_notice(entry: WaitingIncident, why: str) -> Notice:
    """Return what people are told when a repair may not start yet."""
    incident = entry.incident
    return Notice(
        notice_id=f"{incident.incident_id}/waiting/{entry.since:%Y%m%dT%H%M%S.%f}",
        audience="operators",
        title=f"{incident.headline}: the repair waits",
        body=f"{why}.\nTo start it all the same:\n{admit_command(incident.node)}",
        urgent=incident.lead.severity is Severity.FATAL,
    )
