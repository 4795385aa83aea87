"""Why an operation is not started or not found."""


class UnknownOperationError(Exception):
    """No operation with this id was ever started here, or it was forgotten long ago."""


class RefusedError(Exception):
    """The request does not fit this node's state and never will: make a new one."""


class IncompleteRequestError(Exception):
    """The request lacks something that its kind needs."""


class BusyError(Exception):
    """Another operation is running that does not go together with this one; the same request may succeed later."""
