"""A request's options with the defaults of its model, as sent to workers.

A request's own options are never changed here: they are valid, or refused (see validation.py). A
default of the checkpoint is adjusted if the request leaves it no room.
"""

import secrets
from collections.abc import Iterable, Sequence
from typing import Any

from shaperouter.v1 import generation_pb2, model_pb2, worker_pb2
from shaperouter_service.generation.limits import MAX_RETURN_SEQUENCES

# Bits of the seeds that the service chooses: in every language, JSON numbers hold such integers
# exactly.
SEED_BITS = 53

# Options that need sampling, with the values at which they have no effect.
NEUTRAL_SAMPLING = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0}
# Options that need beam search, likewise.
NEUTRAL_SEARCH = {
    "length_penalty": 1.0,
    "early_stopping": generation_pb2.EARLY_STOPPING_HEURISTIC,
}


def resolve_options(
    options: generation_pb2.GenerationOptions,
    model: model_pb2.Model,
    *,
    room: int,
    bad_words: Sequence[Sequence[int]],
) -> worker_pb2.RunOptions:
    """Fills in every default, and neutral values for options without effect.

    Args:
        options: The request's options, each within its limits.
        model: The model that serves it.
        room: Tokens that the prompt leaves of the model's length; at least 1.
        bad_words: Tokens of the options' bad_words.
    """
    default = model.default_options

    def value(name: Any) -> Any:
        return getattr(options if options.HasField(name) else default, name)

    # In this order, each needs only those before it.
    resolved = worker_pb2.RunOptions(
        do_sample=_do_sample(options, default),
        num_beams=_num_beams(options, default, model),
        max_new_tokens=_max_new_tokens(options, default, room),
        repetition_penalty=value("repetition_penalty"),
        no_repeat_ngram_size=value("no_repeat_ngram_size"),
        seed=options.seed if options.HasField("seed") else secrets.randbits(SEED_BITS),
        eos_token_ids=options.eos_token_ids or default.eos_token_ids,
        logprobs=options.logprobs if options.HasField("logprobs") else None,
    )
    if resolved.num_beams > 1:
        # Without beam search the router itself ends the run.
        resolved.stop.extend(options.stop)
    for name, neutral in NEUTRAL_SAMPLING.items():
        setattr(resolved, name, value(name) if resolved.do_sample else neutral)
    for name, neutral in NEUTRAL_SEARCH.items():
        setattr(resolved, name, value(name) if resolved.num_beams > 1 else neutral)
    resolved.min_new_tokens = value("min_new_tokens")
    if not options.HasField("min_new_tokens"):
        resolved.min_new_tokens = min(resolved.min_new_tokens, resolved.max_new_tokens)
    resolved.num_return_sequences = value("num_return_sequences")
    if not options.HasField("num_return_sequences"):
        resolved.num_return_sequences = min(default.num_return_sequences, most_sequences(resolved))
    resolved.biases.extend(_biases(options.logit_bias or default.logit_bias))
    banned = [*bad_words, *(run.ids for run in options.bad_words_token_ids)]
    if not names_bad_words(options):
        banned = [run.ids for run in default.bad_words_token_ids]
    resolved.biases.extend(_bans(banned, resolved.eos_token_ids))
    return resolved


def most_sequences(resolved: worker_pb2.RunOptions) -> int:
    """Maximum number of sequences for a request with these options."""
    if resolved.num_beams > 1:
        return resolved.num_beams
    return MAX_RETURN_SEQUENCES if resolved.do_sample else 1


def widest_beams(model: model_pb2.Model) -> int:
    """The model's largest beam width; 1 means no beam search."""
    return max((lane.beams for lane in model.ladders.lanes), default=1)


def names_bad_words(options: generation_pb2.GenerationOptions) -> bool:
    """Whether a request bans words itself, which replaces the checkpoint's bans."""
    return bool(options.bad_words or options.bad_words_token_ids)


def default_biases(options: generation_pb2.GenerationOptions, model: model_pb2.Model) -> int:
    """Number of biases that the checkpoint adds to those of a request."""
    default = model.default_options
    biases = 0 if options.logit_bias else len(default.logit_bias)
    return biases + (0 if names_bad_words(options) else len(default.bad_words_token_ids))


def _do_sample(
    options: generation_pb2.GenerationOptions, default: generation_pb2.GenerationOptions
) -> bool:
    if options.HasField("do_sample"):
        return options.do_sample
    fields: Any = NEUTRAL_SAMPLING
    return any(options.HasField(name) for name in fields) or default.do_sample


def _num_beams(
    options: generation_pb2.GenerationOptions,
    default: generation_pb2.GenerationOptions,
    model: model_pb2.Model,
) -> int:
    if options.HasField("num_beams"):
        return options.num_beams
    # logprobs are requested, and cannot be computed with beam search.
    if options.logprobs > 0:
        return 1
    return min(default.num_beams, widest_beams(model))


def _max_new_tokens(
    options: generation_pb2.GenerationOptions,
    default: generation_pb2.GenerationOptions,
    room: int,
) -> int:
    if options.HasField("max_new_tokens"):
        return options.max_new_tokens
    return min(room, max(default.max_new_tokens, options.min_new_tokens))


def _biases(entries: Iterable[generation_pb2.LogitBias]) -> list[worker_pb2.SequenceBias]:
    return [
        worker_pb2.SequenceBias(token_ids=[entry.token_id], bias=entry.bias) for entry in entries
    ]


def _bans(
    runs: Iterable[Sequence[int]], eos_token_ids: Sequence[int]
) -> list[worker_pb2.SequenceBias]:
    """Biases that ban sequences of tokens, each once.

    A single end token cannot be banned; as in Transformers, such a ban is ignored.
    """
    distinct = dict.fromkeys(tuple(run) for run in runs)
    return [
        worker_pb2.SequenceBias(token_ids=run, bias=float("-inf"))
        for run in distinct
        if not (len(run) == 1 and run[0] in eos_token_ids)
    ]
