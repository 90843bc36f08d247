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
    transcription_pb2,
    transcription_pb2_grpc,
)
from shaperouter_service.api.generation import GenerationServicer
from shaperouter_service.api.graphs import GraphServicer
from shaperouter_service.api.models import ModelServicer
from shaperouter_service.api.transcription import TranscriptionServicer
from shaperouter_service.fleet import (
    Fleet,
    OverloadGuard,
    WorkerProcesses,
    compiling,
    discovered,
    recycling,
    telling_shared_names,
    telling_spent_budgets,
)
from shaperouter_service.roles.lifecycle import stop_signal
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.rpc.admission import Admission
from shaperouter_service.rpc.server import listen, make_server, stopped_at_end
from shaperouter_service.sources import ModelSource
from shaperouter_service.telemetry.exposition import make_registry, serve_metrics
from shaperouter_service.telemetry.fleet import FleetMetrics
from shaperouter_service.telemetry.requests import RequestMetrics
from shaperouter_service.telemetry.transcription import TranscriptionMetrics
from shaperouter_service.telemetry.workers import WorkerMetrics
from shaperouter_service.text import Tokenizer, load_tokenizer

log = structlog.get_logger(__name__)

# What there is to be finished before a server stops, and what is answered at once.
WORK = [
    generation_pb2.DESCRIPTOR.services_by_name["GenerationService"],
    transcription_pb2.DESCRIPTOR.services_by_name["TranscriptionService"],
]
SERVICES = [
    *WORK,
    model_pb2.DESCRIPTOR.services_by_name["ModelService"],
    graph_pb2.DESCRIPTOR.services_by_name["GraphService"],
]


@dataclass(frozen=True, kw_only=True)
class RouterConfig:
    """What a router needs to know.

    Attributes:
        models: The models it serves; it reads their tokenizers.
        listen: Address of the gRPC server.
        metrics_listen: Address of /metrics.
        grace: Seconds that running requests have to finish when the service stops.
        max_queue_seconds: Longest that a request may be expected to wait for a slot.
        own_workers: The workers are this process's own, so their metrics are, too.
    """

    models: Sequence[ModelSource]
    listen: str
    metrics_listen: str
    grace: float
    max_queue_seconds: float
    own_workers: bool


async def run_router(
    config: RouterConfig,
    workers: Sequence[str],
    processes: WorkerProcesses | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT.

    Args:
        config: What to serve where.
        workers: Addresses of the workers; a name stands for all addresses it has.
        processes: Theirs, where they are this process's own.

    Raises:
        StartupError: A port or a tokenizer is unusable.
    """
    stop = stop_signal()
    registry = make_registry()
    request_metrics = RequestMetrics(registry)
    worker_metrics = WorkerMetrics(registry) if config.own_workers else None
    catalog = Catalog([model.name for model in config.models])
    fleet_metrics = FleetMetrics(registry)
    fleet = Fleet(
        catalog,
        metrics=fleet_metrics,
        overload=OverloadGuard(config.max_queue_seconds),
        worker_metrics=worker_metrics,
        on_heard=processes.heard if processes else lambda _: None,
    )
    spent_budgets = (
        recycling(fleet, processes, fleet_metrics, grace=config.grace)
        if processes
        else telling_spent_budgets(fleet)
    )
    admission = Admission(method for service in WORK for method in service.methods)
    # Ports first: one that is taken is found out before anything slow is done.
    with serve_metrics(registry, config.metrics_listen) as metrics_port:
        server = make_server(SERVICES, admission)
        async with (
            fleet.connected(),
            discovered(fleet, workers),
            compiling(fleet),
            spent_budgets,
            # Our own workers have names of our own.
            contextlib.nullcontext() if processes else telling_shared_names(fleet),
            stopped_at_end(server, admission, grace=config.grace),
        ):
            port = listen(server, config.listen)
            tokenizers = await asyncio.to_thread(_load_tokenizers, config.models)
            generation_pb2_grpc.add_GenerationServiceServicer_to_server(
                GenerationServicer(fleet, tokenizers, request_metrics), server
            )
            transcription_pb2_grpc.add_TranscriptionServiceServicer_to_server(
                TranscriptionServicer(
                    fleet, tokenizers, request_metrics, TranscriptionMetrics(registry)
                ),
                server,
            )
            model_pb2_grpc.add_ModelServiceServicer_to_server(
                ModelServicer(catalog, tokenizers), server
            )
            graph_pb2_grpc.add_GraphServiceServicer_to_server(GraphServicer(fleet), server)
            _add_reflection(server)
            async with Health(server, fleet, config.listen).kept_true():
                await server.start()
                metrics_host = config.metrics_listen.rpartition(":")[0]
                log.info(
                    "listening",
                    grpc=config.listen,
                    grpc_port=port,
                    metrics=f"http://{metrics_host}:{metrics_port}/metrics",
                    models=list(catalog.model_names),
                    workers=len(workers),
                )
                await stop.wait()
                fleet.end_changes()
            log.info("stopping: waiting for running requests", grace_seconds=config.grace)
    log.info("stopped")


def _load_tokenizers(models: Sequence[ModelSource]) -> dict[str, Tokenizer | None]:
    tokenizers = {model.name: load_tokenizer(model.directory) for model in models}
    for name, tokenizer in tokenizers.items():
        if tokenizer is None:
            log.warning("model has no tokenizer: it takes token ids only", model=name)
    return tokenizers


def _add_reflection(server: aio.Server) -> None:
    names = [service.full_name for service in SERVICES]
    names += [health.SERVICE_NAME, reflection.SERVICE_NAME]
    reflection.enable_server_reflection(names, server)


class Health:
    """The health service: ready while every model has a worker and the service is not stopping.

    Liveness holds for as long as the event loop answers: a drain or a lost worker must not make
    Kubernetes kill the process.
    """

    def __init__(self, server: aio.Server, fleet: Fleet, address: str) -> None:
        """Adds itself to a server, which listens at an address."""
        self._address = address
        self._servicer = health.aio.HealthServicer()
        self._fleet = fleet
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    @contextlib.asynccontextmanager
    async def kept_true(self) -> AsyncIterator[None]:
        """Follows the fleet inside of the context, and says not ready at its end."""
        await self._servicer.set("liveness", health_pb2.HealthCheckResponse.SERVING)
        await self._set_ready(False)
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()
            await self._set_ready(False)

    async def _follow(self) -> None:
        was_ready = False
        async for _ in self._fleet.changes():
            ready = self._fleet.catalog.ready
            if ready != was_ready:
                was_ready = ready
                await self._set_ready(ready)
                event = "ready" if ready else "not ready: a model has no worker"
                log.info(event, grpc=self._address)

    async def _set_ready(self, ready: bool) -> None:
        status = health_pb2.HealthCheckResponse
        for name in ("", "readiness"):
            await self._servicer.set(name, status.SERVING if ready else status.NOT_SERVING)
