"""Whether a router takes requests, and which of its models have workers."""

import structlog

from shaperouter_service.fleet.fleet import Fleet
from shaperouter_service.rpc.health import Health
from shaperouter_service.serving.models import Models
from shaperouter_service.system.background import in_background
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
    was_ready, missed, counted = False, set[str](), set[str]()
    try:
        async for _ in fleet.changes():
            workers = models.ready_workers()
            for model in counted - workers.keys():
                metrics.model_workers.remove(model)
            for model, count in workers.items():
                metrics.model_workers.labels(model).set(count)
            counted = set(workers)
            missing = {model for model, count in workers.items() if not count}
            if was_ready:
                for model in sorted(missing - missed):
                    log.warning("model has no worker", model=model, effect="its requests wait")
                for model in sorted(missed - missing):
                    log.info("model has a worker again", model=model)
            missed, ready = missing, models.ready
            if ready != was_ready:
                was_ready = ready
                health.set_ready(ready)
                if ready:
                    log.info("ready", grpc=address)
                else:
                    log.warning("not ready: no model has a worker", grpc=address)
    finally:
        health.set_ready(False)
