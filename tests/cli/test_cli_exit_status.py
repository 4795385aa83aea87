"""Exit statuses of real processes. The Temporal SDK sometimes aborts an interpreter that shuts down normally."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def kintsugi(arguments: Sequence[str], home: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL", "KINTSUGI"))}
    environment |= {"PYTHONPATH": str(ROOT), "HOME": str(home), "PYTHONWARNINGS": ""}
    return subprocess.run(
        [sys.executable, "-m", "cli", *arguments], capture_output=True, text=True, env=environment, cwd=home, timeout=60
    )


@pytest.mark.parametrize(
    ("name", "arguments", "times", "status"),
    [
        ("invalid policy", ["policy", "check", "bad.yaml"], 50, 1),
        ("valid policy", ["policy", "check", "good.yaml"], 15, 0),
        ("Temporal away", ["repairs", "--address", "127.0.0.1:1"], 25, 2),
        ("wrong usage", ["approve"], 5, 2),
    ],
)
def test_the_status_is_right_every_time(
    name: str, arguments: list[str], times: int, status: int, tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text("version: 1\nruels: []\n")
    (tmp_path / "good.yaml").write_text("version: 1\n")

    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(lambda _n: kintsugi(arguments, tmp_path), range(times)))

    assert Counter(each.returncode for each in ended) == {status: times}, ended[0].stderr
    assert not any("Traceback" in each.stderr for each in ended)


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    command = f"{sys.executable} -m cli catalog | head -1; echo ${{PIPESTATUS[0]}}"

    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, timeout=60)

    assert ended.stdout.splitlines()[-1] == "0"
    assert ended.stderr == ""


def test_help_needs_neither_temporal_nor_rich_tables(tmp_path: Path) -> None:
    code = (
        "import sys; import cli.application; "
        "print(sorted(m for m in ('temporalio', 'grpc', 'yaml', 'apprise', 'simulator') if m in sys.modules))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)

    assert ended.stdout.strip() == "[]", ended.stderr
