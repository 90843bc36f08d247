"""What a test has logged, and not what engines of others still compile in its process."""

import threading
from collections.abc import MutableMapping
from contextlib import AbstractContextManager
from typing import Any

import structlog.testing


def capture_logs() -> AbstractContextManager[list[MutableMapping[str, Any]]]:
    """Collects what is logged meanwhile, but by threads that compile."""
    return structlog.testing.capture_logs(processors=[_unless_compiling])


def _unless_compiling(
    _logger: Any, _method: str, line: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    if threading.current_thread().name.startswith("compile-"):
        raise structlog.DropEvent
    return line
