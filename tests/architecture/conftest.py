"""What the architecture tests look at: the project's own files, as Git knows them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def project_files(root: Path) -> tuple[Path, ...]:
    """Every file of the project, new ones included, ignored ones not."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=root,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a Git working tree: nothing says which files are the project's")
    paths = (root / name for name in listed.stdout.decode().split("\0") if name)
    return tuple(path for path in paths if path.is_file())


@pytest.fixture(scope="session")
def source_files(root: Path, project_files: tuple[Path, ...]) -> tuple[Path, ...]:
    """The Python files that people wrote: generated ones are left out."""
    generated = root / "wire" / "v1"
    return tuple(path for path in project_files if path.suffix == ".py" and path.parent != generated)
