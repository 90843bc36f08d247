"""Options of what callers reach: a router, alone or with local workers."""

from dataclasses import dataclass

import click

from shaperouter_service.commands.options.declaring import option, options_of


@dataclass(frozen=True, kw_only=True)
class PublicOptions:
    """Values of `public_options`, whose help says what each is."""

    listen: str
    max_queue_seconds: float


public_options = options_of(
    PublicOptions,
    "public",
    option(
        "--listen",
        default="127.0.0.1:50051",
        metavar="ADDRESS",
        help="Address of the gRPC server: HOST:PORT or unix:PATH.",
    ),
    option(
        "--max-queue-seconds",
        type=click.FloatRange(min=0),
        default=30.0,
        metavar="SECONDS",
        help="Longest that a request may be expected to wait for a slot; more are refused at once, "
        "to be sent again. Clients take turns: one waits for its own requests and for as many of "
        "each other client, however many those have sent. Who a client is, the call's x-client-id "
        "says, or else its address.",
    ),
)
