"""Options of workers: `serve` hands them on to its own."""

from dataclasses import dataclass
from typing import Any, Literal

import click
from click.types import StringParamType

from shaperouter_service.cache.location import default_directory
from shaperouter_service.commands.options.declaring import OFF, option, options_of
from shaperouter_service.lengths import ChosenLengths
from shaperouter_service.rpc.heartbeat import HEARTBEAT, MISSED_HEARTBEATS
from shaperouter_service.sizes import parse_size

CompileModeName = Literal["lazy", "warm", "frozen"]


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Values of `engine_options`, whose help says what each is."""

    dtype: Literal["auto", "float32", "bfloat16", "int8"]
    kernels: Literal["auto", "off"]
    slots: int
    queue_limit: int
    compile_threads: int | None
    compile_mode: CompileModeName
    warm: tuple[str, ...]
    beam_cover: Literal["auto", "off"]
    max_graphs: int
    max_memory: int
    prefill_lengths: tuple[ChosenLengths, ...]
    decode_lengths: tuple[ChosenLengths, ...]
    encode_lengths: tuple[ChosenLengths, ...]
    threads: int | None
    hang_timeout: float
    compile_cache: str
    compile_cache_size: int


def default_compile_threads(cores: int) -> int:
    """Graphs that a worker compiles at a time with so many cores.

    Compilations take the cores that requests are served with, and two that share them are ready no
    sooner than one after the other: the one that is worth most had better be first.
    """
    return 2 if cores >= 4 else 1


class _Signatures(StringParamType):
    """Signatures: in a variable, commas are between them, since spaces are in them."""

    envvar_list_splitter = ","

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(super().convert(value, param, ctx)).strip()


def _read_lengths(
    _: click.Context, __: click.Parameter, values: tuple[str, ...]
) -> tuple[ChosenLengths, ...]:
    try:
        return tuple(ChosenLengths.parse(value) for value in values)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


engine_options = options_of(
    EngineOptions,
    "engine",
    option(
        "--dtype",
        type=click.Choice(["auto", "float32", "bfloat16", "int8"]),
        default="auto",
        help="Type that weights are held in; auto is bfloat16 on a GPU and float32 elsewhere. On a "
        "CPU with the native kernels all else is float32, but for what is multiplied by int8 "
        "weights, which is rounded to 8 bits for that, in groups of 128; without the kernels "
        "caches and computations have this type, too, bfloat16 is slower, and there is no int8.",
    ),
    option(
        "--kernels",
        type=click.Choice(["auto", "off"]),
        default="auto",
        help="Whether products and attention on a CPU are computed by the native kernels, if they "
        "were built when the service was installed; off leaves them to XLA.",
    ),
    option(
        "--slots",
        type=click.IntRange(1, 256),
        default=8,
        metavar="N",
        help="Requests that a worker runs at a time, for each model.",
    ),
    option(
        "--queue-limit",
        type=click.IntRange(1, 100_000),
        default=256,
        metavar="N",
        help="Requests that wait for a slot of a worker, for each model; more are refused. One "
        "client alone can take half of these places, two a third each, and so on.",
    ),
    option(
        "--compile-threads",
        type=click.IntRange(1, 64),
        default=None,
        metavar="N",
        help="Graphs that a worker compiles at a time. Default: 2, or 1 where its share of the "
        "cores is less than 4.",
        show_default=False,
    ),
    option(
        "--compile-mode",
        type=click.Choice(["lazy", "warm", "frozen"]),
        default="lazy",
        help="When workers compile: lazy, what traffic asks for; warm, the --warm graphs before "
        "the service is ready, and then what traffic asks for; frozen, the --warm graphs and then "
        "nothing more, so that a request which no graph covers fails. Without --warm, the last two "
        "begin with all that the record of traffic in --compile-cache shows to be worth making.",
    ),
    option(
        "--warm",
        type=_Signatures(),
        multiple=True,
        metavar="SIGNATURE",
        help="A graph that every worker makes before it is ready, e.g. 'gpt2 decode 4x256' or "
        "'gpt2 decode 1x512 beams 4'; `shaperouter graphs --all` lists what there is. May be "
        "given several times, with --compile-mode warm or frozen; in the environment, separated by "
        "commas.",
    ),
    option(
        "--beam-cover",
        type=click.Choice(["auto", OFF]),
        default="auto",
        help="Whether workers make, as soon as they are ready, a graph that covers searches with "
        "up to 4 beams (5 of transcripts), so that the first of them need not wait for one: auto "
        "does, but not in mode frozen, nor where the record of traffic has only requests without "
        "beams.",
    ),
    option(
        "--max-graphs",
        type=click.IntRange(1, 100_000),
        default=96,
        metavar="N",
        help="Graphs that a worker makes at most. A compiled graph is never freed, and takes about "
        "11 MB; over the limit, requests run on larger graphs.",
    ),
    option(
        "--max-memory",
        type=parse_size,
        default="0",
        metavar="SIZE",
        help="Memory of a worker's process above which it makes no more graphs, e.g. 8GB; 0 is no "
        "limit.",
    ),
    option(
        "--prefill-lengths",
        callback=_read_lengths,
        multiple=True,
        metavar="[NAME=]N,N,…",
        show_default="padding under half of a prompt",
        help="Lengths that prompts are padded to, in tokens: ascending multiples of 8; the model's "
        "maximum is always the last. Of one model if named, of all others if not. May be given "
        "several times; in the environment, separated by spaces.",
    ),
    option(
        "--decode-lengths",
        callback=_read_lengths,
        multiple=True,
        metavar="[NAME=]N,N,…",
        show_default="each twice the one before",
        help="Lengths that caches are padded to, in tokens of prompt and generation together; in "
        "the same form. Beam search of width B takes B times as many places.",
    ),
    option(
        "--encode-lengths",
        callback=_read_lengths,
        multiple=True,
        metavar="[NAME=]N,N,…",
        show_default="padding under half of a source",
        help="Lengths that sources are padded to, in tokens; in the same form. Each model that has "
        "them must have an encoder.",
    ),
    option(
        "--threads",
        type=click.IntRange(1, 1024),
        default=None,
        metavar="N",
        help="Threads that compute one graph of a worker on a CPU. Default: one a core, or the "
        "worker's share of them where there are several workers.",
        show_default=False,
    ),
    option(
        "--hang-timeout",
        type=click.FloatRange(min=1),
        default=30.0,
        metavar="SECONDS",
        help="Time after which a call of a graph that has not come back has hung, and the worker "
        "process ends. A local worker that says nothing for as long is killed, but not before "
        f"{MISSED_HEARTBEATS * HEARTBEAT:g} s. Each is replaced, and its requests go on.",
    ),
    option(
        "--compile-cache",
        default=str(default_directory() or OFF),
        show_default="shaperouter in the user's cache home",
        metavar="DIRECTORY|off",
        help="Where compiled graphs are kept, for workers that start after. What is there is code "
        "that workers run: nobody else may write there, and a directory of another user, or that "
        "all can write to, is not used.",
    ),
    option(
        "--compile-cache-size",
        type=parse_size,
        default="10GB",
        metavar="SIZE",
        help="Most that --compile-cache may take; what is worth least is removed above it.",
    ),
)
