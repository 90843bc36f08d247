"""The priority of making graphs, below that of serving."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

# A tenth of the weight of a thread that serves, where both want a core: a compilation slows what is
# served less, and comes to its end however much there is to serve.
NICE = 10


def give_way() -> None:
    """Has this thread, and whatever it starts, give way to threads that serve.

    XLA generates code on threads of its own, one a core, which it starts at the first compilation
    of a process and on the thread that asks for it: so that one has to give way, too.
    """
    thread = threading.get_native_id()
    # Relative: the service itself may have been started with a lower priority, and only the
    # superuser may raise one. The system cuts off what is beyond the lowest.
    os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICE)


def giving_way(make: Callable[[], T]) -> T:
    """Calls what compiles something, on a thread that gives way; returns what it does."""
    with ThreadPoolExecutor(1, initializer=give_way) as threads:
        return threads.submit(make).result()
