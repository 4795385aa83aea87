"""What an Xid means to us: an explicit decision for every known code, and "unknown" for every other."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from domain.catalog import CATALOG
from domain.model import Word
from domain.xid_table import XIDS_TO_99, Row
from domain.xid_table_100 import XIDS_FROM_100

UNKNOWN_XID = "gpu.unknown_xid"


class XidDecision(Word):
    """What one Xid amounts to.

    Attributes:
        fault_class: a name from the catalog; the words of the line may refine it (``domain.classify``).
        reason: why, in our own words.
        differs: where we do not do what NVIDIA's catalogue says, why; else empty.
    """

    code: int
    fault_class: str
    reason: str
    differs: str = ""


def load(rows: Mapping[int, Row]) -> Mapping[int, XidDecision]:
    """Return the rows as decisions by code.

    Raises:
        ValueError: a row names a class that the catalog does not have, or gives no reason.
    """
    decisions: dict[int, XidDecision] = {}
    for code, row in rows.items():
        if row[0] not in CATALOG:
            raise ValueError(f"Xid {code} is decided as {row[0]}, which the catalog does not have")
        if not row[1].strip():
            raise ValueError(f"the decision for Xid {code} has no reason")
        differs = row[2] if len(row) == 3 else ""
        decisions[code] = XidDecision(code=code, fault_class=row[0], reason=row[1], differs=differs)
    return MappingProxyType(decisions)


XIDS: Mapping[int, XidDecision] = load({**XIDS_TO_99, **XIDS_FROM_100})
"""The decision for every code that NVIDIA's catalogue or the header of driver 595 knows."""


def decide(code: int) -> XidDecision:
    """Return the decision for an Xid; for a code that no table has, the one that tells and does nothing."""
    known = XIDS.get(code)
    if known is not None:
        return known
    return XidDecision(code=code, fault_class=UNKNOWN_XID, reason=f"Xid {code} is in no table that we know")
