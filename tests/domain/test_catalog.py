import pytest
from pydantic import ValidationError

from domain.catalog import CATALOG, NODE_TAKING_RUNGS, load
from domain.catalog import fault_class as look_up
from domain.faults import Rung, Scope, Severity

ENTRY = {
    "name": "gpu.example",
    "title": "An example",
    "severity": Severity.FATAL,
    "scope": Scope.GPU,
    "ladder": (Rung.RESET_GPU, Rung.REBOOT),
    "clears": "a reset",
    "explanation": "Long enough to mean something to somebody.",
    "source": "this test",
}


@pytest.mark.parametrize(
    ("name", "severity", "first_rung"),
    [
        ("gpu.fallen_off_bus", Severity.FATAL, Rung.REBOOT),
        ("gpu.ecc_uncorrectable", Severity.FATAL, Rung.RESET_GPU),
        ("gpu.ecc_contained", Severity.APPLICATION, Rung.RESTART_WORKLOAD),
        ("gpu.row_remap_pending", Severity.DEGRADED, Rung.RESET_GPU),
        ("gpu.row_remap_failure", Severity.FATAL, Rung.REPLACE),
        ("gpu.gsp_timeout", Severity.FATAL, Rung.RESET_GPU),
        ("nvswitch.error", Severity.FATAL, Rung.REBOOT),
        ("thermal.slowdown", Severity.DEGRADED, Rung.INSPECT),
        ("driver.unavailable", Severity.UNKNOWN, Rung.INSPECT),
        ("gpu.unknown_xid", Severity.UNKNOWN, Rung.INSPECT),
        ("node.unreachable", Severity.FATAL, Rung.POWER_CYCLE),
    ],
)
def test_first_rungs_are_those_of_the_runbook(name: str, severity: Severity, first_rung: Rung) -> None:
    entry = look_up(name)
    assert (entry.severity, entry.ladder[0]) == (severity, first_rung)


def test_a_gpu_off_the_bus_is_never_reset() -> None:
    assert Rung.RESET_GPU not in look_up("gpu.fallen_off_bus").ladder


def test_what_is_only_told_never_takes_a_node() -> None:
    for entry in CATALOG.values():
        if entry.severity in (Severity.INFO, Severity.APPLICATION, Severity.UNKNOWN):
            assert not set(entry.ladder) & NODE_TAKING_RUNGS, entry.name


def test_everything_that_is_raised_has_an_end() -> None:
    for entry in CATALOG.values():
        ends = entry.stateful or entry.quiet_seconds or entry.ends_with_recovery or entry.takes_node
        assert ends, entry.name
        assert entry.clears


def test_an_unknown_name_is_refused_with_what_to_do() -> None:
    with pytest.raises(KeyError, match=r"gpu\.typo.*correct the name or add it"):
        look_up("gpu.typo")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ladder": (Rung.REBOOT, Rung.RESET_GPU)}, "climbs"),
        ({"ladder": (Rung.REBOOT, Rung.REBOOT)}, "climbs"),
        ({"severity": Severity.UNKNOWN}, "never takes a node away"),
        ({"severity": Severity.APPLICATION, "ladder": (Rung.RESTART_WORKLOAD,)}, "no further"),
        ({"ladder": (Rung.INSPECT,)}, "nothing would ever end it"),
        ({"name": "No Dots"}, "pattern"),
        ({"severty": Severity.FATAL}, "severty"),
        ({"absorbs": ("gpu.not_there",)}, "does not have"),
    ],
)
def test_a_wrong_entry_stops_the_start(change: dict[str, object], message: str) -> None:
    with pytest.raises((ValidationError, ValueError), match=message):
        load(({**ENTRY, **change},))


def test_a_name_stands_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        load((ENTRY, ENTRY))


def test_a_told_fault_may_not_hide_one_that_concerns_the_node() -> None:
    mild = {
        **ENTRY,
        "name": "gpu.mild",
        "severity": Severity.INFO,
        "ladder": (Rung.NONE,),
        "quiet_seconds": 60.0,
        "absorbs": ("gpu.example",),
    }
    with pytest.raises(ValueError, match=r"would hide gpu\.example"):
        load((ENTRY, mild))
