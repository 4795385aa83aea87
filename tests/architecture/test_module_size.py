"""A module has one subject: past 400 lines it is looked at, past 600 it is split."""

from __future__ import annotations

import warnings
from pathlib import Path

FAIL_OVER = 600
WARN_OVER = 400
COMPOSITION_ROOT_LINES = {"worker.py": 150, "fleet.py": 200}


def lines_of(path: Path) -> int:
    return path.read_text().count("\n")


def test_no_module_is_too_long_to_have_one_subject(root: Path, source_files: tuple[Path, ...]) -> None:
    sizes = {str(path.relative_to(root)): lines_of(path) for path in source_files}
    too_long = {name: lines for name, lines in sizes.items() if lines > FAIL_OVER}
    assert not too_long, f"split these, each part by its own reason to change: {too_long}"


def test_modules_that_grow_are_named(root: Path, source_files: tuple[Path, ...]) -> None:
    growing = {str(path.relative_to(root)): lines_of(path) for path in source_files if lines_of(path) > WARN_OVER}
    if growing:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.warn(f"over {WARN_OVER} lines, think of splitting: {growing}", stacklevel=1)


def test_composition_roots_only_compose(root: Path) -> None:
    long = {
        name: lines_of(root / name) for name, limit in COMPOSITION_ROOT_LINES.items() if lines_of(root / name) > limit
    }
    assert not long, f"a composition root wires and decides nothing: {long}"
