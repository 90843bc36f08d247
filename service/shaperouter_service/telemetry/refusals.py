"""Metrics of refused calls."""

from prometheus_client import CollectorRegistry, Counter

from shaperouter_service.errors import ServiceError

# The reason of errors that a worker of another version answered with.
OTHER = "OTHER"


def _reasons(kind: type[ServiceError]) -> set[str]:
    return {getattr(kind, "reason", OTHER)}.union(*map(_reasons, kind.__subclasses__()))


# Every reason there is: a closed label.
REASONS = frozenset({*_reasons(ServiceError), "MISSING_TOKEN", "UNKNOWN_TOKEN"})


class RefusalMetrics:
    """The metric of refused calls, for one router."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers it."""
        self._refused = Counter(
            "shaperouter_refused_calls",
            "Calls that ended with an error of the service, by the error's reason.",
            ["reason"],
            registry=registry,
        )
        for reason in REASONS:
            self._refused.labels(reason)

    def refused(self, reason: str) -> None:
        """A call was refused."""
        self._refused.labels(reason if reason in REASONS else OTHER).inc()
