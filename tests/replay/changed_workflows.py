"""Repairs changed in the way that breaks running ones: the replay must notice."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from domain.repair import RepairInput, RepairResult
    from domain.runbook import Step, StepResult
    from workflows.ids import REPAIR_WORKFLOW
    from workflows.repair_steps import RepairSteps
    from workflows.repair_workflow import RepairWorkflow


class SleepySteps(RepairSteps):
    """A pause before each step."""

    async def run(self, step: Step) -> StepResult:
        """Carry out a step, later."""
        await workflow.sleep(timedelta(seconds=1))
        return await super().run(step)


@workflow.defn(name=REPAIR_WORKFLOW)
class SleepyRepair(RepairWorkflow):
    """A repair with another sequence of commands."""

    @workflow.init
    def __init__(self, repair: RepairInput) -> None:
        super().__init__(repair)
        self._steps = SleepySteps(lambda: self._state)

    @workflow.run
    async def run(self, repair: RepairInput) -> RepairResult:
        """Run it."""
        return await super().run(repair)
