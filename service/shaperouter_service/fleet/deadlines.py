"""Waiting within a request's deadline, which is on the monotonic clock in seconds."""

import asyncio
import time

from shaperouter_service.errors import RelayedError
from shaperouter_service.rpc.deadlines import MARGIN, seconds_to_wait

# Seconds until a request that a lost worker had accepted is offered again to workers whose queues
# were full.
QUEUE_PAUSE = 0.5


def seconds_left(deadline: float | None) -> float | None:
    """Seconds until a deadline; None without one."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def answer_by(deadline: float | None) -> float | None:
    """When a worker must have answered, on the event loop's clock; see `seconds_to_wait`."""
    left = seconds_left(deadline)
    return None if left is None else asyncio.get_running_loop().time() + seconds_to_wait(left)


def worker_by(deadline: float | None) -> float | None:
    """When a worker must have been found, on the event loop's clock."""
    if deadline is None:
        return None
    return deadline - MARGIN - time.monotonic() + asyncio.get_running_loop().time()


async def pause(error: RelayedError, deadline: float | None) -> None:
    """Waits before another attempt.

    Raises:
        RelayedError: The deadline is too near.
    """
    left = seconds_left(deadline)
    if left is not None and left < QUEUE_PAUSE + MARGIN:
        raise error
    await asyncio.sleep(QUEUE_PAUSE)
