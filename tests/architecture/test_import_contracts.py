"""import-linter holds the table of rooms (`make lint`). Here is what it cannot see: new rooms, root modules."""

from __future__ import annotations

import ast
import configparser
import tomllib
from pathlib import Path

import pytest

NOT_ROOMS = {"tests", "benchmarks", "docs", "deploy", "protos", "scripts"}
ROOT_MODULES = {
    "worker.py": {"activities", "adapters", "domain", "runtime", "workflows"},
    "fleet.py": {"agents", "domain", "runtime", "simulator", "wire"},
}


# What one needs to talk to a served world: its client, and the words in which it answers.
SIMULATOR_IN_WORDS = {"simulator.client", "simulator.jobs", "simulator.scenarios", "simulator.states"}


def rooms(root: Path, source_files: tuple[Path, ...]) -> set[str]:
    inside = (path.relative_to(root).parts for path in source_files)
    return {parts[0] for parts in inside if len(parts) > 1} - NOT_ROOMS


def imports_of(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
    return names


def test_every_room_is_under_contract(root: Path, source_files: tuple[Path, ...]) -> None:
    contracts = configparser.ConfigParser()
    contracts.read(root / ".importlinter")
    assert set(contracts["importlinter"]["root_packages"].split()) == rooms(root, source_files)


def test_every_room_and_root_module_is_in_the_wheel(root: Path, source_files: tuple[Path, ...]) -> None:
    built = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(built["only-include"]) == rooms(root, source_files) | set(ROOT_MODULES)


def test_rooms_are_packages(root: Path, source_files: tuple[Path, ...]) -> None:
    bare = [room for room in rooms(root, source_files) if not (root / room / "__init__.py").exists()]
    assert not bare, f"import-linter would not see these: {bare}"


def test_no_module_stands_beside_the_rooms(root: Path, source_files: tuple[Path, ...]) -> None:
    assert {path.name for path in source_files if path.parent == root} <= set(ROOT_MODULES)


@pytest.mark.parametrize("module", sorted(ROOT_MODULES))
def test_a_composition_root_joins_only_its_rooms(root: Path, source_files: tuple[Path, ...], module: str) -> None:
    ours = {name.partition(".")[0] for name in imports_of(root / module)} & rooms(root, source_files)
    assert ours <= ROOT_MODULES[module]


def test_nothing_imports_a_composition_root(root: Path, source_files: tuple[Path, ...]) -> None:
    roots = {name.removesuffix(".py") for name in ROOT_MODULES}
    found = [
        str(path.relative_to(root))
        for path in source_files
        if path.relative_to(root).parts[0] not in ("tests", "benchmarks") and roots & imports_of(path)
    ]
    assert not found


def test_the_simulated_world_is_reached_over_its_client(root: Path, source_files: tuple[Path, ...]) -> None:
    found = {
        f"{path.relative_to(root)}: {name}"
        for path in source_files
        if path.relative_to(root).parts[0] in ("cli", "adapters")
        for name in imports_of(path)
        if name.partition(".")[0] == "simulator" and name not in SIMULATOR_IN_WORDS
    }
    assert not found, "the demo and the adapter speak to a served world, over its client"


def test_workflow_names_are_reachable_without_workflow_code(root: Path) -> None:
    # The gateway and the command line import workflows.ids; were the package's __init__ to import workflows,
    # they would pull in the activities.
    assert not imports_of(root / "workflows" / "__init__.py")
    assert not {
        name for name in imports_of(root / "workflows" / "ids.py") if name.startswith(("activities", "temporalio"))
    }
