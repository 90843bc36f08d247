"""The `shaperouterd` command: options from the command line, the environment and a file."""

import asyncio
import os
import socket
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from shaperouter_service import __version__
from shaperouter_service.cache.flags import set_flags
from shaperouter_service.cache.location import default_directory
from shaperouter_service.commands.cache import cache_command
from shaperouter_service.commands.ladder import ladder
from shaperouter_service.devices import usable_cores, visible_gpus
from shaperouter_service.errors import EXIT_CONFIG, StartupError
from shaperouter_service.lengths import ChosenLengths, lengths_of_models
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.sizes import parse_size
from shaperouter_service.sources import ModelSource, parse_models
from shaperouter_service.telemetry.logs import LogFormat, configure_logs

Command = TypeVar("Command", bound=Callable[..., Any])

OFF = "off"

CompileModeName = Literal["lazy", "warm", "frozen"]


def _option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    """An option that is also a SHAPEROUTER_ variable, and says so and its default in --help."""
    variable = "SHAPEROUTER_" + names[0].removeprefix("--").replace("-", "_").upper()
    defaults: dict[str, Any] = {"envvar": variable, "show_envvar": True, "show_default": True}
    return click.option(*names, **(defaults | settings))


def _read_config(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Takes defaults from a TOML file whose keys are the options' names."""
    if path is None:
        return
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{path}: {error}") from error
    known = {
        parameter.opts[0].removeprefix("--"): parameter
        for parameter in ctx.command.params
        if not getattr(parameter, "hidden", False)
    }
    for key, value in values.items():
        if key not in known or key in ("config", "help"):
            raise click.BadParameter(f"{path}: no option {key!r}; there are {', '.join(known)}")
        if isinstance(value, dict) or (isinstance(value, list) != known[key].multiple):
            form = "a list of values" if known[key].multiple else "one value"
            raise click.BadParameter(f"{path}: {key} must be {form}, got {value!r}")
    # As text, as from the environment: so that 1.5 is no integer here either.
    ctx.default_map = {
        known[key].name: [str(v) for v in value] if isinstance(value, list) else str(value)
        for key, value in values.items()
    }


def _read_lengths(
    _: click.Context, __: click.Parameter, values: tuple[str, ...]
) -> tuple[ChosenLengths, ...]:
    try:
        return tuple(ChosenLengths.parse(value) for value in values)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def apply(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


_common = _together(
    _option(
        "--model",
        "models",
        multiple=True,
        default=("demo",),
        metavar="NAME[=DIRECTORY|HUB_ID]",
        help="A model to serve: a built-in one, or a name for a checkpoint in the Hugging Face "
        "layout. May be given several times; in the environment, separated by spaces.",
    ),
    _option(
        "--metrics-listen",
        default="127.0.0.1:9464",
        metavar="HOST:PORT",
        help="Address of Prometheus metrics, at /metrics.",
    ),
    _option(
        "--grace",
        type=click.FloatRange(min=0),
        default=30.0,
        metavar="SECONDS",
        help="Time that running requests have to finish when the service is told to stop.",
    ),
    _option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        help="Least level of the logs, which go to standard error.",
    ),
    _option(
        "--log-format",
        type=click.Choice(["auto", "console", "json"]),
        default="auto",
        help="Form of the logs; auto is console on a terminal and json elsewhere.",
    ),
    _option(
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        callback=_read_config,
        is_eager=True,
        expose_value=False,
        help="A TOML file of defaults: keys are the names of these options without dashes in "
        "front. The command line goes before the environment, and both before the file.",
    ),
)

_public = _together(
    _option(
        "--listen",
        default="127.0.0.1:50051",
        metavar="ADDRESS",
        help="Address of the gRPC server: HOST:PORT or unix:PATH.",
    ),
    _option(
        "--max-queue-seconds",
        type=click.FloatRange(min=0),
        default=30.0,
        metavar="SECONDS",
        help="Longest that a request may be expected to wait for a slot; more are refused at once, "
        "to be sent again. One client alone can fill half of it, two a third each, and so on; who "
        "a client is, the call's x-client-id says, or else its address.",
    ),
)


class _WorkerCount(click.IntRange):
    """A number of workers, or one for each GPU."""

    name = "integer or auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "auto":
            return max(1, len(visible_gpus(os.environ)))
        return super().convert(value, param, ctx)


_engine = _together(
    _option(
        "--dtype",
        type=click.Choice(["auto", "float32", "bfloat16"]),
        default="auto",
        help="Type that weights and caches are held and computed in; auto is bfloat16 on a GPU and "
        "float32 elsewhere, where bfloat16 is slower.",
    ),
    _option(
        "--slots",
        type=click.IntRange(1, 256),
        default=8,
        metavar="N",
        help="Requests that a worker runs at a time, for each model.",
    ),
    _option(
        "--queue-limit",
        type=click.IntRange(1, 100_000),
        default=256,
        metavar="N",
        help="Requests that wait for a slot of a worker, for each model; more are refused.",
    ),
    _option(
        "--compile-threads",
        type=click.IntRange(1, 64),
        default=min(2, os.cpu_count() or 1),
        metavar="N",
        help="Graphs that a worker compiles at a time. Default: 2, or 1 on a single core.",
        show_default=False,
    ),
    _option(
        "--compile-mode",
        type=click.Choice(["lazy", "warm", "frozen"]),
        default="lazy",
        help="When workers compile: lazy, what traffic asks for; warm, the --warm graphs before "
        "the service is ready, and then what traffic asks for; frozen, the --warm graphs and then "
        "nothing more, so that a request which no graph covers fails.",
    ),
    _option(
        "--warm",
        multiple=True,
        metavar="SIGNATURE",
        help="A graph that every worker makes before it is ready, e.g. 'gpt2 decode 4x256' or "
        "'gpt2 decode 1x512 beams 4'; `shaperouter graphs --cold` lists what there is. May be "
        "given several times, with --compile-mode warm or frozen.",
    ),
    _option(
        "--max-graphs",
        type=click.IntRange(1, 100_000),
        default=96,
        metavar="N",
        help="Graphs that a worker makes at most. A compiled graph is never freed, and takes about "
        "11 MB; over the limit, requests run on larger graphs.",
    ),
    _option(
        "--max-memory",
        type=parse_size,
        default="0",
        metavar="SIZE",
        help="Memory of a worker's process above which it makes no more graphs, e.g. 8GB; 0 is no "
        "limit.",
    ),
    _option(
        "--prefill-lengths",
        callback=_read_lengths,
        multiple=True,
        metavar="[NAME=]N,N,…",
        show_default="padding under half of a prompt",
        help="Lengths that prompts are padded to, in tokens: ascending multiples of 8; the model's "
        "maximum is always the last. Of one model if named, of all others if not. May be given "
        "several times; in the environment, separated by spaces.",
    ),
    _option(
        "--decode-lengths",
        callback=_read_lengths,
        multiple=True,
        metavar="[NAME=]N,N,…",
        show_default="each twice the one before",
        help="Lengths that caches are padded to, in tokens of prompt and generation together; in "
        "the same form. Beam search of width B takes B times as many places.",
    ),
    _option(
        "--threads",
        type=click.IntRange(1, 1024),
        default=None,
        metavar="N",
        help="Threads that compute one graph of a worker on a CPU. Default: one a core, or the "
        "worker's share of them where there are several workers.",
        show_default=False,
    ),
    _option(
        "--hang-timeout",
        type=click.FloatRange(min=1),
        default=30.0,
        metavar="SECONDS",
        help="Time after which a call of a graph that has not come back has hung, and the worker "
        "process ends. A local worker that says nothing for as long is killed. Each is replaced, "
        "and its requests go on.",
    ),
    _option(
        "--compile-cache",
        default=str(default_directory() or OFF),
        show_default="shaperouter in the user's cache home",
        metavar="DIRECTORY|off",
        help="Where compiled graphs are kept, for workers that start after. What is there is code "
        "that workers run: nobody else may write there.",
    ),
    _option(
        "--compile-cache-size",
        type=parse_size,
        default="10GB",
        metavar="SIZE",
        help="Most that --compile-cache may take; what is worth least is removed above it.",
    ),
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="shaperouterd")
def cli() -> None:
    """Serves Hugging Face generation models with TensorFlow and XLA over gRPC."""


@cli.command()
@_common
@_public
@_option(
    "--workers",
    type=_WorkerCount(1, 64),
    default=1,
    metavar="N|auto",
    help="Local worker processes, each with all models, a share of the cores, and one of the GPUs "
    "if there are any; auto is one for each GPU, or one.",
)
@_engine
def serve(
    *,
    models: tuple[str, ...],
    metrics_listen: str,
    grace: float,
    log_level: str,
    log_format: LogFormat,
    listen: str,
    max_queue_seconds: float,
    workers: int,
    dtype: Literal["auto", "float32", "bfloat16"],
    slots: int,
    queue_limit: int,
    compile_threads: int,
    compile_mode: CompileModeName,
    warm: tuple[str, ...],
    max_graphs: int,
    max_memory: int,
    prefill_lengths: tuple[ChosenLengths, ...],
    decode_lengths: tuple[ChosenLengths, ...],
    threads: int | None,
    hang_timeout: float,
    compile_cache: str,
    compile_cache_size: int,
) -> None:
    """A router with local workers: all there is to it on one machine."""
    from shaperouter_service.roles.router import RouterConfig
    from shaperouter_service.roles.serve import LocalWorkers, run_serve

    configure_logs(log_level, log_format)
    sources = parse_models(models)
    # Workers would refuse them, too, but only once each has started.
    names = [source.name for source in sources]
    lengths_of_models("prefill-lengths", prefill_lengths, names)
    lengths_of_models("decode-lengths", decode_lengths, names)
    config = RouterConfig(
        models=sources,
        listen=listen,
        metrics_listen=metrics_listen,
        grace=grace,
        max_queue_seconds=max_queue_seconds,
        own_workers=True,
    )
    arguments = (
        *(f"--model={source.name}={source.directory}" for source in sources),
        f"--metrics-listen={OFF}",
        f"--grace={grace}",
        f"--log-level={log_level}",
        f"--log-format={log_format}",
        f"--dtype={dtype}",
        f"--slots={slots}",
        f"--queue-limit={queue_limit}",
        f"--compile-threads={compile_threads}",
        f"--compile-mode={compile_mode}",
        *(f"--warm={signature}" for signature in warm),
        f"--max-graphs={max_graphs}",
        f"--max-memory={max_memory}",
        *(f"--prefill-lengths={lengths}" for lengths in prefill_lengths),
        *(f"--decode-lengths={lengths}" for lengths in decode_lengths),
        f"--threads={threads or max(1, usable_cores() // workers)}",
        f"--hang-timeout={hang_timeout}",
        f"--compile-cache={compile_cache}",
        f"--compile-cache-size={compile_cache_size}",
        "--exit-with-parent",
    )
    local = LocalWorkers(
        count=workers,
        arguments=arguments,
        gpus=visible_gpus(os.environ),
        hang_timeout=hang_timeout,
    )
    asyncio.run(run_serve(config, local))


@cli.command()
@_common
@_public
@_option(
    "--worker",
    "workers",
    multiple=True,
    required=True,
    metavar="ADDRESS",
    help="Address of a worker: HOST:PORT or unix:PATH. A host that is a name stands for workers at "
    "all of its addresses, which are looked up again every few seconds. May be given several "
    "times.",
)
def router(
    *,
    models: tuple[str, ...],
    metrics_listen: str,
    grace: float,
    log_level: str,
    log_format: LogFormat,
    listen: str,
    max_queue_seconds: float,
    workers: tuple[str, ...],
) -> None:
    """A router over workers that run elsewhere; it needs no TensorFlow."""
    from shaperouter_service.roles.router import RouterConfig, run_router

    configure_logs(log_level, log_format)
    config = RouterConfig(
        models=parse_models(models),
        listen=listen,
        metrics_listen=metrics_listen,
        grace=grace,
        max_queue_seconds=max_queue_seconds,
        own_workers=False,
    )
    asyncio.run(run_router(config, workers))


@cli.command()
@_common
@_option(
    "--listen",
    default="127.0.0.1:50052",
    metavar="ADDRESS",
    help="Address of the worker's gRPC server, for routers only: HOST:PORT or unix:PATH.",
)
@_option(
    "--name",
    default=socket.gethostname(),
    show_default="the host's name",
    metavar="NAME",
    help="Name of the worker, in logs and responses.",
)
@_engine
@click.option("--exit-with-parent", is_flag=True, hidden=True)
@click.option("--successor", is_flag=True, hidden=True)
def worker(
    *,
    models: tuple[str, ...],
    metrics_listen: str,
    grace: float,
    log_level: str,
    log_format: LogFormat,
    listen: str,
    name: str,
    dtype: Literal["auto", "float32", "bfloat16"],
    slots: int,
    queue_limit: int,
    compile_threads: int,
    compile_mode: CompileModeName,
    warm: tuple[str, ...],
    max_graphs: int,
    max_memory: int,
    prefill_lengths: tuple[ChosenLengths, ...],
    decode_lengths: tuple[ChosenLengths, ...],
    threads: int | None,
    hang_timeout: float,
    compile_cache: str,
    compile_cache_size: int,
    exit_with_parent: bool,
    successor: bool,
) -> None:
    """A worker: one device, its models and its graphs."""
    configure_logs(log_level, log_format, worker=name)
    sources: list[ModelSource] = parse_models(models)
    names = [source.name for source in sources]
    if compile_cache != OFF:
        set_flags()
    # TensorFlow greets with pages of hardware notes otherwise.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # It speeds up what XLA does not compile, of which we have only copies, and announces itself in
    # the log whatever the level.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    try:
        from shaperouter_service.roles.worker import WorkerConfig, run_worker
    except ModuleNotFoundError as error:
        raise StartupError(
            f"{error.name} is not installed; a worker needs shaperouter-service[worker]"
        ) from error

    config = WorkerConfig(
        name=name,
        models={source.name: source.directory for source in sources},
        listen=listen,
        metrics_listen=None if metrics_listen == OFF else metrics_listen,
        dtype=dtype,
        slots=slots,
        queue_limit=queue_limit,
        compile_threads=compile_threads,
        compile_mode=compile_mode,
        warm=parse_warm(warm, compile_mode),
        max_graphs=max_graphs,
        max_memory_bytes=max_memory,
        prefill_lengths=lengths_of_models("prefill-lengths", prefill_lengths, names),
        decode_lengths=lengths_of_models("decode-lengths", decode_lengths, names),
        threads=threads,
        hang_timeout=hang_timeout,
        compile_cache=None if compile_cache == OFF else Path(compile_cache),
        compile_cache_size=compile_cache_size,
        grace=grace,
        exit_with_parent=exit_with_parent,
        successor=successor,
    )
    asyncio.run(run_worker(config))


def parse_warm(texts: Sequence[str], mode: CompileModeName) -> list[Signature]:
    """Reads the signatures of --warm.

    Raises:
        StartupError: One is no signature, or the mode does not make them.
    """
    if texts and mode == "lazy":
        raise StartupError("warm: needs compile-mode warm or frozen, got lazy")
    try:
        return [Signature.parse(text) for text in texts]
    except ValueError as error:
        raise StartupError(f"warm: {error}") from error


cli.add_command(ladder)
cli.add_command(cache_command)


def main() -> None:
    """Runs the command; a start-up error is one line and exit code 78."""
    try:
        cli()
    except StartupError as error:
        click.echo(f"shaperouterd: {error}", err=True)
        sys.exit(EXIT_CONFIG)
