"""What Ctrl-C does: the first one ends what is going on, and further ones cannot break its end."""

import _thread
import os
import signal
import sys
import time
from types import FrameType
from typing import NoReturn

EXIT_INTERRUPTED = 130  # 128 and the number of SIGINT, as shells report it

# Seconds that an interrupted command has to end. gRPC hangs when it is interrupted in the moment
# in which it starts a call: its channel then waits for a thread that was never started.
_PATIENCE = 2.0


def interrupt_once() -> None:
    """Has the first SIGINT raise KeyboardInterrupt, and no other do anything."""

    def interrupted(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, _do_nothing)
        # Not by `threading`, whose locks may be held by what this interrupts.
        _thread.start_new_thread(_end_late, ())
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupted)


def exit_with(code: int | None) -> NoReturn:
    """Ends the process; an interruption from here on changes nothing but the exit code.

    After an interruption the interpreter is not taken down in order, which may hang as well.
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

    Not `SIG_IGN`: for a signal that came just before it was set, Python prints a traceback.
    """


def _end_late() -> None:
    """Ends the process once its patience is over, on a thread that dies with the process."""
    time.sleep(_PATIENCE)
    os._exit(EXIT_INTERRUPTED)
