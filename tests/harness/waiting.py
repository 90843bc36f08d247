"""Waiting for conditions."""

import time
from collections.abc import Callable

# Seconds; the longest wait for a condition, and for a whole scenario. Only failures take this long,
# also on a machine that runs other work.
TIMEOUT = 120.0


def wait_until(
    condition: Callable[[], object], *, timeout: float = TIMEOUT, pause: float = 0.01
) -> None:
    """Waits until a condition holds, which is checked every `pause` seconds.

    Raises:
        TimeoutError: The condition does not hold within `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{condition} did not come true within {timeout} s")
        time.sleep(pause)
