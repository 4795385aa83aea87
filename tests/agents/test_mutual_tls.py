"""Under mutual TLS: the agent reaches its gateway, and only workers reach the agent."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import grpc
import grpc.aio
import pytest

from agents.agent import Agent
from agents.operations.inspect_only import InspectOnlyDriver
from agents.tls import channel_credentials, server_credentials
from runtime.settings import TlsFiles
from tests.agents.gateway_double import GatewayDouble
from tests.agents.node_double import BOOT, GpusDouble, KernelDouble, settings
from wire.v1 import operations_pb2, operations_pb2_grpc

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._openssl(*_NEW_KEY, "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")

    def issue(self, name: str) -> TlsFiles:
        (self._folder / "ext").write_text("subjectAltName=IP:127.0.0.1\n")
        self._openssl(*_NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        self._openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", "2", "-extfile", "ext", "-out", f"{name}.pem",
        )  # fmt: skip
        folder = self._folder
        return TlsFiles(ca=folder / "ca.pem", cert=folder / f"{name}.pem", key=folder / f"{name}.key")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._folder, check=True, capture_output=True, timeout=30)


_NEW_KEY = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


async def inspect(address: str, tls: TlsFiles | None) -> grpc.StatusCode:
    credentials = channel_credentials(tls) if tls is not None else None
    channel = (
        grpc.aio.secure_channel(address, credentials) if credentials is not None else grpc.aio.insecure_channel(address)
    )
    async with channel:
        stub = operations_pb2_grpc.NodeOperationsStub(channel)  # type: ignore[no-untyped-call]
        try:
            await stub.Inspect(operations_pb2.InspectRequest(), timeout=10)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK


async def test_workers_alone_reach_an_agent_that_reaches_its_gateway(tmp_path: Path) -> None:
    ours = Authority(tmp_path / "ours")
    stranger = Authority(tmp_path / "theirs").issue("kintsugi-worker")
    gateway = GatewayDouble()
    await gateway.start(credentials=server_credentials(ours.issue("gateway")))
    agent = Agent(
        settings(gateway.address, tmp_path / "state", tls=ours.issue("n1").model_dump(), callers=("kintsugi-worker",)),
        BOOT,
        KernelDouble(),
        GpusDouble(),
        InspectOnlyDriver(),
    )
    running = asyncio.create_task(agent.run())
    try:
        await agent.serving()
        await gateway.until(lambda: bool(gateway.streams), "a hello")
        assert gateway.streams[0].context.auth_context()["x509_common_name"] == [b"n1"]
        address = agent.operations_address
        assert await inspect(address, ours.issue("kintsugi-worker")) is grpc.StatusCode.OK
        assert await inspect(address, ours.issue("n2")) is grpc.StatusCode.PERMISSION_DENIED
        assert await inspect(address, stranger) is grpc.StatusCode.UNAVAILABLE
        assert await inspect(address, None) is grpc.StatusCode.UNAVAILABLE
    finally:
        running.cancel()
        await asyncio.wait([running])
        await gateway.stop()
