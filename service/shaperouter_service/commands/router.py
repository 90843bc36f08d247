"""`shaperouterd router`: runs a router for workers elsewhere."""

import asyncio
from typing import Literal

import click

from shaperouter_service.commands.options import (
    CommonOptions,
    RouterOptions,
    TlsOptions,
    WorkerTlsOptions,
    common_options,
    option,
    router_options,
    tls_options,
    worker_tls_options,
)


@click.command()
@common_options
@router_options
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
@option(
    "--ready-when",
    type=click.Choice(["workers", "listening"]),
    default="workers",
    help="When the router reports ready to probes. workers: once every model has a worker, and "
    "from then on while any model has one. listening: as soon as it listens; requests then wait "
    "for a worker. Choose listening if workers scale to zero, because waiting requests start them.",
)
@worker_tls_options
def router(
    *,
    common: CommonOptions,
    router: RouterOptions,
    tls: TlsOptions,
    workers: tuple[str, ...],
    ready_when: Literal["workers", "listening"],
    worker_tls: WorkerTlsOptions,
) -> None:
    """Run a router for workers that run elsewhere. Needs no TensorFlow."""
    from shaperouter_service.roles.router import run_router

    common.configure_logs()
    common.configure_tracing("router")
    config = router.config(
        common,
        tls,
        common.located_models(),
        own_workers=False,
        worker_tls=worker_tls.workers(),
        ready_without_workers=ready_when == "listening",
    )
    asyncio.run(run_router(config, workers))
