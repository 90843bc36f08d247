"""The priority of compile threads, below that of all that serves requests."""

import os
import sys
import threading

# How much nicer they are: a tenth of the weight of a thread that serves, where both want a core.
NICE = 10


def give_way() -> None:
    """Lowers the priority of this thread, for good: only root could raise it again.

    XLA compiles a graph on the thread that calls it first. With the first of a process it starts
    the threads that compute all graphs, and threads inherit their priority: this is for afterwards.
    """
    # Elsewhere a thread has no priority of its own.
    if sys.platform == "linux":
        ours = os.getpriority(os.PRIO_PROCESS, os.getpid())
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(19, ours + NICE))
