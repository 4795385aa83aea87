"""Settings: the environment over the file, and an error that says which setting is wrong and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.settings import (
    AgentSettings,
    GatewaySettings,
    SettingsError,
    WorkerSettings,
    config_file,
    load,
)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "kintsugi.toml"
    monkeypatch.setenv("KINTSUGI_CONFIG", str(path))
    return path


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KINTSUGI_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)


def test_defaults_hold_without_a_file() -> None:
    assert load(GatewaySettings).listen == "127.0.0.1:7443"


def test_each_process_reads_its_own_table(file: Path) -> None:
    file.write_text('[gateway]\nheartbeat_seconds = 2.0\n\n[agent]\nnode = "gpu-7"\n[agent.topology]\nrack = "r1"\n')
    assert load(GatewaySettings).heartbeat_seconds == 2.0
    agent = load(AgentSettings)
    assert (agent.node, agent.topology) == ("gpu-7", {"rack": "r1"})
    assert load(WorkerSettings).cluster == "local"


def test_the_environment_wins_over_the_file_and_the_command_line_over_both(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('[gateway]\nlisten = "127.0.0.1:1"\nheartbeat_seconds = 1.0\n')
    monkeypatch.setenv("KINTSUGI_GATEWAY_LISTEN", "127.0.0.1:2")
    settings = load(GatewaySettings)
    assert (settings.listen, settings.heartbeat_seconds) == ("127.0.0.1:2", 1.0)
    assert load(GatewaySettings, listen="127.0.0.1:3").listen == "127.0.0.1:3"
    assert load(GatewaySettings, listen=None).listen == "127.0.0.1:2"


def test_a_file_in_the_working_directory_is_found(tmp_path: Path) -> None:
    (tmp_path / "kintsugi.toml").write_text("[gateway]\nheartbeat_seconds = 3.0\n")
    assert load(GatewaySettings).heartbeat_seconds == 3.0


def test_nested_tls_comes_from_the_environment_and_from_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('[gateway.tls]\nca = "ca.pem"\ncert = "c.pem"\n')
    assert not load(GatewaySettings).tls.enabled
    monkeypatch.setenv("KINTSUGI_GATEWAY_TLS__KEY", "k.pem")
    tls = load(GatewaySettings).tls
    assert tls.enabled
    assert (tls.ca, tls.key) == (Path("ca.pem"), Path("k.pem"))


def test_a_typo_in_the_file_names_the_setting_and_the_file(file: Path) -> None:
    file.write_text("[gateway]\nheartbeat_secs = 1.0\n")
    with pytest.raises(SettingsError) as caught:
        load(GatewaySettings)
    assert "heartbeat_secs" in str(caught.value)
    assert f"the table [gateway] of {file}" in str(caught.value)


def test_every_wrong_setting_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINTSUGI_GATEWAY_HEARTBEAT_SECONDS", "often")
    monkeypatch.setenv("KINTSUGI_GATEWAY_SILENCE_SECONDS", "-1")
    with pytest.raises(SettingsError) as caught:
        load(GatewaySettings)
    for part in ("heartbeat_seconds", "silence_seconds", "KINTSUGI_GATEWAY_<NAME>"):
        assert part in str(caught.value)


@pytest.mark.parametrize("name", ["a/b", "", "-x", "x" * 300])
def test_a_name_with_a_slash_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="pool"):
        load(AgentSettings, pool=name)


def test_an_unknown_scheduler_is_refused() -> None:
    with pytest.raises(SettingsError, match="must be 'standalone' or 'simulated'"):
        load(WorkerSettings, scheduler="nomad")


@pytest.mark.parametrize("content", [b"gateway: {listen: x}\n", b"\xff\xfe"])
def test_a_file_that_is_no_toml_is_named(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(SettingsError, match="no valid TOML"):
        load(GatewaySettings)


def test_a_named_file_that_is_missing_is_an_error(file: Path) -> None:
    with pytest.raises(SettingsError, match=f"names {file}, which does not exist"):
        config_file()
    with pytest.raises(SettingsError, match="does not exist"):
        load(GatewaySettings)
