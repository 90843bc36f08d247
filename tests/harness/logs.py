"""The log lines of a test, without those of engines that are still compiling for other tests."""

import logging
import sys
import threading
import warnings
from collections.abc import Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import structlog.testing

from shaperouter_service.telemetry import logs


def capture_logs() -> AbstractContextManager[list[MutableMapping[str, Any]]]:
    """Collects log lines, except those of compiling threads."""
    return structlog.testing.capture_logs(processors=[_unless_compiling])


def _unless_compiling(
    _logger: Any, _method: str, line: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    if threading.current_thread().name == "compile":
        raise structlog.DropEvent
    return line


@contextmanager
def configured_logs(settings: logs.LogSettings) -> Iterator[None]:
    """Configures logging like a process with these settings, and restores it at the end."""
    before, handlers, level = structlog.get_config(), logging.root.handlers[:], logging.root.level
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        for place, name in (
            (sys, "excepthook"),
            (sys, "unraisablehook"),
            (threading, "excepthook"),
            (logging, "lastResort"),
            (logs, "_settings"),
        ):
            patch.setattr(place, name, getattr(place, name))
        try:
            logs.configure_logs(settings)
            yield
        finally:
            logging.captureWarnings(False)
            logging.root.handlers[:] = handlers
            logging.root.setLevel(level)
            structlog.configure(**before)
