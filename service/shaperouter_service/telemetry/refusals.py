"""Metrics of refused calls."""

from prometheus_client import CollectorRegistry, Counter

from shaperouter_service.errors import ServiceError

# Label of reasons that only a worker of another version knows.
OTHER = "OTHER"


def _reasons(kind: type[ServiceError]) -> set[str]:
    return {getattr(kind, "reason", OTHER)}.union(*map(_reasons, kind.__subclasses__()))


# All reasons, so that the label has a closed set of values.
REASONS = frozenset({*_reasons(ServiceError), "MISSING_TOKEN", "UNKNOWN_TOKEN"})


class RefusalMetrics:
    """The metric of one router's refused calls."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers the metric."""
        self._refused = Counter(
            "shaperouter_refused_calls",
            "Calls that ended with an error of the service, by the error's reason.",
            ["reason"],
            registry=registry,
        )
        for reason in REASONS:
            self._refused.labels(reason)

    def counts(self) -> dict[str, int]:
        """The number of refused calls by reason, without reasons that have not occurred."""
        return {
            sample.labels["reason"]: int(sample.value)
            for family in self._refused.collect()
            for sample in family.samples
            if sample.value and not sample.name.endswith("_created")
        }

    def refused(self, reason: str) -> None:
        """Counts a refused call."""
        self._refused.labels(reason if reason in REASONS else OTHER).inc()
