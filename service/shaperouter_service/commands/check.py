"""`shaperouterd check`: checks whether `serve` would start with the same options."""

import os
import sys
from pathlib import Path

import click

from shaperouter_service.checkpoints.model_locations import parse_drafts
from shaperouter_service.commands.options import (
    OFF,
    CommonOptions,
    EngineOptions,
    RouterOptions,
    TlsOptions,
    common_options,
    engine_options,
    parse_warm,
    router_options,
    tls_options,
    workers_option,
)
from shaperouter_service.commands.options.aliases import aliases_of
from shaperouter_service.commands.options.lengths import lengths_of_models
from shaperouter_service.errors import StartupError
from shaperouter_service.system.process import EXIT_CONFIG


@click.command()
@common_options
@router_options
@tls_options
@workers_option
@engine_options
def check(
    *,
    common: CommonOptions,
    router: RouterOptions,
    tls: TlsOptions,
    workers: int,
    engine: EngineOptions,
) -> None:
    """Check whether `serve` would start with the same options, without starting it.

    Reads configurations, tokenizers, certificates, tokens, and the names, shapes and types of
    weights. Prints one line per finding. Exits with code 78 if a finding would stop `serve`. Needs
    shaperouter-service[worker].
    """
    common.configure_logs()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    try:
        from shaperouter_service.roles.check import Setup, Verdict, check_setup
    except ModuleNotFoundError as error:
        raise StartupError(
            f"{error.name} is not installed; checking needs shaperouter-service[worker]"
        ) from error

    common.check_models()
    names = [spec.partition("=")[0] for spec in common.models]
    aliases_of(router.aliases, names)
    router.on_demand(common.model_repository)
    setup = Setup(
        models=common.models,
        addresses={
            "listen": router.listen,
            "http-listen": router.http_address,
            "metrics-listen": None if common.metrics_listen == OFF else common.metrics_listen,
            "health-listen": common.health_address,
        },
        tls=tls.server(),
        tokens=router.tokens,
        dtype=engine.dtype,
        kv_cache_dtype=engine.kv_cache_dtype,
        kernels=engine.kernels,
        drafts=parse_drafts(engine.draft, names),
        slots=engine.slots,
        max_length=engine.max_length,
        prefix_cache_bytes=engine.prefix_cache_memory,
        max_graphs=engine.max_graphs,
        workers=workers,
        warm=parse_warm(engine.warm, engine.compile_mode),
        prefill_lengths=lengths_of_models("prefill-lengths", engine.prefill_lengths, names),
        decode_lengths=lengths_of_models("decode-lengths", engine.decode_lengths, names),
        encode_lengths=lengths_of_models("encode-lengths", engine.encode_lengths, names),
        compile_cache=None if engine.compile_cache == OFF else Path(engine.compile_cache),
    )
    findings = check_setup(setup)
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        click.echo(f"{finding.verdict:<7}  {finding.subject:<{width}}  {finding.message}")
    if any(finding.verdict is Verdict.ERROR for finding in findings):
        click.echo("serve would not start", err=True)
        sys.exit(EXIT_CONFIG)
