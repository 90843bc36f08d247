"""Structured logs on standard error: JSON for programs, plain lines on a terminal.

Logs of libraries, Python's warnings and uncaught exceptions have the same form, so that a program
can read every line of a process.
"""

import logging
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import structlog

from shaperouter_service.telemetry.tracing import add_ids

LogFormat = Literal["auto", "console", "json"]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """Settings of a process's logs.

    Attributes:
        level: Minimum level: debug, info, warning or error.
        format: `auto` means console on a terminal and json elsewhere.
        fields: Fields that every line has.
    """

    level: str = "info"
    format: LogFormat = "auto"
    fields: Mapping[str, str] = field(default_factory=dict)


# Logging is global to the process, and so are its settings; None before they are set.
_settings: LogSettings | None = None


def logs_json() -> bool:
    """Whether this process was set up to log in JSON."""
    return _settings is not None and _is_json(_settings.format)


def configure_logs(settings: LogSettings) -> None:
    """Sets up logging for this process."""
    global _settings  # noqa: PLW0603 (logging is global to the process)
    _settings = settings
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    shared: list[Any] = [
        lambda _, __, event: {**settings.fields, **event},
        add_ids,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer = _renderer(settings.format)
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # Writes a line in one call, so that lines of libraries cannot split it.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        # A later change of the level, e.g. by tests, must reach the loggers of modules.
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    # Below warnings, the logs of libraries do not concern operators.
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)
    # For loggers without a handler that do not propagate to the root.
    logging.lastResort = handler
    logging.captureWarnings(True)
    adopt_loggers()
    sys.excepthook = _log_exception
    sys.unraisablehook = _log_unraisable
    threading.excepthook = _log_thread_exception


def adopt_loggers() -> None:
    """Replaces the handlers that libraries added to their loggers with ours.

    Call it after importing such a library: Transformers and huggingface_hub.
    """
    # A copy, because other threads may create loggers meanwhile.
    for logger in list(logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger) and logger.handlers:
            logger.handlers.clear()
            logger.propagate = True


def _is_json(log_format: LogFormat) -> bool:
    return log_format == "json" or (log_format == "auto" and not sys.stderr.isatty())


def _renderer(log_format: LogFormat) -> list[Any]:
    if _is_json(log_format):
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    colors = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    # Tracebacks would be coloured otherwise, and show local variables: inputs of callers.
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]


def _log_exception(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    log.critical("ended by an exception", exc_info=(kind, error, trace))


def _log_unraisable(arguments: "sys.UnraisableHookArgs") -> None:
    log.error(
        "an exception was ignored",
        where=arguments.err_msg or repr(arguments.object),
        exc_info=(arguments.exc_type, arguments.exc_value, arguments.exc_traceback),
    )


def _log_thread_exception(arguments: threading.ExceptHookArgs) -> None:
    if arguments.exc_type is not SystemExit:
        log.error(
            "a thread was ended by an exception",
            thread=arguments.thread.name if arguments.thread else "",
            exc_info=(arguments.exc_type, arguments.exc_value, arguments.exc_traceback),
        )
