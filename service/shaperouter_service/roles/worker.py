"""The worker role: a gRPC server for one device, and the only role that imports TensorFlow."""

import asyncio
import contextlib
import functools
import os
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import structlog

from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.compile_cache.directory import record_directory
from shaperouter_service.graphs import memory_bytes
from shaperouter_service.roles.lifecycle import stop_signal
from shaperouter_service.roles.public_ports import warn_of_public_worker
from shaperouter_service.rpc.health import Health, serving_health
from shaperouter_service.rpc.server import listen, make_server, stopped_at_end
from shaperouter_service.rpc.tls import ServerTls
from shaperouter_service.rpc.unix_sockets import claimed
from shaperouter_service.system.background import in_background, survive_errors
from shaperouter_service.system.drain import Drain
from shaperouter_service.system.populated_memory import PopulatedMemory
from shaperouter_service.system.process import EXIT_DEFECT, exit_with_parent, prepare_process
from shaperouter_service.system.sizes import format_size
from shaperouter_service.telemetry.metrics_server import make_registry, serve_metrics
from shaperouter_service.telemetry.tracing import end_tracing
from shaperouter_service.telemetry.workers import WorkerMetrics
from shaperouter_service.worker.config import EngineConfig
from shaperouter_service.worker.engine import Engine
from shaperouter_service.worker.repository import ModelRepository
from shaperouter_service.worker.server import SERVICE, Changes, WorkerServicer

T = TypeVar("T")

log = structlog.get_logger(__name__)

# Seconds between saves of the record of traffic; a killed worker loses the traffic since the last.
RECORD_INTERVAL = 30.0

# Seconds before the worker's snapshots are followed again after an error, which may come each time.
OBSERVE_AGAIN = 1.0

# Time limit of the last save in seconds; usually it takes milliseconds.
LAST_SAVE_TIMEOUT = 5.0


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """Settings of a worker.

    Attributes:
        name: Name of the worker, which stays the same after a restart.
        engine: Settings of the engine.
        listen: Address of the gRPC server.
        metrics_listen: Address of /metrics; None if the router shows this worker's metrics.
        signature_histograms: Whether each signature has its own histograms.
        compile_cache: Directory of the compile cache; None means no cache.
        compile_cache_size: Maximum size of the cache in bytes.
        grace: Seconds that running requests get to finish when the worker stops.
        exit_with_parent: Exit when standard input, a pipe from the parent, is closed.
        health_listen: Address of the health server; None means no such server.
        tls: TLS settings of the gRPC server; None means plain text.
        prefetched: Memory for the weights of models, by name; see `prefetch_weights`.
    """

    name: str
    engine: EngineConfig
    listen: str
    metrics_listen: str | None
    compile_cache: Path | None
    compile_cache_size: int
    grace: float
    exit_with_parent: bool
    signature_histograms: bool = True
    health_listen: str | None = None
    tls: ServerTls | None = None
    prefetched: dict[str, PopulatedMemory] = field(default_factory=dict)


async def run_worker(config: WorkerConfig) -> NoReturn:
    """Serves until SIGTERM or SIGINT, then ends the process.

    Raises:
        StartupError: A port, a model or a certificate is unusable.
    """
    if config.exit_with_parent:
        exit_with_parent()
    prepare_process()
    stop = stop_signal()
    changes = Changes(asyncio.get_running_loop())
    drain = Drain()
    health = Health()
    warn_of_public_worker(config.listen, tls=config.tls)
    with _metrics(config) as metrics, claimed(config.listen):
        # Routers have checked sizes, and the tokens of texts take more room than the texts.
        server = make_server([SERVICE], max_message_bytes=-1)
        async with serving_health(health, config.health_listen):
            listen(server, config.listen, tls=config.tls)
            engine = await _unless_stopped(stop, asyncio.to_thread(_make_engine, config, changes))
            if engine is None:
                log.info("worker stopped while it started", worker=config.name)
            else:
                repository = ModelRepository(
                    engine, config.engine.repository, config.engine.models, changes.notify
                )
                servicer = WorkerServicer(engine, repository, changes, drain, config.name)
                servicer.add_to(server)
                # At the end, the last entered ends first: runs finish, then the record is saved.
                async with (
                    _observed(servicer, metrics, health, stop),
                    _recorded(engine),
                    stopped_at_end(server, drain, grace=config.grace),
                    in_background(servicer.follow_deployments)(),
                ):
                    await server.start()
                    log.info("worker listening", worker=config.name, address=config.listen)
                    await stop.wait()
                    log.info("worker draining", worker=config.name, grace_seconds=config.grace)
                    changes.close()
                    health.set_ready(False)
                    engine.drain()
                    servicer.drain()
    await asyncio.to_thread(end_tracing)
    # Threads may be inside TensorFlow's compiler, which cannot be interrupted; a normal exit of the
    # interpreter would abort or crash. All results have been sent.
    sys.stderr.flush()
    os._exit(0)


def _make_engine(config: WorkerConfig, changes: Changes) -> Engine:
    """Loads the models, which may take minutes.

    Raises:
        StartupError: A model cannot be loaded.
    """
    compile_cache = None
    if config.compile_cache is not None:
        compile_cache = CompileCache.open(config.compile_cache, max_bytes=config.compile_cache_size)
    engine = Engine(
        config.engine,
        compile_cache=compile_cache,
        record=record_directory(compile_cache.directory) if compile_cache else None,
        prefetched=config.prefetched,
        on_change=changes.notify,
        on_warm=functools.partial(changes.notify, at_once=True),
        on_defect=lambda: os._exit(EXIT_DEFECT),
    )
    _log_memory(config.engine.max_memory_bytes)
    return engine


async def _unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` returns; None if the worker is to stop before that."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not working.done():
        return None
    stopping.cancel()
    return working.result()


def _log_memory(cap: int) -> None:
    """Logs the memory in use; warns if the weights already reach the cap."""
    used = memory_bytes()
    room = {"memory": format_size(used), "max_memory": format_size(cap) if cap else "none"}
    if cap and used >= cap:
        log.warning("weights used all of --max-memory: only the first graphs are compiled", **room)
    else:
        log.info("weights loaded", **room)


@contextlib.contextmanager
def _metrics(config: WorkerConfig) -> Iterator[WorkerMetrics | None]:
    if config.metrics_listen is None:
        yield None
        return
    registry = make_registry("worker")
    with serve_metrics(registry, config.metrics_listen):
        yield WorkerMetrics(registry, signature_histograms=config.signature_histograms)


@in_background
async def _observed(
    servicer: WorkerServicer, metrics: WorkerMetrics | None, health: Health, stop: asyncio.Event
) -> None:
    """Updates health and metrics from the worker's snapshots inside the context.

    A starting worker becomes ready only when it has what was loaded while the service ran.
    Otherwise a rollout would stop the next worker too early. Later loads leave it ready.
    """
    ready = False
    while True:
        with survive_errors("observing the worker"):
            async with contextlib.aclosing(servicer.snapshots(until_drain=False)) as snapshots:
                async for snapshot in snapshots:
                    if metrics:
                        metrics.observe(snapshot)
                    if snapshot.warm and not ready and servicer.settled and not stop.is_set():
                        health.set_ready(True)
                        ready = True
        # An error ends the snapshots, and nothing else does.
        await asyncio.sleep(OBSERVE_AGAIN)


@contextlib.asynccontextmanager
async def _recorded(engine: Engine) -> AsyncIterator[None]:
    """Saves the record of traffic at intervals inside the context, and at its end."""

    @in_background
    async def saving() -> None:
        while True:
            await asyncio.sleep(RECORD_INTERVAL)
            with survive_errors("saving the record of traffic"):
                await asyncio.to_thread(engine.save_record)

    try:
        async with saving():
            yield
    finally:
        # A disk that hangs must not prevent the exit.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(engine.save_record), LAST_SAVE_TIMEOUT)
