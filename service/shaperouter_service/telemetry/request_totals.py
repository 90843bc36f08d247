"""Totals of a model's requests, for protocols that show them to callers."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Duration:
    """How often something was measured, and the sum in seconds."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Adds a measurement."""
        self.count += 1
        self.seconds += seconds


@dataclass(slots=True, kw_only=True)
class RequestTotals:
    """Totals since the router started.

    Attributes:
        succeeded: Requests that succeeded, from arrival to end.
        failed: All others that have ended.
        queued: Time that requests which succeeded spent in the queues of workers.
    """

    succeeded: Duration = field(default_factory=Duration)
    failed: Duration = field(default_factory=Duration)
    queued: Duration = field(default_factory=Duration)
