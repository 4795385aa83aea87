"""A world served over gRPC: what crosses, and what is refused."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import grpc
import grpc.aio
import pytest

from domain.errors import NotOursError, PermanentError, TransientError
from domain.nodes import NodeRef
from domain.operations import OperationKind, OperationRequest, OperationState
from domain.scheduling import DrainRequest, Mark
from domain.workloads import SavedWork, SaveMethod
from simulator import protocol
from simulator.client import WorldClient
from simulator.faults import FaultKind, Injection
from simulator.jobs import JobState
from simulator.states import WorldState
from tests.simulator.served_world import Served

MARK = Mark(repair_id="repair/local/gpu-03/1", reason="kintsugi: test")
BAD = NodeRef(cluster="local", pool="h100", name="gpu-03")
SPARE = BAD.model_copy(update={"name": "spare-01"})


async def test_a_whole_repair_over_the_wire(served: Served) -> None:
    client = served.client
    await client.inject(Injection(node="gpu-03", kind=FaultKind.FALLEN_OFF_BUS))
    await client.quarantine(BAD, MARK)
    (workload,) = await client.workloads(BAD)
    progress = [said async for said in client.drain(BAD, DrainRequest(mark=MARK))]
    assert [said.done for said in progress] == [False, True]
    assert await client.confirm_stopped(BAD, workload.id)
    await client.lease_spare(SPARE, MARK.repair_id)
    await client.resume_workload(SavedWork(workload=workload, method=SaveMethod.NONE), BAD, "spare-01")
    boot_id = (await client.state()).node("gpu-03").boot_id
    await client.power_cycle(BAD, "t1")
    async for lives in client.watch_nodes():
        life = next(life for life in lives if life.node == "gpu-03")
        if life.agent_up and life.boot_id != boot_id:
            break
    burn_in = OperationRequest(operation_id="b", kind=OperationKind.BURN_IN)
    said = [progress async for progress in client.run_operation("gpu-03", life.boot_id, burn_in)]
    assert said[-1].state is OperationState.SUCCEEDED
    assert len(said[-1].tests) == 4
    await client.release(BAD, MARK)
    state = await client.state()
    assert state.job("train-1").state is JobState.RUNNING
    assert state.job("train-1").nodes == ("gpu-01", "gpu-02", "spare-01", "gpu-04")
    assert state.violations == ()


async def test_fencing_returns_once_the_power_is_off(served: Served) -> None:
    await served.client.inject(Injection(node="gpu-03", kind=FaultKind.HOST_HANG))
    assert not await served.client.is_off(BAD)
    await served.client.fence(BAD, "t1")
    assert await served.client.is_off(BAD)


async def test_a_hung_node_says_nothing_and_its_operation_goes_on_in_silence(served: Served) -> None:
    client = served.client
    boot_id = (await client.state()).node("gpu-05").boot_id
    request = OperationRequest(operation_id="b", kind=OperationKind.BURN_IN)
    stream = client.run_operation("gpu-05", boot_id, request)
    await anext(stream)
    await client.inject(Injection(node="gpu-05", kind=FaultKind.HOST_HANG))
    pending = asyncio.ensure_future(anext(stream))
    await client.advance(3600)
    done, _ = await asyncio.wait([pending], timeout=0.7)
    assert not done
    with pytest.raises(TransientError, match="gpu-05 does not answer"):
        await client.gpu_snapshot("gpu-05")
    await client.clear("gpu-05", FaultKind.HOST_HANG)
    assert (await pending).state is OperationState.FAILED


async def test_kernel_records_come_once_and_after_the_position_asked_for(served: Served) -> None:
    client = served.client
    boot_id = (await client.state()).node("gpu-03").boot_id
    await client.inject(Injection(node="gpu-03", kind=FaultKind.FALLEN_OFF_BUS))
    stream = client.kernel_records("gpu-03", boot_id, 1)
    first = await anext(stream)
    assert [record.sequence for record in first] == [2, 3, 4]
    assert first[0].text.startswith("NVRM: Xid (PCI:0000:1b:00): 79, pid=2")
    assert first[0].facility == 0
    await client.kernel_write("gpu-03", "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.")
    (second,) = await anext(stream)
    assert (second.sequence, second.facility) == (5, 1)
    await client.power_cycle(BAD, "t")
    with pytest.raises(TransientError, match="is over"):
        await anext(stream)


async def test_errors_cross_with_their_class_and_sentence(served: Served) -> None:
    client = served.client
    await client.quarantine(BAD, MARK)
    with pytest.raises(NotOursError, match="is marked by repair/local/gpu-03/1"):
        await client.release(BAD, MARK.model_copy(update={"repair_id": "other"}))
    with pytest.raises(PermanentError, match="no node gpu-99"):
        await client.workloads(BAD.model_copy(update={"name": "gpu-99"}))
    with pytest.raises(PermanentError, match="is not in the simulated cluster"):
        await client.workloads(BAD.model_copy(update={"cluster": "elsewhere"}))
    await client.inject(Injection(node="gpu-03", kind=FaultKind.BMC_UNREACHABLE))
    with pytest.raises(TransientError, match="BMC of gpu-03"):
        await client.is_off(BAD)


async def test_the_mark_that_an_earlier_repair_left_is_a_hold_that_a_later_one_keeps(served: Served) -> None:
    client = served.client
    await client.quarantine(BAD, MARK)
    later = MARK.model_copy(update={"repair_id": "repair/local/gpu-03/2"})
    state = await client.quarantine(BAD, later)
    assert "repair/local/gpu-03/1" in state.foreign_holds[0]
    released = await client.release(BAD, later)
    assert (released.our_mark, released.schedulable) == (None, False)


async def test_a_world_that_is_not_there_is_transient_and_says_what_to_look_at() -> None:
    client = WorldClient("127.0.0.1:1")
    with pytest.raises(TransientError, match="python -m simulator"):
        await client.state()
    with pytest.raises(TransientError, match="python -m simulator"):
        await anext(client.watch_nodes())
    await client.close()


@pytest.mark.parametrize("body", [b"", b"\xff\x00", b"[]", b'{"node": "gpu-03"}', b'{"kind": "x", "node": 1}'])
async def test_a_malformed_body_is_refused_and_names_the_method(served: Served, body: bytes) -> None:
    async with grpc.aio.insecure_channel(served.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asked(channel, protocol.INJECT.path)(body)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "Inject" in str(caught.value.details())


async def test_only_the_methods_of_the_allow_list_are_there(served: Served) -> None:
    async with grpc.aio.insecure_channel(served.address) as channel:
        for path in (f"/{protocol.SERVICE}/__init__", "/other.Service/State"):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await asked(channel, path)(b"{}")
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def asked(channel: grpc.aio.Channel, path: str) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
    return channel.unary_unary(path)


def test_an_unknown_error_class_becomes_a_permanent_error() -> None:
    told = protocol.error_from(json.dumps({"error": "SystemExit", "text": "x"}))
    assert type(told) is PermanentError
    assert protocol.error_from("not json") is None


@pytest.mark.processes
def test_the_command_serves_tells_its_address_and_ends_on_sigterm(tmp_path: Path) -> None:
    ready = tmp_path / "address"
    command = [sys.executable, "-m", "simulator", "--listen", "127.0.0.1:0", "--ready-file", str(ready)]
    process = subprocess.Popen([*command, "--nodes", "2", "--job-nodes", "1", "--timing", "boot=1"])
    try:
        deadline = time.monotonic() + 30
        while not ready.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        state = asyncio.run(_state(ready.read_text()))
        assert [node.name for node in state.nodes] == ["gpu-01", "gpu-02", "spare-01"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()


async def _state(address: str) -> WorldState:
    client = WorldClient(address)
    try:
        return await client.state()
    finally:
        await client.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--nodes", "0"], "must be 1 to 5000"),
        (["--speed", "-1"], "above 0"),
        (["--timing", "boots=1"], "choose one of"),
        (["--timing", "boot=-1"], "--timing boot"),
        (["--listen", "203.0.113.1:1"], "cannot listen on 203.0.113.1:1"),
    ],
)
def test_a_wrong_option_is_told_without_a_traceback(options: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "simulator", *options], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr
