"""Starts the ``shaperouter`` command.

This module is not in the package, whose import takes nearly half a second. Until the import has
ended, Ctrl-C ends the process silently, instead of with a traceback from the middle of an import.
"""

import os
import signal
import sys

_INTERRUPTED = 130  # 128 and the number of SIGINT, as shells report it


def main() -> None:
    """Imports the command, runs it, and exits."""
    # A shell starts background commands with SIGINT ignored; leave it ignored.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))

    # A caller may have closed a standard stream, which is then None. Opening it again, in this
    # order, also keeps its descriptor from the sockets of gRPC.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Neither a path's method nor a with block: the process has it open until its end.
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123, SIM115
            setattr(sys, name, stream)

    from shaperouter._cli import main as run_command  # noqa: PLC0415 (after the handler)

    run_command()
