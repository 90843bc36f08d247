"""The worker role: a gRPC server over one device. The only role that imports TensorFlow."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

import structlog

from shaperouter.v1 import worker_pb2, worker_pb2_grpc
from shaperouter_service.cache import CompileCache
from shaperouter_service.graphs import CompileMode
from shaperouter_service.parent import end_with_parent
from shaperouter_service.roles.lifecycle import stop_signal
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.rpc.admission import Admission
from shaperouter_service.rpc.health import Health, serving_health
from shaperouter_service.rpc.server import listen, make_server, stopped_at_end
from shaperouter_service.rpc.tls import ServerTls
from shaperouter_service.telemetry.exposition import make_registry, serve_metrics
from shaperouter_service.telemetry.tracing import end_tracing, tracing_interceptors
from shaperouter_service.telemetry.workers import WorkerMetrics
from shaperouter_service.worker.engine import Engine
from shaperouter_service.worker.server import Changes, WorkerServicer

log = structlog.get_logger(__name__)

# sysexits.h EX_SOFTWARE: a defect; starting again is the way out.
EXIT_DEFECT = 70

# Directory of the record of traffic, beside the graphs of the compile cache.
RECORD = "traffic"

# Seconds between two times that the record is written: what a worker that is killed forgets.
RECORD_INTERVAL = 30.0


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """What a worker needs to know.

    Attributes:
        name: Of the worker, stable over restarts.
        models: Directory of each model by name.
        listen: Address of the gRPC server.
        metrics_listen: Address of /metrics; None where the router shows this worker's metrics.
        dtype: Type of weights; auto is bfloat16 on a GPU, float32 elsewhere.
        kernels: Whether products on a CPU are made by the native kernels, if they are there.
        beam_cover: Whether to make, before anybody asks, what covers most searches with beams.
        slots: Requests that run at a time, for each model.
        queue_limit: Requests that wait for a slot, for each model.
        compile_threads: Compilations at a time.
        compile_mode: When it compiles.
        warm: Graphs to make before it is ready.
        max_graphs: Most graphs.
        max_memory_bytes: Memory above which no more are made; 0 is no limit.
        prefill_lengths: Chosen rungs of models, by name; others have the usual ones.
        decode_lengths: Likewise.
        encode_lengths: Likewise.
        threads: That compute one graph on a CPU; None is one a core.
        hang_timeout: Seconds after which a call of a graph has hung, and the process ends.
        compile_cache: Directory of the compile cache; None is without.
        compile_cache_size: Most that it may take, in bytes.
        grace: Seconds that running requests have to finish when the worker stops.
        exit_with_parent: End when standard input ends, which the parent holds the other end of.
        successor: It is to take the place of another, and will be told what to make.
        health_listen: Address of a server for health alone; None is without.
        tls: What the gRPC server shows and asks; None speaks plain text.
    """

    name: str
    models: Mapping[str, Path]
    listen: str
    metrics_listen: str | None
    dtype: Literal["auto", "float32", "bfloat16", "int8"]
    kernels: Literal["auto", "off"]
    beam_cover: bool
    slots: int
    queue_limit: int
    compile_threads: int
    compile_mode: Literal["lazy", "warm", "frozen"]
    warm: Sequence[Signature]
    max_graphs: int
    max_memory_bytes: int
    prefill_lengths: Mapping[str, Sequence[int]]
    decode_lengths: Mapping[str, Sequence[int]]
    encode_lengths: Mapping[str, Sequence[int]]
    threads: int | None
    hang_timeout: float
    compile_cache: Path | None
    compile_cache_size: int
    grace: float
    exit_with_parent: bool
    successor: bool
    health_listen: str | None = None
    tls: ServerTls | None = None


async def run_worker(config: WorkerConfig) -> NoReturn:
    """Serves until SIGTERM or SIGINT, and then ends the process.

    Raises:
        StartupError: A port, a model or a file of certificates is unusable.
    """
    if config.exit_with_parent:
        end_with_parent()
    stop = stop_signal()
    changes = Changes(asyncio.get_running_loop())
    service = worker_pb2.DESCRIPTOR.services_by_name["WorkerService"]
    admission = Admission([service.methods_by_name["Run"]])
    health = Health()
    with _metrics(config.metrics_listen) as metrics:
        server = make_server([service], admission, tracing_interceptors())
        async with (
            serving_health(health, config.health_listen),
            stopped_at_end(server, admission, grace=config.grace),
        ):
            listen(server, config.listen, tls=config.tls)
            compile_cache = None
            if config.compile_cache is not None:
                compile_cache = CompileCache.open(
                    config.compile_cache, max_bytes=config.compile_cache_size
                )
            engine = await asyncio.to_thread(
                Engine,
                config.models,
                dtype=config.dtype,
                kernels=config.kernels,
                beam_cover=config.beam_cover,
                slots=config.slots,
                queue_limit=config.queue_limit,
                compile_threads=config.compile_threads,
                mode=CompileMode(config.compile_mode),
                warm=config.warm,
                max_graphs=config.max_graphs,
                max_memory_bytes=config.max_memory_bytes,
                prefill_lengths=config.prefill_lengths,
                decode_lengths=config.decode_lengths,
                encode_lengths=config.encode_lengths,
                threads=config.threads,
                hang_timeout=config.hang_timeout,
                compile_cache=compile_cache,
                record=compile_cache.directory / RECORD if compile_cache else None,
                make_recorded=not config.successor,
                trace_apart=True,
                on_change=changes.notify,
                on_defect=lambda: os._exit(EXIT_DEFECT),
            )
            servicer = WorkerServicer(engine, changes, config.name)
            worker_pb2_grpc.add_WorkerServiceServicer_to_server(servicer, server)
            async with _observed(servicer, metrics, health), _recorded(engine):
                await server.start()
                log.info("worker listening", worker=config.name, address=config.listen)
                await stop.wait()
                log.info("worker draining", worker=config.name, grace_seconds=config.grace)
                changes.close()
                await health.set_ready(False)
                engine.drain()
    await asyncio.to_thread(end_tracing)
    # Threads may be deep inside of TensorFlow's compiler, which can be neither interrupted nor
    # waited for; an interpreter that ends around them aborts or crashes. All is said and done.
    sys.stderr.flush()
    os._exit(0)


@contextlib.contextmanager
def _metrics(address: str | None) -> Iterator[WorkerMetrics | None]:
    if address is None:
        yield None
        return
    registry = make_registry("worker")
    with serve_metrics(registry, address):
        yield WorkerMetrics(registry)


@contextlib.asynccontextmanager
async def _observed(
    servicer: WorkerServicer, metrics: WorkerMetrics | None, health: Health
) -> AsyncIterator[None]:
    """Keeps true what this process says of itself: its health, and metrics if it has any."""

    async def follow() -> None:
        ready = False
        async for snapshot in servicer.snapshots():
            if metrics:
                metrics.observe(snapshot)
            if snapshot.warm and not ready:
                ready = True
                await health.set_ready(True)

    task = asyncio.create_task(follow())
    try:
        yield
    finally:
        task.cancel()


@contextlib.asynccontextmanager
async def _recorded(engine: Engine) -> AsyncIterator[None]:
    """Writes the record of traffic down now and then, and at the end."""

    async def save() -> None:
        while True:
            await asyncio.sleep(RECORD_INTERVAL)
            await asyncio.to_thread(engine.save_record)

    task = asyncio.create_task(save())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.to_thread(engine.save_record)
