"""What is decided once: the sandbox stays on, settings are read in one place, the domain is told the time."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SANDBOX_HOLES = (
    "sandboxed=False",
    "passthrough_all_modules",
    "UnsandboxedWorkflowRunner",
    "with_passthrough_all",
)
TERMINAL_CONVENTION = 'os.environ.get("NO_COLOR")'  # https://no-color.org
# `dict(os.environ)` hands the whole on to a child process and reads nothing of it.
READS_ENVIRONMENT = re.compile(r"(?<!dict\()\bos\.(environ|getenv|environb)\b|\bfrom os import .*\b(environ|getenv)\b")
PLACES_OF_A_MACHINE = re.compile(r"(?<![\w.])/(?:work|root|home/\w+|Users/\w+)/\S+")
REGISTRY_HOSTS = re.compile(
    r"\b(?:pypi\.org|files\.pythonhosted\.org|[\w.-]*(?:artifactory|nexus|devpi)[\w.-]*\.\w+)\b"
)
TEXT_SUFFIXES = {
    "",
    ".cfg",
    ".ini",
    ".json",
    ".lock",
    ".md",
    ".proto",
    ".py",
    ".pyi",
    ".service",
    ".toml",
    ".yaml",
    ".yml",
}


def outside_tests(root: Path, files: tuple[Path, ...]) -> Iterator[tuple[str, str]]:
    for path in files:
        if path.relative_to(root).parts[0] not in ("tests", "benchmarks"):
            yield str(path.relative_to(root)), path.read_text()


@pytest.mark.parametrize("hole", SANDBOX_HOLES)
def test_the_workflow_sandbox_stays_on(root: Path, source_files: tuple[Path, ...], hole: str) -> None:
    found = [name for name, text in outside_tests(root, source_files) if hole in text]
    assert not found


def test_settings_are_read_in_one_place(root: Path, source_files: tuple[Path, ...]) -> None:
    # The command line may ask for the person's own things: terminal, home, user name.
    found = [
        name
        for name, text in outside_tests(root, source_files)
        if not name.startswith(("runtime/", "cli/")) and READS_ENVIRONMENT.search(text.replace(TERMINAL_CONVENTION, ""))
    ]
    assert not found, f"settings come from runtime/settings.py, handed down by main(): {found}"


CLOCKS = {"now", "utcnow", "today"}


def test_the_domain_is_told_the_time(root: Path, source_files: tuple[Path, ...]) -> None:
    found = []
    for path in source_files:
        if path.relative_to(root).parts[0] != "domain":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in CLOCKS
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in ("datetime", "date")
            ):
                found.append(f"{path.relative_to(root)}:{node.lineno}")
    assert not found, f"time is an argument: {found}"


def test_the_domain_awaits_nothing(root: Path, source_files: tuple[Path, ...]) -> None:
    found = []
    for path in source_files:
        inside = path.relative_to(root)
        if inside.parts[0] != "domain" or inside.name == "ports.py":
            continue
        tree = ast.parse(path.read_text())
        found += [
            f"{inside}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith)
        ]
    assert not found, f"decisions are plain functions: {found}"


def test_no_file_names_a_place_of_one_machine(root: Path, project_files: tuple[Path, ...]) -> None:
    this = Path(__file__)
    found = []
    for path in project_files:
        if path == this or path.suffix not in TEXT_SUFFIXES or "data" in path.relative_to(root).parts:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if PLACES_OF_A_MACHINE.search(line) or REGISTRY_HOSTS.search(line):
                found.append(f"{path.relative_to(root)}:{number}: {line.strip()[:120]}")
    assert not found
