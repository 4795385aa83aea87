"""A repair as plain lines, each printed once as it happens: for logs and pipes."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from cli.commands_to_type import abort_here, approve_here, approve_with_temporal, override_here
from cli.terminal import clock, plain, took
from domain.repair import RepairState, StepState


class StepLines:
    """Remembers what was said, and says only what is new."""

    def __init__(self, say: Callable[[str], None], address: str) -> None:
        self._say = say
        self._address = address
        self._said: set[tuple[object, ...]] = set()

    def show(self, state: RepairState) -> None:
        """Say what is new in this state."""
        self._once(("start",), f"{state.repair_id}: {plain(state.input.incident.headline)}")
        for number, step in enumerate(state.steps):
            if step.state is StepState.RUNNING:
                self._once((number, "begins"), f"{clock(step.started_at)} {step.step_id}: begins")
            elif step.ended_at is not None:
                by = f" [{plain(step.decided_by)}]" if step.decided_by else ""
                spent = took(step.ended_at - step.started_at)
                text = f"{clock(step.ended_at)} {step.step_id}: {step.state} after {spent}{by} {plain(step.detail)}"
                self._once((number, step.state), text.rstrip())
        wait = state.wait
        if wait is not None and state.outcome is None:
            key = (wait.step_id, wait.digest, wait.override_only)
            self._once(key, f"waits for a person: {wait.step_id} (plan {wait.digest}): {plain(wait.reason)}")
            repair_id, address = state.repair_id, self._address
            answers = [approve_here(repair_id, wait, address), approve_with_temporal(repair_id, wait, address)]
            if wait.override_only:
                answers = [override_here(repair_id, address), abort_here(repair_id, address)]
            for number, command in enumerate(answers):
                self._once((*key, number), f"  {shlex.join(command)}")
        if state.outcome is not None:
            self._once(("end",), f"ended: {state.outcome}. {plain(state.outcome_detail)}".rstrip())

    def _once(self, key: tuple[object, ...], text: str) -> None:
        if key not in self._said:
            self._said.add(key)
            self._say(text)
