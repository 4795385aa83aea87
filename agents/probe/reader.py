"""How the GPUs are looked at: one snapshot per call, and the two ways in which a look can fail."""

from __future__ import annotations

from typing import Protocol

from domain.gpu_snapshot import GpuSnapshot


class ProbeError(Exception):
    """A look at the GPUs that gave nothing.

    Attributes:
        asked: False when the driver was not asked at all this time, because it failed a moment ago and is
            left alone for a while. Such an error is a reminder, not another reading.
    """

    def __init__(self, message: str, *, asked: bool = True) -> None:
        super().__init__(message)
        self.asked = asked


class ProbeHungError(ProbeError):
    """The driver did not answer within its deadline. That is itself a finding.

    Attributes:
        call: the NVML function that did not return, with the GPU's index where it concerns one.
    """

    def __init__(self, message: str, *, call: str = "", asked: bool = True) -> None:
        super().__init__(message, asked=asked)
        self.call = call


class ProbeUnavailableError(ProbeError):
    """The driver cannot be asked: no library, no driver, versions that do not match, a probe that died.

    Normal on a machine without NVIDIA GPUs.
    """


class GpuReader(Protocol):
    """A way to the GPUs of one node."""

    async def read(self) -> GpuSnapshot:
        """Return a fresh snapshot.

        Raises:
            ProbeHungError: the driver did not answer in time.
            ProbeUnavailableError: there is nothing to ask.
        """
