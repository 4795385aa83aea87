"""The client of the agents: what crosses, and what each refusal becomes."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import grpc
import grpc.aio
import pytest

from adapters.node_agent import channels
from adapters.node_agent.client import NodeAgentClient
from domain.errors import KintsugiError, PermanentError, TransientError, UnsupportedError
from domain.nodes import NodeIdentity, NodeRef
from domain.operations import NodeInspection, OperationKind, OperationProgress, OperationRequest, OperationState
from domain.ports import NodeAgent
from runtime.settings import TlsFiles
from wire import convert
from wire.v1 import operations_pb2, operations_pb2_grpc

REQUEST = OperationRequest(operation_id="repair/c/n/1/burn_in/1", kind=OperationKind.BURN_IN)
INSPECTION = NodeInspection(
    identity=NodeIdentity(node=NodeRef(cluster="c", pool="p", name="n"), boot_id="b"),
    taken_at=datetime(2026, 1, 1, tzinfo=UTC),
    open_faults=("gpu.fallen_off_bus@gpu/GPU-1",),
)

Context = grpc.aio.ServicerContext[object, object]


def said(state: OperationState, fraction: float = 0.0) -> OperationProgress:
    return OperationProgress(
        operation_id=REQUEST.operation_id, kind=REQUEST.kind, state=state, fraction=fraction, message="so far so good"
    )


class AgentDouble(operations_pb2_grpc.NodeOperationsServicer):
    """Answers as it is told."""

    def __init__(self) -> None:
        self.refuse: grpc.StatusCode | None = None
        self.started: list[OperationRequest] = []
        self.progress = [said(OperationState.RUNNING, 0.5), said(OperationState.SUCCEEDED, 1.0)]
        self.malformed = False

    async def _maybe_refuse(self, context: Context) -> None:
        if self.refuse is not None:
            await context.abort(self.refuse, "the agent's own sentence")

    async def Start(self, request: operations_pb2.StartRequest, context: Context) -> operations_pb2.Progress:
        await self._maybe_refuse(context)
        self.started.append(convert.request_from_pb(request))
        return operations_pb2.Progress() if self.malformed else convert.progress_to_pb(said(OperationState.RUNNING))

    async def Watch(
        self, request: operations_pb2.WatchRequest, context: Context
    ) -> AsyncIterator[operations_pb2.Progress]:
        for progress in self.progress:
            yield convert.progress_to_pb(progress)
        await self._maybe_refuse(context)

    async def Cancel(self, request: operations_pb2.CancelRequest, context: Context) -> operations_pb2.Progress:
        await self._maybe_refuse(context)
        return convert.progress_to_pb(said(OperationState.CANCELLED))

    async def Inspect(self, request: operations_pb2.InspectRequest, context: Context) -> operations_pb2.Inspection:
        await self._maybe_refuse(context)
        return convert.inspection_to_pb(INSPECTION)


@asynccontextmanager
async def serving(double: AgentDouble, credentials: grpc.ServerCredentials | None = None) -> AsyncIterator[int]:
    server = grpc.aio.server()
    operations_pb2_grpc.add_NodeOperationsServicer_to_server(double, server)  # type: ignore[no-untyped-call]
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[NodeAgentClient, AgentDouble, str]]:
    double = AgentDouble()
    async with serving(double) as port:
        client = NodeAgentClient()
        yield client, double, f"127.0.0.1:{port}"
        await client.close()


async def test_requests_and_answers_cross_unchanged() -> None:
    async with connected() as (client, double, address):
        port: NodeAgent = client
        assert await port.start(address, REQUEST) == said(OperationState.RUNNING)
        assert double.started == [REQUEST]
        assert [p async for p in port.watch(address, REQUEST.operation_id)] == double.progress
        assert (await port.cancel(address, REQUEST.operation_id)).state is OperationState.CANCELLED
        assert await port.inspect(address) == INSPECTION


@pytest.mark.parametrize(
    ("code", "becomes"),
    [
        (grpc.StatusCode.UNAVAILABLE, TransientError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, TransientError),
        (grpc.StatusCode.ABORTED, TransientError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, TransientError),
        (grpc.StatusCode.INTERNAL, TransientError),
        (grpc.StatusCode.FAILED_PRECONDITION, PermanentError),
        (grpc.StatusCode.INVALID_ARGUMENT, PermanentError),
        (grpc.StatusCode.NOT_FOUND, PermanentError),
        (grpc.StatusCode.PERMISSION_DENIED, PermanentError),
        (grpc.StatusCode.UNAUTHENTICATED, PermanentError),
        (grpc.StatusCode.UNIMPLEMENTED, UnsupportedError),
    ],
)
async def test_each_status_becomes_the_error_that_says_what_may_be_done(
    code: grpc.StatusCode, becomes: type[KintsugiError]
) -> None:
    async with connected() as (client, double, address):
        double.refuse = code
        double.progress = [said(OperationState.RUNNING)]
        for call in (
            client.start(address, REQUEST),
            client.cancel(address, REQUEST.operation_id),
            client.inspect(address),
            _last(client.watch(address, REQUEST.operation_id)),
        ):
            with pytest.raises(KintsugiError) as caught:
                await call
            assert type(caught.value) is becomes
            assert address in str(caught.value)
            if code is not grpc.StatusCode.DEADLINE_EXCEEDED:
                assert "the agent's own sentence" in str(caught.value)


async def _last(progress: AsyncIterator[OperationProgress]) -> OperationProgress:
    return [said async for said in progress][-1]


async def test_a_stream_that_ends_before_its_operation_is_lost_not_done() -> None:
    async with connected() as (client, double, address):
        double.progress = [said(OperationState.RUNNING)]
        with pytest.raises(TransientError, match="watch it again"):
            await _last(client.watch(address, REQUEST.operation_id))


async def test_an_agent_that_is_away_is_found_again_on_its_address() -> None:
    double, client = AgentDouble(), NodeAgentClient()
    async with serving(double) as port:
        address = f"127.0.0.1:{port}"
        await client.start(address, REQUEST)
    with pytest.raises(TransientError, match="is the node up"):
        await client.start(address, REQUEST)
    server = grpc.aio.server()
    operations_pb2_grpc.add_NodeOperationsServicer_to_server(double, server)  # type: ignore[no-untyped-call]
    assert server.add_insecure_port(address) == port
    await server.start()
    async with asyncio.timeout(20):
        while len(double.started) < 2:
            try:
                await client.start(address, REQUEST)
            except TransientError:
                await asyncio.sleep(0.05)
    await client.close()
    await server.stop(None)


async def test_a_malformed_answer_or_request_is_permanent_and_named() -> None:
    async with connected() as (client, double, address):
        double.malformed = True
        with pytest.raises(PermanentError, match="operation_id is missing"):
            await client.start(address, REQUEST)
        with pytest.raises(PermanentError, match="cannot be put on the wire"):
            await client.start(address, REQUEST.model_copy(update={"operation_id": "\ud800"}))


async def test_idle_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MAX_IDLE", 2)
    kept = channels.Channels(None)
    async with kept.to("127.0.0.1:1") as busy:
        for port in range(2, 8):
            async with kept.to(f"127.0.0.1:{port}"):
                pass
        async with kept.to("127.0.0.1:1") as same:
            assert same is busy
    assert len(kept._kept) <= 3
    await kept.close()


def make_authority(folder: Path) -> None:
    run(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test authority")  # fmt: skip


def issue(folder: Path, name: str, alternative: str) -> TlsFiles:
    (folder / f"{name}.ext").write_text(f"subjectAltName={alternative}\n")
    run(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")  # fmt: skip
    run(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
        "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.pem")  # fmt: skip
    return TlsFiles(ca=folder / "ca.pem", cert=folder / f"{name}.pem", key=folder / f"{name}.key")


def run(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=30)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")
async def test_mutual_tls_checks_the_name_of_the_agent_that_is_called(tmp_path: Path) -> None:
    make_authority(tmp_path)
    agent, worker = issue(tmp_path, "localhost", "DNS:localhost"), issue(tmp_path, "worker", "DNS:worker")
    assert agent.ca is not None
    assert agent.cert is not None
    assert agent.key is not None
    credentials = grpc.ssl_server_credentials(
        [(agent.key.read_bytes(), agent.cert.read_bytes())], agent.ca.read_bytes(), require_client_auth=True
    )
    double = AgentDouble()
    async with serving(double, credentials) as port:
        client = NodeAgentClient(worker)
        assert await client.inspect(f"localhost:{port}") == INSPECTION
        with pytest.raises(TransientError):
            await client.inspect(f"127.0.0.1:{port}")
        await client.close()
        stranger = NodeAgentClient()
        with pytest.raises(TransientError):
            await stranger.inspect(f"localhost:{port}")
        await stranger.close()


def test_unusable_certificate_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="all three files"):
        NodeAgentClient(TlsFiles(ca=tmp_path / "ca.pem"))
    missing = TlsFiles(ca=tmp_path / "ca.pem", cert=tmp_path / "c.pem", key=tmp_path / "k.pem")
    with pytest.raises(PermanentError, match=r"ca\.pem cannot be read: No such file"):
        NodeAgentClient(missing)
