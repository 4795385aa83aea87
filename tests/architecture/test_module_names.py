"""Names that accept anything end up holding everything."""

from __future__ import annotations

from pathlib import Path

NAMELESS = {
    "utils",
    "util",
    "helpers",
    "helper",
    "common",
    "shared",
    "core",
    "misc",
    "base_utils",
    "manager_utils",
}


def test_no_module_or_folder_has_a_name_that_accepts_anything(root: Path, source_files: tuple[Path, ...]) -> None:
    found = [
        str(path.relative_to(root))
        for path in source_files
        if NAMELESS & {part.removesuffix(".py") for part in path.relative_to(root).parts}
    ]
    assert not found, f"name these for what they know: {found}"
