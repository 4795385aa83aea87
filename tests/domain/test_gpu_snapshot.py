"""What a snapshot of the GPUs amounts to: tables."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from domain.classify import classify
from domain.gpu_snapshot import (
    GpuReading,
    GpuSnapshot,
    LinkMemory,
    inventory_from,
    observations_from,
    states_from,
)
from domain.nodes import Gpu, Inventory
from domain.observations import MAX_TEXT, Component, ComponentKind, Observation

AT = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
HEALTHY = GpuReading(
    index=0,
    uuid="GPU-a",
    serial="165",
    model="H100",
    pci_bus_id="00000000:1b:00.0",
    temperature_c=41,
    slowdown_temperature_c=87,
    shutdown_temperature_c=92,
    clocks_event_reasons=0x1,
    ecc_volatile_uncorrected=0,
    ecc_aggregate_uncorrected=0,
    row_remap_pending=False,
    row_remap_failure=False,
    recovery_action=0,
    nvlinks=(True, True, True),
)
KNOWN = Inventory(gpus=(Gpu(uuid="GPU-a", pci_bus_id="0000:1b:00.0"),))
NODE = Component(kind=ComponentKind.NODE)


def gpu(uuid: str) -> Component:
    return Component(kind=ComponentKind.GPU, id=uuid)


def look(*readings: GpuReading, known: Inventory = KNOWN, links: LinkMemory | None = None) -> list[Observation]:
    return observations_from(GpuSnapshot(readings=readings), known, "boot-1", AT, links)


def active(observations: list[Observation]) -> list[tuple[str, str]]:
    return [(o.kind, o.component.id) for o in observations if o.active]


def test_healthy_gpu_says_of_every_state_that_it_does_not_hold() -> None:
    observations = look(HEALTHY)
    assert active(observations) == []
    assert [o.kind for o in observations] == [
        "gpu_missing",
        "gpu_lost",
        "ecc_uncorrected",
        "row_remap_pending",
        "row_remap_failure",
        "temperature_high",
        "thermal_slowdown",
        "power_brake",
        "recovery_action",
        "nvlink_down",
    ]
    assert all(o.stateful and o.trusted and o.at == AT and o.boot_id == "boot-1" for o in observations)
    assert {o.component for o in observations} == {gpu("GPU-a")}


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"ecc_volatile_uncorrected": 3}, "ecc_uncorrected", "3 uncorrectable"),
        ({"row_remap_pending": True}, "row_remap_pending", "next reset"),
        ({"row_remap_failure": True}, "row_remap_failure", "could not be remapped"),
        ({"retired_pages_pending": True}, "retired_pages_pending", "retired"),
        ({"temperature_c": 87}, "temperature_high", "87 °C"),
        ({"clocks_event_reasons": 0x40}, "thermal_slowdown", "0x40"),
        ({"clocks_event_reasons": 0x68}, "thermal_slowdown", "software thermal slowdown too"),
        ({"clocks_event_reasons": 0x80}, "power_brake", "power supply"),
        ({"clocks_event_reasons": 0x8}, "power_brake", "0x8"),
        ({"recovery_action": 2}, "recovery_action", "action 2"),
        ({"reset_required": True}, "recovery_action", "action 1"),
    ],
)
def test_each_state_shows_alone(change: dict[str, object], kind: str, words: str) -> None:
    observations = look(HEALTHY.model_copy(update=change))
    assert active(observations) == [(kind, "GPU-a")]
    assert words in next(o.text for o in observations if o.active)


@pytest.mark.parametrize("reasons", [0x0, 0x1, 0x2, 0x4, 0x10, 0x20, 0x100, 0x137])
def test_idle_power_cap_and_software_thermal_are_no_findings(reasons: int) -> None:
    assert active(look(HEALTHY.model_copy(update={"clocks_event_reasons": reasons}))) == []


def test_unexplained_slowdown_of_a_hot_gpu_is_thermal() -> None:
    hot = HEALTHY.model_copy(update={"clocks_event_reasons": 0x8, "temperature_c": 90})
    assert active(look(hot)) == [("temperature_high", "GPU-a"), ("thermal_slowdown", "GPU-a")]


def test_nothing_follows_from_what_nvml_does_not_support() -> None:
    bare = GpuReading(index=0, uuid="GPU-a")
    assert [o.kind for o in look(bare)] == ["gpu_missing", "gpu_lost"]


def test_recovery_action_carries_its_number_so_that_it_is_judged() -> None:
    judged = [
        classify(o) for o in look(HEALTHY.model_copy(update={"recovery_action": 1})) if o.kind == "recovery_action"
    ]
    assert [j.fault_class if j else None for j in judged] == ["gpu.reset_required"]


@pytest.mark.parametrize("kind", sorted({s.kind for s in states_from(GpuSnapshot(readings=(HEALTHY,)), KNOWN)}))
def test_every_kind_has_a_class(kind: str) -> None:
    observation = next(o for o in look(HEALTHY) if o.kind == kind).model_copy(update={"active": True, "code": 1})
    judged = classify(observation)
    assert judged is not None
    assert judged.fault_class != "node.unknown_observation"


def test_lost_gpu_says_nothing_else() -> None:
    lost = HEALTHY.model_copy(update={"lost": True, "row_remap_failure": True})
    observations = look(lost)
    assert [(o.kind, o.active) for o in observations] == [("gpu_missing", False), ("gpu_lost", True)]


def test_known_gpu_that_does_not_show_is_missing() -> None:
    known = Inventory(gpus=(*KNOWN.gpus, Gpu(uuid="GPU-b", pci_bus_id="0000:1c:00.0")))
    assert active(look(HEALTHY, known=known)) == [("gpu_missing", "GPU-b")]


def test_lost_gpu_without_a_name_is_found_by_its_address() -> None:
    known = Inventory(gpus=(*KNOWN.gpus, Gpu(uuid="GPU-b", pci_bus_id="0000:1c:00.0"), Gpu(uuid="GPU-c")))
    lost = GpuReading(index=1, lost=True, pci_bus_id="00000000:1c:00.0")
    assert active(look(HEALTHY, lost, known=known)) == [("gpu_missing", "GPU-c"), ("gpu_lost", "GPU-b")]


def test_lost_gpu_without_any_identity_is_the_only_one_not_accounted_for() -> None:
    known = Inventory(gpus=(*KNOWN.gpus, Gpu(uuid="GPU-b")))
    assert active(look(HEALTHY, GpuReading(index=1, lost=True), known=known)) == [("gpu_lost", "GPU-b")]


def test_lost_gpu_that_nobody_can_name_concerns_the_node() -> None:
    observations = look(HEALTHY, GpuReading(index=1, lost=True))
    assert [o.component for o in observations if o.active] == [NODE]


def test_gpu_that_cannot_say_who_it_is_ends_no_fault_of_the_node() -> None:
    observations = look(GpuReading(index=0))
    assert [(o.kind, o.active) for o in observations] == [("gpu_missing", True)]


def links_after(*looks: tuple[bool | None, ...]) -> LinkMemory:
    memory = LinkMemory()
    for links in looks:
        memory = memory.after(GpuSnapshot(readings=(HEALTHY.model_copy(update={"nvlinks": links}),)))
    return memory


@pytest.mark.parametrize(
    ("earlier", "now", "told"),
    [
        ([(True, True)], (True, False), True),
        ([(True, True), (True, False)], (True, True), False),
        ([(True, False)], (True, False), None),  # never up: unused, or down since before we looked
        ([(False, False)], (False, False), None),
        ([], (True, True), False),
        ([(True, False), (False, False)], (True, False), False),  # one in use, fell and came back
        ([(True, None)], (False, None), True),
        ([], (), None),
    ],
)
def test_only_a_link_that_was_up_can_be_down(
    earlier: list[tuple[bool | None, ...]], now: tuple[bool | None, ...], told: bool | None
) -> None:
    observations = look(HEALTHY.model_copy(update={"nvlinks": now}), links=links_after(*earlier, now))
    assert next((o.active for o in observations if o.kind == "nvlink_down"), None) is told


def test_lost_gpu_does_not_count_as_links_down() -> None:
    memory = links_after((True, True))
    assert (
        memory.after(GpuSnapshot(readings=(HEALTHY.model_copy(update={"lost": True, "nvlinks": (False,)}),))) == memory
    )


def test_inventory_lists_what_has_a_name() -> None:
    snapshot = GpuSnapshot(driver_version="580.65.06", readings=(HEALTHY, GpuReading(index=1, lost=True)))
    inventory = inventory_from(snapshot, "6.1.0")
    assert inventory == Inventory(
        gpus=(Gpu(uuid="GPU-a", serial="165", pci_bus_id="00000000:1b:00.0", model="H100"),),
        driver_version="580.65.06",
        kernel_release="6.1.0",
    )
    assert inventory.uuid_at("0000:1b:00") == "GPU-a"


def test_evidence_is_bounded() -> None:
    known = Inventory(gpus=(Gpu(uuid="G" * 5000),))
    assert all(len(o.text) <= MAX_TEXT for o in look(known=known))
