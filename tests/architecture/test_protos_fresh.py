"""wire/v1 is what protoc makes of protos/, nothing more and nothing less."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def generated_in(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if "_pb2" in path.name}


def test_generated_messages_are_fresh(root: Path, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, str(root / "scripts" / "gen_protos.py"), str(tmp_path)],
        check=True,
        capture_output=True,
        timeout=60,
    )
    fresh = generated_in(tmp_path / "wire" / "v1")
    committed = generated_in(root / "wire" / "v1")
    assert fresh
    assert set(committed) == set(fresh), "run `make gen`"
    stale = [name for name in fresh if committed[name] != fresh[name]]
    assert not stale, f"run `make gen`: {stale}"
