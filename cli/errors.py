"""How a command ends when it does not end well."""

from __future__ import annotations

from runtime import exits


class CommandError(Exception):
    """A command that ends with a sentence for a person and an exit status."""

    status = exits.COULD_NOT_LOOK


class RefusedError(CommandError):
    """The answer is no: it was asked, and it does not apply, is not valid, or is not there."""

    status = exits.FAULTS_FOUND


class CouldNotError(CommandError):
    """It could not be done or found out: wrong usage, or something that is needed is away."""

    status = exits.COULD_NOT_LOOK
