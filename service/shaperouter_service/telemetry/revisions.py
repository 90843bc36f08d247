"""Metrics of the revisions that requests used, to compare a canary with what it may replace."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram

from shaperouter_service.errors import Code
from shaperouter_service.routing.deployments import REVISION_DIGITS

# Seconds. From a warm tiny model to a long text of a large one.
_BOUNDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfRevision:
    """The series of one revision; looking them up takes longer than counting in them."""

    requests: dict[Code, Counter]
    latency: Histogram


class RevisionSeries:
    """Requests that have ended, by model and revision.

    The label is the beginning of the revision's digest. Series end when no request can use the
    revision any more, so that their number is that of the revisions in use.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers the metrics."""
        self._requests = Counter(
            "shaperouter_revision_requests",
            "Requests that have ended, by the revision of the model that served them and by gRPC "
            "status code.",
            ["model", "revision", "code"],
            registry=registry,
        )
        self._latency = Histogram(
            "shaperouter_revision_request_latency_seconds",
            "Time from a request's arrival at the router to its end, in seconds, by the revision "
            "of the model that served it.",
            ["model", "revision"],
            buckets=_BOUNDS,
            registry=registry,
        )
        self._series: dict[tuple[str, str], _OfRevision] = {}

    def begin(self, model: str, revision: str) -> None:
        """Begins the series of a revision at zero, if it has none.

        Args:
            model: The name that requests use.
            revision: The digest of its files; empty if it is unknown, so that nothing is counted.
        """
        if revision and (model, revision) not in self._series:
            digits = revision[:REVISION_DIGITS]
            self._series[model, revision] = _OfRevision(
                requests={code: self._requests.labels(model, digits, code.name) for code in Code},
                latency=self._latency.labels(model, digits),
            )

    def ended(self, model: str, revision: str, code: Code, seconds: float) -> None:
        """Counts a request; see `begin`."""
        if revision:
            self.begin(model, revision)
            series = self._series[model, revision]
            series.requests[code].inc()
            series.latency.observe(seconds)

    def keep(self, revisions: Mapping[str, Collection[str]]) -> None:
        """Ends the series of all other revisions; `revisions` are digests by model."""
        for name, revision in list(self._series):
            if revision not in revisions.get(name, ()):
                digits = revision[:REVISION_DIGITS]
                for code in self._series.pop((name, revision)).requests:
                    self._requests.remove(name, digits, code.name)
                self._latency.remove(name, digits)
