"""The priority of making graphs, below that of serving."""

import os
import threading

# A tenth of the weight of a thread that serves, where both want a core: a compilation slows what is
# served less, and comes to its end however much there is to serve.
NICE = 10


def give_way() -> None:
    """Has this thread, and those that it starts, give way to threads that serve.

    XLA generates code on threads of its own, one a core, which it starts at the first compilation
    of a process and on the thread that asks for it: so that one has to give way, too.
    """
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
