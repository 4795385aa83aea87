import csv
from pathlib import Path

import pytest

from domain.catalog import CATALOG
from domain.faults import Rung, Severity
from domain.xids import UNKNOWN_XID, XIDS, decide, load

DATA = Path(__file__).parents[1] / "data"
WITH_A_WORKFLOW = {45, 48, 74, *range(144, 151), 154}
"""Codes for which NVIDIA's catalogue names a flow of questions instead of an action."""


def nvidia() -> dict[int, dict[str, str]]:
    with (DATA / "xid.csv").open(encoding="utf-8") as table:
        return {int(row["code"]): row for row in csv.DictReader(table)}


NVIDIA = nvidia()


def test_every_code_has_its_own_decision() -> None:
    assert set(XIDS) == set(NVIDIA)


@pytest.mark.parametrize("code", sorted(NVIDIA))
def test_a_decision_agrees_with_nvidia_or_says_why_not(code: int) -> None:
    decision = XIDS[code]
    entry = CATALOG[decision.fault_class]
    action = NVIDIA[code]["catalog_immediate"]
    agrees = {
        "IGNORE": not entry.concerns_node,
        "RESTART_APP": entry.severity is Severity.APPLICATION,
        "RESET_GPU": entry.ladder[0] is Rung.RESET_GPU,
        "RESTART_BM": entry.ladder[0] is Rung.REBOOT,
        "RESTART_VM": entry.ladder[0] is Rung.REBOOT,
    }.get(action)
    if agrees is None:
        agrees = code in WITH_A_WORKFLOW or not entry.concerns_node
    assert agrees or decision.differs, f"{code}: NVIDIA says {action}, we say {decision.fault_class}"


@pytest.mark.parametrize("code", [code for code, row in NVIDIA.items() if row["scope"] == "app"])
def test_the_fault_of_an_application_never_takes_a_node(code: int) -> None:
    assert not CATALOG[XIDS[code].fault_class].concerns_node


@pytest.mark.parametrize("code", [code for code, row in NVIDIA.items() if "Unused" in row["name"]])
def test_a_retired_code_is_acted_on_only_with_a_reason(code: int) -> None:
    entry = CATALOG[XIDS[code].fault_class]
    assert not entry.concerns_node or XIDS[code].differs


@pytest.mark.parametrize("code", [code for code, row in NVIDIA.items() if row["gpu_unusable"] == "yes"])
def test_an_unusable_gpu_is_at_least_told_to_a_person(code: int) -> None:
    assert CATALOG[XIDS[code].fault_class].severity in (Severity.FATAL, Severity.DEGRADED, Severity.UNKNOWN)


@pytest.mark.parametrize("code", [0, 146_000, 177, 999, 99_999])
def test_a_code_in_no_table_is_unknown_and_told(code: int) -> None:
    decision = decide(code)
    assert decision.fault_class == UNKNOWN_XID
    assert str(code) in decision.reason
    assert CATALOG[UNKNOWN_XID].severity is Severity.UNKNOWN


@pytest.mark.parametrize(
    ("code", "fault_class"),
    [
        (13, "application.gpu_exception"),
        (31, "application.memory_fault"),
        (43, "application.gpu_exception"),
        (45, "application.teardown"),
        (48, "gpu.ecc_uncorrectable"),
        (62, "gpu.microcontroller_halt"),
        (63, "gpu.row_remap_pending"),
        (64, "gpu.row_remap_failure"),
        (68, "application.engine_exception"),
        (74, "nvlink.error"),
        (79, "gpu.fallen_off_bus"),
        (94, "gpu.ecc_contained"),
        (95, "gpu.ecc_uncorrectable"),
        (109, "gpu.channel_timeout"),
        (119, "gpu.gsp_timeout"),
        (175, "gpu.gsp_timeout"),
    ],
)
def test_the_codes_that_operators_know(code: int, fault_class: str) -> None:
    assert decide(code).fault_class == fault_class


@pytest.mark.parametrize(
    ("row", "message"), [(("gpu.typo", "because"), "does not have"), (("gpu.event", " "), "no reason")]
)
def test_a_wrong_row_stops_the_start(row: tuple[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load({1: row})
