"""docker-compose.yml is valid and in step with the settings. No Docker engine takes part in this."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from runtime.settings import AgentSettings, GatewaySettings, WorkerSettings, _ProcessSettings, load

PREFIXES: dict[str, type[_ProcessSettings]] = {
    str(each.model_config["env_prefix"]): each for each in (AgentSettings, GatewaySettings, WorkerSettings)
}
OWN_SERVICES: dict[str, type[_ProcessSettings]] = {"gateway": GatewaySettings, "worker": WorkerSettings}


@pytest.fixture(scope="module")
def compose(root: Path) -> dict[str, Any]:
    """The file as data, merge keys resolved."""
    loaded: dict[str, Any] = yaml.safe_load((root / "docker-compose.yml").read_text())
    return loaded


def test_it_is_valid_under_the_compose_schema(root: Path) -> None:
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "check_jsonschema",
            "--builtin-schema",
            "vendor.compose-spec",
            str(root / "docker-compose.yml"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_a_service_needs_exists(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        needed = service.get("depends_on", {})
        assert set(needed) <= set(services), name
        for other, how in needed.items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[other], f"{name} waits for the health of {other}"
            if how["condition"] == "service_completed_successfully":
                assert services[other].get("restart") == "on-failure", f"{other} must end for {name} to start"
        shared = str(service.get("network_mode", "")).removeprefix("service:")
        assert not shared or shared in services
        for mount in service.get("volumes", []):
            source = mount.partition(":")[0]
            assert source.startswith("./") or source in compose["volumes"]


def test_images_are_pinned(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        tag = service["image"].partition(":")[2]
        assert tag not in ("", "latest"), name


def test_every_target_and_copied_path_exists(root: Path, compose: dict[str, Any]) -> None:
    text = (root / "deploy" / "Dockerfile").read_text()
    targets = set(re.findall(r"^FROM \S+ AS (\S+)$", text, re.MULTILINE))
    assert {"control", "agent"} <= targets
    for service in compose["services"].values():
        if "build" in service:
            assert service["build"]["target"] in targets
            assert (root / service["build"]["dockerfile"]).exists()
    copied = [name for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for name in line.split()[:-1]]
    missing = [name for name in copied if not (root / name).exists()]
    assert not missing
    allowed = {line[1:] for line in (root / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    hidden = [name for name in copied if name.partition("/")[0] not in allowed]
    assert not hidden, f".dockerignore keeps these out of the build: {hidden}"


def test_the_control_image_holds_every_room(root: Path) -> None:
    import_roots = re.findall(r"^    (\w+)$", (root / ".importlinter").read_text().partition("include_")[0], re.M)
    control = (root / "deploy" / "Dockerfile").read_text().partition("AS control\n")[2]
    missing = [room for room in import_roots if f"COPY {room} {room}" not in control]
    assert import_roots
    assert not missing


def test_every_variable_is_a_setting_with_a_good_value(
    compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("KINTSUGI_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    seen = 0
    for name, service in compose["services"].items():
        for variable, value in service.get("environment", {}).items():
            if not variable.startswith("KINTSUGI_"):
                continue
            assert isinstance(value, str), f"{variable}: quote it, YAML has made it a {type(value).__name__}"
            prefix, process = _process_of(variable)
            assert process is OWN_SERVICES.get(name, process), f"{name} does not read {variable}"
            field = variable.removeprefix(prefix).lower().partition("__")[0]
            assert field in process.model_fields, f"{variable} is no setting"
            monkeypatch.setenv(variable, value)
            seen += 1
        if name in OWN_SERVICES:
            load(OWN_SERVICES[name])
    assert seen >= 5


def test_commands_are_understood(root: Path, compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if service["image"] != "kintsugi-control:local":
            continue
        module, *arguments = service["command"]
        asked = subprocess.run(
            [sys.executable, "-m", module, *arguments, "--help"],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert asked.returncode == 0, f"{name}: {asked.stderr}"
        options = {argument for argument in arguments if argument.startswith("--")}
        assert not {option for option in options if option not in asked.stdout}, name


def test_addresses_lead_to_services(compose: dict[str, Any]) -> None:
    services = set(compose["services"])
    text = json.dumps({name: service for name, service in compose["services"].items()})
    for host, _ in re.findall(r'"([a-z][a-z-]+):(\d{4,5})"', text):
        assert host in services, host


def _process_of(variable: str) -> tuple[str, type[_ProcessSettings]]:
    for prefix, process in PREFIXES.items():
        if variable.startswith(prefix):
            return prefix, process
    raise AssertionError(f"{variable} belongs to no process")
