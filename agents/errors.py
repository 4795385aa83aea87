"""Why an agent cannot start, in words for a person."""


class StartError(Exception):
    """The agent cannot start; the text says why and what to do."""
