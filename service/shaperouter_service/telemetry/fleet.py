"""Metrics of the fleet: workers, lost workers, and runs that continue on other workers."""

from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge


class Recycling(StrEnum):
    """How an attempt to recycle a worker ended."""

    REPLACED = "replaced"
    GIVEN_UP = "given_up"


class FleetMetrics:
    """The metrics of a router's fleet; the help of each says what it counts.

    Attributes:
        workers: Gauge of connected workers.
        workers_lost: Counter by reason: lost, hung or draining.
        runs_resumed: Counter by model and reason: lost, hung or draining.
        deadly_requests: Counter by model.
        workers_recycled: Counter by result, see `Recycling`.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers the metrics."""
        self.workers = Gauge(
            "shaperouter_workers", "Worker processes that answer the router.", registry=registry
        )
        self.workers_lost = Counter(
            "shaperouter_workers_lost",
            "Worker processes that no longer answer: the connection broke (lost), they stopped "
            "reporting (hung), or they were stopped (draining).",
            ["reason"],
            registry=registry,
        )
        self.runs_resumed = Counter(
            "shaperouter_runs_resumed",
            "Runs that continued on another worker, or on a new process of the same one, because "
            "theirs was lost, hung or draining.",
            ["model", "reason"],
            registry=registry,
        )
        self.deadly_requests = Counter(
            "shaperouter_deadly_requests",
            "Requests that were refused because workers died or hung while running nothing else. "
            "The exemplar has the request's id.",
            ["model"],
            registry=registry,
        )
        self.workers_recycled = Counter(
            "shaperouter_workers_recycled",
            "Attempts to replace a local worker whose budget of graphs was spent on graphs that "
            "save nothing: replaced, or given_up.",
            ["result"],
            registry=registry,
        )
        for result in Recycling:
            self.workers_recycled.labels(result)
