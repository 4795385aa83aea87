"""Errors that cross a port. Their class says what a caller may do; their text says what a person should do.

Temporal matches ``non_retryable_error_types`` by class name only, so these names are part of the contract.
"""


class KintsugiError(Exception):
    """Base of the errors that an adapter may raise."""


class TransientError(KintsugiError):
    """It did not happen, and the same call may succeed later (busy, refused, timed out before it was sent)."""


class PermanentError(KintsugiError):
    """It did not happen and will not, however often it is tried (no such node, not permitted, not supported)."""


class AmbiguousError(KintsugiError):
    """Nobody knows whether it happened. Look at the world before doing anything; never repeat blindly."""


class UnsupportedError(PermanentError):
    """This node, driver or adapter cannot do that at all. The next rung may."""


class NotOursError(PermanentError):
    """Someone else has taken the node over: our mark is gone, or another owner's is there."""
