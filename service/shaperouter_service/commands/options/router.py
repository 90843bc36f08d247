"""Options of routers, alone or with local workers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from shaperouter_service.checkpoints.model_locations import ModelLocation
from shaperouter_service.commands.options.aliases import AliasType, aliases_of
from shaperouter_service.commands.options.common import CommonOptions
from shaperouter_service.commands.options.declaring import OFF, option, options_of
from shaperouter_service.commands.options.numbers import Integer, Number
from shaperouter_service.commands.options.tls import TlsOptions
from shaperouter_service.errors import StartupError
from shaperouter_service.routing.deployments import Target
from shaperouter_service.routing.on_demand import OnDemandLimits
from shaperouter_service.system.sizes import parse_size

if TYPE_CHECKING:
    from shaperouter_service.roles.router_config import RouterConfig


@dataclass(frozen=True, kw_only=True)
class RouterOptions:
    """Values of `router_options`, whose help says what each is."""

    listen: str
    http_listen: str
    console: bool
    trace_url: str
    max_queue_seconds: float
    max_calls: int
    max_recording_memory: int
    max_tensor_memory: int
    tokens: Path | None
    share_prefixes: Literal["client", "all"]
    aliases: tuple[tuple[str, Sequence[Target]], ...]
    on_demand_memory: int | None
    idle_unload: float | None

    def on_demand(self, repository: Path | None) -> OnDemandLimits | None:
        """Limits of the models that requests load; None if they load none.

        Raises:
            StartupError: An option is set without another that it needs.
        """
        if self.on_demand_memory is None:
            if self.idle_unload is not None:
                raise StartupError("idle-unload: needs on-demand-memory")
            return None
        if repository is None:
            raise StartupError("on-demand-memory: needs model-repository")
        return OnDemandLimits(max_bytes=self.on_demand_memory, idle_seconds=self.idle_unload)

    @property
    def http_address(self) -> str | None:
        """Address of the HTTP server; None if it is off."""
        return None if self.http_listen == OFF else self.http_listen

    def config(
        self, common: CommonOptions, tls: TlsOptions, models: Sequence[ModelLocation], **own: Any
    ) -> "RouterConfig":
        """Settings of a router; `own` are those that its command does not share."""
        from shaperouter_service.roles.router_config import RouterConfig

        return RouterConfig(
            models=models,
            listen=self.listen,
            http_listen=self.http_address,
            console=self.console,
            trace_url=self.trace_url,
            metrics_listen=common.metrics_listen,
            grace=common.grace,
            max_queue_seconds=self.max_queue_seconds,
            max_calls=self.max_calls,
            max_recording_memory=self.max_recording_memory,
            max_tensor_memory=self.max_tensor_memory,
            health_listen=common.health_address,
            tls=tls.server(),
            tokens=self.tokens,
            shares_prefixes=self.share_prefixes == "all",
            repository=common.model_repository,
            on_demand=self.on_demand(common.model_repository),
            aliases=aliases_of(self.aliases, [model.name for model in models]),
            **own,
        )


def _trace_url(_: click.Context, __: click.Parameter, given: str) -> str:
    """Checks an address, which becomes a link in a page."""
    if given and not re.fullmatch(r"https?://\S+", given):
        raise click.BadParameter(f"must begin with http:// or https://, got {given!r}")
    if given and "{trace_id}" not in given:
        raise click.BadParameter(f"must contain {{trace_id}}, got {given!r}")
    return given


router_options = options_of(
    RouterOptions,
    "router",
    option(
        "--listen",
        default="127.0.0.1:50051",
        metavar="ADDRESS",
        help="Address of the gRPC server: HOST:PORT or unix:PATH.",
    ),
    option(
        "--http-listen",
        default="127.0.0.1:8000",
        metavar="ADDRESS|off",
        help="Address of the HTTP server, with OpenAI's API, the Open Inference Protocol and the "
        "console: HOST:PORT or unix:PATH. It has the tokens, the TLS files and the limits of the "
        "gRPC server.",
    ),
    option(
        "--console/--no-console",
        default=True,
        help="Serve the console, a page for people, at / of the HTTP server.",
    ),
    option(
        "--trace-url",
        default="",
        show_default="no links",
        callback=_trace_url,
        metavar="URL",
        help="Address of a trace in your trace viewer, with {trace_id} for the id, such as "
        "https://traces.example.com/trace/{trace_id}. The console links requests to it.",
    ),
    option(
        "--max-queue-seconds",
        type=Number(min=0),
        default=30.0,
        metavar="SECONDS",
        help="Maximum expected wait for a slot. A request that would wait longer is refused at "
        "once, and its client may retry. Clients take turns: a request waits for earlier "
        "requests of its own client and for as many of each other client, however many these "
        "have sent. A client is identified by its token (see --tokens), else by the call's "
        "x-client-id, else by its address.",
    ),
    option(
        "--max-calls",
        type=Integer(1, 1_000_000),
        default=4096,
        metavar="N",
        help="Maximum number of requests in flight, running or waiting: generations, "
        "transcriptions, and calls of functions and text encoders. Further ones are refused at "
        "once, and their clients may retry. A call takes about 50 kB and its message. One client "
        "alone may use half of the limit, two a third each, and so on.",
    ),
    option(
        "--max-recording-memory",
        type=parse_size,
        default="1GB",
        metavar="SIZE",
        help="Maximum memory for the recordings of all transcriptions, e.g. 500MB. A recording "
        "takes the size of its file, plus a few minutes of decoded sound. Further recordings "
        "are refused, and their clients may retry. One client alone may use half of the "
        "limit, two a third each, and so on. A recording that needs more than half is "
        "invalid.",
    ),
    option(
        "--max-tensor-memory",
        type=parse_size,
        default="1GB",
        metavar="SIZE",
        help="Maximum memory for the requests and input tensors of all calls of functions and text "
        "encoders until they are answered, and for the log-probabilities of generations that are "
        "not streamed, e.g. 500MB. A call takes the size of its message plus that of its tensors; "
        "a log-probability takes 800 bytes. Further calls are refused, and their clients may "
        "retry. One client alone may use half of the limit, two a third each, and so on. A call "
        "that needs more than half is invalid.",
    ),
    option(
        "--tokens",
        type=click.Path(dir_okay=False, path_type=Path),
        default=None,
        metavar="FILE",
        help="TOML file of the clients that may call, with the digests of their tokens and the "
        "limits of each. `shaperouterd token` writes its entries. A changed file is reloaded "
        "and applies from the next call. Without this option, anyone may call.",
    ),
    option(
        "--share-prefixes",
        type=click.Choice(["client", "all"]),
        default="client",
        help="Which requests may reuse what workers have kept of a prompt, if --tokens tells "
        "clients apart. client: those of the same client. all: those of all clients. A client can "
        "then infer from response times that another one has sent the same prompt.",
    ),
    option(
        "--alias",
        "aliases",
        type=AliasType(),
        multiple=True,
        metavar="NAME=MODEL[:PERCENT][,...]",
        help="A further name for a model of --model, or for several that share the requests, such "
        "as chat=gpt2:90,gpt2-new:10. Operators change it with `shaperouter alias`. Routers must "
        "all have the same. Can be repeated; in the environment, separate values with spaces.",
    ),
    option(
        "--on-demand-memory",
        type=parse_size,
        default=None,
        show_default="off",
        metavar="SIZE",
        help="Load models of --model-repository when requests name them. SIZE is the maximum "
        "memory of their weights on each worker, e.g. 8GB. To make room, the model that has been "
        "idle longest is unloaded. The request waits for the load, within its deadline. Routers "
        "must all have the same.",
    ),
    option(
        "--idle-unload",
        type=Number(min=0, min_open=True),
        default=None,
        show_default="off",
        metavar="SECONDS",
        help="Unload a model that a request has loaded after this time without a request. What "
        "operators load stays.",
    ),
)
