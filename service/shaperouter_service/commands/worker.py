"""`shaperouterd worker`: a worker alone, which is also what `serve` starts."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import click

from shaperouter_service.addresses import worker_name
from shaperouter_service.cache.flags import set_flags
from shaperouter_service.commands.options import (
    OFF,
    CommonOptions,
    CompileModeName,
    EngineOptions,
    TlsOptions,
    common_options,
    default_compile_threads,
    engine_options,
    option,
    tls_options,
)
from shaperouter_service.devices import usable_cores
from shaperouter_service.errors import StartupError
from shaperouter_service.lengths import lengths_of_models
from shaperouter_service.routing.signatures import Signature


@click.command()
@common_options
@option(
    "--listen",
    default="127.0.0.1:50052",
    metavar="ADDRESS",
    help="Address of the worker's gRPC server, for routers only: HOST:PORT or unix:PATH.",
)
@option(
    "--name",
    default=None,
    show_default="host:port, or host:path of a Unix socket",
    metavar="NAME",
    help="Name of the worker, in logs and responses: no other of a router may have it.",
)
@tls_options
@engine_options
@click.option("--exit-with-parent", is_flag=True, hidden=True)
@click.option("--successor", is_flag=True, hidden=True)
def worker(
    *,
    common: CommonOptions,
    listen: str,
    name: str | None,
    tls: TlsOptions,
    engine: EngineOptions,
    exit_with_parent: bool,
    successor: bool,
) -> None:
    """A worker: one device, its models and its graphs."""
    name = name or worker_name(listen)
    common.configure_logs(worker=name)
    common.configure_tracing("worker")
    sources = common.sources()
    names = [source.name for source in sources]
    if engine.compile_cache != OFF:
        set_flags()
    # TensorFlow greets with pages of hardware notes otherwise.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # It speeds up what XLA does not compile, of which we have only copies, and announces itself in
    # the log whatever the level.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    try:
        from shaperouter_service.roles.worker import WorkerConfig, run_worker
    except ModuleNotFoundError as error:
        raise StartupError(
            f"{error.name} is not installed; a worker needs shaperouter-service[worker]"
        ) from error

    config = WorkerConfig(
        name=name,
        models={source.name: source.directory for source in sources},
        listen=listen,
        metrics_listen=None if common.metrics_listen == OFF else common.metrics_listen,
        dtype=engine.dtype,
        kernels=engine.kernels,
        beam_cover=engine.beam_cover != OFF,
        slots=engine.slots,
        queue_limit=engine.queue_limit,
        compile_threads=engine.compile_threads or default_compile_threads(usable_cores()),
        compile_mode=engine.compile_mode,
        warm=_parse_warm(engine.warm, engine.compile_mode),
        max_graphs=engine.max_graphs,
        max_memory_bytes=engine.max_memory,
        prefill_lengths=lengths_of_models("prefill-lengths", engine.prefill_lengths, names),
        decode_lengths=lengths_of_models("decode-lengths", engine.decode_lengths, names),
        encode_lengths=lengths_of_models("encode-lengths", engine.encode_lengths, names),
        threads=engine.threads,
        hang_timeout=engine.hang_timeout,
        compile_cache=None if engine.compile_cache == OFF else Path(engine.compile_cache),
        compile_cache_size=engine.compile_cache_size,
        grace=common.grace,
        exit_with_parent=exit_with_parent,
        successor=successor,
        health_listen=common.health_address,
        tls=tls.server(),
    )
    asyncio.run(run_worker(config))


def _parse_warm(texts: Sequence[str], mode: CompileModeName) -> list[Signature]:
    """Reads the signatures of --warm.

    Raises:
        StartupError: One is no signature, or the mode does not make them.
    """
    if texts and mode == "lazy":
        raise StartupError("warm: needs compile-mode warm or frozen, got lazy")
    try:
        return [Signature.parse(text) for text in texts]
    except ValueError as error:
        raise StartupError(f"warm: {error}") from error
