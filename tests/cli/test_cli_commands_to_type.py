from __future__ import annotations

import subprocess
from datetime import UTC, datetime

import pytest

from cli.commands_to_type import approve_here, approve_with_temporal, folded
from cli.terminal import plain
from domain.policy import Action
from domain.repair import Wait

WAIT = Wait(step_id="reboot", action=Action.REBOOT, digest="3f9c2a1b", since=datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("width", [40, 80, 300])
@pytest.mark.parametrize("who", ["ana", "o'brien $HOME `id`"])
def test_a_folded_command_pasted_into_a_shell_is_the_command(
    width: int, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", who)
    repair_id = "repair/demo/gpu-03/1"
    for command in (
        approve_with_temporal(repair_id, WAIT, "127.0.0.1:7233"),
        approve_here(repair_id, WAIT, "127.0.0.1:7233"),
    ):
        text = folded(command, width)
        pasted = text.replace(command[0], "printf '%s\\n'", 1)

        ran = subprocess.run(["bash", "-c", pasted], capture_output=True, text=True, timeout=10, check=True)

        assert ran.stdout.splitlines() == command[1:]
        if width == 300:
            assert "\n" not in text


def test_without_an_address_none_is_named() -> None:
    assert "--address" not in approve_here("repair/a/b/1", WAIT, "")
    assert "--address" not in approve_with_temporal("repair/a/b/1", WAIT, "")


def test_text_from_a_node_cannot_steer_the_terminal() -> None:
    assert plain("Xid\x1b[2J\x07 79\nrest\u202e") == "Xid\ufffd[2J\ufffd 79 rest\ufffd"
