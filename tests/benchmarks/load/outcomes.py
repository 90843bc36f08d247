"""The outcome of a request."""

from dataclasses import dataclass, field
from enum import StrEnum


class End(StrEnum):
    """How a request ended."""

    COMPLETED = "completed"
    REFUSED = "refused"  # RESOURCE_EXHAUSTED
    TIMED_OUT = "timed out"  # DEADLINE_EXCEEDED, whoever said it
    FAILED = "failed"  # whatever else


@dataclass(kw_only=True)
class Outcome:
    """The outcome of a request, with times in seconds.

    Attributes:
        sent: When it was sent, from the start.
        late: How long after its time that was.
        number: Its place among the requests there were.
        first: From then to its first tokens; None if there were none.
        total: From then to its end.
        end: How it ended.
        reason: Why it did not complete.
        retry_after: When to try again, as a refusal told it.
        timings: The service's own account, where it gives one.
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
