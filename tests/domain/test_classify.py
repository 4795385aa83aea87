import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.catalog import CATALOG
from domain.classify import CLASS_OF_KIND, ENDED_BY_RECOVERY, classify
from domain.faults import Rung, Severity
from domain.observations import Observation, Source
from tests.domain.fault_builders import DATA, GPU, from_lines, reading, xid


@pytest.mark.parametrize(
    ("code", "detail", "fault_class", "severity", "rung"),
    [
        (79, "GPU has fallen off the bus.", "gpu.fallen_off_bus", Severity.FATAL, None),
        (48, "An uncorrectable double bit error", "gpu.ecc_uncorrectable", Severity.FATAL, None),
        (94, "Contained: SM (0x1). RST: No, D-RST: No", "gpu.ecc_contained", Severity.APPLICATION, None),
        (94, "Ch 00000008", "gpu.ecc_contained", Severity.APPLICATION, None),
        (94, "Contained. RST: Yes, D-RST: No", "gpu.ecc_uncorrectable", Severity.FATAL, Rung.RESET_GPU),
        (94, "Contained. RST: No, D-RST: Yes", "gpu.reset_required", Severity.DEGRADED, Rung.RESET_GPU),
        (95, "Uncontained", "gpu.ecc_uncorrectable", Severity.FATAL, None),
        (63, "Row Remapper: New row marked for remapping", "gpu.row_remap_pending", Severity.DEGRADED, None),
        (63, "Dynamic Page Retirement: New retired page", "gpu.page_retirement_pending", Severity.DEGRADED, None),
        (63, "Retiring page...", "gpu.page_retirement_pending", Severity.DEGRADED, None),
        (64, "Row Remapper Error: All reserved rows", "gpu.row_remap_failure", Severity.FATAL, None),
        (
            64,
            "Dynamic Page Retirement: Fatal error, unable to retire page",
            "gpu.page_retirement_failure",
            Severity.FATAL,
            None,
        ),
        (45, "Ch 00000001", "application.teardown", Severity.APPLICATION, None),
        (45, "Ch 1 caused by previous Xid 79", "application.teardown", Severity.APPLICATION, None),
        (144, "SAW_MVB Fatal XC0 i0 Link 01 (0x0)", "nvlink.error", Severity.FATAL, None),
        (145, "RLW_SRC_TRACK Nonfatal XC1 i0 Link 17", "nvlink.nonfatal", Severity.INFO, None),
        (149, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01", "nvlink.error", Severity.FATAL, None),
        (149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 01", "nvlink.nonfatal", Severity.INFO, None),
        (149, "NETIR_LIN", "nvlink.undecoded", Severity.UNKNOWN, None),
        (149, "", "nvlink.undecoded", Severity.UNKNOWN, None),
        (150, "", "nvlink.error", Severity.FATAL, None),
        (74, "NVLink: fatal error detected on link 14(0x0, 0x0)", "nvlink.error", Severity.FATAL, None),
        (99999, "unknown error", "gpu.unknown_xid", Severity.UNKNOWN, None),
    ],
)
def test_xids(code: int, detail: str, fault_class: str, severity: Severity, rung: Rung | None) -> None:
    judged = classify(xid(code, detail))
    assert judged is not None
    assert (judged.fault_class, judged.severity, judged.suggested_rung) == (fault_class, severity, rung)
    assert judged.opens


@pytest.mark.parametrize(
    ("text", "fault_class", "severity", "rung"),
    [
        ("from 0x0 (None) to 0x1 (GPU Reset Required)", "gpu.reset_required", Severity.FATAL, Rung.RESET_GPU),
        ("from 0x0 (None) to 0x2 (Node Reboot Required)", "gpu.reboot_required", Severity.FATAL, Rung.REBOOT),
        ("from 0x0 (None) to 0x3 (Drain P2P)", "gpu.p2p_drain_required", Severity.DEGRADED, None),
        ("from 0x0 (None) to 0x4 (Drain and Reset)", "gpu.reset_required", Severity.DEGRADED, Rung.RESET_GPU),
        ("from 0x4 (Drain and Reset) to 0x1 (GPU Reset R", "gpu.reset_required", Severity.FATAL, Rung.RESET_GPU),
        ("from 0x0 (None) to 0x5 (Recover IMEX Domain)", "nvlink.imex_recovery", Severity.DEGRADED, None),
        ("from 0x0 (None) to 0x63 (Something New)", "gpu.inspection_wanted", Severity.UNKNOWN, None),
        ("from 0x0 (No", "gpu.inspection_wanted", Severity.UNKNOWN, None),
    ],
)
def test_the_drivers_verdict_in_words(text: str, fault_class: str, severity: Severity, rung: Rung | None) -> None:
    judged = classify(xid(154, f"GPU recovery action changed {text}"))
    assert judged is not None
    assert (judged.fault_class, judged.severity, judged.suggested_rung) == (fault_class, severity, rung)
    assert fault_class not in judged.clears


def test_a_verdict_of_none_ends_what_a_reset_ends() -> None:
    judged = classify(xid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"))
    assert judged is not None
    assert not judged.opens
    assert judged.clears == ENDED_BY_RECOVERY
    assert {"gpu.reset_required", "gpu.gsp_timeout", "gpu.ecc_uncorrectable"} <= set(judged.clears)
    assert not {"gpu.fallen_off_bus", "gpu.row_remap_failure", "gpu.missing"} & set(judged.clears)


@pytest.mark.parametrize(
    ("code", "fault_class", "rung"),
    [
        (1, "gpu.reset_required", Rung.RESET_GPU),
        (2, "gpu.reboot_required", Rung.REBOOT),
        (4, "gpu.reset_required", Rung.RESET_GPU),
        (7, "gpu.reboot_required", Rung.REBOOT),
        (99, "gpu.inspection_wanted", None),
    ],
)
def test_the_drivers_verdict_as_nvml_gives_it(code: int, fault_class: str, rung: Rung | None) -> None:
    judged = classify(reading("recovery_action", True, code=code))
    assert judged is not None
    assert (judged.fault_class, judged.suggested_rung) == (fault_class, rung)


def test_that_nvml_wants_nothing_does_not_end_the_error_itself() -> None:
    judged = classify(reading("recovery_action", False, code=0))
    assert judged is not None
    assert not judged.opens
    assert "gpu.reset_required" in judged.clears
    assert "gpu.gsp_timeout" not in judged.clears


@pytest.mark.parametrize(("kind", "fault_class"), CLASS_OF_KIND.items())
def test_each_kind_fires_and_ends(kind: str, fault_class: str) -> None:
    judged = classify(reading(kind, True))
    assert judged is not None
    assert (judged.fault_class, judged.opens) == (fault_class, True)
    over = classify(reading(kind, False))
    if CATALOG[fault_class].stateful:
        assert over is not None
        assert (over.opens, over.clears) == (False, (fault_class,))
    else:
        assert over is None


def test_a_kind_that_no_rule_knows_is_told() -> None:
    judged = classify(reading("brand_new", True))
    assert judged is not None
    assert (judged.fault_class, judged.severity) == ("node.unknown_observation", Severity.UNKNOWN)


@pytest.mark.parametrize(
    ("words", "fault_class", "counted"),
    [
        ("Fatal, Link 48 LTSSM Fault Up", "nvswitch.error", True),
        ("Non-fatal, Link 61 egress non-posted PRIV error (First)", "nvswitch.nonfatal", True),
        ("Severity 1 Engine instance 60 Sub-engine instance 00", "nvswitch.error", False),
        ("Severity 0 Engine instance 44 Sub-engine instance 00", "nvswitch.nonfatal", False),
        ("SOE HALTED", "nvswitch.undecoded", True),
    ],
)
def test_a_switch_is_judged_by_its_own_word(words: str, fault_class: str, counted: bool) -> None:
    [observation] = from_lines([f"nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, {words}"])
    judged = classify(observation)
    assert judged is not None
    assert (judged.fault_class, judged.counted) == (fault_class, counted)


def codes_of_applications() -> list[int]:
    with (DATA / "xid.csv").open(encoding="utf-8") as table:
        return [int(row["code"]) for row in csv.DictReader(table) if row["scope"] == "app" and row["code"] != "94"]


@given(st.sampled_from(codes_of_applications()), st.text(max_size=80))
def test_no_words_make_an_application_fault_take_a_node(code: int, words: str) -> None:
    judged = classify(xid(code, words))
    assert judged is not None
    assert judged.severity in (Severity.APPLICATION, Severity.UNKNOWN)


@given(
    st.integers(0, 10**9), st.text(max_size=120), st.booleans(), st.sampled_from(sorted({*CLASS_OF_KIND, "xid", "x"}))
)
def test_anything_active_is_reported(code: int, text: str, stateful: bool, kind: str) -> None:
    observation = Observation(
        source=Source.KERNEL_LOG,
        kind=kind,
        at=xid(1).at,
        boot_id="b",
        component=GPU,
        code=code,
        stateful=stateful,
        text=text,
    )
    judged = classify(observation)
    assert judged is not None
    assert judged.fault_class in CATALOG
    assert judged.opens or code == 154
