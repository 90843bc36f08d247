"""The router role: the public gRPC server over a fleet of workers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import structlog
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from shaperouter.v1 import (
    generation_pb2,
    generation_pb2_grpc,
    graph_pb2,
    graph_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
)
from shaperouter_service.api.generation import GenerationServicer
from shaperouter_service.api.graphs import GraphServicer
from shaperouter_service.api.models import ModelServicer
from shaperouter_service.fleet import Fleet
from shaperouter_service.roles.lifecycle import stop_signal
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.rpc.server import listen, make_server
from shaperouter_service.sources import ModelSource
from shaperouter_service.telemetry.exposition import make_registry, serve_metrics
from shaperouter_service.telemetry.requests import RequestMetrics
from shaperouter_service.telemetry.workers import WorkerMetrics
from shaperouter_service.text import Tokenizer, load_tokenizer

log = structlog.get_logger(__name__)

SERVICES = [
    generation_pb2.DESCRIPTOR.services_by_name["GenerationService"],
    model_pb2.DESCRIPTOR.services_by_name["ModelService"],
    graph_pb2.DESCRIPTOR.services_by_name["GraphService"],
]
HEALTH_SERVICES = ("", "readiness")


@dataclass(frozen=True, kw_only=True)
class RouterConfig:
    """What a router needs to know.

    Attributes:
        models: The models it serves; it reads their tokenizers.
        listen: Address of the gRPC server.
        metrics_listen: Address of /metrics.
        grace: Seconds that running requests have to finish when the service stops.
        own_workers: The workers are this process's own, so their metrics are, too.
    """

    models: Sequence[ModelSource]
    listen: str
    metrics_listen: str
    grace: float
    own_workers: bool


async def run_router(config: RouterConfig, workers: Sequence[str]) -> None:
    """Serves until SIGTERM or SIGINT.

    Args:
        config: What to serve where.
        workers: Addresses of the workers.

    Raises:
        StartupError: A port or a tokenizer is unusable.
    """
    stop = stop_signal()
    registry = make_registry()
    request_metrics = RequestMetrics(registry)
    worker_metrics = WorkerMetrics(registry) if config.own_workers else None
    catalog = Catalog([model.name for model in config.models])
    fleet = Fleet(catalog, workers, worker_metrics)
    server = make_server(SERVICES)
    # Ports first: one that is taken is found out before anything slow is done.
    with serve_metrics(registry, config.metrics_listen) as metrics_port:
        port = listen(server, config.listen)
        tokenizers = await asyncio.to_thread(_load_tokenizers, config.models)
        generation_pb2_grpc.add_GenerationServiceServicer_to_server(
            GenerationServicer(fleet, tokenizers, request_metrics), server
        )
        model_pb2_grpc.add_ModelServiceServicer_to_server(
            ModelServicer(catalog, tokenizers), server
        )
        graph_pb2_grpc.add_GraphServiceServicer_to_server(GraphServicer(catalog), server)
        health_servicer = _add_health_and_reflection(server)
        async with fleet.connected(), _health(health_servicer, fleet):
            await server.start()
            log.info(
                "listening",
                grpc=config.listen,
                grpc_port=port,
                metrics=f"http://{config.metrics_listen.rpartition(':')[0]}:{metrics_port}/metrics",
                models=[model.name for model in config.models],
                workers=len(workers),
            )
            await stop.wait()
            log.info("stopping", grace_seconds=config.grace)
            await health_servicer.enter_graceful_shutdown()
            await server.stop(config.grace)


def _load_tokenizers(models: Sequence[ModelSource]) -> dict[str, Tokenizer | None]:
    tokenizers = {model.name: load_tokenizer(model.directory) for model in models}
    for name, tokenizer in tokenizers.items():
        if tokenizer is None:
            log.warning("model has no tokenizer: it takes token ids only", model=name)
    return tokenizers


def _add_health_and_reflection(server: aio.Server) -> health.aio.HealthServicer:
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    names = [service.full_name for service in SERVICES]
    names += [health.SERVICE_NAME, reflection.SERVICE_NAME]
    reflection.enable_server_reflection(names, server)
    return servicer


@contextlib.asynccontextmanager
async def _health(servicer: health.aio.HealthServicer, fleet: Fleet) -> AsyncIterator[None]:
    """Keeps the health service true: ready while every model has a worker."""

    async def follow() -> None:
        await servicer.set("liveness", health_pb2.HealthCheckResponse.SERVING)
        was_ready = False
        for name in HEALTH_SERVICES:
            await servicer.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
        async for _ in fleet.changes():
            ready = fleet.catalog.ready
            if ready == was_ready:
                continue
            was_ready = ready
            status = health_pb2.HealthCheckResponse
            for name in HEALTH_SERVICES:
                await servicer.set(name, status.SERVING if ready else status.NOT_SERVING)
            if ready:
                log.info("ready", models=list(fleet.catalog.model_names))
            else:
                log.info("not ready: a model has no worker")

    task = asyncio.create_task(follow())
    try:
        yield
    finally:
        task.cancel()
