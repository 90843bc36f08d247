"""Metrics of the fleet: workers, lost workers, and runs that continue on other workers."""

from enum import StrEnum
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge


class Recycling(StrEnum):
    """How an attempt to recycle a worker ended."""

    REPLACED = "replaced"
    GIVEN_UP = "given_up"


class ModelChange(StrEnum):
    """How the loading or unloading of a model ended."""

    LOADED = "loaded"
    FAILED = "failed"
    UNLOADED = "unloaded"
    IDLE = "idle"


class FleetMetrics:
    """The metrics of a router's fleet; the help of each says what it counts.

    Attributes:
        workers: Gauge of connected workers.
        model_workers: Gauge of ready workers by model.
        workers_lost: Counter by reason: lost, hung or draining.
        runs_resumed: Counter by model and reason: lost, hung or draining.
        deadly_requests: Counter by model.
        workers_recycled: Counter by result, see `Recycling`.
        model_changes: Counter by model and result, see `ModelChange`.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers the metrics."""
        counter = partial(Counter, registry=registry)
        self.workers = Gauge(
            "shaperouter_workers", "Worker processes that answer the router.", registry=registry
        )
        self.model_workers = Gauge(
            "shaperouter_model_workers",
            "Workers that are ready to serve a model, other than models on demand.",
            ["model"],
            registry=registry,
        )
        self.workers_lost = counter(
            "shaperouter_workers_lost",
            "Worker processes that no longer answer: the connection broke (lost), they stopped "
            "reporting (hung), or they were stopped (draining).",
            ["reason"],
        )
        self.runs_resumed = counter(
            "shaperouter_runs_resumed",
            "Runs that continued, and calls that were repeated, on another worker or process, "
            "because theirs was lost, hung or draining.",
            ["model", "reason"],
        )
        self.deadly_requests = counter(
            "shaperouter_deadly_requests",
            "Requests that were refused because workers died or hung while running nothing else. "
            "The exemplar has the request's id.",
            ["model"],
        )
        self.workers_recycled = counter(
            "shaperouter_workers_recycled",
            "Attempts to replace a local worker whose budget of graphs was spent on graphs that "
            "save nothing: replaced, or given_up.",
            ["result"],
        )
        self.model_changes = counter(
            "shaperouter_model_changes",
            "Changes by this router: it loaded a model or a revision or changed its share "
            "(loaded), could not load it (failed), unloaded it as an operator said (unloaded), or "
            "unloaded it because no request used it (idle).",
            ["model", "result"],
        )
        for result in Recycling:
            self.workers_recycled.labels(result)
