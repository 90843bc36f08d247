"""Tokens on their way to a caller who reads nothing before the end: fewer messages cost less."""

import time

from shaperouter_service.generation.run_events import NewTokens, TokenLogprobs


class HeldTokens:
    """Holds tokens back, so that they are told no more often than every `interval`."""

    def __init__(self, interval: float) -> None:
        """Holds nothing yet.

        Args:
            interval: Seconds; 0 holds nothing ever.
        """
        self._interval = interval
        self._told: float | None = None
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprobs] = []

    def add(self, new: NewTokens) -> NewTokens | None:
        """Takes new tokens; returns what is to be told now.

        The first are told at once: when they came is known by that.
        """
        self._token_ids += new.token_ids
        self._logprobs += new.logprobs
        if self._told is not None and time.monotonic() < self._told + self._interval:
            return None
        return self.release()

    def release(self) -> NewTokens | None:
        """Returns what was held back, if anything was."""
        if not self._token_ids:
            return None
        tokens = NewTokens(self._token_ids, self._logprobs)
        self._token_ids, self._logprobs = [], []
        self._told = time.monotonic()
        return tokens
