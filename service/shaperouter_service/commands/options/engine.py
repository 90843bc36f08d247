"""Options of workers; `serve` passes them to its local workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import click
from click.types import StringParamType

from shaperouter_service.commands.options.declaring import OFF, option, options_of
from shaperouter_service.commands.options.lengths import ChosenLengths
from shaperouter_service.commands.options.numbers import Integer, Number
from shaperouter_service.compile_cache.directory import default_directory
from shaperouter_service.errors import StartupError
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.rpc.heartbeat import HEARTBEAT, MISSED_HEARTBEATS
from shaperouter_service.system.sizes import MemoryCap, parse_size

CompileModeName = Literal["lazy", "warm", "frozen"]


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Values of `engine_options`, whose help says what each is."""

    dtype: Literal["auto", "float32", "bfloat16", "int8", "int4"]
    kv_cache_dtype: Literal["auto", "float32", "bfloat16"]
    kernels: Literal["auto", "off"]
    slots: int
    max_length: int | None
    queue_limit: int
    compile_threads: int | None
    compile_mode: CompileModeName
    warm: tuple[str, ...]
    beam_cover: Literal["auto", "off"]
    max_graphs: int
    max_memory: MemoryCap
    prefix_cache_memory: int
    speculate: Literal["off", "ngram"]
    draft: tuple[str, ...]
    prefill_lengths: tuple[ChosenLengths, ...]
    decode_lengths: tuple[ChosenLengths, ...]
    encode_lengths: tuple[ChosenLengths, ...]
    threads: int | None
    hang_timeout: float
    check_padding: float
    signature_histograms: Literal["on", "off"]
    compile_cache: str
    compile_cache_size: int


def default_compile_threads(cores: int) -> int:
    """Number of graphs that a worker with `cores` cores compiles at the same time.

    Compilations compete with requests for cores. On few cores, two at a time finish no sooner than
    one after the other, and the most valuable graph is ready later.
    """
    return 2 if cores >= 4 else 1


class _Signatures(StringParamType):
    """Signatures, separated by commas in a variable because they contain spaces."""

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


_lengths = partial(option, callback=_read_lengths, multiple=True, metavar="[NAME=]N,N,…")

engine_options = options_of(
    EngineOptions,
    "engine",
    option(
        "--dtype",
        type=click.Choice(["auto", "float32", "bfloat16", "int8", "int4"]),
        default="auto",
        help="Data type of the weights. auto is bfloat16 on a GPU and float32 elsewhere. On a CPU "
        "with the native kernels, everything else is float32, except that inputs of products "
        "with bfloat16 weights are rounded to bfloat16, and those with int8 or int4 weights to 8 "
        "bits in groups of 128. int4 weights share a scale in groups of 32; embeddings then stay "
        "in int8. Without the kernels, caches and computations use this type too; bfloat16 is then "
        "slower, and int8 and int4 are not available.",
    ),
    option(
        "--kv-cache-dtype",
        type=click.Choice(["auto", "float32", "bfloat16"]),
        default="auto",
        help="Data type of the keys and values that requests keep. auto is float32 if weights are "
        "in float32, and bfloat16 otherwise. bfloat16 takes half of the memory, and steps of "
        "several requests read less; tokens may differ from those of float32. Without the native "
        "kernels, caches have the type of the weights.",
    ),
    option(
        "--kernels",
        type=click.Choice(["auto", "off"]),
        default="auto",
        help="Whether the native kernels compute matrix products, attention, norms and sampling on "
        "a CPU, if they were built at installation. off leaves all of it to XLA.",
    ),
    option(
        "--slots",
        type=Integer(1, 256),
        default=8,
        metavar="N",
        help="Maximum number of requests without beam search that a worker runs at the same time, "
        "per model. Requests with B beams have places of their own: N/B, at least one.",
    ),
    option(
        "--max-length",
        type=Integer(8, 2**24),
        default=None,
        metavar="N",
        help="Maximum number of tokens of a sequence, prompt and generation together, for models "
        "that allow more. It bounds the memory of caches. Models that transcribe keep their own. "
        "Default: the model's maximum.",
        show_default=False,
    ),
    option(
        "--queue-limit",
        type=Integer(1, 100_000),
        default=256,
        metavar="N",
        help="Maximum number of requests that wait for a slot of a worker, per model and beam "
        "width. Further requests are refused. One client alone may use half of the places, two a "
        "third each, and so on.",
    ),
    option(
        "--compile-threads",
        type=Integer(1, 64),
        default=None,
        metavar="N",
        help="Number of graphs that a worker compiles at the same time. Default: 2, or 1 if the "
        "worker has fewer than 4 cores.",
        show_default=False,
    ),
    option(
        "--compile-mode",
        type=click.Choice(["lazy", "warm", "frozen"]),
        default="lazy",
        help="When workers compile. lazy: compile the graphs that traffic justifies. warm: "
        "compile the --warm graphs before the service is ready, then those that traffic "
        "justifies. frozen: compile the --warm graphs and nothing later; a request that no "
        "graph covers fails. If --warm is not given, warm and frozen start with the graphs "
        "that the record of traffic in --compile-cache justifies.",
    ),
    option(
        "--warm",
        type=_Signatures(),
        multiple=True,
        metavar="SIGNATURE",
        help="Graph that every worker makes ready before it serves, e.g. 'gpt2 decode 4x256' or "
        "'gpt2 decode 1x512 beams 4'. `shaperouter graphs --all` lists the possible ones. "
        "Needs --compile-mode warm or frozen. Can be repeated; in the environment, separate "
        "values with commas.",
    ),
    option(
        "--beam-cover",
        type=click.Choice(["auto", OFF]),
        default="auto",
        help="Whether workers, as soon as they are ready, compile a graph that covers searches "
        "with up to 4 beams (5 for transcripts), so that the first search need not wait for "
        "one, and then one that decodes 4 requests together. auto does so, except in mode "
        "frozen. If traffic was recorded, auto leaves out the first where there were no searches, "
        "and the second where such a graph has served.",
    ),
    option(
        "--max-graphs",
        type=Integer(1, 100_000),
        default=96,
        metavar="N",
        help="Maximum number of graphs per worker. A compiled graph is never freed. It takes about "
        "11 MB, and 200 of the 65,530 memory maps that Linux allows a process by default. At the "
        "limit, requests run on larger graphs.",
    ),
    option(
        "--max-memory",
        type=MemoryCap.parse,
        default="70%",
        metavar="SIZE|N%",
        help="Memory of a worker's process above which it compiles no more graphs: a size, e.g. "
        "8GB, or a share of the container's memory limit, which the workers of `serve` "
        "divide equally. 0 means no limit. A share has no effect if the container has no "
        "memory limit.",
    ),
    option(
        "--prefix-cache-memory",
        type=parse_size,
        default="512MB",
        metavar="SIZE",
        help="Memory of a worker for keys and values of prompts and generated text, so that a "
        "request that begins like an earlier one need not read the same again. Above it, what "
        "saves the fewest tokens for its size is dropped. 0 keeps nothing.",
    ),
    option(
        "--speculate",
        type=click.Choice(["off", "ngram"]),
        default="off",
        help="Whether a decode step checks several proposed tokens at once. ngram: proposes the "
        "tokens that followed an earlier occurrence of the request's newest tokens. off: only "
        "--draft proposes; without it, each step generates one token. Answers are the same either "
        "way. Only with the native kernels, for models without an encoder and requests without "
        "beam search and structured output.",
    ),
    option(
        "--draft",
        multiple=True,
        metavar="NAME=DIRECTORY|HUB_ID[@REVISION]",
        help="Draft model of the model NAME: a much smaller checkpoint with the same tokenizer, "
        "which proposes tokens that a decode step checks at once. With --speculate ngram, it "
        "proposes where the newest tokens have not occurred before. As with --speculate, answers "
        "stay the same, and it needs the native kernels, a model without an encoder and requests "
        "without beam search and structured output. Can be repeated for other models; in the "
        "environment, separate values with spaces.",
    ),
    _lengths(
        "--prefill-lengths",
        show_default="lengths whose padding is less than half of a prompt",
        help="Lengths that prompts are padded to, in tokens: ascending multiples of 8. The "
        "model's maximum length is always added. With NAME=, the lengths apply to that "
        "model, else to all models without their own. Can be repeated; in the environment, "
        "separate values with spaces.",
    ),
    _lengths(
        "--decode-lengths",
        show_default="each length is twice the one before",
        help="Lengths that caches are padded to, in tokens of prompt and generation together. "
        "Same form as --prefill-lengths. Beam search of width B takes B times as many "
        "positions.",
    ),
    _lengths(
        "--encode-lengths",
        show_default="lengths whose padding is less than half of a source",
        help="Lengths that sources are padded to, in tokens. Same form as --prefill-lengths. The "
        "models that it applies to must have an encoder.",
    ),
    option(
        "--threads",
        type=Integer(1, 1024),
        default=None,
        metavar="N",
        help="Number of threads that compute one graph of a worker on a CPU. Default: one per "
        "core of the machine, or of the worker's share if there are several workers.",
        show_default=False,
    ),
    option(
        "--hang-timeout",
        type=Number(min=1),
        default=30.0,
        metavar="SECONDS",
        help="Time after which a graph's call that has not returned counts as hung. Its worker "
        "process then ends. A local worker that sends nothing for as long (at least "
        f"{MISSED_HEARTBEATS * HEARTBEAT:g} s) is killed. A new process replaces it, and its "
        "requests continue.",
    ),
    option(
        "--check-padding",
        type=Number(min=0, max=1),
        default=0.01,
        metavar="SHARE",
        help="Share of the padded or joined batches of functions that are computed again without "
        "padding while the device is idle. If padding or other calls have changed an answer, the "
        "axis is served exactly from then on.",
    ),
    option(
        "--signature-histograms",
        type=click.Choice(["on", OFF]),
        default="on",
        help="Whether each graph has its own histograms of device time, compile time and stalls in "
        "the metrics. Off, all graphs of a model and kind share them, which leaves about a seventh "
        "of the series of a worker with many graphs; counters are still those of each graph.",
    ),
    option(
        "--compile-cache",
        default=str(default_directory() or OFF),
        show_default="shaperouter in the user's cache home",
        metavar="DIRECTORY|off",
        help="Directory where compiled graphs are kept for later starts. Workers run the code in "
        "it, so nobody else may be able to write there. A directory that belongs to another "
        "user, or that everyone can write to, is not used.",
    ),
    option(
        "--compile-cache-size",
        type=parse_size,
        default="10GB",
        metavar="SIZE",
        help="Maximum size of --compile-cache. Above it, the least valuable graphs are removed.",
    ),
)


def parse_warm(texts: Sequence[str], mode: CompileModeName) -> list[Signature]:
    """Reads the signatures of `--warm`.

    Raises:
        StartupError: A text is not a signature, or the mode does not warm graphs.
    """
    if texts and mode == "lazy":
        raise StartupError("warm: needs compile-mode warm or frozen, got lazy")
    try:
        return [Signature.parse(text) for text in texts]
    except ValueError as error:
        raise StartupError(f"warm: {error}") from error
