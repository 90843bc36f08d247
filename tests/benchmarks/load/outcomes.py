"""The outcome of a request."""

from dataclasses import dataclass, field
from enum import StrEnum


class End(StrEnum):
    """How a request ended."""

    COMPLETED = "completed"
    REFUSED = "refused"  # RESOURCE_EXHAUSTED
    TIMED_OUT = "timed out"  # DEADLINE_EXCEEDED, from either side
    FAILED = "failed"  # any other error


@dataclass(kw_only=True)
class Outcome:
    """The outcome of a request, with times in seconds.

    Attributes:
        sent: Time when it was sent, from the start.
        late: Seconds by which it was sent too late.
        number: Its index among the requests.
        first: Time from sending to its first tokens; None without any.
        total: Time from sending to its end.
        end: How it ended.
        reason: Reason why it did not complete.
        retry_after: Seconds after which to retry, from the refusal.
        timings: Times that the service reported, if any.
        tight: Whether only graphs of its own shape served it, as the service reported.
    """

    sent: float
    late: float
    number: int = 0
    first: float | None = None
    total: float = 0.0
    end: End = End.COMPLETED
    reason: str = ""
    retry_after: float | None = None
    timings: dict[str, float] = field(default_factory=dict)
    tight: bool = False
