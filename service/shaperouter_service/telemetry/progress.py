"""When things happen to a sequence, as the router sees them."""

import time


class SequenceProgress:
    """One sequence of a request, on the monotonic clock in seconds."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self._first_token: float | None = None
        self._newest_token = 0.0
        self._stalled_since: float | None = None
        self._stalled_first = 0.0  # before the first token
        self._stalled_later = 0.0

    def stalls(self) -> None:
        """It waits for a compilation from now on."""
        self.resumes()
        self._stalled_since = time.monotonic()

    def resumes(self) -> None:
        """It waits no more, if it did."""
        if self._stalled_since is not None:
            stalled = time.monotonic() - self._stalled_since
            self._stalled_since = None
            if self._first_token is None:
                self._stalled_first += stalled
            else:
                self._stalled_later += stalled

    def tokens(self) -> float | None:
        """New tokens have come: returns the seconds since the last, None for the first."""
        self.resumes()
        now = time.monotonic()
        since = None if self._first_token is None else now - self._newest_token
        if self._first_token is None:
            self._first_token = now
        self._newest_token = now
        return since

    @property
    def stall_seconds(self) -> float:
        """Waiting for compilations, those left out that it still waits for."""
        return self._stalled_first + self._stalled_later

    @property
    def decode_seconds(self) -> float:
        """From its first token to its last, stalls left out; 0 before."""
        if self._first_token is None:
            return 0.0
        return self._newest_token - self._first_token - self._stalled_later
