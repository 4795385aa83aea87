"""The rungs of the ladder: each is proven by what only its success can show."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.node_operations import NodeOperationActivities, OperationInput
    from activities.power import PowerActivities, PowerInput
    from activities.provision import ProvisionActivities, ProvisionInput
    from domain.faults import Rung
    from domain.nodes import hardware_differences
    from domain.operations import OperationKind
    from domain.repair import StepState
    from domain.runbook import StepResult
    from workflows import options
    from workflows.at_the_agent import at_the_agent
    from workflows.step_context import StepContext, error_type

Result = TypeVar("Result")

INVENTORY_WAIT = timedelta(seconds=60)
"""How long a rebooted node's driver may take to find all GPUs after the agent's first hello."""


class RungSteps:
    """Runs rungs. A reboot is proven by a new boot id and the recorded hardware, a reset by the driver's answer."""

    def __init__(self, context: StepContext) -> None:
        self._context = context

    async def run(self, rung: Rung) -> StepResult:
        """Run a rung, if the node is still ours."""
        if (taken := await self._context.taken_over()) is not None:
            return taken
        limits = self._context.state().input.policy.limits
        before = self._context.state().identity.boot_id
        match rung:
            case Rung.RESET_GPU:
                return await self._reset(limits.reset_gpu)
            case Rung.REBOOT:
                reboot = self._context.operation(OperationKind.REBOOT, limits.reboot)
                try:
                    await at_the_agent(
                        lambda address: workflow.start_activity_method(
                            NodeOperationActivities.reboot,
                            OperationInput(address=address, request=reboot),
                            **options.bounded(limits.reboot, attempts=5),
                            task_queue=self._context.queue,
                            summary="reboot through the agent",
                        ),
                        self._context.address,
                        over=lambda: self._context.state().identity.boot_id != before,
                    )
                except ActivityError as error:
                    # An answer that was lost says nothing; the boot id will.
                    if error_type(error) in options.NEVER_RETRIED:
                        raise
                return await self._came_back(before, limits.reboot)
            case Rung.POWER_CYCLE:
                await workflow.execute_activity_method(
                    PowerActivities.power_cycle,
                    PowerInput(node=self._context.state().identity.node, token=self._context.token),
                    **options.bounded(limits.power_cycle, attempts=5),
                    task_queue=self._context.queue,
                    summary="power cycle by the BMC",
                )
                return await self._came_back(before, limits.power_cycle)
            case Rung.REPROVISION:
                await workflow.execute_activity_method(
                    ProvisionActivities.reprovision,
                    self._provision_order(),
                    **options.bounded(limits.reprovision, attempts=5),
                    task_queue=self._context.queue,
                    summary="reinstall the node",
                )
                return await self._came_back(before, limits.reprovision)
            case _:
                ordered = await workflow.execute_activity_method(
                    ProvisionActivities.replace,
                    self._provision_order(),
                    **options.bounded(limits.reprovision, attempts=5),
                    task_queue=self._context.queue,
                    summary="order a replacement",
                )
                return StepResult(state=StepState.DONE, detail=ordered.detail)

    def _provision_order(self) -> ProvisionInput:
        state = self._context.state()
        evidence = "\n".join(text for fault in state.faults for text in fault.evidence)
        return ProvisionInput(node=state.identity.node, token=self._context.token, evidence=evidence)

    async def _reset(self, limit: timedelta) -> StepResult:
        result = await self._context.run_operation(
            self._context.operation(OperationKind.RESET_GPU, limit),
            options.bounded(limit, attempts=5),
            summary="reset the GPU",
        )
        return StepResult(state=StepState.DONE, detail=result.progress.message or "the driver reports the reset")

    async def _came_back(self, before: str, limit: timedelta) -> StepResult:
        """Wait for the proof of a reboot: a hello with a new boot id and the recorded hardware."""
        try:
            await workflow.wait_condition(
                lambda: self._context.state().identity.boot_id != before,
                timeout=limit,
                timeout_summary="the node comes back",
            )
        except TimeoutError:
            return StepResult(state=StepState.FAILED, detail=f"the node did not come back within {limit}")
        try:
            await workflow.wait_condition(
                lambda: not self._differences(), timeout=INVENTORY_WAIT, timeout_summary="all GPUs are found"
            )
        except TimeoutError:
            found = "; ".join(self._differences())
            return StepResult(state=StepState.FAILED, detail=f"the node came back, but not as it was: {found}")
        return StepResult(
            state=StepState.DONE,
            detail=f"boot id {before} → {self._context.state().identity.boot_id}, all GPUs present",
        )

    def _differences(self) -> list[str]:
        state = self._context.state()
        return hardware_differences(state.input.identity.inventory, state.identity.inventory)
