"""The probe on a stand-in of NVIDIA's library, loaded through pynvml's own ctypes path."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agents.probe.child_process import ProbeChild
from agents.probe.nvml_probe import NvmlProbe
from agents.probe.reader import ProbeHungError, ProbeUnavailableError
from domain.gpu_snapshot import GpuProcessReading
from tests.agents.waiting import until
from tests.nvml.fake_driver import FakeDriver, build_library

pytestmark = pytest.mark.nvml


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(library: Path, tmp_path: Path) -> FakeDriver:
    return FakeDriver(library, tmp_path / "steering")


@pytest.fixture
async def probe(driver: FakeDriver) -> AsyncIterator[NvmlProbe]:
    # The time allowed for the start must never delay the finding that a call hangs.
    probe = NvmlProbe(1.0, environment=driver.environment, first_rest_seconds=0.0, start_seconds=3600.0)
    yield probe
    await probe.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_everything_is_read(driver: FakeDriver, probe: NvmlProbe) -> None:
    driver.set(gpu1__processes="77:1024,78:-", gpu1__mig=1, gpu1__nvlinks="110-1", gpu1__gen=3, gpu1__retired_pending=1)
    driver.set(gpu1__ecc_volatile=2, gpu1__ecc_aggregate=9, gpu1__remapped="1,2,1,0", gpu1__recovery_action=4)
    snapshot = await probe.read()
    assert snapshot.driver_version == "580.65.06"
    assert snapshot.problems == ()
    healthy, other = snapshot.readings
    assert (healthy.uuid, healthy.serial, healthy.pci_bus_id) == ("GPU-0", "1650", "00000000:1b:00.0")
    assert healthy.model == "NVIDIA H100 80GB HBM3"
    assert (healthy.temperature_c, healthy.slowdown_temperature_c, healthy.shutdown_temperature_c) == (41, 87, 92)
    assert healthy.clocks_event_reasons == 1
    assert healthy.retired_pages_pending is None
    assert (healthy.pcie_generation, healthy.pcie_generation_max, healthy.pcie_width) == (5, 5, 16)
    assert healthy.nvlinks == (True,) * 18
    assert healthy.recovery_action == 0
    assert healthy.mig_enabled is False
    assert (other.ecc_volatile_uncorrected, other.ecc_aggregate_uncorrected) == (2, 9)
    assert (other.row_remap_pending, other.row_remap_failure) == (True, False)
    assert other.recovery_action == 4
    assert other.mig_enabled is True
    assert other.pcie_generation == 3
    assert other.retired_pages_pending is True
    assert other.nvlinks == (True, True, False, None, True)
    assert other.processes == (
        GpuProcessReading(pid=77, used_memory_bytes=1024),
        GpuProcessReading(pid=78, used_memory_bytes=None),
    )


async def test_one_process_answers_look_after_look(driver: FakeDriver, probe: NvmlProbe) -> None:
    await probe.read()
    pid = probe.child_pid
    driver.set(gpu0__temperature=90)
    assert (await probe.read()).readings[0].temperature_c == 90
    assert probe.child_pid == pid


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("temperature", "temperature_c"),
        ("slowdown", "slowdown_temperature_c"),
        ("reasons", "clocks_event_reasons"),
        ("ecc_volatile", "ecc_volatile_uncorrected"),
        ("remapped", "row_remap_pending"),
        ("gen", "pcie_generation"),
        ("mig", "mig_enabled"),
        ("recovery_action", "recovery_action"),
    ],
)
async def test_what_is_not_supported_is_none_and_no_problem(
    driver: FakeDriver, probe: NvmlProbe, key: str, field: str
) -> None:
    driver.set(**{f"gpu0__{key}": None})
    snapshot = await probe.read()
    assert getattr(snapshot.readings[0], field) is None
    assert getattr(snapshot.readings[1], field) is not None
    assert snapshot.problems == ()


async def test_gpu_without_nvlink_has_no_links(driver: FakeDriver, probe: NvmlProbe) -> None:
    driver.set(gpu0__nvlinks=None)
    assert (await probe.read()).readings[0].nvlinks == ()


async def test_older_driver_has_the_old_name_for_clocks(driver: FakeDriver, probe: NvmlProbe) -> None:
    driver.set(gpu0__reasons=None, gpu0__throttle_reasons="0x40")
    assert (await probe.read()).readings[0].clocks_event_reasons == 0x40


async def test_failed_call_is_a_problem_and_the_rest_is_read(driver: FakeDriver, probe: NvmlProbe) -> None:
    driver.set(gpu1__temperature="!999")
    snapshot = await probe.read()
    assert snapshot.problems == ("GPU 1: nvmlDeviceGetTemperature: Unknown Error",)
    assert snapshot.readings[1].temperature_c is None
    assert snapshot.readings[1].ecc_volatile_uncorrected == 0


async def test_lost_gpu_keeps_its_name_and_the_others_are_read(driver: FakeDriver, probe: NvmlProbe) -> None:
    await probe.read()
    driver.set(gpu1__lost=1)
    healthy, lost = (await probe.read()).readings
    assert (lost.lost, lost.uuid, lost.pci_bus_id) == (True, "GPU-1", "00000000:1c:00.0")
    assert (healthy.lost, healthy.temperature_c) == (False, 41)


async def test_lost_gpu_is_not_asked_again(driver: FakeDriver, probe: NvmlProbe) -> None:
    """Each call to such a GPU may block for many seconds: NVML calls took 6 to 45 s after Xid 79, 119 and 120."""
    driver.set(gpu0__lost=1)
    await probe.read()
    driver.set(gpu1__lost=1)
    assert (await probe.read()).readings[1].lost
    driver.set(hang="*")
    assert [reading.lost for reading in (await probe.read()).readings] == [True, True]


async def test_gpu_lost_from_the_start_is_listed(driver: FakeDriver, probe: NvmlProbe) -> None:
    driver.set(gpu0__lost=1)
    lost, healthy = (await probe.read()).readings
    assert (lost.lost, lost.uuid, lost.index) == (True, "", 0)
    assert healthy.uuid == "GPU-1"


async def test_gpu_that_gives_no_handle_has_no_name(driver: FakeDriver, probe: NvmlProbe) -> None:
    driver.set(gpu0__handle="!999")
    snapshot = await probe.read()
    assert (snapshot.readings[0].uuid, snapshot.readings[0].lost) == ("", False)
    assert snapshot.problems == ("GPU 0: nvmlDeviceGetHandleByIndex: Unknown Error",)
    driver.set(gpu0__handle=None)
    assert (await probe.read()).readings[0].uuid == "GPU-0"


async def test_reset_required_is_read(driver: FakeDriver, probe: NvmlProbe) -> None:
    driver.set(gpu0__temperature="!16")
    snapshot = await probe.read()
    assert [reading.reset_required for reading in snapshot.readings] == [True, False]
    assert snapshot.problems == ()


@pytest.mark.parametrize(
    ("init", "words"),
    [("!9", "not loaded"), ("!18", "different versions"), ("!4", "as root"), ("!999", "does not start: Unknown Error")],
)
async def test_driver_that_does_not_start_is_told(driver: FakeDriver, probe: NvmlProbe, init: str, words: str) -> None:
    driver.set(init=init)
    with pytest.raises(ProbeUnavailableError, match=words):
        await probe.read()
    driver.set(init=None)
    assert len((await probe.read()).readings) == 2


async def test_driver_that_goes_away_is_told(driver: FakeDriver, probe: NvmlProbe) -> None:
    await probe.read()
    driver.set(gpu0__temperature="!18")
    with pytest.raises(ProbeUnavailableError, match="different versions"):
        await probe.read()


async def test_machine_without_the_library(tmp_path: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    probe = NvmlProbe(5.0, environment=environment)
    with pytest.raises(ProbeUnavailableError, match=r"libnvidia-ml\.so\.1 is not on this machine"):
        await probe.read()
    await probe.close()


async def test_hang_names_the_call_and_the_process_is_killed(driver: FakeDriver, probe: NvmlProbe) -> None:
    """NVSentinel #1748: the library hung for over 45 s, its monitor was killed again and again, the cause unnamed."""
    await probe.read()
    pid = probe.child_pid
    assert pid is not None
    driver.set(hang="nvmlDeviceGetTemperature")
    with pytest.raises(ProbeHungError, match="nvmlDeviceGetTemperature of GPU 0") as caught:
        await probe.read()
    assert caught.value.call == "nvmlDeviceGetTemperature of GPU 0"
    assert caught.value.asked
    await until(lambda: not alive(pid), "the hung process is gone")
    driver.set(hang=None)
    assert len((await probe.read()).readings) == 2


async def test_hang_stops_nobody_else(driver: FakeDriver, probe: NvmlProbe) -> None:
    driver.set(hang="nvmlDeviceGetUUID")
    reading = asyncio.create_task(probe.read())
    turns = 0
    while not reading.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert isinstance(reading.exception(), ProbeHungError)
    assert turns > 10


async def test_slow_calls_within_the_deadline_are_no_hang(driver: FakeDriver) -> None:
    probe = NvmlProbe(1.6, environment=driver.environment)
    driver.set(hang="nvmlDeviceGetTemperature", hang_seconds=1)
    # Two GPUs, one second each: longer than the deadline together, but no call is.
    assert len((await probe.read()).readings) == 2
    await probe.close()


async def test_failing_driver_is_left_alone_for_a_while(driver: FakeDriver) -> None:
    probe = NvmlProbe(0.5, environment=driver.environment, first_rest_seconds=60.0)
    driver.set(hang="nvmlInitWithFlags")
    with pytest.raises(ProbeHungError):
        await probe.read()
    driver.set(hang=None)
    with pytest.raises(ProbeHungError, match="nvmlInit") as caught:
        await probe.read()
    assert not caught.value.asked
    assert caught.value.call == "nvmlInit"
    assert probe.child_pid is None
    await probe.close()


async def test_process_that_cannot_be_killed_is_given_up(
    driver: FakeDriver, probe: NvmlProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State D: a process inside the driver does not die of SIGKILL. Here the signal is just not sent."""
    await probe.read()
    stuck = probe.child_pid
    assert stuck is not None
    driver.set(hang="nvmlDeviceGetTemperature")
    with monkeypatch.context() as without_kill:
        without_kill.setattr(ProbeChild, "kill", lambda _: None)
        with pytest.raises(ProbeHungError):
            await probe.read()
        assert probe.stuck_pids == (stuck,)
        driver.set(hang=None)
        assert len((await probe.read()).readings) == 2
        assert probe.child_pid != stuck
        driver.set(hang="nvmlDeviceGetTemperature")
        for _ in range(2):
            with pytest.raises(ProbeHungError):
                await probe.read()
        assert len(probe.stuck_pids) == 3
        # Three processes sleep in the driver: no fourth is sent after them.
        with pytest.raises(ProbeHungError, match=f"process {stuck} still sleeps"):
            await probe.read()
        assert len(probe.stuck_pids) == 3
    await probe.close()
    assert probe.stuck_pids == ()


async def test_crash_of_the_library_is_told_and_overcome(driver: FakeDriver, probe: NvmlProbe) -> None:
    driver.set(crash="nvmlDeviceGetUUID")
    with pytest.raises(ProbeUnavailableError, match="by signal 11 in nvmlDeviceGetUUID of GPU 0"):
        await probe.read()
    driver.set(crash=None)
    assert len((await probe.read()).readings) == 2


async def test_killed_process_is_replaced(probe: NvmlProbe) -> None:
    await probe.read()
    pid = probe.child_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ProbeUnavailableError, match="by signal 9"):
        await probe.read()
    assert len((await probe.read()).readings) == 2


async def test_cancelled_look_leaves_no_answer_behind(driver: FakeDriver, probe: NvmlProbe) -> None:
    await probe.read()
    driver.set(hang="nvmlDeviceGetTemperature", hang_seconds=1, gpu0__temperature=90)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await probe.read()
    driver.set(hang=None, gpu0__temperature=55)
    assert (await probe.read()).readings[0].temperature_c == 55


async def test_closed_probe_leaves_no_process(probe: NvmlProbe) -> None:
    """A GPU reset needs that nobody holds the GPU."""
    await probe.read()
    pid = probe.child_pid
    assert pid is not None
    await probe.close()
    assert not alive(pid)
    assert len((await probe.read()).readings) == 2


async def test_process_ends_with_the_end_of_its_input(driver: FakeDriver, probe: NvmlProbe) -> None:
    child = ProbeChild(driver.environment)
    await child.ask(5.0, 30.0, 30.0)
    child.close()
    await until(lambda: child.gone, "the probe notices that nobody asks any more")
