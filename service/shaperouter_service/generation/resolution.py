"""A request's options with the defaults of its model, as sent to workers.

A request's own options are never changed here: they are valid, or refused (see
`option_validation`). A default of the checkpoint is adjusted if the request leaves it no room.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from shaperouter_service.generation.limits import MAX_RETURN_SEQUENCES
from shaperouter_service.generation.option import Needs
from shaperouter_service.generation.option_table import OPTIONS
from shaperouter_service.routing.served_model import ServedModel

# Options by name, of those that were given.
Given = Mapping[str, Any]
# All options by name, and `biases`: pairs of a sequence of token ids and a number.
Resolved = Mapping[str, Any]
Bias = tuple[Sequence[int], float]

# Bits of the seeds that the service chooses: in every language, JSON numbers hold such integers
# exactly.
SEED_BITS = 53

# The bias that bans.
BAN = float("-inf")

# Options that become biases, which share the room of a slot.
BIASING = ("logit_bias", "bad_words", "bad_words_token_ids", "suppress_tokens")

# Default limit of an answer in a conversation. Clients of chats rarely set one, and expect a whole
# answer. vLLM allows all that the model's length leaves, but here the cache of a request has room
# for its maximum.
_CHAT_TOKENS = 1024
# Tokens that routers expect such an answer to have.
_EXPECTED_CHAT_TOKENS = 128


def resolve(
    given: Given,
    model: ServedModel,
    *,
    room: int,
    bad_words: Sequence[Sequence[int]],
    is_chat: bool = False,
) -> Resolved:
    """Fills in every default, and neutral values for options without effect.

    Args:
        given: The request's options, each within its limits.
        model: The model that serves it.
        room: Tokens that the prompt leaves of the model's length; at least 1.
        bad_words: Tokens of the options' bad_words.
        is_chat: Whether the prompt is a conversation.
    """
    do_sample, num_beams = _do_sample(given, model), _num_beams(given, model)
    has = {
        None: True,
        Needs.SAMPLING: do_sample,
        Needs.BEAMS: num_beams > 1,
        Needs.ENCODER: model.is_encoder_decoder,
    }
    resolved = {
        name: _value(name, given, model) if has[option.needs] else option.neutral
        for name, option in OPTIONS.items()
    }
    resolved |= {
        "do_sample": do_sample,
        "num_beams": num_beams,
        "max_new_tokens": _max_new_tokens(given, model, room, is_chat=is_chat),
        "min_new_tokens": _min_new_tokens(given, model, room),
        "seed": given["seed"] if "seed" in given else secrets.randbits(SEED_BITS),
        # Without beam search the router itself ends the run.
        "stop": given.get("stop", ()) if num_beams > 1 else (),
        "biases": _biases(given, model, bad_words, resolved["eos_token_ids"]),
    }
    for name, maximum in (
        ("min_new_tokens", resolved["max_new_tokens"]),
        ("num_return_sequences", max_sequences(resolved)),
    ):
        if name not in given:
            resolved[name] = min(resolved[name], maximum)
    return resolved


def expected_tokens(given: Given, resolved: Resolved, *, is_chat: bool) -> int:
    """New tokens that a request is expected to take; its limit, unless it left that open."""
    limit = int(resolved["max_new_tokens"])
    if is_chat and "max_new_tokens" not in given:
        return min(limit, max(_EXPECTED_CHAT_TOKENS, int(resolved["min_new_tokens"])))
    return limit


def neutral_options(**options: Any) -> Resolved:
    """Options of a run that takes the likeliest tokens, with the given ones."""
    neutral = {name: option.neutral for name, option in OPTIONS.items() if option.on_device}
    others = {
        "logprobs": None,
        "prompt_logprobs": None,
        "stop": (),
        "num_return_sequences": 1,
        "biases": (),
    }
    return neutral | others | options


def max_sequences(resolved: Resolved) -> int:
    """Maximum number of sequences for a request with these options."""
    if resolved["num_beams"] > 1:
        return int(resolved["num_beams"])
    if resolved["max_new_tokens"] == 0:
        return 1
    return MAX_RETURN_SEQUENCES if resolved["do_sample"] else 1


def default_biases(given: Given, model: ServedModel) -> int:
    """Number of biases that the checkpoint adds to those of a request."""
    return sum(len(model.default_options.get(name, ())) for name in _inherited(given))


def _inherited(given: Given) -> Iterator[str]:
    """Options that become biases and are the checkpoint's, as the request has none of the kind."""
    yield from {"logit_bias", "suppress_tokens"} - given.keys()
    # The two ways to ban words replace the checkpoint's bans together.
    if "bad_words" not in given and "bad_words_token_ids" not in given:
        yield "bad_words_token_ids"


def _value(name: str, given: Given, model: ServedModel) -> Any:
    return given[name] if name in given else model.default_options.get(name, OPTIONS[name].default)


def _do_sample(given: Given, model: ServedModel) -> bool:
    if "do_sample" in given:
        return bool(given["do_sample"])
    implied = any(OPTIONS[name].needs is Needs.SAMPLING for name in given)
    return implied or bool(_value("do_sample", given, model))


def _num_beams(given: Given, model: ServedModel) -> int:
    if "num_beams" in given:
        return int(given["num_beams"])
    # logprobs are requested, and cannot be computed with beam search; or no token is.
    if given.get("logprobs", 0) > 0 or given.get("max_new_tokens") == 0:
        return 1
    return min(model.max_beams, int(_value("num_beams", given, model)))


def _max_new_tokens(given: Given, model: ServedModel, room: int, *, is_chat: bool) -> int:
    if "max_new_tokens" in given:
        return int(given["max_new_tokens"])
    default = int(_value("max_new_tokens", given, model))
    if model.default_max_length:
        default = max(1, model.default_max_length - _prompt_tokens(model, room))
    if is_chat:
        default = max(default, _CHAT_TOKENS)
    return min(room, max(default, int(given.get("min_new_tokens", 0))))


def _min_new_tokens(given: Given, model: ServedModel, room: int) -> int:
    if "min_new_tokens" in given or not model.default_min_length:
        return int(_value("min_new_tokens", given, model))
    return max(0, model.default_min_length - _prompt_tokens(model, room))


def _prompt_tokens(model: ServedModel, room: int) -> int:
    return model.max_length - room


def _biases(
    given: Given,
    model: ServedModel,
    bad_words: Sequence[Sequence[int]],
    eos_token_ids: Sequence[int],
) -> list[Bias]:
    lists = {name: given.get(name, ()) for name in BIASING}
    lists |= {name: model.default_options.get(name, ()) for name in _inherited(given)}
    biases: list[Bias] = [((token,), bias) for token, bias in lists["logit_bias"]]
    bans = _bans([*bad_words, *lists["bad_words_token_ids"]], eos_token_ids)
    suppressed = (((token,), BAN) for token in dict.fromkeys(lists["suppress_tokens"]))
    return [*biases, *bans, *suppressed]


def _bans(runs: Iterable[Sequence[int]], eos_token_ids: Sequence[int]) -> Iterator[Bias]:
    """Biases that ban sequences of tokens, each once.

    A single end token cannot be banned; as in Transformers, such a ban is ignored.
    """
    for run in dict.fromkeys(tuple(run) for run in runs):
        if not (len(run) == 1 and run[0] in eos_token_ids):
            yield run, BAN
