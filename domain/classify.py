"""Judging an observation: which fault class it amounts to, how bad it is, and what it proves to be over."""

from __future__ import annotations

import re

from domain.catalog import CATALOG, fault_class
from domain.faults import Rung, Scope, Severity
from domain.kernel_log import parse_line
from domain.model import Word
from domain.observations import Observation
from domain.recovery_action import VERDICT_CLASSES, recovery_action, recovery_action_of_line
from domain.xids import decide


class Classification(Word):
    """What an observation amounts to.

    Attributes:
        suggested_rung: the driver's own verdict where it gave one.
        opens: whether the fault holds; False when the observation only proves that something is over.
        clears: classes that the observation proves to be over on its component (on all of a node's components
            when its component is the node).
        counted: False for a line that repeats in other words what another line of the same event said.
    """

    fault_class: str
    severity: Severity
    scope: Scope
    suggested_rung: Rung | None = None
    opens: bool = True
    clears: tuple[str, ...] = ()
    counted: bool = True


CLASS_OF_KIND = {
    "gpu_fallen_off_bus": "gpu.fallen_off_bus",
    "gpu_init_failed": "gpu.init_failed",
    "gpu_lost": "gpu.fallen_off_bus",
    "gpu_missing": "gpu.missing",
    "ecc_uncorrected": "gpu.ecc_counter",
    "row_remap_pending": "gpu.row_remap_pending",
    "row_remap_failure": "gpu.row_remap_failure",
    "retired_pages_pending": "gpu.page_retirement_pending",
    "thermal_slowdown": "thermal.slowdown",
    "temperature_high": "thermal.overtemperature",
    "power_brake": "power.brake",
    "nvlink_down": "nvlink.down",
    "probe_hung": "driver.hung",
    "probe_failed": "driver.unavailable",
    "kernel_log_gap": "node.kernel_log_gap",
}
"""The class of each kind of observation that needs no further reading."""

GPU_RESET_DONE = "gpu_reset_done"
"""Kind by which the agent says that a GPU reset succeeded (component: the GPU, or the node for all its
GPUs)."""

ENDED_BY_RECOVERY = tuple(name for name, entry in CATALOG.items() if entry.ends_with_recovery)

_WEIGHT = re.compile(r"\b(non-?)?fatal\b", re.IGNORECASE)
_PAGE_RETIREMENT = re.compile(r"page retirement|retired? page|retiring page", re.IGNORECASE)
_RESET_FLAGS = re.compile(r"\bRST: (?P<now>Yes|No), D-RST: (?P<drained>Yes|No)")
_NVLINK5 = range(144, 151)


def classify(observation: Observation) -> Classification | None:
    """Return what an observation amounts to, or None when there is nothing to report.

    A code or a kind that no rule knows amounts to an ``unknown`` fault, never to nothing.
    """
    kind = observation.kind
    if kind == "xid" and observation.code is not None:
        return _xid(observation.code, _detail(observation))
    if kind == "sxid":
        return _sxid(_detail(observation))
    if kind == "recovery_action":
        return _polled_verdict(observation)
    if kind == GPU_RESET_DONE:
        return _over("gpu.reset_required", ENDED_BY_RECOVERY)
    name = CLASS_OF_KIND.get(kind)
    if name is None:
        return _of("node.unknown_observation") if observation.active else None
    if observation.active:
        return _of(name)
    # That a GPU answers once does not prove that it is back on the bus: only states end with a reading.
    return _over(name, (name,)) if fault_class(name).stateful else None


def _of(
    name: str,
    *,
    severity: Severity | None = None,
    rung: Rung | None = None,
    clears: tuple[str, ...] = (),
    counted: bool = True,
) -> Classification:
    entry = fault_class(name)
    return Classification(
        fault_class=name,
        severity=severity or entry.severity,
        scope=entry.scope,
        suggested_rung=rung,
        clears=clears,
        counted=counted,
    )


def _over(name: str, clears: tuple[str, ...]) -> Classification:
    entry = fault_class(name)
    return Classification(fault_class=name, severity=entry.severity, scope=entry.scope, opens=False, clears=clears)


def _detail(observation: Observation) -> str:
    """Return the line's words after code and process; the whole text when it is no line that we can read."""
    finding = parse_line(observation.text)
    if finding is not None and finding.code == observation.code:
        return finding.detail
    return observation.text


def _xid(code: int, detail: str) -> Classification:
    name = decide(code).fault_class
    if code == 154:
        return _told_verdict(name, detail)
    if code in (63, 64) and _PAGE_RETIREMENT.search(detail):
        return _of("gpu.page_retirement_pending" if code == 63 else "gpu.page_retirement_failure")
    if code == 94:
        return _contained(name, detail)
    if code in _NVLINK5:
        return _nvlink5(name, detail)
    if code == 162:
        return _of(name, clears=("power.smoothing_off",))
    return _of(name)


def _told_verdict(unreadable: str, detail: str) -> Classification:
    """Xid 154: the driver says in words what its verdict was and is; what it is now counts."""
    action = recovery_action_of_line(detail)
    if action is None:
        return _of(unreadable)
    if action.fault_class is None:
        return _over("gpu.reset_required", ENDED_BY_RECOVERY)
    others = tuple(name for name in VERDICT_CLASSES if name != action.fault_class)
    return _of(action.fault_class, severity=action.severity, rung=action.rung, clears=others)


def _polled_verdict(observation: Observation) -> Classification:
    """NVML's recovery action, read again and again.

    That it is None ends the verdict, not the error behind it.
    """
    action = recovery_action(observation.code) if observation.active else recovery_action(0)
    if action is None:
        return _of("gpu.inspection_wanted")
    if action.fault_class is None:
        return _over("gpu.reset_required", VERDICT_CLASSES)
    others = tuple(name for name in VERDICT_CLASSES if name != action.fault_class)
    return _of(action.fault_class, severity=action.severity, rung=action.rung, clears=others)


def _contained(name: str, detail: str) -> Classification:
    """Xid 94: the line itself says whether the GPU must be reset (``kern_gpu_error_cont_ga100.c``)."""
    flags = _RESET_FLAGS.search(detail)
    if flags is not None and flags["now"] == "Yes":
        return _of("gpu.ecc_uncorrectable", rung=Rung.RESET_GPU)
    if flags is not None and flags["drained"] == "Yes":
        return _of("gpu.reset_required", severity=Severity.DEGRADED, rung=Rung.RESET_GPU)
    return _of(name)


def _nvlink5(name: str, detail: str) -> Classification:
    weight = _WEIGHT.search(detail)
    if weight is None:
        return _of(name)
    return _of("nvlink.nonfatal" if weight[1] else "nvlink.error")


def _sxid(detail: str) -> Classification:
    """Judge by the switch driver's own word: code numbers shift between driver branches.

    The register line of an SXid gives the weight as a number: 1 is fatal, 0 is not (``error_nvswitch.h``). It
    matters when the line with the word was lost.
    """
    if detail.startswith("Severity "):
        fatal = detail.startswith("Severity 1")
        return _of("nvswitch.error" if fatal else "nvswitch.nonfatal", counted=False)
    weight = _WEIGHT.match(detail)
    if weight is None:
        return _of("nvswitch.undecoded")
    return _of("nvswitch.nonfatal" if weight[1] else "nvswitch.error")
