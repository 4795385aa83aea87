from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.policy_file import PolicyError, PolicyFile, load_policy
from domain.faults import Severity
from domain.operations import BurnInLevel
from domain.policy import Action, Decision, Policy

VALID = """\
version: 1
rules:
  - name: people decide reboots
    match: {action: reboot, fault: "gpu.*"}
    decide: approve
    answer_within: 10m
  - name: the rest goes by itself
    match: {severity: [degraded, fatal]}
    decide: auto
pools:
  train: {lost_grace: 90s}
"""


def test_a_valid_policy_says_what_was_written() -> None:
    policy = load_policy(VALID, "policy.yaml")

    rule = policy.rule("c", "train", "gpu.fallen_off_bus", Severity.FATAL, Action.REBOOT)
    assert (rule.name, rule.decide, rule.answer_within) == (
        "people decide reboots",
        Decision.APPROVE,
        timedelta(minutes=10),
    )
    assert policy.for_pool("train").lost_grace == timedelta(seconds=90)


@pytest.mark.parametrize(
    ("text", "line", "path", "says"),
    [
        ("version: 1\nruels: []\n", 2, "ruels", "did you mean 'rules'"),
        ("version: 1\n\nrules:\n  - name: a\n    decide: autom\n", 5, "rules[0].decide", "did you mean 'auto'"),
        (
            "version: 1\nrules:\n  - name: a\n    decide: auto\n    match:\n      severty: fatal\n",
            6,
            "rules[0].match.severty",
            "did you mean 'severity'",
        ),
        ("version: 1\npools:\n  a:\n    budget:\n      max_nodes: many\n", 5, "pools.a.budget.max_nodes", "many"),
        ("version: 1\npools:\n  a:\n    lost_grace: 10 min\n", 4, "pools.a.lost_grace", "30s, 10m, 2h, 7d"),
        ("version: 1\nrules: []\n# comment\nrules: []\n", 4, "rules", "first in line 2"),
        ("version: 1\npools:\n  a: {}\n  b: {}\n  a: {}\n", 5, "pools.a", "given twice"),
        ("version: 1\nrules:\n\t- name: a\n", 3, "", "tab"),
        ("rules: []\n", 1, "version", "version: 1"),
        ("version: 2\n", 1, "version", "1"),
        ("", 1, "", "empty"),
        ("- a\n", 1, "", "mapping"),
        ("version: 1\nrules:\n  - decide: auto\n", 3, "rules[0].name", "missing"),
        ("version: 1\nrules: {a: [}\n", 2, "", "no valid YAML"),
        ("version: 1\npools: &p\n  a: *p\n", 2, "", "contains itself"),
        ("version: 1\nx: !!python/object/apply:os.getcwd []\n", 2, "x", "unknown"),
        (
            "version: 1\nrules:\n  - name: a\n    decide: auto\n    match:\n      fault: gpu.falen_off_bus\n",
            6,
            "rules[0].match.fault",
            "did you mean 'gpu.fallen_off_bus'",
        ),
        (
            "version: 1\ngrace:\n  - {fault: thermal.*, wait: 1m}\n  - {fault: heat.*, wait: 1m}\n",
            4,
            "grace[1].fault",
            "fits no",
        ),
        (
            "version: 1\nrules:\n  - {name: a, decide: auto}\n  - {name: a, decide: observe}\n",
            4,
            "rules[1].name",
            "more than one rule",
        ),
    ],
)
def test_each_mistake_is_named_with_its_line(text: str, line: int, path: str, says: str) -> None:
    with pytest.raises(PolicyError) as caught:
        load_policy(text, "policy.yaml")

    found = [(problem.line, problem.path) for problem in caught.value.problems]
    assert (line, path) in found, str(caught.value)
    where = f"policy.yaml:{line}: {path}: " if path else f"policy.yaml:{line}: "
    assert any(said.startswith(where) and says in said for said in str(caught.value).splitlines()), str(caught.value)


def test_all_mistakes_are_told_at_once_in_the_order_of_their_lines() -> None:
    text = (
        "version: 1\nlimit: {}\nrules:\n  - name: a\n    decide: no\n  - name: b\n    decide: auto\n    approvals: 9\n"
    )

    with pytest.raises(PolicyError) as caught:
        load_policy(text, "p")

    assert [problem.line for problem in caught.value.problems] == [2, 5, 8]


def test_a_bomb_of_aliases_is_refused_quickly() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]

    with pytest.raises(PolicyError, match="more than 50000 values"):
        load_policy("\n".join(levels), "p")


def test_deep_nesting_is_an_error_and_no_crash() -> None:
    with pytest.raises(PolicyError, match="deeply"):
        load_policy("[" * 100_000, "p")


async def test_without_a_file_nothing_is_acted_on() -> None:
    assert await PolicyFile(None).current() == Policy()


async def test_an_edit_is_taken_up_and_an_invalid_one_is_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(VALID)
    source = PolicyFile(path)
    first = await source.current()
    assert len(first.rules) == 2

    path.write_text(VALID.replace("decide: auto", "decide: observe"))
    second = await source.current()
    assert second.rules[1].decide is Decision.OBSERVE

    path.write_text("version: 1\nruels: []\n")
    assert await source.current() == second
    assert "did you mean 'rules'" in caplog.text
    said = len(caplog.records)
    assert await source.current() == second
    assert len(caplog.records) == said, "an invalid edit is told once, not at every look"

    path.write_text("version: 1\n")
    assert (await source.current()).rules == ()


async def test_an_edit_by_replacement_with_the_same_size_and_time_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("version: 1\nburn_in: {level: quick}\n")
    source = PolicyFile(path)
    before = path.stat()
    draft = tmp_path / "new"
    draft.write_text("version: 1\nburn_in: {level: deep }\n")
    os.utime(draft, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert draft.stat().st_size == before.st_size
    draft.replace(path)

    assert (await source.current()).burn_in.level is BurnInLevel.DEEP


async def test_a_vanished_file_keeps_the_last_policy(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(VALID)
    source = PolicyFile(path)
    path.unlink()

    assert len((await source.current()).rules) == 2
    path.write_text("version: 1\n")
    assert (await source.current()).rules == ()


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "No such file"), (b"version: 1\n\xff\n", "p.yaml:2: not UTF-8"), (b"#" * 2_000_000, "larger than")],
)
def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "p.yaml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(PolicyError, match=says):
        PolicyFile(path)
