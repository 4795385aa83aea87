"""Operations: each at most once, resumed after a crash, bound to their boot, watched by anybody."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from agents.errors import StartError
from agents.operations.errors import (
    BusyError,
    IncompleteRequestError,
    RefusedError,
    UnknownOperationError,
)
from agents.operations.inspect_only import InspectOnlyDriver
from agents.operations.journal import MAX_ENTRIES, Entry, Journal
from agents.operations.manager import OperationManager
from agents.server import NodeOperationsService, OperationsServer
from domain.errors import PermanentError
from domain.nodes import NodeIdentity, NodeRef
from domain.operations import (
    NodeInspection,
    OperationKind,
    OperationProgress,
    OperationRequest,
    OperationState,
)
from runtime.settings import TlsFiles
from tests.agents.waiting import until
from wire.v1 import operations_pb2, operations_pb2_grpc

BOOT = "boot-1"
IDENTITY = NodeIdentity(node=NodeRef(cluster="c", pool="p", name="n1"), boot_id=BOOT)


class SteeredDriver:
    """A driver that counts its calls and goes on when told."""

    def __init__(self) -> None:
        self.calls: list[OperationRequest] = []
        self.steps: asyncio.Queue[OperationProgress | Exception] = asyncio.Queue()
        self.closed = 0

    async def run(self, request: OperationRequest) -> AsyncIterator[OperationProgress]:
        self.calls.append(request)
        try:
            while True:
                step = await self.steps.get()
                if isinstance(step, Exception):
                    raise step
                yield step
                if step.state.final:
                    return
        finally:
            self.closed += 1

    def say(self, state: OperationState, fraction: float = 0.5, message: str = "") -> None:
        self.steps.put_nowait(
            OperationProgress(
                operation_id="?", kind=OperationKind.INSPECT, state=state, fraction=fraction, message=message
            )
        )


async def look() -> NodeInspection:
    return NodeInspection(
        identity=IDENTITY,
        taken_at=datetime.now(UTC),
        open_faults=("gpu.fallen_off_bus@gpu/GPU-1",),
        blind_spots=("GPUs: no driver",),
    )


def request(
    kind: OperationKind = OperationKind.RESET_GPU, name: str = "repair/c/n1/1/reset/1", **rest: object
) -> OperationRequest:
    return OperationRequest.model_validate(
        {"operation_id": name, "kind": kind, "boot_id": BOOT, "workload_id": "job-1", **rest}
    )


class Run:
    """One life of the agent's operations over one journal file."""

    def __init__(self, journal: Journal, driver: SteeredDriver, manager: OperationManager) -> None:
        self.journal = journal
        self.driver = driver
        self.manager = manager

    async def stop(self) -> None:
        await self.manager.close()
        self.journal.close()

    async def until(self, operation_id: str, state: OperationState) -> OperationProgress:
        async with asyncio.timeout(10), aclosing(self.manager.watch(operation_id)) as watch:  # type: ignore[type-var]
            async for progress in watch:
                if progress.state is state:
                    return progress
        raise AssertionError("the watch ended")


Starter = Callable[..., Awaitable[Run]]


@pytest.fixture
async def start_run(tmp_path: Path) -> AsyncIterator[Starter]:
    runs: list[Run] = []

    async def starter(boot_id: str = BOOT) -> Run:
        driver = SteeredDriver()
        journal = await Journal.open(tmp_path / "operations.db")
        run = Run(journal, driver, OperationManager(journal, driver, boot_id, look))
        runs.append(run)
        await run.manager.resume()
        return run

    yield starter
    for run in runs:
        with suppress(RuntimeError):  # stopped by the test
            await run.stop()


async def called(driver: SteeredDriver, times: int = 1) -> None:
    await until(lambda: len(driver.calls) >= times, f"{times} calls of the driver")


async def test_a_second_start_joins_the_first(start_run: Starter) -> None:
    run = await start_run()
    first, second = await asyncio.gather(run.manager.start(request()), run.manager.start(request()))
    assert first.state is second.state is OperationState.RUNNING
    await called(run.driver)
    run.driver.say(OperationState.SUCCEEDED, message="reset done")
    ended = await run.until(request().operation_id, OperationState.SUCCEEDED)
    assert ended.message == "reset done"
    assert ended.operation_id == request().operation_id
    assert await run.manager.start(request()) == ended
    assert await run.manager.start(request(deadline_seconds=5.0)) == ended, "the time left may differ"
    assert len(run.driver.calls) == 1


async def test_another_request_under_the_same_id_is_refused(start_run: Starter) -> None:
    run = await start_run()
    await run.manager.start(request())
    with pytest.raises(RefusedError, match="used before"):
        await run.manager.start(request(gpu_uuids=("GPU-7",)))
    with pytest.raises(RefusedError, match="used before"):
        await run.manager.start(request(OperationKind.BURN_IN))


async def test_what_is_written_down_comes_before_the_driver(start_run: Starter, tmp_path: Path) -> None:
    run = await start_run()
    run.journal.close()  # from now on nothing can be written
    with pytest.raises(RuntimeError):
        await run.manager.start(request())
    await asyncio.sleep(0)
    assert run.driver.calls == []


@pytest.mark.parametrize("kind", [OperationKind.RESET_GPU, OperationKind.BURN_IN, OperationKind.CHECKPOINT])
async def test_after_a_crash_the_driver_is_called_again_with_the_same_request(
    start_run: Starter, kind: OperationKind
) -> None:
    run = await start_run()
    await run.manager.start(request(kind))
    await called(run.driver)
    await run.stop()

    again = await start_run()
    await called(again.driver)
    assert again.driver.calls == [request(kind)]
    assert (await again.manager.start(request(kind))).state is OperationState.RUNNING
    again.driver.say(OperationState.SUCCEEDED)
    await again.until(request().operation_id, OperationState.SUCCEEDED)
    await again.stop()

    third = await start_run()
    assert (await third.manager.start(request(kind))).state is OperationState.SUCCEEDED
    assert third.driver.calls == []


async def test_a_reboot_is_proven_by_the_new_boot_id(start_run: Starter) -> None:
    run = await start_run()
    await run.manager.start(request(OperationKind.REBOOT))
    await called(run.driver)
    run.driver.say(OperationState.SUCCEEDED, message="rebooted, says the driver")
    await until(lambda: run.driver.closed == 1, "the end of the driver")
    watch = run.manager.watch(request().operation_id)
    assert (await anext(watch)).state is OperationState.RUNNING, "the driver's word is no proof"
    await run.stop()

    same_boot = await start_run()
    await called(same_boot.driver)
    await same_boot.stop()

    after = await start_run(boot_id="boot-2")
    ended = await after.manager.start(request(OperationKind.REBOOT))
    assert ended.state is OperationState.SUCCEEDED
    assert "boot id changed from boot-1 to boot-2" in ended.message
    assert after.driver.calls == []


async def test_what_a_reboot_interrupted_has_failed(start_run: Starter) -> None:
    run = await start_run()
    await run.manager.start(request(OperationKind.RESET_GPU))
    await run.stop()
    after = await start_run(boot_id="boot-2")
    ended = await after.manager.start(request(OperationKind.RESET_GPU))
    assert ended.state is OperationState.FAILED
    assert "rebooted while reset_gpu was running" in ended.message
    assert after.driver.calls == []


@pytest.mark.parametrize("kind", [OperationKind.RESET_GPU, OperationKind.REBOOT, OperationKind.CLEAN_UP])
async def test_a_destructive_request_for_another_boot_is_refused(start_run: Starter, kind: OperationKind) -> None:
    run = await start_run(boot_id="boot-2")
    with pytest.raises(RefusedError, match="rebooted since"):
        await run.manager.start(request(kind))
    assert run.driver.calls == []


async def test_a_reboot_must_say_for_which_boot(start_run: Starter) -> None:
    run = await start_run()
    with pytest.raises(IncompleteRequestError, match="boot_id"):
        await run.manager.start(request(OperationKind.REBOOT, boot_id=""))


@pytest.mark.parametrize(
    ("running", "asked", "fits"),
    [
        (OperationKind.RESET_GPU, OperationKind.REBOOT, False),
        (OperationKind.BURN_IN, OperationKind.RESET_GPU, False),
        (OperationKind.CHECKPOINT, OperationKind.REBOOT, False),
        (OperationKind.REBOOT, OperationKind.CHECKPOINT, False),
        (OperationKind.CHECKPOINT, OperationKind.RESTORE, False),
        (OperationKind.RESET_GPU, OperationKind.CLEAN_UP, True),
        (OperationKind.RESET_GPU, OperationKind.INSPECT, True),
        (OperationKind.CLEAN_UP, OperationKind.RESET_GPU, True),
    ],
)
async def test_what_goes_together(start_run: Starter, running: OperationKind, asked: OperationKind, fits: bool) -> None:
    run = await start_run()
    await run.manager.start(request(running, "first"))
    if fits:
        assert (await run.manager.start(request(asked, "second"))).state is not OperationState.FAILED
    else:
        with pytest.raises(BusyError, match=f"busy with {running} first"):
            await run.manager.start(request(asked, "second"))
        assert "second" not in {made.operation_id for made in run.driver.calls}


async def test_two_workloads_are_saved_side_by_side(start_run: Starter) -> None:
    run = await start_run()
    await run.manager.start(request(OperationKind.CHECKPOINT, "first", workload_id="job-1"))
    await run.manager.start(request(OperationKind.CHECKPOINT, "second", workload_id="job-2"))
    await called(run.driver, 2)


async def test_every_watcher_gets_the_present_state_and_the_end(start_run: Starter) -> None:
    run = await start_run()
    await run.manager.start(request())

    async def states(enough: asyncio.Event) -> list[tuple[str, float]]:
        seen = []
        async for progress in run.manager.watch(request().operation_id):
            seen.append((progress.state.value, progress.fraction))
            enough.set()
        return seen

    ready = [asyncio.Event() for _ in range(50)]
    watchers = [asyncio.create_task(states(event)) for event in ready]
    async with asyncio.timeout(10):
        for event in ready:
            await event.wait()
        run.driver.say(OperationState.RUNNING, 0.25)
        run.driver.say(OperationState.SUCCEEDED, 1.0)
        everything = await asyncio.gather(*watchers)
    assert all(seen[0] == ("running", 0.0) for seen in everything)
    assert all(seen[-1] == ("succeeded", 1.0) for seen in everything)
    late = [progress async for progress in run.manager.watch(request().operation_id)]
    assert [progress.state for progress in late] == [OperationState.SUCCEEDED]


async def test_cancel_ends_a_burn_in_and_stays_so_after_a_restart(start_run: Starter) -> None:
    run = await start_run()
    await run.manager.start(request(OperationKind.BURN_IN))
    await called(run.driver)
    answers = await asyncio.gather(*(run.manager.cancel(request().operation_id) for _ in range(3)))
    assert [answer.state for answer in answers] == [OperationState.CANCELLED] * 3
    assert run.driver.closed == 1
    await run.stop()
    again = await start_run()
    assert (await again.manager.cancel(request().operation_id)).state is OperationState.CANCELLED
    assert again.driver.calls == []


@pytest.mark.parametrize("kind", [OperationKind.REBOOT, OperationKind.RESET_GPU])
async def test_what_cannot_be_stopped_goes_on_and_says_so(start_run: Starter, kind: OperationKind) -> None:
    run = await start_run()
    await run.manager.start(request(kind))
    await called(run.driver)
    answer = await run.manager.cancel(request().operation_id)
    assert answer.state is OperationState.RUNNING
    assert "cannot be stopped" in answer.message
    assert run.driver.closed == 0


async def test_unknown_operations_are_named(start_run: Starter) -> None:
    run = await start_run()
    with pytest.raises(UnknownOperationError, match="no operation nobody"):
        await anext(run.manager.watch("nobody"))
    with pytest.raises(UnknownOperationError):
        await run.manager.cancel("nobody")


@pytest.mark.parametrize("kind", [OperationKind.BURN_IN, OperationKind.REBOOT])
async def test_the_deadline_holds(start_run: Starter, kind: OperationKind) -> None:
    run = await start_run()
    await run.manager.start(request(kind, deadline_seconds=0.1))
    ended = await run.until(request().operation_id, OperationState.FAILED)
    assert "within" in ended.message
    assert "0.1 s" in ended.message


async def test_a_deadline_that_passed_while_the_agent_was_away_is_kept(tmp_path: Path) -> None:
    journal = await Journal.open(tmp_path / "operations.db")
    late = request(OperationKind.BURN_IN, deadline_seconds=60.0)
    started = OperationProgress(operation_id=late.operation_id, kind=late.kind, state=OperationState.RUNNING)
    await journal.begin(Entry(late, started, BOOT, datetime.now(UTC) - timedelta(minutes=2)))
    driver = SteeredDriver()
    run = Run(journal, driver, OperationManager(journal, driver, BOOT, look))
    await run.manager.resume()
    try:
        await run.until(late.operation_id, OperationState.FAILED)
        assert driver.calls == []
    finally:
        await run.stop()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermanentError("no such GPU"), "no such GPU"),
        (RuntimeError("boom"), "the driver broke"),
        (TimeoutError("nvidia-smi"), "gave up"),
    ],
)
async def test_a_driver_that_fails_is_a_failed_operation(start_run: Starter, error: Exception, words: str) -> None:
    run = await start_run()
    await run.manager.start(request())
    run.driver.steps.put_nowait(error)
    assert words in (await run.until(request().operation_id, OperationState.FAILED)).message


async def test_inspect_is_answered_without_the_driver(start_run: Starter) -> None:
    run = await start_run()
    await run.manager.start(request(OperationKind.INSPECT))
    ended = await run.until(request().operation_id, OperationState.SUCCEEDED)
    assert "gpu.fallen_off_bus@gpu/GPU-1" in ended.message
    assert "no driver" in ended.message
    assert run.driver.calls == []


async def test_the_journal_forgets_what_is_old_and_never_what_runs(tmp_path: Path) -> None:
    journal = await Journal.open(tmp_path / "operations.db")
    now = datetime.now(UTC)

    async def add(name: str, at: datetime, ended: bool) -> None:
        made = request(name=name)
        progress = OperationProgress(operation_id=name, kind=made.kind, state=OperationState.RUNNING)
        await journal.begin(Entry(made, progress, BOOT, at))
        if ended:
            done = progress.model_copy(update={"state": OperationState.SUCCEEDED})
            await journal.end(done, at)

    try:
        await add("old running", now - timedelta(days=90), ended=False)
        await add("old ended", now - timedelta(days=31), ended=True)
        await add("fresh", now, ended=True)
        await add("newest", now, ended=False)
        assert await journal.find("old ended") is None
        assert await journal.find("fresh") is not None
        assert [entry.request.operation_id for entry in await journal.running()] == ["old running", "newest"]
        for number in range(MAX_ENTRIES + 2):
            await add(f"many {number}", now + timedelta(seconds=number + 1), ended=True)
        await add("last", now + timedelta(hours=1), ended=False)
        assert await journal.find("fresh") is None
        assert await journal.find("many 1") is None
        assert await journal.find("many 2") is not None
        assert len(await journal.running()) == 3
    finally:
        journal.close()


class Served:
    """A server with its manager, and a channel to it."""

    def __init__(self, address: str, channel: grpc.aio.Channel, run: Run) -> None:
        self.address = address
        self.run = run
        self.channel = channel
        self.stub: operations_pb2_grpc.NodeOperationsStub = operations_pb2_grpc.NodeOperationsStub(channel)  # type: ignore[no-untyped-call]


@pytest.fixture
async def served(start_run: Starter) -> AsyncIterator[Served]:
    run = await start_run()
    server = OperationsServer("127.0.0.1:0", TlsFiles(), False, NodeOperationsService(run.manager, look))
    address = await server.start()
    async with grpc.aio.insecure_channel(address) as channel:
        yield Served(address, channel, run)
    await server.stop(0)


def message(kind: str = "RESET_GPU", name: str = "op-1", **rest: object) -> operations_pb2.StartRequest:
    fields = {"boot_id": BOOT, "deadline_seconds": 60.0, **rest}
    return operations_pb2.StartRequest(operation_id=name, kind=f"OPERATION_KIND_{kind}", **fields)  # type: ignore[arg-type]


async def test_over_grpc_start_watch_and_inspect(served: Served) -> None:
    started = await served.stub.Start(message())
    assert started.state == operations_pb2.OPERATION_STATE_RUNNING
    served.run.driver.say(OperationState.RUNNING, 0.5)
    served.run.driver.say(OperationState.SUCCEEDED, message="done")
    seen = [progress async for progress in served.stub.Watch(operations_pb2.WatchRequest(operation_id="op-1"))]
    assert seen[-1].state == operations_pb2.OPERATION_STATE_SUCCEEDED
    assert seen[-1].message == "done"
    inspection = await served.stub.Inspect(operations_pb2.InspectRequest())
    assert list(inspection.open_faults) == ["gpu.fallen_off_bus@gpu/GPU-1"]
    assert list(inspection.blind_spots) == ["GPUs: no driver"]
    assert inspection.identity.boot_id == BOOT


@pytest.mark.parametrize(
    ("bad", "code", "words"),
    [
        (message(name="x" * 257), grpc.StatusCode.INVALID_ARGUMENT, "257 characters"),
        (message(name=""), grpc.StatusCode.INVALID_ARGUMENT, "operation_id is missing"),
        (message(kind="UNSPECIFIED"), grpc.StatusCode.INVALID_ARGUMENT, "kind"),
        (message(deadline_seconds=float("nan")), grpc.StatusCode.INVALID_ARGUMENT, "deadline_seconds"),
        (message(boot_id=""), grpc.StatusCode.INVALID_ARGUMENT, "boot_id"),
        (message(boot_id="boot-0"), grpc.StatusCode.FAILED_PRECONDITION, "rebooted since"),
        (message(name="taken", gpu_uuids=["GPU-3"]), grpc.StatusCode.FAILED_PRECONDITION, "used before"),
        (message(name="another"), grpc.StatusCode.ABORTED, "busy with reset_gpu taken"),
    ],
)
async def test_over_grpc_bad_requests_are_sentences(
    served: Served, bad: operations_pb2.StartRequest, code: grpc.StatusCode, words: str
) -> None:
    await served.stub.Start(message(name="taken"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await served.stub.Start(bad)
    assert caught.value.code() is code
    assert words in (caught.value.details() or "")


async def test_over_grpc_an_unknown_operation_is_not_found(served: Served) -> None:
    for call in (
        served.stub.Cancel(operations_pb2.CancelRequest(operation_id="nobody")),
        served.stub.Watch(operations_pb2.WatchRequest(operation_id="nobody")).read(),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_health_and_reflection_answer(served: Served) -> None:
    stub = health_pb2_grpc.HealthStub(served.channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service="wire.v1.NodeOperations"))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING

    def services() -> list[str]:
        with grpc.insecure_channel(served.address) as channel:
            return list(ProtoReflectionDescriptorDatabase(channel).get_services())

    assert "wire.v1.NodeOperations" in await asyncio.to_thread(services)


async def test_the_driver_none_names_the_setting(tmp_path: Path) -> None:
    journal = await Journal.open(tmp_path / "operations.db")
    manager = OperationManager(journal, InspectOnlyDriver(), BOOT, look)
    try:
        await manager.start(request())
        async with asyncio.timeout(10):
            states = [progress async for progress in manager.watch(request().operation_id)]
        assert states[-1].state is OperationState.UNSUPPORTED
        assert "KINTSUGI_AGENT_DRIVER" in states[-1].message
    finally:
        await manager.close()
        journal.close()


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


async def test_addresses_that_cannot_be_served_are_sentences(
    start_run: Starter, taken_port: int, tmp_path: Path
) -> None:
    service = NodeOperationsService((await start_run()).manager, look)
    with pytest.raises(StartError, match=r"not served on 0\.0\.0\.0:0 without TLS"):
        OperationsServer("0.0.0.0:0", TlsFiles(), False, service)
    with pytest.raises(StartError, match="write host:port"):
        OperationsServer("localhost", TlsFiles(), False, service)
    with pytest.raises(StartError, match="all three files"):
        OperationsServer("127.0.0.1:0", TlsFiles(ca=tmp_path / "ca.pem"), False, service)
    with pytest.raises(StartError, match="port is in use"):
        await OperationsServer(f"127.0.0.1:{taken_port}", TlsFiles(), False, service).start()


async def test_two_agents_never_answer_on_one_port(start_run: Starter) -> None:
    service = NodeOperationsService((await start_run()).manager, look)
    first = OperationsServer("127.0.0.1:0", TlsFiles(), False, service)
    address = await first.start()
    try:
        with pytest.raises(StartError, match="port is in use"):
            await OperationsServer(address, TlsFiles(), False, service).start()
    finally:
        await first.stop(0)
