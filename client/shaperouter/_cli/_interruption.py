"""Handling of Ctrl-C: the first one ends the command, further ones cannot disturb its end."""

import _thread
import os
import signal
import sys
import time
from types import FrameType
from typing import NoReturn

EXIT_INTERRUPTED = 130  # 128 and the number of SIGINT, as shells report it

# Seconds that an interrupted command has to end. gRPC hangs if it is interrupted at the moment when
# it starts a call, because its channel then waits for a thread that was never started.
_GRACE_SECONDS = 2.0


def interrupt_once() -> None:
    """Lets the first SIGINT raise KeyboardInterrupt and ignores further ones."""

    def interrupted(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, _do_nothing)
        # Not with `threading`: the interrupted code may hold its locks.
        _thread.start_new_thread(_exit_after_grace, ())
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupted)


def is_interrupted() -> bool:
    """Whether a SIGINT has been raised as KeyboardInterrupt."""
    return signal.getsignal(signal.SIGINT) is _do_nothing


def exit_with(code: int | None) -> NoReturn:
    """Ends the process. A further interruption changes only the exit code.

    After an interruption, the process ends without the interpreter's shutdown, which may hang, too.
    """
    if signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, _do_nothing):
        signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
    if code == EXIT_INTERRUPTED:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    sys.exit(code)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Handles further SIGINTs.

    With `SIG_IGN` instead, Python prints a traceback for a signal that came just before.
    """


def _exit_after_grace() -> None:
    """Ends the process after the grace period; runs on a thread that ends with the process."""
    time.sleep(_GRACE_SECONDS)
    os._exit(EXIT_INTERRUPTED)
