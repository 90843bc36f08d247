"""Structured logs on standard error: JSON for machines, coloured lines on a terminal."""

import logging
import sys
from typing import Any, Literal

import structlog

from shaperouter_service.telemetry.tracing import add_ids

LogFormat = Literal["auto", "console", "json"]


def configure_logs(level: str, log_format: LogFormat, **fields: str) -> None:
    """Sets up logging for this process.

    Args:
        level: Least level shown: debug, info, warning or error.
        log_format: `auto` means lines for people on a terminal, and JSON elsewhere.
        **fields: What every line says besides, whichever thread writes it.
    """
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    renderer: list[Any] = (
        [structlog.dev.ConsoleRenderer()]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            lambda _, __, event: {**fields, **event},
            add_ids,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        # A late change of level, as tests make, reaches loggers that modules hold.
        cache_logger_on_first_use=False,
    )
