"""Logging: every room logs through the standard library; here records become JSON or console lines."""

from __future__ import annotations

import logging
import sys

import structlog


def configure(level: str = "INFO", as_json: bool = False) -> None:
    """Send all log records to standard error, as JSON lines or for a person's eyes.

    Fields given as ``extra={"node": …}`` become keys of the line.

    Args:
        level: a name such as ``INFO``.
        as_json: one JSON object a line, for log collectors.
    """
    shared: list[structlog.types.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            renderer,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
