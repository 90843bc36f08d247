"""Options of ``shaperouter generate`` that say how to generate, in groups."""

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
            raise click.BadParameter(f"must be ID=BIAS, got {value!r}", param=parameter) from None
        if number in biases:
            raise click.BadParameter(f"token {number} is given twice", param=parameter)
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
        help="Maximum number of tokens to generate; at least 1. [default: the model's, or 64, or "
        "as many as the model's length allows]",
    ),
    _option(
        _LENGTH,
        "--min-new-tokens",
        type=int,
        metavar="N",
        help="Number of tokens to generate before an end token is allowed. [default: the model's, "
        "or 0]",
    ),
    _option(
        _LENGTH,
        "--eos-token-id",
        "eos_token_ids",
        type=int,
        multiple=True,
        callback=_several,
        metavar="ID",
        help="Token that ends the generation; can be repeated. [default: the model's]",
    ),
    _option(
        _LENGTH,
        "--stop",
        multiple=True,
        callback=_several,
        metavar="TEXT",
        help="Text that ends the generation, or with beams a hypothesis. The result stops before "
        "this text. Can be repeated. [default: none]",
    ),
    _option(
        _SAMPLING,
        "--sample/--greedy",
        "do_sample",
        help="Sample, or always take the most likely token. [default: sample if any of the next "
        "five options is given, else the model's, or greedy]",
    ),
    _option(
        _SAMPLING,
        "--temperature",
        type=float,
        metavar="T",
        help="Divide the logits by T before sampling; from 1e-6 to 1e6. [default: the model's, or "
        "1]",
    ),
    _option(
        _SAMPLING,
        "--top-k",
        type=int,
        metavar="K",
        help="Sample from the K most likely tokens; 0 means all. [default: the model's, or 50]",
    ),
    _option(
        _SAMPLING,
        "--top-p",
        type=float,
        metavar="P",
        help="Sample from the smallest set of most likely tokens whose probabilities sum to P; "
        "above 0, at most 1, which means all. [default: the model's, or 1]",
    ),
    _option(
        _SAMPLING,
        "--min-p",
        type=float,
        metavar="P",
        help="Sample from the tokens that are at least P times as probable as the most likely "
        "one; from 0, which means all, to 1. [default: the model's, or 0]",
    ),
    _option(
        _SAMPLING,
        "--typical-p",
        type=float,
        metavar="P",
        help="Sample from the most typical tokens whose probabilities sum to P; above 0, at most "
        "1, which means all. [default: the model's, or 1]",
    ),
    _option(
        _SAMPLING,
        "--seed",
        type=int,
        metavar="S",
        help="Random seed, from 0 to 2^63 - 1. [default: chosen by the service]",
    ),
    _option(
        _BEAMS,
        "--num-beams",
        type=int,
        metavar="N",
        help="Number of hypotheses that beam search keeps; 1 means no beam search. [default: the "
        "model's, or 1]",
    ),
    _option(
        _BEAMS,
        "--length-penalty",
        type=float,
        metavar="X",
        help="Exponent of the length that scores are divided by, from -10 to 10; above 0 favours "
        "long sequences. Needs beams. [default: the model's, or 1]",
    ),
    _option(
        _BEAMS,
        "--early-stopping",
        type=click.Choice(list(_EARLY_STOPPING)),
        metavar="WHEN",
        callback=_early_stopping,
        help='When beam search stops: "first" once as many hypotheses as beams have ended, '
        '"heuristic" once no open hypothesis seems better than those, "never" only once none '
        "can become better. Needs beams. [default: the model's, or heuristic]",
    ),
    _option(
        _BEAMS,
        "--num-return-sequences",
        type=int,
        metavar="N",
        help="Number of sequences to return: at most the number of beams, or 16 with sampling. "
        "[default: the model's, or 1]",
    ),
    _option(
        _PENALTIES,
        "--repetition-penalty",
        type=float,
        metavar="X",
        help="Above 1, make tokens that already occurred less likely; from 1e-3 to 1e3. [default: "
        "the model's, or 1]",
    ),
    _option(
        _PENALTIES,
        "--no-repeat-ngram-size",
        type=int,
        metavar="N",
        help="Generate no sequence of N tokens twice; 0 means no limit. [default: the model's, or "
        "0]",
    ),
    _option(
        _PENALTIES,
        "--logit-bias",
        multiple=True,
        callback=_logit_bias,
        metavar="ID=BIAS",
        help="Number from -1e4 to 1e4 to add to the logit of token ID; can be repeated. [default: "
        "the model's, or none]",
    ),
    _option(
        _PENALTIES,
        "--bad-word",
        "bad_words",
        multiple=True,
        callback=_several,
        metavar="TEXT",
        help="Text that is never generated, at most 8 tokens; can be repeated. Within a sentence "
        "a word usually begins with a space. [default: the model's, or none]",
    ),
    _option(
        _RESULT,
        "--logprobs",
        type=int,
        metavar="N",
        help="Return the log-probability of each new token and of the N most likely ones, at most "
        "20. Needs --json. [default: none]",
    ),
    _option(
        _RESULT,
        "--echo",
        is_flag=True,
        help="Begin the text and the token ids with the prompt. [default: only the new ones]",
    ),
]


def generation_options(command: F) -> F:
    """Adds the options of a generation to a command, which takes them as keyword arguments."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
