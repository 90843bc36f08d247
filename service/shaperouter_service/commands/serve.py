"""`shaperouterd serve`: runs a router and its workers on one machine."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import click

from shaperouter_service.checkpoints.model_locations import parse_drafts
from shaperouter_service.commands.options import (
    OFF,
    CommonOptions,
    EngineOptions,
    RouterOptions,
    TlsOptions,
    as_arguments,
    common_options,
    default_compile_threads,
    engine_options,
    router_options,
    tls_options,
    workers_option,
)
from shaperouter_service.commands.options.lengths import lengths_of_models
from shaperouter_service.compile_cache.directory import record_directory
from shaperouter_service.system.devices import usable_cores, visible_gpus
from shaperouter_service.system.sizes import MemoryCap


@click.command()
@common_options
@router_options
@tls_options
@workers_option
@engine_options
def serve(
    *,
    common: CommonOptions,
    router: RouterOptions,
    tls: TlsOptions,
    workers: int,
    engine: EngineOptions,
) -> None:
    """Run a router and its workers on this machine."""
    from shaperouter_service.roles.serve import LocalWorkers, run_serve

    common.configure_logs()
    common.configure_tracing("router")
    models = common.located_models()
    # Checked here because workers would refuse them only after starting.
    names = [model.name for model in models]
    lengths_of_models("prefill-lengths", engine.prefill_lengths, names)
    lengths_of_models("decode-lengths", engine.decode_lengths, names)
    lengths_of_models("encode-lengths", engine.encode_lengths, names)
    drafts = parse_drafts(engine.draft, names)
    config = router.config(
        common,
        tls,
        models,
        own_workers=True,
        signature_histograms=engine.signature_histograms != OFF,
        traffic_record=_traffic_record(engine.compile_cache),
    )
    cores = max(1, usable_cores() // workers)
    shared = replace(
        engine,
        threads=engine.threads or cores,
        compile_threads=engine.compile_threads or default_compile_threads(cores),
        max_memory=MemoryCap(size=engine.max_memory.bytes_for(workers)),
        draft=tuple(f"{name}={directory}" for name, directory in drafts.items()),
    )
    arguments = (
        *([f"--model={model.name}={model.directory}" for model in models] or ["--model="]),
        *([f"--model-repository={common.model_repository}"] if common.model_repository else []),
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


def _traffic_record(compile_cache: str) -> Path | None:
    """The directory of the record of traffic; None without a compile cache."""
    return None if compile_cache == OFF else record_directory(Path(compile_cache))
