"""The driver's own verdict on a GPU: what Xid 154 says in words and NVML's recovery action as a number."""

from __future__ import annotations

import re

from domain.faults import Rung, Severity
from domain.model import Word


class RecoveryAction(Word):
    """What the driver asks for.

    Attributes:
        fault_class: the class that it amounts to; None when the driver asks for nothing.
        rung: the rung that it names; None where no rung of ours is meant.
    """

    number: int
    fault_class: str | None
    severity: Severity | None = None
    rung: Rung | None = None


_ACTIONS = (
    RecoveryAction(number=0, fault_class=None),
    RecoveryAction(number=1, fault_class="gpu.reset_required", severity=Severity.FATAL, rung=Rung.RESET_GPU),
    RecoveryAction(number=2, fault_class="gpu.reboot_required", severity=Severity.FATAL, rung=Rung.REBOOT),
    RecoveryAction(number=3, fault_class="gpu.p2p_drain_required", severity=Severity.DEGRADED),
    RecoveryAction(number=4, fault_class="gpu.reset_required", severity=Severity.DEGRADED, rung=Rung.RESET_GPU),
    RecoveryAction(number=5, fault_class="nvlink.imex_recovery", severity=Severity.DEGRADED),
    RecoveryAction(number=6, fault_class="gpu.reboot_required", severity=Severity.FATAL, rung=Rung.REBOOT),
    RecoveryAction(number=7, fault_class="gpu.reboot_required", severity=Severity.FATAL, rung=Rung.REBOOT),
)
"""By number: ``nvmlDeviceGpuRecoveryAction_t`` in nvml.h, 0 to 5 also in ctrl2080gpu.h of driver 595.

0 none, 1 reset the GPU, 2 reboot the node, 3 drain peer-to-peer work, 4 drain and reset, 5 recover the
IMEX domain, 6 reset the PCIe bus, 7 reboot the system. No rung of ours resets a bus alone, so 6 asks for
the reboot that does.
"""

VERDICT_CLASSES = tuple(dict.fromkeys(a.fault_class for a in _ACTIONS if a.fault_class is not None))
"""Classes of the driver's verdicts: at most one of them holds for a GPU."""

_CHANGED_TO = re.compile(r"\bto 0x([0-9a-fA-F]{1,8})\b")


def recovery_action(number: int | None) -> RecoveryAction | None:
    """Return the verdict with this number, or None for a number that no table has."""
    return _ACTIONS[number] if number is not None and 0 <= number < len(_ACTIONS) else None


def recovery_action_of_line(detail: str) -> RecoveryAction | None:
    """Return the verdict that the words of an Xid 154 end with, in which the last value counts.

    ``GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)``, by ``gpu.c`` of
    open-gpu-kernel-modules. None when the text is cut off before it, or for a number that no table has.
    """
    numbers = _CHANGED_TO.findall(detail)
    return recovery_action(int(numbers[-1], 16)) if numbers else None
