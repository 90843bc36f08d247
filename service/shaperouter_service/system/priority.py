"""The priority of background work, below that of serving."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

# A tenth of the weight of a serving thread when both need a core: a compilation slows serving less,
# and still finishes under any load.
NICE = 10


def give_way() -> None:
    """Lowers the priority of this thread, and of threads that it starts, below serving threads.

    XLA generates code on its own threads, one for each core. It starts them at a process's first
    compilation, from the requesting thread, so that thread must have the low priority.
    """
    thread = threading.get_native_id()
    # Relative, because the service may have started with a lower priority, which only the superuser
    # may raise. The system limits it to the lowest one.
    os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICE)


def giving_way(make: Callable[[], T]) -> T:
    """Runs `make` on a low-priority thread and returns its result."""
    with ThreadPoolExecutor(1, initializer=give_way) as threads:
        return threads.submit(make).result()
