"""Coalescing of new tokens into fewer messages, for callers that read only the end."""

import time

from shaperouter_service.generation.run_events import InputUsage, NewTokens, TokenLogprobs


class TokenCoalescer:
    """Holds back a run's tokens, so that at most one message is sent per interval."""

    def __init__(self, interval: float) -> None:
        """Starts without tokens.

        Args:
            interval: Minimum seconds between two messages; 0 holds nothing back.
        """
        self._interval = interval
        self._sent_at: float | None = None
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self._input_usage: InputUsage | None = None

    def add(self, new: NewTokens) -> NewTokens | None:
        """Takes new tokens and returns what to send now.

        The first tokens are sent at once, because their message gives the time to first token.
        """
        self._token_ids += new.token_ids
        self._logprobs += new.logprobs
        self._input_usage = new.input_usage or self._input_usage
        if self._sent_at is not None and time.monotonic() < self._sent_at + self._interval:
            return None
        return self.flush()

    def flush(self) -> NewTokens | None:
        """Returns the tokens held back, or None."""
        if not self._token_ids:
            return None
        tokens = NewTokens(self._token_ids, self._logprobs, self._input_usage)
        self._token_ids, self._logprobs, self._input_usage = [], [], None
        self._sent_at = time.monotonic()
        return tokens
