"""A GPU reset that succeeded ends what waited for it, also on drivers that do not say so themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest

from agents.agent import Agent
from domain.operations import OperationProgress, OperationRequest, OperationState
from tests.agents.gateway_double import gateway_double
from tests.agents.node_double import BOOT, GpusDouble, KernelDouble, settings
from wire.v1 import health_pb2, operations_pb2, operations_pb2_grpc


class ResettingDriver:
    """Resets GPUs, or says that it cannot."""

    def __init__(self, ending: OperationState) -> None:
        self.ending = ending

    async def run(self, request: OperationRequest) -> AsyncIterator[OperationProgress]:
        yield OperationProgress(operation_id=request.operation_id, kind=request.kind, state=self.ending)


@pytest.mark.parametrize(("ending", "cleared"), [(OperationState.SUCCEEDED, True), (OperationState.FAILED, False)])
async def test_only_a_reset_that_succeeded_ends_the_fault(
    tmp_path: Path, ending: OperationState, cleared: bool
) -> None:
    kernel = KernelDouble()
    async with gateway_double() as gateway:
        made = settings(gateway.address, tmp_path / "state")
        agent = Agent(made, BOOT, kernel, GpusDouble(), ResettingDriver(ending))
        running = asyncio.create_task(agent.run())
        await agent.serving()
        kernel.write("NVRM: Xid (PCI:0000:1b:00): 48, pid=1, name=t, DBE (double bit error) ECC Error")
        await gateway.until(lambda: bool(gateway.streams and gateway.streams[0].faults), "the fault opens")
        async with grpc.aio.insecure_channel(agent.operations_address) as channel:
            stub = operations_pb2_grpc.NodeOperationsStub(channel)  # type: ignore[no-untyped-call]
            await stub.Start(
                operations_pb2.StartRequest(
                    operation_id="r/reset_gpu",
                    kind=operations_pb2.OPERATION_KIND_RESET_GPU,
                    boot_id=BOOT.boot_id,
                    deadline_seconds=10,
                )
            )
            async for progress in stub.Watch(operations_pb2.WatchRequest(operation_id="r/reset_gpu")):
                last = progress
            async with asyncio.timeout(20):
                while True:
                    found = await stub.Inspect(operations_pb2.InspectRequest())
                    if bool(found.open_faults) is not cleared:
                        break
        assert last.state in (operations_pb2.OPERATION_STATE_SUCCEEDED, operations_pb2.OPERATION_STATE_FAILED)
        if cleared:
            await gateway.until(
                lambda: gateway.streams[0].faults[-1].transition == health_pb2.TRANSITION_CLEARED, "the clear is told"
            )
        running.cancel()
        await asyncio.wait([running])
