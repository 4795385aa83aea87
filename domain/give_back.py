"""Whether a repaired node may go back to its pool."""

from __future__ import annotations

from domain.nodes import Inventory, hardware_differences
from domain.operations import NodeInspection, TestResult, Verdict


def burn_in_failures(tests: tuple[TestResult, ...], allow_warn: bool) -> list[str]:
    """Return what speaks against the node after a burn-in; empty when it passed.

    Five outcomes, and only PASS passes (WARN where the policy allows it): a test that errs or is skipped proves
    nothing, and a burn-in without tests proves nothing either.
    """
    if not tests:
        return ["no test was run"]
    accepted = (Verdict.PASS, Verdict.WARN) if allow_warn else (Verdict.PASS,)
    return [f"{test.name}: {test.verdict}: {test.detail}" for test in tests if test.verdict not in accepted]


def objections(recorded: Inventory, found: NodeInspection, schedulable_gpus: int | None) -> list[str]:
    """Return in words what speaks against giving a node back; empty when nothing does.

    Args:
        recorded: the hardware as it was recorded when the repair began.
        found: an inspection made now.
        schedulable_gpus: GPUs that the scheduler counts on the node; None when it does not count them.
    """
    said = hardware_differences(recorded, found.identity.inventory)
    said += [f"the agent still holds {key} open" for key in found.open_faults]
    said += [
        f"process {process.pid} ({process.name or 'unknown'}) still holds GPU {process.gpu_uuid}"
        for process in found.processes
    ]
    said += [f"could not be looked at: {blind}" for blind in found.blind_spots]
    present = len(found.identity.inventory.gpus)
    if schedulable_gpus is not None and schedulable_gpus != present:
        said.append(f"the scheduler counts {schedulable_gpus} GPUs, the driver {present}")
    return said
