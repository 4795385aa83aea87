"""The chronicle of one repair: what goes into the ledger and what people are told, gathered until it is written."""

from __future__ import annotations

import json
import shlex
from datetime import datetime

from domain.faults import FaultEvent, Transition
from domain.ledger import EntryKind, LedgerEntry, Notice
from domain.narrate import approve_command, moved_in_words
from domain.nodes import NodeRef
from domain.pool_notices import YOU
from domain.repair import Answer, Outcome, RepairState, Wait
from domain.runbook import Step, StepResult
from domain.workloads import MovedWork

OPERATORS = "operators"
URGENT_OUTCOMES = (Outcome.ABORTED, Outcome.TAKEN_OVER, Outcome.REPLACED)


class Chronicle:
    """Collects entries and notices with ids that a replay makes again, so that each is written once."""

    def __init__(self, repair_id: str, node: NodeRef, started_at: datetime) -> None:
        self._repair_id = repair_id
        self._node = node
        # A repair id can be used again when a pool's workflow was lost; its start tells the two apart.
        self._prefix = f"{repair_id}@{started_at:%Y%m%dT%H%M%S}"
        self._count = 0
        self._entries: list[LedgerEntry] = []
        self._notices: list[Notice] = []
        self._moved: list[MovedWork] = []

    @classmethod
    def of(cls, state: RepairState) -> Chronicle:
        """Begin the chronicle of a repair with the incident that it handles."""
        chronicle = cls(state.repair_id, state.identity.node, state.started_at)
        incident = state.input.incident
        chronicle._add(
            EntryKind.INCIDENT,
            incident.headline,
            state.started_at,
            data={"incident": incident.incident_id, "faults": [fault.key for fault in incident.faults]},
        )
        return chronicle

    def asked(self, wait: Wait, now: datetime, again: bool = False) -> None:
        """A person is needed.

        Asked ``again`` for the same step under a plan that has changed, this is written down but nobody is told once
        more: a storm of faults must not become a storm of pages.
        """
        what = wait.action or "a decision"
        self._add(EntryKind.APPROVAL, f"asks for {what} ({wait.step_id}): {wait.reason}", now, data=_wait_data(wait))
        if again:
            return
        answer = self._override_commands() if wait.override_only else approve_command(self._repair_id, wait)
        self._tell(f"{self._node.name} waits for you: {what}", f"{wait.reason}\n{answer}", urgent=True)

    def unanswered(self, wait: Wait, urgent: bool, now: datetime) -> None:
        """Nobody answered in time."""
        self._add(EntryKind.APPROVAL, f"nobody answered {wait.step_id} in time: {wait.no_answer}", now)
        if urgent:
            self._tell(
                f"{self._node.name} still waits: {wait.step_id}",
                approve_command(self._repair_id, wait),
                urgent=True,
            )

    def heard(self, said: object, answer: Answer, now: datetime) -> None:
        """A person spoke."""
        name = type(said).__name__.lower()
        verdict = "accepted" if answer.accepted else "refused"
        self._add(
            EntryKind.APPROVAL,
            f"{name} {verdict}: {answer.message}",
            now,
            who=getattr(said, "by", ""),
            data=json.loads(said.model_dump_json()) if hasattr(said, "model_dump_json") else {},
        )

    def reported(self, event: FaultEvent, now: datetime) -> None:
        """A fault joined the repair, or cleared."""
        if event.transition is Transition.REPEATED:
            return
        self._add(EntryKind.INCIDENT, f"{event.fault.key} {event.transition} during the repair", now)

    def stepped(self, step: Step, result: StepResult, by: str, now: datetime) -> None:
        """A step ended."""
        self._add(EntryKind.STEP, f"{step.step_id} {result.state}: {result.detail}", now, who=by)
        for moved in result.moved or ():
            if moved in self._moved:
                # A second recovery names what the first one had brought back as well.
                continue
            self._moved.append(moved)
            self._add(EntryKind.WORKLOAD, moved_in_words(moved), now, data=json.loads(moved.model_dump_json()))
            owner = moved.workload.owner or OPERATORS
            said, urgent = moved_in_words(moved), not moved.running
            self._tell(f"your job {moved.workload.name or moved.workload.id}", said, urgent=urgent, audience=owner)
            if urgent and owner != OPERATORS:
                self._tell(f"{self._node.name}: a job does not run again", said, urgent=True)

    def over(self, state: RepairState, now: datetime) -> None:
        """The repair ended."""
        self._add(EntryKind.OUTCOME, f"{state.outcome}: {state.outcome_detail}", now)
        self._tell(
            f"{self._node.name}: {state.outcome}",
            f"{state.input.incident.headline}\n{state.outcome_detail}",
            urgent=state.outcome in URGENT_OUTCOMES,
        )

    def take(self) -> tuple[tuple[LedgerEntry, ...], tuple[Notice, ...]]:
        """Return what has gathered, and forget it."""
        taken = tuple(self._entries), tuple(self._notices)
        self._entries, self._notices = [], []
        return taken

    def _override_commands(self) -> str:
        said = ["--by", YOU, "--reason", "WHY"]
        override = shlex.join(["kintsugi", "override", self._repair_id, "burn_in", *said])
        abort = shlex.join(["kintsugi", "abort", self._repair_id, *said])
        return f"Only an override or an abort releases it:\n{override}\n{abort}"

    def _next_id(self) -> str:
        self._count += 1
        return f"{self._prefix}/{self._count}"

    def _add(
        self, kind: EntryKind, text: str, now: datetime, who: str = "", data: dict[str, object] | None = None
    ) -> None:
        self._entries.append(
            LedgerEntry(
                entry_id=self._next_id(),
                at=now,
                kind=kind,
                repair_id=self._repair_id,
                node=self._node,
                who=who,
                text=text,
                data=json.dumps(data or {}),
            )
        )

    def _tell(self, title: str, body: str, urgent: bool = False, audience: str = OPERATORS) -> None:
        self._notices.append(
            Notice(notice_id=self._next_id(), audience=audience, title=title, body=body, urgent=urgent)
        )


def _wait_data(wait: Wait) -> dict[str, object]:
    return {"step": wait.step_id, "digest": wait.digest, "needed": wait.needed, "rule": wait.rule}
