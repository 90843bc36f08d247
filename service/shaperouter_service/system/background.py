"""Background loops, which run for as long as a part of the service does."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, ParamSpec

import structlog

P = ParamSpec("P")

log = structlog.get_logger(__name__)


def in_background(
    loop: Callable[P, Coroutine[Any, Any, None]],
) -> Callable[P, AbstractAsyncContextManager[None]]:
    """Makes a coroutine function return a context, inside which the coroutine runs as a task."""

    @contextlib.asynccontextmanager
    @functools.wraps(loop)
    async def running(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[None]:
        task = asyncio.create_task(loop(*args, **kwargs))
        try:
            yield
        finally:
            task.cancel()

    return running


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
