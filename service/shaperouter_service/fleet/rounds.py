"""Rounds of loops that follow the fleet for as long as the service lives."""

import contextlib
from collections.abc import Iterator

import structlog

log = structlog.get_logger(__name__)


@contextlib.contextmanager
def one_round(loop: str) -> Iterator[None]:
    """Has a loop go on after a round of it that failed: its end would be noticed by nobody.

    Args:
        loop: What it does, for the log.
    """
    try:
        yield
    # Whatever it is: a defect in one round must not end all that the loop is there for, and without
    # a word, since nothing waits for its task before the service stops. It is told here in full.
    except Exception:
        log.exception("round failed", loop=loop)
