"""Under mutual TLS an agent speaks for its own node and for no other."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import grpc
import grpc.aio
import pytest

from gateway.identity import NotPermittedError, certificate_names, check_speaker
from gateway.server import Gateway, check_exposure
from runtime.settings import GatewaySettings, SettingsError, TlsFiles
from tests.gateway.agent_stub import AgentStub, Pools, until

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.ca = folder / "ca.pem"
        self._openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test authority",
        )  # fmt: skip

    def issue(self, file: str, common_name: str, dns_name: str = "") -> TlsFiles:
        """Return the files of a certificate with this CN and, when given, DNS name."""
        (self._folder / f"{file}.ext").write_text(f"subjectAltName=DNS:{dns_name}\n" if dns_name else "")
        self._openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", f"{file}.key", "-out", f"{file}.csr", "-subj", f"/CN={common_name}",
        )  # fmt: skip
        self._openssl(
            "x509", "-req", "-in", f"{file}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", "2", "-extfile", f"{file}.ext", "-out", f"{file}.pem",
        )  # fmt: skip
        return TlsFiles(ca=self.ca, cert=self._folder / f"{file}.pem", key=self._folder / f"{file}.key")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._folder, check=True, capture_output=True, timeout=30)


def _credentials(tls: TlsFiles) -> grpc.ChannelCredentials:
    assert tls.ca is not None
    assert tls.cert is not None
    assert tls.key is not None
    return grpc.ssl_channel_credentials(tls.ca.read_bytes(), tls.key.read_bytes(), tls.cert.read_bytes())


@needs_openssl
async def test_a_certificate_speaks_for_the_node_that_it_names_and_for_no_other(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ours")
    pools = Pools()
    gateway = Gateway(
        GatewaySettings(listen="127.0.0.1:0", tls=authority.issue("gateway", "gateway", "localhost")), pools
    )
    await gateway.start()
    by_common_name = _credentials(authority.issue("cn", "gpu-0"))
    by_dns_name = _credentials(authority.issue("dns", "some agent", "gpu-1"))
    wildcard = _credentials(authority.issue("wild", "agents", "*.example"))
    foreign = _credentials(Authority(tmp_path / "theirs").issue("agent", "gpu-0"))
    cases = {
        (by_common_name, "gpu-0"): None,
        (by_dns_name, "gpu-1"): None,
        (by_common_name, "gpu-1"): "speaks for gpu-0, not for node gpu-1",
        (wildcard, "a.example"): "not for node a.example",
    }
    stubs = []
    try:
        for (credentials, name), refusal in cases.items():
            stub = AgentStub(gateway.port, name, credentials=credentials)
            stubs.append(stub)
            if refusal is None:
                await stub.hello()
                await stub.fault(1)
                assert await stub.acked(1) == 1
            else:
                with pytest.raises((grpc.aio.AioRpcError, ConnectionError)):
                    await stub.hello()
                code, details = await stub.ending()
                assert code is grpc.StatusCode.PERMISSION_DENIED
                assert refusal in details
        # Signed by another authority, and no TLS at all: no connection comes about.
        foreign_tls = grpc.ssl_channel_credentials(authority.ca.read_bytes())
        for stranger in (foreign, foreign_tls, None):
            stub = AgentStub(gateway.port, credentials=stranger)
            stubs.append(stub)
            with pytest.raises((grpc.aio.AioRpcError, ConnectionError)):
                await stub.hello()
            assert (await stub.ending())[0] is grpc.StatusCode.UNAVAILABLE
        await until(lambda: len(pools.events()) == 4, "two nodes, seen and with a fault each")
        assert {event.node.name for event in pools.events()} == {"gpu-0", "gpu-1"}
    finally:
        for stub in stubs:
            await stub.close()
        await gateway.stop()


def test_names_come_from_cn_and_alternative_names_alone() -> None:
    context = {
        "x509_common_name": [b"gpu-0"],
        "x509_subject_alternative_name": [b"gpu-0.cluster", b"other"],
        "x509_pem_cert": [b"gpu-9"],
        "transport_security_type": [b"ssl"],
    }
    names = certificate_names(context)
    assert names == {"gpu-0", "gpu-0.cluster", "other"}
    check_speaker(names, "other")
    with pytest.raises(NotPermittedError, match="not for node GPU-0"):
        check_speaker(names, "GPU-0")
    with pytest.raises(NotPermittedError, match="no name at all"):
        check_speaker(certificate_names({}), "gpu-0")


async def test_tls_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("not a certificate")
    for tls, sentence in (
        (TlsFiles(ca=tmp_path / "gone.pem", cert=tmp_path / "no.pem", key=tmp_path / "no.pem"), "no PEM file"),
        (TlsFiles(ca=tmp_path / "a", cert=tmp_path / "b", key=tmp_path / "gone"), "TLS__KEY is .*cannot be read"),
        (TlsFiles(ca=tmp_path / "a"), "no cert and no key"),
    ):
        with pytest.raises(SettingsError, match=sentence):
            await Gateway(GatewaySettings(listen="127.0.0.1:0", tls=tls), Pools()).start()


@pytest.mark.parametrize(
    ("listen", "loopback"),
    [
        ("127.0.0.1:0", True),
        ("localhost:0", True),
        ("[::1]:0", True),
        ("0.0.0.0:0", False),
        ("[::]:0", False),
        ("10.0.0.1:0", False),
        ("gateway.example:0", False),
    ],
)
def test_only_loopback_may_do_without_tls(listen: str, loopback: bool) -> None:
    settings = GatewaySettings(listen=listen)
    if loopback:
        check_exposure(settings)
    else:
        with pytest.raises(SettingsError, match="without TLS"):
            check_exposure(settings)
    check_exposure(settings.model_copy(update={"allow_insecure": True}))
