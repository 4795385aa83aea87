"""The GPU check: a driver that hangs, a driver that is not there, and what has been fine for long."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.checks import gpus
from agents.checks.gpus import GpuCheck, nvidia_gpus_on_bus
from agents.probe.reader import ProbeHungError, ProbeUnavailableError
from domain.gpu_snapshot import GpuReading, GpuSnapshot, inventory_from
from domain.nodes import Inventory

READING = GpuReading(
    index=0,
    uuid="GPU-a",
    temperature_c=41,
    slowdown_temperature_c=87,
    row_remap_pending=False,
    nvlinks=(True, True),
)
HEALTHY = GpuSnapshot(driver_version="580", readings=(READING,))
KNOWN = inventory_from(HEALTHY, "6.1")


class Reader:
    """Answers in turn, the last one for ever. Implements ``GpuReader``."""

    def __init__(self, *answers: GpuSnapshot | Exception) -> None:
        self._answers = list(answers)

    async def read(self) -> GpuSnapshot:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def check(*answers: GpuSnapshot | Exception, known: Inventory = KNOWN, on_bus: tuple[str, ...] = ()) -> GpuCheck:
    return GpuCheck(Reader(*answers), 0.001, "boot-1", lambda: known, lambda: on_bus)


async def active(looking: GpuCheck) -> dict[str, bool]:
    return {observation.kind: observation.active for observation in await looking.look()}


async def test_healthy_look_says_that_the_probe_works() -> None:
    seen = await active(check(HEALTHY))
    assert (seen["probe_hung"], seen["probe_failed"], seen["row_remap_pending"]) == (False, False, False)
    assert not any(seen.values())


async def test_hang_is_a_finding_that_ends_when_the_driver_answers() -> None:
    looking = check(ProbeHungError("no answer for 10 s", call="nvmlInit"), HEALTHY)
    (hung,) = await looking.look()
    assert (hung.kind, hung.active, hung.stateful, hung.text) == ("probe_hung", True, True, "no answer for 10 s")
    assert (await active(looking))["probe_hung"] is False


async def test_reminder_of_a_hang_is_no_second_reading() -> None:
    assert await check(ProbeHungError("as before", asked=False)).look() == ()


async def test_machine_that_never_had_a_gpu_has_no_finding() -> None:
    assert await check(ProbeUnavailableError("no library"), known=Inventory()).look() == ()


@pytest.mark.parametrize(("known", "on_bus"), [(KNOWN, ()), (Inventory(), ("0000:1b:00.0",))])
async def test_driver_missing_where_a_gpu_is_is_a_finding(known: Inventory, on_bus: tuple[str, ...]) -> None:
    looking = check(ProbeUnavailableError("not loaded"), HEALTHY, known=known, on_bus=on_bus)
    assert await active(looking) == {"probe_failed": True}
    assert (await active(looking))["probe_failed"] is False


async def test_reminder_of_a_missing_driver_is_no_second_reading() -> None:
    assert await check(ProbeUnavailableError("as before", asked=False)).look() == ()


async def test_hang_goes_on_while_the_driver_is_not_there() -> None:
    looking = check(ProbeHungError("x"), ProbeUnavailableError("not loaded"))
    await looking.look()
    assert "probe_hung" not in await active(looking)


async def test_batches_come_one_after_the_other() -> None:
    looking = check(HEALTHY, ProbeHungError("x", asked=False), HEALTHY)
    sizes = []
    async for batch in looking.batches():
        assert batch.position is None
        sizes.append(bool(batch.observations))
        if len(sizes) == 3:
            break
    assert sizes == [True, False, True]


async def test_link_that_goes_down_is_seen() -> None:
    down = READING.model_copy(update={"nvlinks": (True, False)})
    looking = check(HEALTHY, GpuSnapshot(readings=(down,)), HEALTHY)
    assert (await active(looking))["nvlink_down"] is False
    assert (await active(looking))["nvlink_down"] is True
    assert (await active(looking))["nvlink_down"] is False


async def test_what_is_fine_for_long_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    pending = GpuSnapshot(readings=(READING.model_copy(update={"row_remap_pending": True}),))
    looking = check(*[HEALTHY] * 4, pending, HEALTHY)
    clock = 1000.0
    told = []
    for seconds in (0.0, 119.0, 121.0, 131.0, 132.0, 133.0):
        monkeypatch.setattr(gpus, "monotonic", lambda now=clock + seconds: now)
        told.append((await active(looking)).get("row_remap_pending"))
    assert told == [False, False, None, None, True, False]
    monkeypatch.setattr(gpus, "monotonic", lambda: clock + 136.0)
    assert (await active(looking))["gpu_lost"] is False


async def test_problems_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    looking = check(HEALTHY.model_copy(update={"problems": ("GPU 0: unknown error",)}))
    await looking.look()
    await looking.look()
    assert [record.getMessage() for record in caplog.records] == ["NVML: GPU 0: unknown error"]


def test_gpus_are_told_from_other_devices_on_the_bus(tmp_path: Path) -> None:
    for name, vendor, kind in (
        ("0000:1b:00.0", "0x10de", "0x030200"),
        ("0000:1b:00.1", "0x10de", "0x040300"),  # the GPU's audio function
        ("0000:c4:00.0", "0x10de", "0x068000"),  # an NVSwitch
        ("0000:00:02.0", "0x8086", "0x030000"),
    ):
        device = tmp_path / name
        device.mkdir()
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")
    assert nvidia_gpus_on_bus(tmp_path) == ("0000:1b:00.0",)
    assert nvidia_gpus_on_bus(tmp_path / "none") == ()
