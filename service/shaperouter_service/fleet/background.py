"""Background loops, which follow the fleet for as long as the service runs."""

import contextlib
from collections.abc import Iterator

import structlog

log = structlog.get_logger(__name__)


@contextlib.contextmanager
def survive_errors(loop: str) -> Iterator[None]:
    """Logs an iteration's exception and continues the loop, whose end nobody would notice.

    Args:
        loop: What the loop does, for the log.
    """
    try:
        yield
    # A defect in one iteration must not end the loop. Nothing awaits the loop's task before the
    # service stops, so the exception is logged here in full.
    except Exception:
        log.exception("iteration failed", loop=loop)
