"""The real agent code on simulated nodes: it lives, reports, acts and dies with its node."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from adapters.node_agent.client import NodeAgentClient
from domain.nodes import NodeRef
from domain.operations import OperationKind, OperationProgress, OperationRequest, OperationState
from domain.scheduling import DrainRequest, Mark
from fleet import Fleet
from simulator.faults import FaultKind, Injection
from simulator.supervisor import supervise
from simulator.world import Layout
from tests.agents.gateway_double import GatewayDouble, Heard, gateway_double
from tests.simulator.served_world import Served, served_world

NODE = NodeRef(cluster="local", pool="h100", name="gpu-02")


class Scene:
    """A world of two nodes, their agents, and the gateway that hears them."""

    def __init__(self, served: Served, gateway: GatewayDouble, agents: NodeAgentClient) -> None:
        self.served = served
        self.gateway = gateway
        self.agents = agents

    def streams(self, node: str = NODE.name) -> list[Heard]:
        return [heard for heard in self.gateway.streams if heard.hello.identity.node.name == node]

    async def hello(self, number: int = 1, gpus: int = 8) -> Heard:
        """Wait for a node's hello of a boot of that number, with its GPUs."""

        def boots() -> list[str]:
            return list(dict.fromkeys(heard.hello.identity.boot_id for heard in self.streams()))

        def there() -> bool:
            return (
                len(boots()) >= number
                and not self.streams()[-1].closed
                and len(self.streams()[-1].hello.identity.inventory.gpus) == gpus
            )

        await self.gateway.until(there, f"hello of boot {number}")
        return self.streams()[-1]

    def faults(self, node: str = NODE.name) -> list[str]:
        return [event.fault.fault_class for heard in self.streams(node) for event in heard.faults]

    async def empty_node(self) -> None:
        mark = Mark(repair_id="repair/local/gpu-02/1", reason="kintsugi: test")
        await self.served.client.quarantine(NODE, mark)
        async for _ in self.served.client.drain(NODE, DrainRequest(mark=mark)):
            pass

    async def follow(self, address: str, request: OperationRequest) -> OperationProgress:
        await self.agents.start(address, request)
        return [said async for said in self.agents.watch(address, request.operation_id)][-1]


@asynccontextmanager
async def scene(state_dir: Path, speed: float = 10.0) -> AsyncIterator[Scene]:
    async with served_world(speed, Layout(nodes=2, spares=0)) as served, gateway_double() as gateway:
        agents = NodeAgentClient()
        run_agent = Fleet(served.client, gateway.address).run_agent
        fleet = asyncio.create_task(supervise(served.client, run_agent, state_dir, frozenset()))
        try:
            yield Scene(served, gateway, agents)
        finally:
            fleet.cancel()
            await asyncio.wait([fleet])
            await agents.close()


async def test_an_injected_fault_is_reported_on_the_right_gpu(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        heard = await it.hello()
        await it.served.client.inject(Injection(node=NODE.name, kind=FaultKind.FALLEN_OFF_BUS, gpu=3))
        await it.gateway.until(lambda: "gpu.fallen_off_bus" in it.faults(), "the fault")
        (fault, *_) = (event.fault for event in it.streams()[-1].faults)
        assert fault.component.id == heard.hello.identity.inventory.gpus[3].uuid
        assert fault.trusted
        assert it.faults("gpu-01") == []


async def test_a_process_that_writes_to_the_kernel_log_is_not_trusted(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        await it.hello()
        line = "NVRM: Xid (PCI:0000:43:00): 79, pid=1, name=evil, GPU has fallen off the bus."
        await it.served.client.kernel_write(NODE.name, line)
        await it.gateway.until(lambda: bool(it.faults()), "the fault")
        assert not it.streams()[-1].faults[0].fault.trusted


async def test_a_reboot_ends_the_agent_and_is_proven_by_its_successor(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        client = it.served.client
        await it.empty_node()
        first = (await it.hello()).hello
        identity = first.identity
        request = OperationRequest(operation_id="r/1", kind=OperationKind.REBOOT, boot_id=identity.boot_id)
        await it.agents.start(identity.operations_address, request)
        second = (await it.hello(2)).hello
        assert second.identity.boot_id == (await client.state()).node(NODE.name).boot_id != identity.boot_id
        assert second.spool_id == first.spool_id
        progress = await it.follow(second.identity.operations_address, request)
        assert progress.state is OperationState.SUCCEEDED
        assert (await client.state()).node(NODE.name).reboots == 1


async def test_an_operation_outlives_its_agent(tmp_path: Path) -> None:
    async with scene(tmp_path, speed=2.0) as it:
        client = it.served.client
        await it.empty_node()
        identity = (await it.hello()).hello.identity
        request = OperationRequest(operation_id="b/1", kind=OperationKind.BURN_IN, boot_id=identity.boot_id)
        await it.agents.start(identity.operations_address, request)
        await client.inject(Injection(node=NODE.name, kind=FaultKind.AGENT_DEATH, clears_after=1.0))
        await it.gateway.until(lambda: it.streams()[-1].closed, "the agent's end")
        identity = (await it.hello()).hello.identity
        progress = await it.follow(identity.operations_address, request)
        assert (progress.state, len(progress.tests)) == (OperationState.SUCCEEDED, 4)
        assert (await client.state()).node(NODE.name).burn_ins == 1


async def test_a_cancelled_operation_stops_on_the_node(tmp_path: Path) -> None:
    async with scene(tmp_path, speed=0.05) as it:
        client = it.served.client
        identity = (await it.hello()).hello.identity
        request = OperationRequest(operation_id="c/1", kind=OperationKind.CHECKPOINT, workload_id="train-1")
        await it.agents.start(identity.operations_address, request)
        progress = await it.agents.cancel(identity.operations_address, "c/1")
        assert progress.state is OperationState.CANCELLED
        await client.advance(10)
        assert (await client.state()).node(NODE.name).checkpoints == 0


async def test_a_hung_host_is_silent_and_comes_back_in_the_same_boot(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        await it.hello()
        await it.served.client.inject(Injection(node=NODE.name, kind=FaultKind.HOST_HANG))
        await it.gateway.until(lambda: it.streams()[-1].closed, "silence")
        before = len(it.streams())
        await it.served.client.clear(NODE.name, FaultKind.HOST_HANG)
        await it.gateway.until(lambda: len(it.streams()) > before, "the agent is back")
        assert len({heard.hello.identity.boot_id for heard in it.streams()}) == 1
        assert it.faults() == []


async def test_a_reinstalled_node_has_an_empty_disk(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        first = (await it.hello()).hello
        await it.served.client.reprovision(NODE, "t")
        second = (await it.hello(2)).hello
        assert second.spool_id != first.spool_id
        assert second.identity.machine_id == first.identity.machine_id


def test_the_command_says_what_is_missing_without_a_traceback() -> None:
    done = subprocess.run([sys.executable, "-m", "fleet"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "--world" in done.stderr
    assert "Traceback" not in done.stderr
