"""Metrics of what happens to runs between workers."""

from prometheus_client import CollectorRegistry, Counter


class FleetMetrics:
    """The metrics that a router's fleet makes.

    Attributes:
        runs_resumed: By model and reason: the worker's connection broke (lost), it fell silent
            (hung), or it gave the run back (draining).
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers them."""
        self.runs_resumed = Counter(
            "shaperouter_runs_resumed",
            "Runs that were handed to another worker, or to the next life of the same one, because "
            "theirs was lost, hung or draining.",
            ["model", "reason"],
            registry=registry,
        )
