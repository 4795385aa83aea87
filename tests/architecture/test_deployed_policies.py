"""The policies that people start from load as they are and mean what their names say."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.policy_file import load_policy
from domain.catalog import CATALOG
from domain.faults import Severity
from domain.policy import Action, Decision, Policy

NAMES = ("observe", "approve", "auto-small")
IRREVERSIBLE = (Action.REPROVISION, Action.REPLACE)


def policy(root: Path, name: str) -> Policy:
    path = root / "deploy" / "policies" / f"{name}.yaml"
    return load_policy(path.read_text(), path.name)


def decisions(held: Policy, action: Action) -> set[Decision]:
    return {
        held.rule("prod", "h100", name, found.severity, action).decide
        for name, found in CATALOG.items()
        if found.severity in (Severity.DEGRADED, Severity.FATAL)
    }


def test_these_are_all(root: Path) -> None:
    assert {path.stem for path in (root / "deploy" / "policies").iterdir()} == set(NAMES)


@pytest.mark.parametrize("action", list(Action))
def test_observe_lets_nothing_run(root: Path, action: Action) -> None:
    assert decisions(policy(root, "observe"), action) == {Decision.OBSERVE}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("action", IRREVERSIBLE)
def test_nothing_irreversible_runs_by_itself(root: Path, name: str, action: Action) -> None:
    assert Decision.AUTO not in decisions(policy(root, name), action)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("action", list(Action))
def test_an_unknown_fault_is_only_observed(root: Path, name: str, action: Action) -> None:
    rule = policy(root, name).rule("prod", "h100", "gpu.unknown_xid", Severity.UNKNOWN, action)
    assert rule.decide is Decision.OBSERVE


def test_approve_asks_before_it_changes_the_machine(root: Path) -> None:
    held = policy(root, "approve")
    for action in (Action.RESET_GPU, Action.REBOOT, Action.POWER_CYCLE, Action.FENCE):
        assert decisions(held, action) == {Decision.APPROVE}
    for action in (Action.QUARANTINE, Action.CHECKPOINT, Action.DRAIN, Action.RECOVER, Action.BURN_IN, Action.RETURN):
        assert decisions(held, action) == {Decision.AUTO}
    assert held.rule("prod", "h100", "gpu.missing", Severity.FATAL, Action.REPLACE).approvals == 2


def test_auto_small_reboots_by_itself_one_node_at_a_time(root: Path) -> None:
    held = policy(root, "auto-small")
    assert decisions(held, Action.REBOOT) == {Decision.AUTO}
    assert held.for_pool("anything").budget.max_nodes == 1
