"""The options of ``shaperouter generate`` that say how to generate, in groups."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from shaperouter._cli._command import GroupedOption

F = TypeVar("F", bound=Callable[..., Any])

_EARLY_STOPPING: dict[str, bool | str] = {"heuristic": False, "first": True, "never": "never"}


def _option(group: str, *names: str, **settings: Any) -> Callable[[F], F]:
    return click.option(*names, cls=GroupedOption, group=group, default=None, **settings)


def _early_stopping(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> bool | str | None:
    del ctx, parameter
    return None if value is None else _EARLY_STOPPING[value]


def _logit_bias(
    ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[int, float] | None:
    del ctx
    biases: dict[int, float] = {}
    for value in values:
        token, _, bias = value.partition("=")
        try:
            number, added = int(token), float(bias)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not ID=BIAS", param=parameter) from None
        if number in biases:
            raise click.BadParameter(f"{number} is there twice", param=parameter)
        biases[number] = added
    return biases or None


def _several(
    ctx: click.Context, parameter: click.Parameter, values: tuple[Any, ...]
) -> tuple[Any, ...] | None:
    del ctx, parameter
    return values or None


_LENGTH, _SAMPLING, _BEAMS = "Length", "Sampling", "Beam search and several sequences"
_PENALTIES, _RESULT = "Penalties and bans", "Result"

_OPTIONS = [
    _option(
        _LENGTH,
        "--max-new-tokens",
        type=int,
        metavar="N",
        help="Most tokens to generate; at least 1. [default: the model's, or 64, or what the "
        "model's length leaves]",
    ),
    _option(
        _LENGTH,
        "--min-new-tokens",
        type=int,
        metavar="N",
        help="No end token before this many. [default: the model's, or 0]",
    ),
    _option(
        _LENGTH,
        "--eos-token-id",
        "eos_token_ids",
        type=int,
        multiple=True,
        callback=_several,
        metavar="ID",
        help="Token that ends the generation; may be repeated. [default: the model's]",
    ),
    _option(
        _LENGTH,
        "--stop",
        multiple=True,
        callback=_several,
        metavar="TEXT",
        help="Text that ends the generation, which ends before it; may be repeated. Not with "
        "beams. [default: none]",
    ),
    _option(
        _SAMPLING,
        "--sample/--greedy",
        "do_sample",
        help="Sample, or always take the likeliest token. [default: sample if one of the next "
        "five is given, else the model's, or greedy]",
    ),
    _option(
        _SAMPLING,
        "--temperature",
        type=float,
        metavar="T",
        help="Divides the logits before sampling; from 1e-6 to 1e6. [default: the model's, or 1]",
    ),
    _option(
        _SAMPLING,
        "--top-k",
        type=int,
        metavar="K",
        help="Sample among the K likeliest tokens; 0 is all. [default: the model's, or 50]",
    ),
    _option(
        _SAMPLING,
        "--top-p",
        type=float,
        metavar="P",
        help="Sample among the fewest likeliest tokens whose probabilities sum to P; above 0, at "
        "most 1, which is all. [default: the model's, or 1]",
    ),
    _option(
        _SAMPLING,
        "--min-p",
        type=float,
        metavar="P",
        help="Sample among tokens at least P times as probable as the likeliest; from 0, which is "
        "all, to 1. [default: the model's, or 0]",
    ),
    _option(
        _SAMPLING,
        "--typical-p",
        type=float,
        metavar="P",
        help="Sample among the most typical tokens whose probabilities sum to P; above 0, at most "
        "1, which is all. [default: the model's, or 1]",
    ),
    _option(
        _SAMPLING,
        "--seed",
        type=int,
        metavar="S",
        help="Seed of the randomness, from 0 to 2^63 - 1. [default: chosen by the service]",
    ),
    _option(
        _BEAMS,
        "--num-beams",
        type=int,
        metavar="N",
        help="Hypotheses that beam search keeps; 1 is no beam search. [default: the model's, or 1]",
    ),
    _option(
        _BEAMS,
        "--length-penalty",
        type=float,
        metavar="X",
        help="Exponent of the length that divides scores: above 0 favours long sequences; from "
        "-10 to 10. Needs beams. [default: the model's, or 1]",
    ),
    _option(
        _BEAMS,
        "--early-stopping",
        type=click.Choice(list(_EARLY_STOPPING)),
        metavar="WHEN",
        callback=_early_stopping,
        help='When beam search stops: "first" once as many hypotheses as beams have ended, '
        '"heuristic" when no open one seems better than these, "never" when none can become '
        "better. Needs beams. [default: the model's, or heuristic]",
    ),
    _option(
        _BEAMS,
        "--num-return-sequences",
        type=int,
        metavar="N",
        help="Sequences to return; at most as many as beams, or 16 with sampling. "
        "[default: the model's, or 1]",
    ),
    _option(
        _PENALTIES,
        "--repetition-penalty",
        type=float,
        metavar="X",
        help="Makes tokens that are there already less likely above 1; from 1e-3 to 1e3. "
        "[default: the model's, or 1]",
    ),
    _option(
        _PENALTIES,
        "--no-repeat-ngram-size",
        type=int,
        metavar="N",
        help="No run of N tokens comes twice; 0 is no limit. [default: the model's, or 0]",
    ),
    _option(
        _PENALTIES,
        "--logit-bias",
        multiple=True,
        callback=_logit_bias,
        metavar="ID=BIAS",
        help="Number from -1e4 to 1e4 that is added to a token's logit; may be repeated. "
        "[default: the model's, or none]",
    ),
    _option(
        _PENALTIES,
        "--bad-word",
        "bad_words",
        multiple=True,
        callback=_several,
        metavar="TEXT",
        help="Text that is never generated, at most 8 tokens; may be repeated. In mid-sentence a "
        "word usually begins with a space. [default: the model's, or none]",
    ),
    _option(
        _RESULT,
        "--logprobs",
        type=int,
        metavar="N",
        help="Return the log-probability of each new token, and of the N likeliest, at most 20; "
        "needs --json. [default: none]",
    ),
    _option(
        _RESULT,
        "--echo",
        is_flag=True,
        help="Begin text and token ids with the prompt. [default: the new ones only]",
    ),
]


def generation_options(command: F) -> F:
    """Gives a command the options of a generation; it takes them as keyword arguments."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
