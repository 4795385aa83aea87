"""The permanent record: what was seen, decided, done and lost, and who said so."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from domain.model import Message
from domain.nodes import NodeRef


class EntryKind(StrEnum):
    """What an entry tells."""

    INCIDENT = "incident"
    STEP = "step"
    APPROVAL = "approval"
    WORKLOAD = "workload"
    OUTCOME = "outcome"
    NOTICE = "notice"


class LedgerEntry(Message):
    """One line of the record. Writing the same ``entry_id`` again changes nothing.

    Attributes:
        entry_id: ``<workflow id>/<n>``: unique and repeatable.
        who: the person or the policy line that decided, empty for plain progress.
        text: one sentence for a person.
        data: the same for a machine, as a JSON object.
    """

    entry_id: str
    at: datetime
    kind: EntryKind
    repair_id: str
    node: NodeRef
    who: str = ""
    text: str
    data: str = "{}"


class Notice(Message):
    """Something a person should know.

    Attributes:
        audience: ``operators``, or the owner of a workload.
        urgent: whether somebody has to do something.
    """

    notice_id: str
    audience: str
    title: str
    body: str
    urgent: bool = False
