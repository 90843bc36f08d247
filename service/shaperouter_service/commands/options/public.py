"""Options of what callers reach: a router, alone or with local workers."""

from dataclasses import dataclass
from pathlib import Path

import click

from shaperouter_service.commands.options.declaring import option, options_of


@dataclass(frozen=True, kw_only=True)
class PublicOptions:
    """Values of `public_options`, whose help says what each is."""

    listen: str
    max_queue_seconds: float
    tokens: Path | None


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
        "each other client, however many those have sent. Who a client is, its token says (see "
        "--tokens), or else the call's x-client-id, or its address.",
    ),
    option(
        "--tokens",
        type=click.Path(dir_okay=False, path_type=Path),
        default=None,
        metavar="FILE",
        help="A TOML file of the clients that may call, with digests of their tokens and the "
        "limits of each; `shaperouterd token` makes its entries. It is read again when it changes, "
        "and holds from the next call on. Without it, all may call.",
    ),
)
