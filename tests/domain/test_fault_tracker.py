from collections import Counter
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.catalog import CATALOG
from domain.classify import GPU_RESET_DONE
from domain.fault_tracker import MAX_OPEN, MAX_UNTRUSTED, FaultTracker, Told
from domain.faults import Fault, Rung, Severity, Transition
from domain.observations import Component, ComponentKind, Observation, Source
from domain.open_fault import MAX_EVIDENCE
from tests.domain.fault_builders import BOOT, GPU, NODE, OTHER_GPU, WHOLE_NODE, at, field_case, from_lines, reading, xid

RESET = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
REBOOT = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
NONE = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"


def tracker(open_faults: tuple[Fault, ...] = (), boot_id: str = BOOT) -> FaultTracker:
    return FaultTracker(NODE, boot_id, open_faults)


def names(told: list[Told]) -> list[tuple[str, str]]:
    return [(str(transition), fault.fault_class) for transition, fault in told]


def classes(faults: FaultTracker) -> list[str]:
    return [fault.fault_class for fault in faults.open_faults]


def test_a_fault_opens_once() -> None:
    faults = tracker()
    told = faults.apply([xid(79, "GPU has fallen off the bus.")], at(0))
    assert names(told) == [("opened", "gpu.fallen_off_bus")]
    [fault] = faults.open_faults
    assert told[0][1] == fault
    assert (fault.node, fault.component, fault.xid, fault.boot_id) == (NODE, GPU, 79, BOOT)
    assert (fault.first_seen, fault.count, fault.evidence) == (at(0), 1, (xid(79, "GPU has fallen off the bus.").text,))
    assert faults.apply([xid(79, seconds=1)], at(1)) == []


def test_a_storm_is_one_fault_with_a_count() -> None:
    faults = tracker()
    told: list[Told] = []
    for second in range(100):
        storm = [xid(95, f"address {n % 29}", seconds=second + n / 1000) for n in range(100)]
        told += faults.apply(storm, at(second + 0.2))
        told += faults.tick(at(second + 0.5))
    assert Counter(str(transition) for transition, _ in told) == {"opened": 1, "repeated": 3}
    times = [fault.last_seen for transition, fault in told if transition is Transition.REPEATED]
    assert all(b - a >= timedelta(seconds=29) for a, b in pairwise(times))
    told += faults.tick(at(130))
    assert told[-1][1].count == 10_000
    assert len(told[-1][1].evidence) == MAX_EVIDENCE
    assert told[-1][1].evidence[0].endswith("address 0")


def test_a_last_line_after_a_storm_is_told_by_the_clock() -> None:
    faults = tracker()
    faults.apply([xid(95, "a"), xid(95, "b", seconds=1)], at(1))
    assert faults.tick(at(29)) == []
    [(transition, fault)] = faults.tick(at(31))
    assert (transition, fault.count) == (Transition.REPEATED, 2)
    assert faults.tick(at(62)) == []


def test_the_companions_of_a_lost_gpu_are_evidence() -> None:
    faults = tracker()
    told = faults.apply(
        [
            xid(79, "GPU has fallen off the bus."),
            xid(154, REBOOT, seconds=0.1),
            xid(119, "Timeout after 6s", seconds=2),
            xid(74, "NVLink: fatal error", seconds=3),
            xid(45, "Ch 00000001", seconds=4),
        ],
        at(5),
    )
    assert names(told) == [("opened", "gpu.fallen_off_bus"), ("repeated", "gpu.fallen_off_bus")]
    [fault] = faults.open_faults
    assert (fault.count, fault.suggested_rung, len(fault.evidence)) == (1, Rung.REBOOT, 5)


def test_a_lost_gpu_is_not_reset_although_its_driver_asks_for_it() -> None:
    faults = tracker()
    faults.apply([xid(79), xid(154, RESET, seconds=0.1)], at(1))
    [fault] = faults.open_faults
    assert fault.suggested_rung is None


def test_companions_on_another_gpu_stand_for_themselves() -> None:
    faults = tracker()
    told = faults.apply([xid(79), xid(119, component=OTHER_GPU)], at(0))
    assert names(told) == [("opened", "gpu.fallen_off_bus"), ("opened", "gpu.gsp_timeout")]


def test_a_late_teardown_is_no_companion_of_an_old_error() -> None:
    faults = tracker()
    faults.apply([xid(48), xid(45, seconds=10)], at(10))
    assert classes(faults) == ["gpu.ecc_uncorrectable"]
    faults.apply([xid(45, seconds=100)], at(100))
    assert classes(faults) == ["gpu.ecc_uncorrectable", "application.teardown"]


def test_the_drivers_verdict_joins_the_error_and_its_last_value_counts() -> None:
    faults = tracker()
    told = faults.apply([xid(119), xid(154, RESET, seconds=0.1), xid(154, REBOOT, seconds=0.2)], at(1))
    assert names(told) == [("opened", "gpu.gsp_timeout")] + [("repeated", "gpu.gsp_timeout")] * 2
    [fault] = faults.open_faults
    assert fault.suggested_rung is Rung.REBOOT


def test_a_verdict_alone_opens_changes_and_ends() -> None:
    faults = tracker()
    drain = "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"
    [(_, opened)] = faults.apply([xid(154, drain)], at(0))
    assert (opened.fault_class, opened.severity) == ("gpu.reset_required", Severity.DEGRADED)
    [(transition, worse)] = faults.apply([xid(154, RESET, seconds=1)], at(1))
    assert (transition, worse.severity) == (Transition.REPEATED, Severity.FATAL)
    changed = faults.apply([xid(154, REBOOT, seconds=2)], at(2))
    assert names(changed) == [("cleared", "gpu.reset_required"), ("opened", "gpu.reboot_required")]
    assert names(faults.apply([xid(154, NONE, seconds=3)], at(3))) == [("cleared", "gpu.reboot_required")]
    assert faults.open_faults == ()


def test_a_verdict_of_none_ends_only_what_a_reset_mends() -> None:
    faults = tracker()
    faults.apply([xid(48), xid(79, component=OTHER_GPU)], at(0))
    none = [xid(154, NONE, seconds=5), xid(154, NONE, seconds=5, component=OTHER_GPU)]
    assert names(faults.apply(none, at(5))) == [("cleared", "gpu.ecc_uncorrectable")]
    assert classes(faults) == ["gpu.fallen_off_bus"]


def test_a_verdict_that_is_withdrawn_no_longer_counts() -> None:
    faults = tracker()
    faults.apply([xid(79), xid(154, REBOOT, seconds=0.1), xid(154, NONE, seconds=0.2)], at(1))
    [fault] = faults.open_faults
    assert (fault.fault_class, fault.suggested_rung) == ("gpu.fallen_off_bus", None)


def test_a_verdict_of_none_in_the_same_instant_still_ends_it() -> None:
    faults = tracker()
    faults.apply([xid(48), xid(154, NONE)], at(0))
    assert faults.open_faults == ()


def test_a_reset_by_the_agent_ends_it_on_that_gpu_or_on_all() -> None:
    done = Observation(source=Source.AGENT, kind=GPU_RESET_DONE, at=at(9), boot_id=BOOT, component=GPU)
    for component, left in ((GPU, 1), (WHOLE_NODE, 0)):
        faults = tracker()
        faults.apply([xid(119), xid(119, component=OTHER_GPU)], at(0))
        faults.apply([done.model_copy(update={"component": component})], at(9))
        assert len(faults.open_faults) == left


def test_a_state_opens_and_ends_with_its_reading() -> None:
    faults = tracker()
    assert names(faults.apply([reading("row_remap_pending", True)], at(0))) == [("opened", "gpu.row_remap_pending")]
    told: list[Told] = []
    for second in range(1, 300):
        told += faults.apply([reading("row_remap_pending", True, seconds=second)], at(second))
        told += faults.tick(at(second))
    assert told == []  # it continues: nothing new to tell
    assert faults.open_faults[0].count == 1
    told = [
        *faults.apply([reading("row_remap_pending", False, seconds=300)], at(300)),
        *faults.apply([reading("row_remap_pending", False, seconds=306)], at(306)),
    ]
    assert names(told) == [("cleared", "gpu.row_remap_pending")]


def test_a_reading_from_before_the_error_does_not_end_it() -> None:
    faults = tracker()
    faults.apply([xid(154, RESET, seconds=10)], at(10))
    assert faults.apply([reading("recovery_action", False, seconds=9.5, code=0)], at(11)) == []
    assert names(faults.apply([reading("recovery_action", False, seconds=12, code=0)], at(12))) == [
        ("cleared", "gpu.reset_required")
    ]


def test_that_a_lost_gpu_answers_once_ends_nothing() -> None:
    faults = tracker()
    faults.apply([xid(79)], at(0))
    for second in range(1, 200):
        faults.apply([reading("gpu_lost", False, seconds=second)], at(second))
    assert classes(faults) == ["gpu.fallen_off_bus"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [("thermal_slowdown", "thermal.slowdown"), ("probe_hung", "driver.hung"), ("gpu_missing", "gpu.missing")],
)
def test_several_readings_in_a_row_are_needed(kind: str, name: str) -> None:
    entry = CATALOG[name]
    step = max(entry.open_after_seconds / entry.open_after_readings, 1.0)
    faults = tracker()
    needed = 0
    second = 0.0
    while not faults.open_faults:
        faults.apply([reading(kind, True, seconds=second)], at(second))
        needed += 1
        second += step
        assert needed < 100
    assert needed >= entry.open_after_readings
    assert second - step >= entry.open_after_seconds
    assert classes(faults) == [name]


def test_a_reading_in_between_starts_the_count_anew() -> None:
    faults = tracker()
    for second in range(0, 200, 10):
        active = second % 30 != 20
        faults.apply([reading("thermal_slowdown", active, seconds=second)], at(second))
    assert faults.open_faults == ()


def test_readings_far_apart_are_not_in_a_row() -> None:
    faults = tracker()
    for second in range(0, 3000, 500):
        faults.apply([reading("thermal_slowdown", True, seconds=second)], at(second))
    assert faults.open_faults == ()


def test_a_state_that_flickers_does_not_flap() -> None:
    faults = tracker()
    told: list[Told] = []
    for second in range(0, 600, 5):
        active = second < 60 or second % 30 == 0
        told += faults.apply([reading("thermal_slowdown", active, seconds=second)], at(second))
        told += faults.tick(at(second))
    assert names(told) == [("opened", "thermal.slowdown")]
    told = faults.tick(at(661))
    assert names(told) == [("cleared", "thermal.slowdown")]


def test_the_fault_of_an_application_ends_when_it_is_quiet() -> None:
    faults = tracker()
    faults.apply([xid(31)], at(0))
    assert faults.tick(at(299)) == []
    assert names(faults.tick(at(301))) == [("cleared", "application.memory_fault")]


def test_silence_does_not_mend_hardware() -> None:
    faults = tracker()
    faults.apply([xid(119)], at(0))
    assert faults.tick(at(30 * 86400)) == []
    assert classes(faults) == ["gpu.gsp_timeout"]


def test_old_news_is_not_news() -> None:
    faults = tracker()
    assert faults.apply([xid(79, boot_id="boot-0"), xid(48, boot_id="boot-2")], at(0)) == []
    assert faults.open_faults == ()


def test_a_restart_loses_nothing_and_replays_nothing() -> None:
    before = tracker()
    before.apply([xid(79), xid(31, component=OTHER_GPU), xid(31, component=OTHER_GPU)], at(0))
    after = tracker(before.open_faults)
    assert after.open_faults == before.open_faults
    assert after.tick(at(1)) == []
    assert after.apply([xid(79, seconds=2)], at(2)) == []
    assert [fault.count for fault in after.open_faults] == [2, 2]


def test_events_end_with_their_boot_and_states_go_on() -> None:
    before = tracker()
    before.apply(
        [xid(79), xid(63, component=OTHER_GPU), reading("row_remap_failure", True, component=OTHER_GPU)], at(0)
    )
    after = tracker(before.open_faults, boot_id="boot-2")
    assert classes(after) == ["gpu.row_remap_failure"]
    told = after.tick(at(100))
    assert names(told) == [("cleared", "gpu.fallen_off_bus"), ("cleared", "gpu.row_remap_pending")]
    assert after.tick(at(101)) == []
    later = reading("row_remap_failure", True, component=OTHER_GPU, seconds=102).model_copy(
        update={"boot_id": "boot-2"}
    )
    assert after.apply([later], at(102)) == []
    assert after.open_faults[0].boot_id == "boot-2"


def test_a_class_that_is_gone_from_the_catalog_is_told_to_be_over() -> None:
    before = tracker()
    [(_, fault)] = before.apply([xid(79)], at(0))
    after = tracker((fault.model_copy(update={"fault_class": "gpu.of_another_version"}),))
    assert names(after.apply([], at(1))) == [("cleared", "gpu.of_another_version")]


def test_what_a_process_wrote_stays_apart() -> None:
    faults = tracker()
    forged = xid(79, trusted=False)
    [(_, opened)] = faults.apply([forged], at(0))
    assert not opened.trusted
    told = faults.apply([xid(119, seconds=1), xid(79, seconds=2)], at(2))
    assert names(told) == [("opened", "gpu.gsp_timeout"), ("opened", "gpu.fallen_off_bus")]
    assert len({fault.key for fault in faults.open_faults}) == 3
    assert faults.apply([xid(154, NONE, seconds=3, trusted=False)], at(3)) == []
    over = faults.tick(at(700))
    assert [(str(transition), fault.trusted) for transition, fault in over] == [("cleared", False)]
    assert all(fault.trusted for fault in faults.open_faults)


def test_a_flood_of_forged_addresses_is_bounded_and_harms_no_real_fault() -> None:
    faults = tracker()
    faults.apply([xid(79)], at(0))
    flood = [
        xid(79, trusted=False, seconds=n, component=Component(kind=ComponentKind.GPU, id=f"{n:04x}:01:00"))
        for n in range(500)
    ]
    faults.apply(flood, at(500))
    assert sum(not fault.trusted for fault in faults.open_faults) == MAX_UNTRUSTED
    assert [fault.fault_class for fault in faults.open_faults if fault.trusted] == ["gpu.fallen_off_bus"]


def test_a_full_table_keeps_room_for_what_concerns_the_node() -> None:
    faults = tracker()
    parts = [Component(kind=ComponentKind.GPU, id=f"{n:04x}:01:00") for n in range(MAX_OPEN + 10)]
    faults.apply([xid(31, seconds=n, component=part) for n, part in enumerate(parts)], at(600))
    assert (len(faults.open_faults), faults.dropped) == (MAX_OPEN, 10)
    told = faults.apply([xid(79, seconds=600, component=OTHER_GPU)], at(600))
    assert names(told) == [("cleared", "application.memory_fault"), ("opened", "gpu.fallen_off_bus")]
    assert len(faults.open_faults) == MAX_OPEN


def test_a_clock_that_runs_ahead_does_not_make_a_fault_last() -> None:
    faults = tracker()
    faults.apply([xid(31, seconds=3600)], at(0))
    assert names(faults.tick(at(301))) == [("cleared", "application.memory_fault")]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("001", {"gpu.fallen_off_bus": 1, "nvswitch.error": 3}),
        ("002", {"gpu.fallen_off_bus": 1}),
        ("005", {"nvlink.error": 2, "gpu.reset_required": 2}),
        ("006", {"gpu.microcontroller_halt": 1}),
        ("007", {"nvswitch.error": 1, "gpu.microcontroller_halt": 1}),
        ("010", {"gpu.gsp_timeout": 2}),
        ("012", {"gpu.init_failed": 1}),
        ("013", {"gpu.gsp_timeout": 1}),
        ("015", {"application.gpu_exception": 1}),
        ("018", {"application.teardown": 4}),
        ("020", {"nvlink.nonfatal": 1}),
        ("023", {"nvlink.nonfatal": 2}),
        ("026", {"gpu.ecc_contained": 1}),
        ("029", {"gpu.row_remap_pending": 1}),
        ("034", {"nvswitch.nonfatal": 1}),
        ("036", {"gpu.fallen_off_bus": 1}),
        ("042", {"application.gpu_exception": 5, "application.memory_fault": 1}),
        ("043", {"gpu.unknown_xid": 1}),
    ],
)
def test_what_happened_in_the_field(case: str, expected: dict[str, int]) -> None:
    faults = tracker()
    faults.apply(from_lines(field_case(case)), at(1))
    assert Counter(classes(faults)) == expected


def test_the_verdicts_of_four_gpus_in_one_second() -> None:
    faults = tracker()
    faults.apply(from_lines(field_case("005")), at(1))
    assert {fault.component.id: (fault.fault_class, fault.suggested_rung) for fault in faults.open_faults} == {
        "0009:01:00": ("nvlink.error", Rung.RESET_GPU),
        "0008:01:00": ("nvlink.error", Rung.RESET_GPU),
        "0019:01:00": ("gpu.reset_required", Rung.RESET_GPU),
        "0018:01:00": ("gpu.reset_required", Rung.RESET_GPU),
    }


def test_a_reboot_that_the_driver_asks_for_at_boot() -> None:
    faults = tracker()
    faults.apply(from_lines(field_case("036")), at(1))
    assert [(fault.fault_class, fault.suggested_rung) for fault in faults.open_faults] == [
        ("gpu.fallen_off_bus", Rung.REBOOT)
    ]


def test_the_register_lines_of_a_switch_are_not_counted() -> None:
    faults = tracker()
    faults.apply(from_lines(field_case("034")), at(1))
    assert faults.open_faults[0].count == 2


def test_a_line_of_the_previous_boot_opens_nothing() -> None:
    old = "NVRM: Xid (PCI:0000:38:00): 48, stale previous-boot XID"
    faults = tracker(boot_id="boot-2")
    assert faults.apply(from_lines([old], boot_id="boot-1"), at(1)) == []


def test_a_line_that_a_process_wrote_is_told_but_not_trusted() -> None:
    faults = tracker()
    [(transition, fault)] = faults.apply(from_lines(field_case("039")), at(1))
    assert (transition, fault.fault_class, fault.trusted) == (Transition.OPENED, "gpu.fallen_off_bus", False)


CODES = [13, 31, 43, 45, 48, 62, 63, 64, 74, 79, 94, 95, 109, 119, 145, 149, 154, 162, 163, 999]
WORDS = ["", RESET, REBOOT, NONE, "X Fatal Y", "X Nonfatal Y", "Contained. RST: Yes, D-RST: No"]
STATES = ["row_remap_pending", "thermal_slowdown", "gpu_missing", "gpu_lost", "ecc_uncorrected", "recovery_action"]
STEP = st.one_of(
    st.tuples(st.just("xid"), st.sampled_from(CODES), st.sampled_from(WORDS), st.booleans(), st.booleans()),
    st.tuples(st.just("state"), st.sampled_from(STATES), st.integers(0, 7), st.booleans(), st.booleans()),
    st.tuples(st.just("tick"), st.just(0), st.just(0), st.booleans(), st.booleans()),
)


def observation_of(step: tuple[str, int | str, int | str, bool, bool], seconds: float) -> Observation:
    kind, what, more, flag, other = step
    component = OTHER_GPU if other else GPU
    if kind == "xid":
        return xid(int(what), str(more), seconds=seconds, component=component, trusted=flag)
    return reading(str(what), flag, seconds=seconds, component=component, code=int(more))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(STEP, st.sampled_from([0.0, 0.5, 5.0, 31.0, 400.0])), max_size=40), st.data())
def test_whatever_happens_the_story_is_consistent(
    steps: list[tuple[tuple[str, int | str, int | str, bool, bool], float]], data: st.DataObject
) -> None:
    """What was told is what is open; a restart in between changes neither; nothing is told twice."""
    faults = tracker()
    known: dict[str, Fault] = {}
    last_told: dict[str, object] = {}
    clock = 0.0
    for step, wait in steps:
        clock += wait
        told = faults.tick(at(clock)) if step[0] == "tick" else faults.apply([observation_of(step, clock)], at(clock))
        for transition, fault in told:
            if transition is Transition.OPENED:
                assert fault.key not in known
            else:
                assert fault.key in known
            if transition is Transition.REPEATED:
                before = known[fault.key]
                worse = fault.severity != before.severity or fault.suggested_rung != before.suggested_rung
                assert worse or at(clock) - last_told[fault.key] >= timedelta(seconds=30)  # type: ignore[operator]
                assert fault.count >= before.count
            if transition is Transition.CLEARED:
                del known[fault.key]
            else:
                known[fault.key] = fault
                last_told[fault.key] = at(clock)
        assert {fault.key for fault in faults.open_faults} == set(known)
        for fault in faults.open_faults:
            assert 1 <= len(fault.evidence) <= MAX_EVIDENCE
            assert fault.first_seen <= fault.last_seen <= at(clock)
        if data.draw(st.booleans()):
            revived = tracker(faults.open_faults)
            assert revived.open_faults == faults.open_faults
            assert revived.apply([], at(clock)) == []


@given(st.lists(st.sampled_from(CODES), max_size=30), st.data())
def test_what_a_process_writes_changes_nothing_that_is_trusted(codes: list[int], data: st.DataObject) -> None:
    honest, attacked = tracker(), tracker()
    for second, code in enumerate(codes):
        words = data.draw(st.sampled_from(WORDS))
        forged = xid(
            data.draw(st.sampled_from(CODES)), data.draw(st.sampled_from(WORDS)), seconds=second, trusted=False
        )
        honest.apply([xid(code, words, seconds=second)], at(second))
        attacked.apply([forged, xid(code, words, seconds=second), forged], at(second))
    assert honest.open_faults == tuple(fault for fault in attacked.open_faults if fault.trusted)
