"""Whether a router takes requests, and which of its models have workers."""

from collections.abc import Mapping

import structlog

from shaperouter_service.fleet.fleet import Fleet
from shaperouter_service.rpc.health import Health
from shaperouter_service.serving.models import Models
from shaperouter_service.system.background import in_background, survive_errors
from shaperouter_service.telemetry.fleet import FleetMetrics

log = structlog.get_logger(__name__)


@in_background
async def readiness(
    health: Health, fleet: Fleet, models: Models, metrics: FleetMetrics, address: str
) -> None:
    """Reports inside the context whether the router is ready, and not ready at its end.

    A router that was ready stays so while any model has a worker, because Kubernetes sends an
    unready router no requests of the other models either.

    Args:
        health: Where readiness is reported.
        fleet: The fleet whose changes are followed.
        models: Its models.
        metrics: Where the number of ready workers is reported, by model.
        address: Address of the router, for the log.
    """
    reporter = _Reporter(health, models, metrics, address)
    try:
        async for _ in fleet.changes():
            with survive_errors("reporting readiness"):
                reporter.report()
    finally:
        health.set_ready(False)


class _Reporter:
    """Reports changes of readiness. What could not be reported is reported with the next change."""

    def __init__(self, health: Health, models: Models, metrics: FleetMetrics, address: str) -> None:
        """Starts not ready; the arguments are those of `readiness`."""
        self._health, self._models, self._metrics = health, models, metrics
        self._address = address
        self._was_ready, self._missed, self._counted = False, set[str](), set[str]()

    def report(self) -> None:
        """Reports what has changed."""
        workers = self._models.ready_workers()
        self._count(workers)
        missing = {model for model, count in workers.items() if not count}
        if self._was_ready:
            for model in sorted(missing - self._missed):
                log.warning("model has no worker", model=model, effect="its requests wait")
            for model in sorted(self._missed - missing):
                log.info("model has a worker again", model=model)
        self._missed, ready = missing, self._models.ready
        if ready != self._was_ready:
            self._health.set_ready(ready)
            self._was_ready = ready
            if ready:
                log.info("ready", grpc=self._address)
            else:
                log.warning("not ready: no model has a worker", grpc=self._address)

    def _count(self, workers: Mapping[str, int]) -> None:
        for model in self._counted - workers.keys():
            self._metrics.model_workers.remove(model)
        for model, count in workers.items():
            self._metrics.model_workers.labels(model).set(count)
        self._counted = set(workers)
