"""`shaperouterd router`: runs a router for workers elsewhere."""

import asyncio

import click

from shaperouter_service.commands.options import (
    CommonOptions,
    PublicOptions,
    TlsOptions,
    WorkerTlsOptions,
    common_options,
    option,
    public_options,
    tls_options,
    worker_tls_options,
)


@click.command()
@common_options
@public_options
@tls_options
@option(
    "--worker",
    "workers",
    multiple=True,
    required=True,
    metavar="ADDRESS",
    help="Address of a worker: HOST:PORT or unix:PATH. A host name stands for workers at all "
    "of its addresses; it is resolved again every few seconds. Can be repeated.",
)
@worker_tls_options
def router(
    *,
    common: CommonOptions,
    public: PublicOptions,
    tls: TlsOptions,
    workers: tuple[str, ...],
    worker_tls: WorkerTlsOptions,
) -> None:
    """Run a router for workers that run elsewhere. Needs no TensorFlow."""
    from shaperouter_service.roles.router import run_router
    from shaperouter_service.roles.router_config import RouterConfig

    common.configure_logs()
    common.configure_tracing("router")
    config = RouterConfig(
        models=common.sources(),
        listen=public.listen,
        metrics_listen=common.metrics_listen,
        grace=common.grace,
        max_queue_seconds=public.max_queue_seconds,
        max_calls=public.max_calls,
        max_recording_memory=public.max_recording_memory,
        own_workers=False,
        health_listen=common.health_address,
        tls=tls.server(),
        tokens=public.tokens,
        worker_tls=worker_tls.workers(),
    )
    asyncio.run(run_router(config, workers))
