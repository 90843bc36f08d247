"""Times of a sequence's tokens and stalls, and what was read for it, as the router sees them."""

import time

from shaperouter_service.generation.run_events import InputUsage


class SequenceProgress:
    """The progress of one sequence; times are in seconds on the monotonic clock.

    Attributes:
        input_usage: What the worker of its newest tokens read for it, as far as the worker said.
    """

    def __init__(self) -> None:
        """Starts before the first token."""
        self.input_usage = InputUsage()
        self._first_token: float | None = None
        self._newest_token = 0.0
        self._stalled_since: float | None = None
        self._stalled_first = 0.0  # before the first token
        self._stalled_later = 0.0

    def stalls(self) -> None:
        """Starts a stall: the sequence waits for a compilation."""
        self.resumes()
        self._stalled_since = time.monotonic()

    def resumes(self) -> None:
        """Ends the stall, if there is one."""
        if self._stalled_since is not None:
            stalled = time.monotonic() - self._stalled_since
            self._stalled_since = None
            if self._first_token is None:
                self._stalled_first += stalled
            else:
                self._stalled_later += stalled

    def tokens(self) -> float | None:
        """Notes new tokens; returns the seconds since the last ones, None for the first."""
        self.resumes()
        now = time.monotonic()
        since = None if self._first_token is None else now - self._newest_token
        if self._first_token is None:
            self._first_token = now
        self._newest_token = now
        return since

    @property
    def stall_seconds(self) -> float:
        """Total time of the stalls that have ended."""
        return self._stalled_first + self._stalled_later

    @property
    def decode_seconds(self) -> float:
        """Time from the first token to the newest one, without stalls; 0 before the first."""
        if self._first_token is None:
            return 0.0
        return self._newest_token - self._first_token - self._stalled_later
