"""`shaperouterd serve`: a router and its workers on one machine."""

import asyncio
import os
from dataclasses import replace
from typing import Any

import click

from shaperouter_service.commands.options import (
    OFF,
    CommonOptions,
    EngineOptions,
    PublicOptions,
    TlsOptions,
    as_arguments,
    common_options,
    default_compile_threads,
    engine_options,
    option,
    public_options,
    tls_options,
)
from shaperouter_service.devices import usable_cores, visible_gpus
from shaperouter_service.lengths import lengths_of_models


class _WorkerCount(click.IntRange):
    """A number of workers, or one for each GPU."""

    name = "integer or auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "auto":
            return max(1, len(visible_gpus(os.environ)))
        return super().convert(value, param, ctx)


@click.command()
@common_options
@public_options
@tls_options
@option(
    "--workers",
    type=_WorkerCount(1, 64),
    default=1,
    metavar="N|auto",
    help="Local worker processes, each with all models, a share of the cores, and one of the GPUs "
    "if there are any; auto is one for each GPU, or one. Graphs are cached for the cores of a "
    "worker, so with another number they are compiled once more.",
)
@engine_options
def serve(
    *,
    common: CommonOptions,
    public: PublicOptions,
    tls: TlsOptions,
    workers: int,
    engine: EngineOptions,
) -> None:
    """A router with local workers: all there is to it on one machine."""
    from shaperouter_service.roles.router import RouterConfig
    from shaperouter_service.roles.serve import LocalWorkers, run_serve

    common.configure_logs()
    common.configure_tracing("router")
    sources = common.sources()
    # Workers would refuse them, too, but only once each has started.
    names = [source.name for source in sources]
    lengths_of_models("prefill-lengths", engine.prefill_lengths, names)
    lengths_of_models("decode-lengths", engine.decode_lengths, names)
    lengths_of_models("encode-lengths", engine.encode_lengths, names)
    config = RouterConfig(
        models=sources,
        listen=public.listen,
        metrics_listen=common.metrics_listen,
        grace=common.grace,
        max_queue_seconds=public.max_queue_seconds,
        own_workers=True,
        health_listen=common.health_address,
        tls=tls.server(),
        tokens=public.tokens,
    )
    cores = max(1, usable_cores() // workers)
    shared = replace(
        engine,
        threads=engine.threads or cores,
        compile_threads=engine.compile_threads or default_compile_threads(cores),
    )
    arguments = (
        *(f"--model={source.name}={source.directory}" for source in sources),
        f"--metrics-listen={OFF}",
        f"--grace={common.grace}",
        f"--log-level={common.log_level}",
        f"--log-format={common.log_format}",
        f"--tracing={common.tracing}",
        *as_arguments(shared),
        "--exit-with-parent",
    )
    local = LocalWorkers(
        count=workers,
        arguments=arguments,
        gpus=visible_gpus(os.environ),
        hang_timeout=engine.hang_timeout,
    )
    asyncio.run(run_serve(config, local))
