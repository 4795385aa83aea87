"""The probe's process: asks NVML whenever it is told to, one JSON line per look.

``python -m agents.probe.nvml_child ANSWERS_FD MARK_FD``: a line on standard input asks for a look; the answer goes
to the descriptor ANSWERS_FD, ``{"snapshot": …}`` in the words of ``domain.gpu_snapshot`` or
``{"unavailable": "why"}``, after which the process ends. The end of standard input ends it too. Imports are few
on purpose: it stays resident on every node.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from typing import Any

import pynvml

from agents.probe.call_mark import CallMark

Fields = dict[str, object]
Answer = Any
"""What pynvml returns: it has no types."""

_SLOW_SECONDS = 5.0
"""NVLinks and PCIe are looked at this often: many calls, and nothing in them is urgent."""
_ASK_AGAIN_SECONDS = 300.0
"""What a GPU does not support is asked again this often: ECC and MIG can be switched on."""
_RESTART_SECONDS = 60.0
"""While a GPU is lost NVML is started anew this often: it lists a recovered GPU only then."""
_PR_SET_PDEATHSIG = 1

_NOT_SUPPORTED = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
_START_PROBLEMS = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 is not on this machine: no NVIDIA driver is installed",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the NVIDIA driver is not loaded: load it (modprobe nvidia), or see in the kernel log (NVRM) why it refuses"
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the NVIDIA library and the loaded driver have different versions: a driver update is half done,"
        " reload the driver or reboot the node"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: "NVML may not open the driver's devices: the agent must run as root",
}
_DRIVER_GONE = (
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
)


class _UnavailableError(Exception):
    """NVML cannot be asked at all."""


class _LostError(Exception):
    """The GPU that was asked is lost."""


class _Gpu:
    """What is remembered of one GPU between looks."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.handle: object = None
        self.fixed: Fields = {"index": index}
        self.slow: Fields = {}
        self.slow_due = 0.0
        self.lost = False
        self.reset_required = False
        self.unsupported: set[tuple[str, tuple[object, ...]]] = set()


class Prober:
    """Asks NVML.

    Args:
        mark: where each call is written down before it is made.
    """

    def __init__(self, mark: CallMark) -> None:
        self._mark = mark
        self._driver_version = ""
        self._gpus: list[_Gpu] = []
        self._started_at: float | None = None
        self._ask_again_at = 0.0
        self._problems: list[str] = []

    def look(self) -> Fields:
        """Return a snapshot.

        Raises:
            _UnavailableError: NVML cannot be asked.
        """
        now = time.monotonic()
        self._problems = []
        lost = any(gpu.lost for gpu in self._gpus)
        if lost and self._started_at is not None and now > self._started_at + _RESTART_SECONDS:
            with contextlib.suppress(pynvml.NVMLError):
                self._call("nvmlShutdown")
            self._started_at = None
        if self._started_at is None:
            self._start()
            self._started_at = now
        if now >= self._ask_again_at:
            self._ask_again_at = now + _ASK_AGAIN_SECONDS
            for gpu in self._gpus:
                gpu.unsupported.clear()
        readings = [self._reading(gpu, now) for gpu in self._gpus]
        return {"driver_version": self._driver_version, "readings": readings, "problems": self._problems}

    def _start(self) -> None:
        try:
            self._call("nvmlInit")
            self._driver_version = _text(self._call("nvmlSystemGetDriverVersion"))
            count: int = self._call("nvmlDeviceGetCount")
        except pynvml.NVMLError as error:
            raise _UnavailableError(_START_PROBLEMS.get(error.value, f"NVML does not start: {error}")) from None
        before, self._gpus = self._gpus, [_Gpu(index) for index in range(count)]
        if len(before) == count:
            # A GPU that is still lost cannot say who it is, but its place tells.
            for gpu, earlier in zip(self._gpus, before, strict=True):
                gpu.fixed = earlier.fixed

    def _identify(self, gpu: _Gpu) -> None:
        """Read what never changes."""
        gpu.handle = self._gpu_call(gpu, "nvmlDeviceGetHandleByIndex", gpu.index)
        handle = gpu.handle
        gpu.fixed = {
            "index": gpu.index,
            "uuid": _text(self._gpu_call(gpu, "nvmlDeviceGetUUID", handle)),
            "pci_bus_id": _address(self._ask(gpu, "nvmlDeviceGetPciInfo")),
            "model": _text(self._ask(gpu, "nvmlDeviceGetName")),
            "serial": _text(self._ask(gpu, "nvmlDeviceGetSerial")),
            "slowdown_temperature_c": self._ask(
                gpu, "nvmlDeviceGetTemperatureThreshold", pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
            ),
            "shutdown_temperature_c": self._ask(
                gpu, "nvmlDeviceGetTemperatureThreshold", pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN
            ),
            "pcie_generation_max": self._ask(gpu, "nvmlDeviceGetMaxPcieLinkGeneration"),
            "pcie_width_max": self._ask(gpu, "nvmlDeviceGetMaxPcieLinkWidth"),
        }

    def _reading(self, gpu: _Gpu, now: float) -> Fields:
        if gpu.lost:
            # Each further call into a GPU that fell off the bus may block for many seconds.
            return {**gpu.fixed, "lost": True}
        try:
            if gpu.handle is None:
                self._identify(gpu)
            gpu.reset_required = False
            fresh = self._fresh(gpu)
            if now >= gpu.slow_due:
                gpu.slow = self._slow(gpu)
                gpu.slow_due = now + _SLOW_SECONDS
        except _LostError:
            gpu.lost = True
            return {**gpu.fixed, "lost": True}
        except pynvml.NVMLError as error:
            # Who it is cannot be told: a known GPU then counts as missing.
            self._problem(gpu, "nvmlDeviceGetHandleByIndex", error)
            return {"index": gpu.index}
        return {**gpu.fixed, **gpu.slow, **fresh, "reset_required": gpu.reset_required}

    def _fresh(self, gpu: _Gpu) -> Fields:
        rows = self._ask(gpu, "nvmlDeviceGetRemappedRows")
        processes = self._ask(gpu, "nvmlDeviceGetComputeRunningProcesses")
        return {
            "temperature_c": self._ask(gpu, "nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU),
            "clocks_event_reasons": self._clocks(gpu),
            "ecc_volatile_uncorrected": self._uncorrected(gpu, pynvml.NVML_VOLATILE_ECC),
            "row_remap_pending": None if rows is None else bool(rows[2]),
            "row_remap_failure": None if rows is None else bool(rows[3]),
            "recovery_action": self._recovery_action(gpu),
            "processes": [{"pid": p.pid, "used_memory_bytes": p.usedGpuMemory} for p in processes or ()],
        }

    def _slow(self, gpu: _Gpu) -> Fields:
        mig = self._ask(gpu, "nvmlDeviceGetMigMode")
        pages = self._ask(gpu, "nvmlDeviceGetRetiredPagesPendingStatus")
        return {
            "ecc_aggregate_uncorrected": self._uncorrected(gpu, pynvml.NVML_AGGREGATE_ECC),
            "retired_pages_pending": None if pages is None else bool(pages),
            "mig_enabled": None if mig is None else bool(mig[0]),
            "pcie_generation": self._ask(gpu, "nvmlDeviceGetCurrPcieLinkGeneration"),
            "pcie_width": self._ask(gpu, "nvmlDeviceGetCurrPcieLinkWidth"),
            "nvlinks": self._links(gpu),
        }

    def _clocks(self, gpu: _Gpu) -> Answer:
        reasons = self._ask(gpu, "nvmlDeviceGetCurrentClocksEventReasons")
        # The second is its name before driver 535.
        return reasons if reasons is not None else self._ask(gpu, "nvmlDeviceGetCurrentClocksThrottleReasons")

    def _uncorrected(self, gpu: _Gpu, counter: int) -> Answer:
        return self._ask(gpu, "nvmlDeviceGetTotalEccErrors", pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, counter)

    def _recovery_action(self, gpu: _Gpu) -> int | None:
        field_id = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
        fields = self._ask(gpu, "nvmlDeviceGetFieldValues", (field_id,))
        if fields is None:
            return None
        status = fields[0].nvmlReturn
        if status == pynvml.NVML_SUCCESS:
            return int(fields[0].value.uiVal)
        if status in (*_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT):
            # Drivers before 570 do not know the field.
            gpu.unsupported.add(("nvmlDeviceGetFieldValues", (field_id,)))
        else:
            self._problem(gpu, "nvmlDeviceGetFieldValues", pynvml.NVMLError(status))
        return None

    def _links(self, gpu: _Gpu) -> list[bool | None]:
        states: list[bool | None] = []
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            active = self._ask(gpu, "nvmlDeviceGetNvLinkState", link)
            states.append(None if active is None else bool(active))
        while states and states[-1] is None:
            states.pop()
        return states

    def _ask(self, gpu: _Gpu, name: str, *arguments: object) -> Answer:
        """Return the answer; None when it is not supported, or failed (then it is among the problems)."""
        key = (name, arguments)
        if key in gpu.unsupported:
            return None
        try:
            return self._gpu_call(gpu, name, gpu.handle, *arguments)
        except pynvml.NVMLError as error:
            link_that_is_none = name == "nvmlDeviceGetNvLinkState" and error.value == pynvml.NVML_ERROR_INVALID_ARGUMENT
            if error.value in _NOT_SUPPORTED or link_that_is_none:
                gpu.unsupported.add(key)
            elif error.value == pynvml.NVML_ERROR_RESET_REQUIRED:
                gpu.reset_required = True
            else:
                self._problem(gpu, name, error)
            return None

    def _gpu_call(self, gpu: _Gpu, name: str, *arguments: object) -> Answer:
        try:
            return self._call(name, *arguments, label=f"{name} of GPU {gpu.index}")
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
                raise _LostError from None
            if error.value in _DRIVER_GONE:
                raise _UnavailableError(_START_PROBLEMS.get(error.value, f"NVML stopped working: {error}")) from None
            raise

    def _call(self, name: str, *arguments: object, label: str = "") -> Answer:
        self._mark.begin(label or name)
        try:
            return getattr(pynvml, name)(*arguments)
        finally:
            self._mark.end()

    def _problem(self, gpu: _Gpu, call: str, error: Exception) -> None:
        text = f"GPU {gpu.index}: {call}: {error}"
        if text not in self._problems:
            self._problems.append(text)


def _address(pci: Answer) -> str:
    return "" if pci is None else _text(pci.busId).lower()


def _text(value: Answer) -> str:
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def main() -> None:
    """Answer until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the agent, which ends this process
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = int(sys.argv[1])
    mark = CallMark(int(sys.argv[2]))
    mark.end()
    prober = Prober(mark)
    while sys.stdin.buffer.readline():
        try:
            answer: Fields = {"snapshot": prober.look()}
        except _UnavailableError as error:
            answer = {"unavailable": str(error)}
        _write(answers, json.dumps(answer, separators=(",", ":")).encode() + b"\n")
        if "unavailable" in answer:
            break
    # The library's own shutdown could hang where its calls do.
    os._exit(0)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main()
