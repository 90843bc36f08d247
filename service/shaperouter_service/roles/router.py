"""The router role: the public gRPC server over a fleet of workers."""

import asyncio
import contextlib
from collections.abc import Sequence

import structlog
from prometheus_client import CollectorRegistry

from shaperouter_service.auth import Authentication, CallLimit, Clients
from shaperouter_service.checkpoints.model_files import is_checkpoint, may_transcribe
from shaperouter_service.checkpoints.model_locations import ModelLocation
from shaperouter_service.edge.console.paths import DOOR as CONSOLE
from shaperouter_service.edge.http.app import make_app
from shaperouter_service.edge.http.server import bound, port_of, serving
from shaperouter_service.edge.inference.http.paths import DOOR as OPEN_INFERENCE
from shaperouter_service.errors import RecordingMemoryError, TensorMemoryError
from shaperouter_service.fleet import (
    Fleet,
    OverloadGuard,
    compiling,
    deploying,
    discovered,
    recycling,
    warning_of_shared_names,
    warning_of_spent_budgets,
)
from shaperouter_service.generation.limits import MAX_TEXT_REQUEST_BYTES
from shaperouter_service.inference.limits import MAX_TENSOR_REQUEST_BYTES
from shaperouter_service.roles.grpc_doors import GrpcDoors
from shaperouter_service.roles.lifecycle import stop_signal
from shaperouter_service.roles.public_ports import warn_of_public_server
from shaperouter_service.roles.readiness import readiness
from shaperouter_service.roles.router_config import RouterConfig
from shaperouter_service.routing.catalog import Catalog
from shaperouter_service.rpc.health import Health, serving_health
from shaperouter_service.rpc.server import (
    CONNECTION_AGE,
    MAX_MESSAGE_BYTES,
    listen,
    make_server,
    stopped_at_end,
)
from shaperouter_service.rpc.unix_sockets import claimed
from shaperouter_service.serving.abandoned_loads import taking_back_abandoned_loads
from shaperouter_service.serving.core import Core
from shaperouter_service.serving.fair_memory import FairMemory
from shaperouter_service.serving.gate import Gate
from shaperouter_service.serving.generation.service import GenerationService
from shaperouter_service.serving.graphs.graphs import Graphs
from shaperouter_service.serving.inference.service import InferenceService
from shaperouter_service.serving.ladder_fits import LadderFits
from shaperouter_service.serving.model_choice import ModelChoice
from shaperouter_service.serving.models import Models
from shaperouter_service.serving.on_demand import OnDemand
from shaperouter_service.serving.overview import Overview
from shaperouter_service.serving.refusal_log import RefusalLog
from shaperouter_service.serving.repository import Repository
from shaperouter_service.serving.request_record import RequestRecorder
from shaperouter_service.serving.transcription.service import TranscriptionService
from shaperouter_service.supervision import WorkerProcesses
from shaperouter_service.system.drain import Drain
from shaperouter_service.system.process import max_connections, prepare_process
from shaperouter_service.telemetry.auth import AuthMetrics
from shaperouter_service.telemetry.fleet import FleetMetrics
from shaperouter_service.telemetry.grpc_calls import CallMetrics
from shaperouter_service.telemetry.http_calls import HttpMetrics
from shaperouter_service.telemetry.metrics_server import make_registry, serve_metrics
from shaperouter_service.telemetry.refusals import RefusalMetrics
from shaperouter_service.telemetry.requests import RequestMetrics
from shaperouter_service.telemetry.tracing import end_tracing
from shaperouter_service.telemetry.transcription import TranscriptionMetrics
from shaperouter_service.telemetry.workers import WorkerMetrics
from shaperouter_service.text import Tokenizer, TokenizerThreads, load_tokenizer

log = structlog.get_logger(__name__)


async def run_router(
    config: RouterConfig,
    workers: Sequence[str],
    processes: WorkerProcesses | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT.

    Args:
        config: Settings of the router.
        workers: Addresses of workers; a host name stands for all of its addresses.
        processes: The workers' processes, if they are child processes.
        stop: Set by SIGTERM or SIGINT; None if no one handles these signals yet.

    Raises:
        StartupError: A port, a tokenizer, a certificate or the file of tokens is unusable.
    """
    prepare_process()
    stop = stop or stop_signal()
    registry = make_registry("serve" if config.own_workers else "router")
    catalog = Catalog([model.name for model in config.models], config.aliases)
    refusal_metrics = RefusalMetrics(registry)
    refusals = RefusalLog(refusal_metrics)
    recorder = RequestRecorder(
        metrics=RequestMetrics(registry, catalog.model_names), refusals=refusals
    )
    worker_metrics = None
    if config.own_workers:
        worker_metrics = WorkerMetrics(registry, signature_histograms=config.signature_histograms)
    fleet_metrics = FleetMetrics(registry)
    fleet = Fleet(
        catalog,
        metrics=fleet_metrics,
        overload=OverloadGuard(config.max_queue_seconds),
        worker_metrics=worker_metrics,
        on_message=processes.record_message if processes else lambda _: None,
        tls=config.worker_tls,
    )
    spent_budgets = (
        recycling(fleet, processes, fleet_metrics, grace=config.grace)
        if processes
        else warning_of_spent_budgets(fleet)
    )
    drain = Drain()
    gate = Gate(
        drain,
        CallLimit(config.max_calls),
        refusals,
        _authentication(config, AuthMetrics(registry)),
    )
    doors = GrpcDoors(gate)
    for protocol, address in (("grpc", config.listen), ("http", config.http_listen)):
        if address:
            warn_of_public_server(address, protocol=protocol, tls=config.tls, tokens=config.tokens)
    if config.worker_tls:
        # Reports unusable files now instead of at the first worker.
        config.worker_tls.credentials()
    health = Health()
    # Ports first: one that is taken is found out before anything slow is done.
    with (
        serve_metrics(registry, config.metrics_listen) as metrics_port,
        claimed(config.listen),
        contextlib.ExitStack() as sockets,
    ):
        listener = sockets.enter_context(bound(config.http_listen)) if config.http_listen else None
        # Each server has its share, so that both together leave the reserved descriptors free.
        connections = max_connections() // (2 if listener else 1)
        server = make_server(
            doors.services,
            doors.call_gate,
            outer=[CallMetrics(registry, doors.services)],
            max_message_bytes=_max_message_bytes(config),
            max_bytes=doors.max_bytes,
            connection_age=CONNECTION_AGE,
            connections=connections,
        )
        async with (
            serving_health(health, config.health_listen),
            fleet.connected(),
            discovered(fleet, workers),
            compiling(fleet),
            spent_budgets,
            # Local workers get distinct names.
            contextlib.nullcontext() if processes else warning_of_shared_names(fleet),
            # Left after the drain of `stopped_at_end`, which waits for its requests, and before the
            # fleet, which they use to their end.
            contextlib.AsyncExitStack() as http,
            contextlib.AsyncExitStack() as until_drained,
            stopped_at_end(server, drain, grace=config.grace),
        ):
            port = listen(server, config.listen, tls=config.tls)
            tokenizers = await asyncio.to_thread(_load_tokenizers, config.models)
            core = _make_core(
                config,
                fleet,
                tokenizers=tokenizers,
                recorder=recorder,
                refusals=refusal_metrics,
                fleet_metrics=fleet_metrics,
                registry=registry,
            )
            doors.add_to(server, core)
            health.add_to(server)
            if listener:
                http_doors = [OPEN_INFERENCE, CONSOLE] if config.console else [OPEN_INFERENCE]
                http_metrics = HttpMetrics(registry)
                app = make_app(core, gate, http_metrics, http_doors)
                await http.enter_async_context(
                    serving(
                        app,
                        listener,
                        tls=config.tls,
                        metrics=http_metrics,
                        max_connections=connections,
                    )
                )
            await until_drained.enter_async_context(deploying(fleet, core.repository.prepare))
            async with (
                readiness(health, fleet, core.models, fleet_metrics, config.listen),
                core.on_demand.unloading() if core.on_demand else contextlib.nullcontext(),
                (
                    taking_back_abandoned_loads(fleet, core.repository)
                    if core.repository.exists
                    else contextlib.nullcontext()
                ),
            ):
                await server.start()
                metrics_host = config.metrics_listen.rpartition(":")[0]
                log.info(
                    "listening",
                    grpc=config.listen,
                    grpc_port=port,
                    http=config.http_listen or "off",
                    http_port=port_of(listener) if listener else None,
                    metrics=f"http://{metrics_host}:{metrics_port}/metrics",
                    models=list(catalog.model_names),
                    workers=len(workers),
                )
                await stop.wait()
                fleet.end_changes()
            log.info("stopping: waiting for running requests", grace_seconds=config.grace)
    refusals.summarize()
    await asyncio.to_thread(end_tracing)
    if processes is None:
        log.info("stopped")


def _make_core(
    config: RouterConfig,
    fleet: Fleet,
    *,
    tokenizers: dict[str, Tokenizer | None],
    recorder: RequestRecorder,
    refusals: RefusalMetrics,
    fleet_metrics: FleetMetrics,
    registry: CollectorRegistry,
) -> Core:
    threads = TokenizerThreads()
    models = Models(fleet.catalog, tokenizers, ready_without_workers=config.ready_without_workers)
    repository = Repository(
        fleet,
        models,
        tokenizers,
        metrics=recorder.metrics,
        fleet_metrics=fleet_metrics,
        directory=config.repository,
    )
    on_demand = OnDemand(fleet, repository, config.on_demand) if config.on_demand else None
    choice = ModelChoice(fleet, on_demand, models_change=config.repository is not None)
    tensor_memory = FairMemory(config.max_tensor_memory, full=TensorMemoryError)
    return Core(
        generation=GenerationService(
            fleet,
            choice,
            tokenizers,
            threads,
            recorder,
            memory=tensor_memory,
            separates_clients=config.tokens is not None and not config.shares_prefixes,
        ),
        transcription=TranscriptionService(
            fleet,
            choice,
            tokenizers,
            threads,
            recorder,
            metrics=TranscriptionMetrics(registry),
            memory=FairMemory(config.max_recording_memory, full=RecordingMemoryError),
        ),
        inference=InferenceService(
            fleet,
            choice,
            tokenizers,
            threads,
            recorder,
            memory=tensor_memory,
        ),
        models=models,
        repository=repository,
        on_demand=on_demand,
        graphs=Graphs(fleet),
        ladder_fits=LadderFits(config.traffic_record, models),
        totals=recorder.metrics.totals,
        overview=Overview(fleet, recorder, refusals),
        trace_url=config.trace_url,
    )


def _authentication(config: RouterConfig, metrics: AuthMetrics) -> Authentication | None:
    return None if config.tokens is None else Authentication(Clients(config.tokens), metrics)


def _max_message_bytes(config: RouterConfig) -> int:
    """Maximum size of a message: gRPC needs twice the size of a large one even to refuse it."""
    directories = [model.directory for model in config.models]
    if config.repository is not None:
        # Models of any kind may come.
        return max(MAX_TENSOR_REQUEST_BYTES, MAX_MESSAGE_BYTES)
    if not all(map(is_checkpoint, directories)):
        return MAX_TENSOR_REQUEST_BYTES
    if any(map(may_transcribe, directories)):
        return MAX_MESSAGE_BYTES
    return MAX_TEXT_REQUEST_BYTES


def _load_tokenizers(models: Sequence[ModelLocation]) -> dict[str, Tokenizer | None]:
    tokenizers = {model.name: load_tokenizer(model.directory) for model in models}
    for name, tokenizer in tokenizers.items():
        if tokenizer is None:
            log.warning("model has no tokenizer: it takes token ids only", model=name)
    return tokenizers
