"""Retries of failed calls.

Calls with a single answer are repeated, also one that sends a recording in pieces. Those that
change which models are served are not: one that lost only its answer would be refused the second
time. A stream is repeated as long as no part of its answer has arrived, and one that sends a
recording never: what its source gave cannot be read again. All others are repeated once more, at
once, if the service had not begun them, because it stopped or closed an old connection. (gRPC does
that by itself, but not for the blocking client, see `_connection.py`. Its other retries ignore
``google.rpc.RetryInfo``.)
"""

import random
import time
from dataclasses import dataclass

from shaperouter import _values
from shaperouter._errors import InvalidArgumentError, ShaperouterError, UnavailableError
from shaperouter._status import forbids_retry, was_begun

# Default retries of a client. They bridge a service's restart of about two seconds. Without a
# service, a call fails after about 3 s.
_DEFAULT_RETRIES = 3

# Pauses in seconds: the first, the factor between successive ones, and the longest.
_FIRST_PAUSE = 0.2
_PAUSE_GROWTH = 3
_LONGEST_PAUSE = 5.0

# Largest fraction of a pause that is added at random, so that clients do not return together.
_JITTER = 0.2


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """The failures that lead to another attempt.

    Attributes:
        retries: Attempts after the first.
        after_overload: Whether to retry a call that an overloaded service refused.
        unbegun: Whether to make another attempt at a call that the service had not begun.
    """

    retries: int
    after_overload: bool
    unbegun: bool = True

    @classmethod
    def resolve(cls, retries: int | None) -> "RetryPolicy":
        """The policy for a client's `retries`.

        Raises:
            InvalidArgumentError: It is not a whole number of at least 0.
        """
        if retries is None:
            return cls(retries=_DEFAULT_RETRIES, after_overload=False)
        count = _values.integer("retries", retries, bits=32)
        if count < 0:
            raise InvalidArgumentError.of("retries", f"must be at least 0, got {count}")
        return cls(retries=count, after_overload=True)

    def begin(self, timeout: float | None) -> "Attempts":
        """Starts the clock of one call, which may take `timeout` seconds; None means no limit."""
        return Attempts(self, timeout)

    def repeats(self, error: ShaperouterError) -> bool:
        """Whether a call that failed with `error` may be sent again."""
        return isinstance(error, UnavailableError) or (self.after_overload and error.retriable)


NO_RETRIES = RetryPolicy(retries=0, after_overload=False)
ONE_ATTEMPT = RetryPolicy(retries=0, after_overload=False, unbegun=False)


class Attempts:
    """The attempts of one call. Only one thread or task may use it."""

    def __init__(self, policy: RetryPolicy, timeout: float | None) -> None:
        """Starts the clock."""
        self._policy = policy
        self._end = None if timeout is None else time.monotonic() + timeout
        self._failures = 0
        self._restarts_unbegun = policy.unbegun

    @property
    def left(self) -> float | None:
        """Seconds until the call's deadline; None if it has none."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def pause_after(self, error: ShaperouterError) -> float | None:
        """Seconds to wait before the call is sent again; None if it is not.

        The pause is at least as long as the service asks for. There is no retry after the deadline.

        Args:
            error: How the last attempt failed; its cause is gRPC's error.
        """
        if self._restarts_unbegun and not was_begun(error.__cause__):
            self._restarts_unbegun = False
            return None if self.left == 0 else 0.0
        forbidden = forbids_retry(error.__cause__)
        failures, self._failures = self._failures, self._failures + 1
        if forbidden or failures >= self._policy.retries or not self._policy.repeats(error):
            return None
        # Cap the exponent: a large one would overflow before the limit applies.
        backoff = _FIRST_PAUSE * _PAUSE_GROWTH ** min(failures, 10)
        pause = max(min(backoff, _LONGEST_PAUSE), error.retry_after or 0.0)
        pause *= 1 + _JITTER * random.random()  # noqa: S311 (not for secrets)
        left = self.left
        return None if left is not None and pause >= left else pause
