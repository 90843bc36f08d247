"""`shaperouterd router`: a router alone."""

import asyncio

import click

from shaperouter_service.commands.options import (
    CommonOptions,
    PublicOptions,
    common_options,
    option,
    public_options,
)


@click.command()
@common_options
@public_options
@option(
    "--worker",
    "workers",
    multiple=True,
    required=True,
    metavar="ADDRESS",
    help="Address of a worker: HOST:PORT or unix:PATH. A host that is a name stands for workers at "
    "all of its addresses, which are looked up again every few seconds. May be given several "
    "times.",
)
def router(*, common: CommonOptions, public: PublicOptions, workers: tuple[str, ...]) -> None:
    """A router over workers that run elsewhere; it needs no TensorFlow."""
    from shaperouter_service.roles.router import RouterConfig, run_router

    common.configure_logs()
    config = RouterConfig(
        models=common.sources(),
        listen=public.listen,
        metrics_listen=common.metrics_listen,
        grace=common.grace,
        max_queue_seconds=public.max_queue_seconds,
        own_workers=False,
    )
    asyncio.run(run_router(config, workers))
