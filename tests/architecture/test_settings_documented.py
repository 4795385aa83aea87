"""The example settings file names every setting with its default, and no setting that does not exist."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest

from runtime.settings import AgentSettings, GatewaySettings, WorkerSettings, _ProcessSettings, load

PROCESSES: tuple[type[_ProcessSettings], ...] = (AgentSettings, GatewaySettings, WorkerSettings)
# Said in words, because the default depends on the machine or is "no value", which TOML cannot say.
IN_WORDS = {("agent", "node"), ("gateway", "name"), ("worker", "policy")}
COMMENTED = re.compile(r"^# (?=[a-z_]+ = )", re.MULTILINE)


def uncommented(root: Path) -> str:
    return COMMENTED.sub("", (root / "kintsugi.example.toml").read_text())


@pytest.mark.parametrize("process", PROCESSES)
def test_every_setting_is_in_the_example(root: Path, process: type[_ProcessSettings]) -> None:
    tables = tomllib.loads(uncommented(root))
    assert set(tables) == {each.table for each in PROCESSES}
    assert set(tables[process.table]) == set(process.model_fields)


@pytest.mark.parametrize("process", PROCESSES)
def test_the_example_says_the_defaults(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process: type[_ProcessSettings]
) -> None:
    kept = [
        line
        for line in uncommented(root).splitlines()
        if not any(line.startswith(f"{name} = ") for _, name in IN_WORDS)
    ]
    file = tmp_path / "another.toml"
    file.write_text("\n".join(kept))
    monkeypatch.chdir(tmp_path)
    _without_settings(monkeypatch)
    defaults = load(process).model_dump()
    monkeypatch.setenv("KINTSUGI_CONFIG", str(file))
    assert load(process).model_dump() == defaults


@pytest.mark.parametrize("process", PROCESSES)
def test_the_example_changes_nothing_as_it_is(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, process: type[_ProcessSettings]
) -> None:
    monkeypatch.chdir(tmp_path)
    _without_settings(monkeypatch)
    defaults = load(process).model_dump()
    monkeypatch.setenv("KINTSUGI_CONFIG", str(root / "kintsugi.example.toml"))
    assert load(process).model_dump() == defaults


READERS = {AgentSettings: ("agents/",), GatewaySettings: ("gateway/",), WorkerSettings: ("worker.py",)}


@pytest.mark.parametrize("process", PROCESSES)
def test_every_setting_is_read(root: Path, source_files: tuple[Path, ...], process: type[_ProcessSettings]) -> None:
    texts = [path.read_text() for path in source_files if str(path.relative_to(root)).startswith(READERS[process])]
    unread = [name for name in process.model_fields if not any(f"settings.{name}" in text for text in texts)]
    assert not unread, f"a setting that nobody reads promises something: {unread}"


def _without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("KINTSUGI_")]:
        monkeypatch.delenv(name)
