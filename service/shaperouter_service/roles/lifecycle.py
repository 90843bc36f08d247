"""Starting and stopping a process that serves until it is told to stop."""

import asyncio
import signal


def stop_signal() -> asyncio.Event:
    """Returns an event that SIGTERM or SIGINT sets.

    A second SIGINT, from someone who does not want to wait, ends the process at once.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def interrupted() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, interrupted)
    return stop
