"""Metrics of workers that come and go, and of what happens to runs between them."""

from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge


class Recycling(StrEnum):
    """How an attempt to recycle a worker ended."""

    REPLACED = "replaced"
    GIVEN_UP = "given_up"


class FleetMetrics:
    """The metrics that a router's fleet makes.

    Attributes:
        workers: That answer.
        workers_lost: By reason: the connection broke (lost), it fell silent (hung), or it was
            stopped (draining).
        runs_resumed: By model and reason: the worker's connection broke (lost), it fell silent
            (hung), or it gave the run back (draining).
        deadly_requests: By model: workers died of them.
        workers_recycled: By result: a fresh process has taken the worker's place (replaced), or
            could not (given_up).
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers them."""
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
