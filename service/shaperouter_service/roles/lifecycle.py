"""Signals that stop a serving process."""

import asyncio
import contextlib
import os
import signal
import threading
from typing import Any

import structlog

from shaperouter_service.system.process import EXIT_INTERRUPTED

log = structlog.get_logger(__name__)


def stop_signal() -> asyncio.Event:
    """Returns an event that SIGTERM or SIGINT sets.

    A second SIGINT ends the process at once, without waiting for requests.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    was_interrupted = False

    def interrupted(*_: Any) -> None:
        nonlocal was_interrupted
        if was_interrupted:
            try:
                # In a thread, because the interrupted code may hold the log's lock.
                threading.Thread(target=_end_at_once, daemon=True).start()
            except RuntimeError:  # The interpreter is exiting and starts no threads.
                os._exit(EXIT_INTERRUPTED)
        was_interrupted = True
        # The loop may have ended.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(stop.set)

    loop.add_signal_handler(signal.SIGTERM, stop.set)
    # Not the loop's handler, which waits for the loop and is removed when the loop ends.
    signal.signal(signal.SIGINT, interrupted)
    return stop


def _end_at_once() -> None:
    log.warning("interrupted twice: ended without waiting for running requests")
    os._exit(EXIT_INTERRUPTED)
