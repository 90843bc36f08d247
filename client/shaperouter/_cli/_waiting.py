"""The line on stderr that says what a request is waiting for."""

import time
from types import TracebackType
from typing import Self

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

# Escape sequences to go below the line that the cursor is in: make two free lines (index, reverse
# index), save the position, go down. The second line is for the one that Live ends with.
_GO_BELOW = "\x1bD\x1bD\x1bM\x1bM\x1b7\r\n"
_GO_BACK = "\x1b8"

_SPINNER_WIDTH = 3  # columns: the spinner, a space, and one that stays free


class WaitingLine:
    """A spinner, what the request is waiting for, and for how long; only if stderr is a terminal.

    Not thread-safe; `show` and `hide` may be called any number of times in any order.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        """Shows nothing yet."""
        self._console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        self._enabled = enabled and self._console.is_terminal and not self._console.is_dumb_terminal
        self._spinner = Spinner("dots")
        self._live: Live | None = None
        self._below = False
        self._what = self._remark = ""
        self._since = 0.0

    def show(self, what: str, *, remark: str = "", below_text: bool = False) -> None:
        """Shows or changes the line. The seconds start again if `what` has changed.

        Args:
            what: What the request is waiting for.
            remark: Text after the seconds, if there is room.
            below_text: Whether the cursor is in a line of text, below which the line must go.
        """
        if not self._enabled:
            return
        if what != self._what:
            self._what, self._since = what, time.monotonic()
        self._remark = remark
        if self._live is None:
            self._below = below_text
            if below_text:
                self._write(_GO_BELOW)
            self._live = Live(
                console=self._console,
                get_renderable=self._line,
                refresh_per_second=8,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start(refresh=True)

    def hide(self) -> None:
        """Removes the line and puts the cursor back."""
        if self._live is None:
            return
        self._live.stop()
        self._live = None
        self._what = ""
        if self._below:
            self._write(_GO_BACK)

    def __enter__(self) -> Self:
        """Returns the line itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Removes the line."""
        self.hide()

    def _line(self) -> RenderableType:
        # Always one line: if only one is free, a second would scroll the text.
        width = self._console.width - _SPINNER_WIDTH
        seconds = f" … {time.monotonic() - self._since:.0f} s"
        line = Text(self._what, style="dim")
        line.truncate(max(0, width - len(seconds)), overflow="ellipsis")
        line.append(seconds)
        remark = f"; {self._remark}" if self._remark else ""
        if line.cell_len + cell_len(remark) <= width:
            line.append(remark)
        line.truncate(width)
        self._spinner.update(text=line)
        return self._spinner

    def _write(self, control: str) -> None:
        self._console.file.write(control)
        self._console.file.flush()
