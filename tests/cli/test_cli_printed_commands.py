"""Every command that people are shown can be typed as it stands: it is read by the real command line, not run."""

from __future__ import annotations

import re
import shlex

import pytest
import typer
import typer.core
import typer.main
from pydantic import ValidationError

from cli.application import app, run_app
from domain.chronicle import Chronicle
from domain.incident import Incident
from domain.narrate import details, pool_details
from domain.policy import Action
from domain.pool import Admit, BreakerState, CloseBreaker, PoolState, PoolView, WaitingIncident
from domain.pool_notices import breaker_notice, fault_notice, waiting_notice
from domain.repair import RepairState, Wait
from tests.domain.builders import T0, fault, node, repair

BREAKER = BreakerState(open=True, since=T0, fault_class="gpu.lost", reason="3 nodes within 10 min")
COMMAND = re.compile(r"(?m)(?:^|[`:] ?)(kintsugi [a-z].*?)(?:`|$)")


def waits(override_only: bool) -> RepairState:
    wait = Wait(
        step_id="reboot",
        action=Action.REBOOT,
        digest="3f9c2a1b",
        since=T0,
        override_only=override_only,
        reason="only observed",
    )
    return repair().model_copy(update={"wait": wait, "paused_by": "ana"})


def told(state: RepairState) -> str:
    assert state.wait is not None
    chronicle = Chronicle.of(state)
    chronicle.asked(state.wait, T0)
    chronicle.unanswered(state.wait, True, T0)
    _, notices = chronicle.take()
    return "\n".join(f"{notice.title}\n{notice.body}" for notice in notices)


def everything_printed() -> dict[str, str]:
    incident = Incident(incident_id="gpu-3-1", node=node(), opened_at=T0, faults=(fault(),))
    entry = WaitingIncident(incident=incident, why="2 of 2 nodes are out", since=T0)
    pool = PoolState(cluster="c1", pool="train", breaker=BREAKER)
    view = PoolView(cluster="c1", pool="train", nodes=(), waiting=(entry,), breaker=BREAKER, out=2, budget=2)
    return {
        "breaker notice": breaker_notice(pool).body,
        "waiting notice": waiting_notice(entry, entry.why).body,
        "fault notice": fault_notice(fault(), T0).body,
        "pool details": pool_details(view),
        "repair details": "\n".join(details(waits(only)) for only in (True, False)),
        "told of a wait": told(waits(override_only=False)),
        "told of an override": told(waits(override_only=True)),
    }


def commands_in(text: str) -> list[str]:
    return COMMAND.findall(text)


def read(command: str) -> dict[str, object]:
    """Return what the real command line understands of a command, without running it."""
    words = shlex.split(command)
    assert words[0] == "kintsugi"
    context = typer.main.get_command(app).make_context("kintsugi", words[1:])
    assert isinstance(context.command, typer.core.TyperGroup)
    name, found, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
    assert found is not None
    return dict(found.make_context(name, rest, parent=context).params)


PRINTED = [(where, command) for where, text in everything_printed().items() for command in commands_in(text)]


def test_the_places_that_print_commands_are_found() -> None:
    assert {where for where, _ in PRINTED} == {
        "breaker notice",
        "waiting notice",
        "pool details",
        "told of an override",
    }
    assert {command.split()[1] for _, command in PRINTED} == {"close-breaker", "admit", "override", "abort"}
    assert all("kintsugi" not in text or commands_in(text) for text in everything_printed().values())


@pytest.mark.parametrize(("where", "command"), PRINTED)
def test_a_printed_command_is_complete_and_says_who(where: str, command: str) -> None:
    given = read(command)

    assert given["by"] == "YOUR NAME", where
    assert given["reason"] == "WHY", where


def test_a_command_that_does_not_fit_the_command_line_is_noticed() -> None:
    with pytest.raises(Exception, match="node"):
        read("kintsugi admit gpu-3 --by ana")


@pytest.mark.parametrize("command", ["close-breaker c1/train", "admit c1/train gpu-3"])
def test_nobody_in_particular_may_not_speak(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app([*command.split(), "--by", " ", "--address", "127.0.0.1:1"]) == 2
    assert "say who you are" in capsys.readouterr().err


def test_a_pool_hears_nobody_in_particular_and_admits_no_nameless_node() -> None:
    with pytest.raises(ValidationError, match="by"):
        CloseBreaker.model_validate_json('{"by": ""}')
    with pytest.raises(ValidationError, match="by"):
        Admit.model_validate_json('{"by": "", "node": "gpu-3"}')
    with pytest.raises(ValidationError, match="node"):
        Admit.model_validate_json('{"by": "ana", "node": ""}')
