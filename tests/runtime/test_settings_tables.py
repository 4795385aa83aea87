"""A settings file is shared: each process reads its own table and is content without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.settings import AgentSettings, GatewaySettings, load


def test_a_file_without_a_process_s_table_leaves_its_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kintsugi.toml"
    file.write_text('[agent]\ncluster = "prod"\n')
    monkeypatch.setenv("KINTSUGI_CONFIG", str(file))
    assert load(AgentSettings).cluster == "prod"
    assert load(GatewaySettings).listen == "127.0.0.1:7443"
