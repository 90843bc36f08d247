"""A process that ends with its parent."""

import os
import threading


def end_with_parent() -> None:
    """Ends this process at once when standard input ends, which the parent holds the other end of.

    However the parent ends, SIGKILL included, and whatever this process does meanwhile.
    """
    threading.Thread(target=_end, name="parent", daemon=True).start()


def _end() -> None:
    # Below Python's own stdin, whose lock this thread would hold while the interpreter ends.
    os.read(0, 1)
    os._exit(0)
