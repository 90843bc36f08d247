"""Ending this process with its parent."""

import os
import threading


def end_with_parent() -> None:
    """Ends this process at once when standard input, a pipe from the parent, is closed.

    This works however the parent ends, including SIGKILL, and whatever this process is doing.
    """
    threading.Thread(target=_end, name="parent", daemon=True).start()


def _end() -> None:
    # Not with Python's own stdin, whose lock this thread would hold while the interpreter exits.
    os.read(0, 1)
    os._exit(0)
