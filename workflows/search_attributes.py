"""Search attributes of repairs, so that `temporal workflow list` and the UI can filter them."""

from __future__ import annotations

from temporalio.common import SearchAttributeKey

CLUSTER = SearchAttributeKey.for_keyword("KintsugiCluster")
POOL = SearchAttributeKey.for_keyword("KintsugiPool")
NODE = SearchAttributeKey.for_keyword("KintsugiNode")
FAULT_CLASS = SearchAttributeKey.for_keyword("KintsugiFaultClass")
PHASE = SearchAttributeKey.for_keyword("KintsugiPhase")
WAITING_FOR = SearchAttributeKey.for_keyword("KintsugiWaitingFor")
"""Step that waits for a person; ``-`` when none does."""

ALL = (CLUSTER, POOL, NODE, FAULT_CLASS, PHASE, WAITING_FOR)
NOBODY = "-"
