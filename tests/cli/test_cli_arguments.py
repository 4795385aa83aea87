from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cli.application import app, run_app

COMMANDS = [
    "up", "agent", "check", "gateway", "worker", "demo", "repairs", "show", "watch", "pool", "ledger",
    "approve", "reject", "pause", "resume", "abort", "override", "close-breaker", "admit",
    "policy", "policy check", "policy explain", "catalog",
]  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("TEMPORAL_ADDRESS", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app([*command.split(), "--help"]) == 0

    out = capsys.readouterr().out
    assert "Example" in out
    assert "kintsugi" in out


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    registered = {entry.name or getattr(entry.callback, "__name__", "") for entry in app.registered_commands}
    registered |= {str(group.name) for group in app.registered_groups}
    assert registered == {command.split()[0] for command in COMMANDS}


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["nope"], 2, "No such command"),
        (["approve"], 2, "Missing argument"),
        (["override", "gpu-3", "fly", "--reason", "x"], 2, "'burn_in'"),
        (["override", "gpu-3", "burn_in"], 2, "--reason"),
        (["override", "gpu-3", "burn_in", "--reason", "  "], 2, "needs a --reason"),
        (["override", "gpu-3", "return", "--reason", "x"], 2, "say --yes"),
        (["up", "--port", "99999"], 2, "--port"),
        (["up", "--log-level", "loud"], 2, "write debug, info, warn or error"),
        (["up", "--policy", "no/such.yaml"], 2, "No such file"),
        (["demo", "--scenario", "fallen-of-bus"], 2, "did you mean fallen-off-bus?"),
        (["demo", "--speed", "0"], 2, "--speed"),
        (["catalog", "gpu.fallen"], 1, "did you mean gpu.fallen_off_bus?"),
        (["policy", "check", "no/such.yaml"], 2, "No such file"),
        (["ledger"], 2, "no ledger at"),
        (["repairs", "--address", "127.0.0.1:1"], 2, "Start it with `kintsugi up`"),
        (["show", "gpu-3", "--address", "127.0.0.1:1"], 2, "does not answer (Connection refused)"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence_with_its_status(
    arguments: list[str], status: int, says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)

    assert run_app(arguments) == status

    told = capsys.readouterr().err
    assert says in told
    assert "Traceback" not in told


def test_an_unexpected_error_is_no_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_path: Path) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("cli.policy_commands.read_policy", broken)
    monkeypatch.delenv("KINTSUGI_DEBUG", raising=False)

    assert run_app(["policy", "check", "p.yaml"]) == 2
    told = capsys.readouterr().err
    assert "unexpected ZeroDivisionError: oops" in told
    assert "Traceback" not in told


def test_policy_check_prints_each_problem_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("version: 1\nruels: []\nrules:\n  - name: a\n    decide: autom\n")

    assert run_app(["policy", "check", str(path)]) == 1
    told = capsys.readouterr().err
    assert f"{path}:2: ruels: unknown: did you mean 'rules'?" in told
    assert f"{path}:5: rules[0].decide:" in told

    path.write_text("version: 1\nrules: [{name: a, decide: auto}]\n")
    assert run_app(["policy", "check", str(path)]) == 0
    assert "valid; 1 rules (auto)" in capsys.readouterr().out


def test_policy_explain_names_the_rule_for_each_action(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(
        "version: 1\nrules:\n"
        "  - {name: careful, decide: approve, answer_within: 10m, match: {action: reboot, pool: train}}\n"
        "  - {name: trusting, decide: auto, match: {severity: fatal}}\n"
    )
    explain = ["policy", "explain", str(path), "--fault", "gpu.fallen_off_bus"]

    assert run_app([*explain, "--pool", "train"]) == 0
    lines = {words[0]: words for line in capsys.readouterr().out.splitlines() if (words := line.split())}
    assert lines["reboot"][1:5] == ["approve", "careful", "(rule", "1)"]
    assert lines["drain"][1:3] == ["auto", "trusting"]

    assert run_app([*explain, "--pool", "other", "--severity", "degraded"]) == 0
    lines = {words[0]: words for line in capsys.readouterr().out.splitlines() if (words := line.split())}
    assert lines["reboot"][1] == lines["drain"][1] == "observe"

    assert run_app(["policy", "explain", str(path), "--fault", "gpu.nope"]) == 1


def test_the_demo_lists_its_scenarios_and_its_policy_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    from cli.demo.expectations import EXPECTATIONS
    from cli.demo.stage import POLICY
    from simulator.scenarios import SCENARIOS

    assert run_app(["demo", "--list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in SCENARIOS)
    assert set(EXPECTATIONS) == set(SCENARIOS), "every scenario is judged by its own expectation"
    assert run_app(["policy", "check", str(POLICY)]) == 0
