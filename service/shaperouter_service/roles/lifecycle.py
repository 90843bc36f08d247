"""Starting and stopping a process that serves until it is told to stop."""

import asyncio
import signal


def stop_signal() -> asyncio.Event:
    """Returns an event that SIGTERM or SIGINT sets; a second signal ends the process at once."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)

    def on_signal() -> None:
        stop.set()
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, on_signal)
    return stop
