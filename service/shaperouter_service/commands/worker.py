"""`shaperouterd worker`: runs a worker; `serve` starts its local workers with it."""

import asyncio
import gc
import os
from pathlib import Path

import click

import shaperouter_service
from shaperouter_service.checkpoints.model_files import is_decoder
from shaperouter_service.checkpoints.model_locations import parse_drafts
from shaperouter_service.commands.options import (
    OFF,
    CommonOptions,
    EngineOptions,
    TlsOptions,
    common_options,
    default_compile_threads,
    engine_options,
    option,
    parse_warm,
    tls_options,
)
from shaperouter_service.commands.options.lengths import lengths_of_models
from shaperouter_service.compile_cache.flags import set_flags
from shaperouter_service.errors import StartupError
from shaperouter_service.rpc.addresses import worker_name
from shaperouter_service.system.devices import usable_cores, visible_gpus
from shaperouter_service.worker.config import EngineConfig
from shaperouter_service.worker.xla_flags import xla_flags

# Where the native kernels are built; the package imports TensorFlow.
KERNELS = Path(shaperouter_service.__file__).with_name("kernels") / "libshaperouter_kernels.so"


@click.command()
@common_options
@option(
    "--listen",
    default="127.0.0.1:50052",
    metavar="ADDRESS",
    help="Address of the worker's gRPC server, which only routers call: HOST:PORT or unix:PATH.",
)
@option(
    "--name",
    default=None,
    show_default="host:port, or host:path of a Unix socket",
    metavar="NAME",
    help="Name of the worker in logs and responses. Must be unique among the workers of a router.",
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
    """Run a worker: one device with its models and graphs."""
    name = name or worker_name(listen)
    common.configure_logs(worker=name)
    common.configure_tracing("worker")
    models = common.located_models()
    names = [model.name for model in models]
    if engine.compile_cache != OFF:
        set_flags()
    os.environ["XLA_FLAGS"] = xla_flags(
        os.environ.get("XLA_FLAGS", ""),
        # Models of other kinds may come from a repository.
        only_kernels=engine.kernels != OFF
        and common.model_repository is None
        and KERNELS.exists()
        and all(is_decoder(model.directory) for model in models),
    )
    # Otherwise TensorFlow logs pages of notes on the hardware.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Otherwise TensorFlow takes nearly all of a GPU's memory at once, and nobody can see what is
    # needed.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    # oneDNN speeds up only what XLA does not compile, which is copies here, and logs a line at any
    # level.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    # TensorFlow imports Keras, which only workers with a .keras file use, and they import it. If
    # told to use its predecessor, which is not installed, TensorFlow imports neither and saves a
    # sixth of its time.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    packed = engine.kernels != OFF and KERNELS.exists() and not visible_gpus(os.environ)
    # The garbage collector would take a quarter of the time of the imports. What they make stays
    # until the end, so it is never searched for garbage.
    gc.disable()
    try:
        from shaperouter_service.checkpoints.prefetch import prefetch_weights

        prefetched = prefetch_weights(
            {model.name: model.directory for model in models if packed},
            "float32" if engine.dtype == "auto" else engine.dtype,
        )
        from shaperouter_service.roles.worker import WorkerConfig, run_worker
    except ModuleNotFoundError as error:
        raise StartupError(
            f"{error.name} is not installed; a worker needs shaperouter-service[worker]"
        ) from error
    gc.freeze()
    gc.enable()

    config = WorkerConfig(
        name=name,
        engine=EngineConfig(
            models={model.name: model.directory for model in models},
            dtype=engine.dtype,
            kv_cache_dtype=engine.kv_cache_dtype,
            kernels=engine.kernels,
            beam_cover=engine.beam_cover != OFF,
            slots=engine.slots,
            max_length=engine.max_length,
            queue_limit=engine.queue_limit,
            compile_threads=engine.compile_threads or default_compile_threads(usable_cores()),
            compile_mode=engine.compile_mode,
            warm=parse_warm(engine.warm, engine.compile_mode),
            max_graphs=engine.max_graphs,
            max_memory_bytes=engine.max_memory.bytes_for(1),
            prefix_cache_bytes=engine.prefix_cache_memory,
            speculate=engine.speculate,
            drafts=parse_drafts(engine.draft, names),
            prefill_lengths=lengths_of_models("prefill-lengths", engine.prefill_lengths, names),
            decode_lengths=lengths_of_models("decode-lengths", engine.decode_lengths, names),
            encode_lengths=lengths_of_models("encode-lengths", engine.encode_lengths, names),
            threads=engine.threads,
            hang_timeout=engine.hang_timeout,
            check_padding=engine.check_padding,
            # A successor gets its list of graphs from the worker that it replaces.
            make_recorded=not successor,
            repository=common.model_repository,
        ),
        listen=listen,
        metrics_listen=None if common.metrics_listen == OFF else common.metrics_listen,
        signature_histograms=engine.signature_histograms != OFF,
        compile_cache=None if engine.compile_cache == OFF else Path(engine.compile_cache),
        compile_cache_size=engine.compile_cache_size,
        grace=common.grace,
        exit_with_parent=exit_with_parent,
        health_listen=common.health_address,
        tls=tls.server(),
        prefetched=prefetched,
    )
    asyncio.run(run_worker(config))
