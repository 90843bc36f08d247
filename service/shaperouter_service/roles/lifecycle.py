"""Signals that stop a serving process."""

import asyncio
import atexit
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

    A second SIGINT ends the process at once, without waiting for requests. A second SIGTERM changes
    nothing, not even after the loop's end: the exit code stays.
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
        terminated()

    def terminated(*_: Any) -> None:
        # The loop may have ended.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(stop.set)

    # Not the loop's handlers, which wait for the loop and are removed when the loop ends.
    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, terminated)
    # The interpreter, as it ends, replaces handlers by the system's, which would end the process
    # with another code, but leaves a signal ignored. Not earlier: child processes inherit that.
    atexit.register(signal.signal, signal.SIGTERM, signal.SIG_IGN)
    return stop


def _end_at_once() -> None:
    log.warning("interrupted twice: ended without waiting for running requests")
    os._exit(EXIT_INTERRUPTED)
