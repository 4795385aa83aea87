"""The stand-in for NVIDIA's library: built once, loaded through the same ctypes path as the real one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fake_nvml.c")
H100 = {
    "name": "NVIDIA H100 80GB HBM3",
    "temperature": "41",
    "slowdown": "87",
    "shutdown": "92",
    "reasons": "0x1",
    "ecc_volatile": "0",
    "ecc_aggregate": "0",
    "remapped": "0,0,0,0",
    "gen": "5",
    "gen_max": "5",
    "width": "16",
    "width_max": "16",
    "mig": "0",
    "recovery_action": "0",
    "nvlinks": "1" * 18,
    "processes": "4242:1073741824",
}
"""A healthy H100: no retired pages (Ampere and later remap rows instead)."""


def build_library(folder: Path) -> Path:
    """Return a folder with a fresh libnvidia-ml.so.1 in it; skips the test where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for the stand-in of libnvidia-ml.so.1")
    target = folder / "libnvidia-ml.so.1"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-D_GNU_SOURCE", "-o", str(target), str(SOURCE)]
    built = subprocess.run([compiler, *flags], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


class FakeDriver:
    """A driver with some H100 GPUs, steered by the test.

    Args:
        library: folder of the library.
        steering: file that steers it.
    """

    def __init__(self, library: Path, steering: Path, gpus: int = 2) -> None:
        self._steering = steering
        self.environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "FAKE_NVML": str(steering)}
        self.settings = {"count": str(gpus), "driver": "580.65.06"}
        for index in range(gpus):
            self.settings |= {f"gpu{index}.{key}": value for key, value in H100.items()}
            self.settings[f"gpu{index}.uuid"] = f"GPU-{index}"
            self.settings[f"gpu{index}.serial"] = f"165{index}"
            self.settings[f"gpu{index}.pci"] = f"00000000:{0x1B + index:02X}:00.0"
        self.set()

    def set(self, **changes: str | int | None) -> None:
        """Change settings from now on; None takes one away. ``gpu0__uuid`` stands for ``gpu0.uuid``."""
        for key, value in changes.items():
            name = key.replace("__", ".")
            if value is None:
                self.settings.pop(name, None)
            else:
                self.settings[name] = str(value)
        text = "".join(f"{key}={value}\n" for key, value in self.settings.items())
        beside = self._steering.with_suffix(".new")
        beside.write_text(text)
        beside.replace(self._steering)  # the library never sees half a file
