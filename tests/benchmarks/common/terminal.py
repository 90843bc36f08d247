"""Progress messages of a measurement."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

# Columns that the tables need; without a terminal there would be 80.
WIDTH = 100

# A function that takes a line about the current activity.
Tell = Callable[[str], None]

console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)


@contextmanager
def telling() -> Iterator[Tell]:
    """Prints the current activity with the time since the start."""
    started = time.monotonic()
    with console.status("") as status:

        def tell(what: str) -> None:
            seconds = int(time.monotonic() - started)
            line = f"{seconds // 60:3}:{seconds % 60:02}  {what}"
            if console.is_terminal:
                status.update(line)
            else:
                console.print(line)

        yield tell
