"""Validation of requests: every violation names the field, the limit and the value received.

This module checks source, prompt and options by themselves; contradictions.py compares options with
each other. preparation.py uses both.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from shaperouter.v1 import generation_pb2, model_pb2
from shaperouter_service.api.options import default_biases, widest_beams
from shaperouter_service.errors import Violation
from shaperouter_service.generation import limits

GenerateAny = generation_pb2.GenerateRequest | generation_pb2.GenerateStreamRequest
Options = generation_pb2.GenerationOptions

# Maximum violations reported for one list: statuses travel in headers, which gRPC limits to a few
# kilobytes.
MOST_OF_A_LIST = 3


class TokenLimit(NamedTuple):
    """A maximum number of tokens, and the reason for it."""

    tokens: int
    reason: str


# The input: text or token ids, and for a decoder with an encoder, its prompt likewise.


def input_violations(request: GenerateAny, model: model_pb2.Model) -> Iterator[Violation]:
    """Violations of text or token ids before they are tokenized."""
    if not request.HasField("text") and not request.HasField("token_ids"):
        description = "one of text and token_ids must be set, got none"
        yield Violation(field="text", description=description)
    limit = _source_limit(model) if has_encoder(model) else _prompt_limit(model)
    yield from _form_violations(request, model, "text", "token_ids", limit)


def decoder_input_violations(request: GenerateAny, model: model_pb2.Model) -> Iterator[Violation]:
    """Violations of a decoder's prompt, which may be left out, before it is tokenized."""
    fields: tuple[Any, Any] = "decoder_text", "decoder_token_ids"
    if not has_encoder(model):
        for field in fields:
            if request.HasField(field):
                description = f"must not be set: model {model.name} has no encoder"
                yield Violation(field=field, description=description)
        return
    yield from _form_violations(request, model, *fields, _prompt_limit(model))


def _form_violations(
    request: GenerateAny,
    model: model_pb2.Model,
    text_field: Any,
    ids_field: Any,
    limit: TokenLimit,
) -> Iterator[Violation]:
    text, ids = getattr(request, text_field), getattr(request, ids_field).ids
    has_text, has_ids = request.HasField(text_field), request.HasField(ids_field)
    if has_text and has_ids:
        description = f"must not be set together with {ids_field}"
        yield Violation(field=text_field, description=description)
    elif has_text:
        if not text:
            yield Violation(field=text_field, description="must not be empty")
        elif not model.tokenizer:
            description = f"model {model.name} has no tokenizer; send {ids_field}"
            yield Violation(field=text_field, description=description)
        else:
            yield from text_violations(model, text_field, text, limit)
    elif has_ids and not ids:
        yield Violation(field=f"{ids_field}.ids", description="must not be empty, got 0 ids")
    elif has_ids:
        # Look no further than the limit: longer lists are refused without reading them.
        longest = max(model.max_length, model.max_source_length)
        yield from _id_violations(f"{ids_field}.ids", ids[:longest], model, most=1)


def text_violations(
    model: model_pb2.Model, field: str, text: str, limit: TokenLimit
) -> Iterator[Violation]:
    """Checks that a text is not too long to be tokenized.

    Args:
        model: A model with a tokenizer.
        field: The field of the text.
        text: The text.
        limit: Limit of its tokens.
    """
    most = limit.tokens * model.characters_per_token
    if len(text) > most:
        description = (
            f"must have at most {most} characters ({model.characters_per_token} for each of "
            f"{limit.tokens} tokens, {limit.reason}), got {len(text)}"
        )
        yield Violation(field=field, description=description)


def prompt_violations(
    model: model_pb2.Model, field: str, prompt: Sequence[int]
) -> Iterator[Violation]:
    """Violations of a prompt's tokens, if there were none before.

    Args:
        model: The model that continues it.
        field: The field of the prompt.
        prompt: Its tokens; with an encoder, the decoder's prompt with its start token.
    """
    yield from _token_violations(model, field, prompt, _prompt_limit(model))


def source_violations(
    model: model_pb2.Model, field: str, source: Sequence[int]
) -> Iterator[Violation]:
    """Violations of a source's tokens, likewise."""
    yield from _token_violations(model, field, source, _source_limit(model))


def _prompt_limit(model: model_pb2.Model) -> TokenLimit:
    return TokenLimit(model.max_length - 1, f"max_length of {model.name} less one to generate")


def _source_limit(model: model_pb2.Model) -> TokenLimit:
    return TokenLimit(model.max_source_length, f"max_source_length of {model.name}")


def has_encoder(model: model_pb2.Model) -> bool:
    """Whether a model answers a source instead of continuing a prompt."""
    return model.kind == model_pb2.MODEL_KIND_ENCODER_DECODER


def _token_violations(
    model: model_pb2.Model, field: str, tokens: Sequence[int], limit: TokenLimit
) -> Iterator[Violation]:
    if not tokens:
        yield Violation(field=field, description="must not be empty, got 0 tokens")
    if len(tokens) > limit.tokens:
        rule = f"must have at most {limit.tokens} tokens ({limit.reason})"
        yield Violation(field=field, description=f"{rule}, got {len(tokens)}")
    for token in islice(_unknown(tokens[: limit.tokens], model), 1):
        # The tokenizer has more tokens than the model has embeddings.
        yield Violation(field=field, description=f"{_must_tokenize(model)}, got {token[1]}")


# Checks of single options.


def option_violations(options: Options, model: model_pb2.Model) -> Iterator[Violation]:
    """Violations of options, whatever the prompt and the other options are."""
    yield from _number_violations(options, model)
    if options.HasField("early_stopping") and options.early_stopping not in (1, 2, 3):
        names = ", ".join(generation_pb2.EarlyStopping.keys()[1:])
        yield Violation(
            field="options.early_stopping",
            description=f"must be one of {names}, got {options.early_stopping}",
        )
    yield from _count_violations(
        "options.eos_token_ids", len(options.eos_token_ids), limits.MAX_EOS_TOKENS, "ids"
    )
    yield from _id_violations(
        "options.eos_token_ids", options.eos_token_ids[: limits.MAX_EOS_TOKENS], model
    )
    yield from _stop_violations(options, model)
    yield from _bias_count_violations(options, model)
    yield from islice(_bias_violations(options, model), MOST_OF_A_LIST)
    yield from islice(_bad_word_violations(options, model), MOST_OF_A_LIST)


def room_violations(
    options: Options, model: model_pb2.Model, prompt_tokens: int
) -> Iterator[Violation]:
    """Options that need more new tokens than the prompt leaves of the model's length."""
    room = model.max_length - prompt_tokens
    for name in ("max_new_tokens", "min_new_tokens"):
        value = getattr(options, name)
        if value > room:
            yield Violation(
                field=f"options.{name}",
                description=f"must be at most {room} after a prompt of {prompt_tokens} tokens "
                f"(max_length of {model.name} is {model.max_length}), got {value}",
            )


def word_violations(model: model_pb2.Model, words: Sequence[Sequence[int]]) -> Iterator[Violation]:
    """Violations of banned words' tokens."""
    wrong = (
        Violation(field=f"options.bad_words[{index}]", description=description)
        for index, word in enumerate(words)
        for description in _wrong_word(word, model)
    )
    yield from islice(wrong, MOST_OF_A_LIST)


def without(options: Options, violations: Sequence[Violation]) -> Options:
    """The options that are valid by themselves."""
    sound = Options()
    sound.CopyFrom(options)
    for violation in violations:
        field: Any = violation.field.removeprefix("options.").partition("[")[0]
        sound.ClearField(field)
    return sound


def _number_violations(options: Options, model: model_pb2.Model) -> Iterator[Violation]:
    ranges: dict[Any, tuple[float, float]] = {
        "temperature": (limits.MIN_TEMPERATURE, limits.MAX_TEMPERATURE),
        "seed": (0, 2**63 - 1),
        "top_k": (0, model.vocab_size),
        "min_p": (0.0, 1.0),
        "repetition_penalty": (limits.MIN_REPETITION_PENALTY, limits.MAX_REPETITION_PENALTY),
        "num_beams": (1, widest_beams(model)),
        "length_penalty": (limits.MIN_LENGTH_PENALTY, limits.MAX_LENGTH_PENALTY),
        "logprobs": (0, limits.MAX_TOP_LOGPROBS),
    }
    remarks = {
        "temperature": " (for greedy decoding set do_sample to false)",
        "top_k": f" (vocab_size of {model.name})",
        "num_beams": f" (maximum of {model.name})",
    }
    least: dict[Any, int] = {
        "max_new_tokens": 1,
        "min_new_tokens": 0,
        "no_repeat_ngram_size": 0,
        "num_return_sequences": 1,
    }
    # Not `value < low`: NaN must not pass, and no comparison with it is true.
    for name, (low, high) in ranges.items():
        value = getattr(options, name)
        if options.HasField(name) and not low <= value <= high:
            rule = f"must be from {shown(low)} to {shown(high)}{remarks.get(name, '')}"
            yield Violation(field=f"options.{name}", description=f"{rule}, got {shown(value)}")
    for name, low in least.items():
        value = getattr(options, name)
        if options.HasField(name) and value < low:
            description = f"must be at least {low}, got {value}"
            yield Violation(field=f"options.{name}", description=description)
    shares: tuple[Any, ...] = ("top_p", "typical_p")
    for name in shares:
        value = getattr(options, name)
        if options.HasField(name) and not 0 < value <= 1:
            description = f"must be above 0 and at most 1, got {shown(value)}"
            yield Violation(field=f"options.{name}", description=description)


def _stop_violations(options: Options, model: model_pb2.Model) -> Iterator[Violation]:
    if options.stop and not model.tokenizer:
        description = (
            f"must not be set: model {model.name} has no tokenizer, so it generates no text"
        )
        yield Violation(field="options.stop", description=description)
    yield from _count_violations("options.stop", len(options.stop), limits.MAX_STOP, "strings")
    for index, text in enumerate(options.stop[: limits.MAX_STOP]):
        if not 1 <= len(text) <= limits.MAX_STOP_CHARACTERS:
            yield Violation(
                field=f"options.stop[{index}]",
                description=f"must have from 1 to {limits.MAX_STOP_CHARACTERS} characters, got "
                f"{len(text)}",
            )


def _bias_count_violations(options: Options, model: model_pb2.Model) -> Iterator[Violation]:
    lists = {
        "logit_bias": len(options.logit_bias),
        "bad_words": len(options.bad_words),
        "bad_words_token_ids": len(options.bad_words_token_ids),
    }
    count, inherited = sum(lists.values()), default_biases(options, model)
    most = limits.MAX_BIASES - inherited
    if count and count > most:
        beside = f" besides the checkpoint's {inherited}" if inherited else ""
        for name in (name for name, length in lists.items() if length):
            yield Violation(
                field=f"options.{name}",
                description=f"{', '.join(lists)} must have at most {most} entries in "
                f"total{beside}, got {count}",
            )
            return


def _bias_violations(options: Options, model: model_pb2.Model) -> Iterator[Violation]:
    seen = set()
    for index, entry in enumerate(options.logit_bias[: limits.MAX_BIASES]):
        field = f"options.logit_bias[{index}]"
        if not 0 <= entry.token_id < model.vocab_size:
            description = f"{_vocabulary(model)}, got {entry.token_id}"
            yield Violation(field=f"{field}.token_id", description=description)
        elif entry.token_id in seen:
            description = f"must occur only once, got {entry.token_id} again"
            yield Violation(field=f"{field}.token_id", description=description)
        seen.add(entry.token_id)
        if not limits.MIN_BIAS <= entry.bias <= limits.MAX_BIAS:
            yield Violation(
                field=f"{field}.bias",
                description=f"must be from {limits.MIN_BIAS:g} to {limits.MAX_BIAS:g}, got "
                f"{entry.bias:g}",
            )


def _bad_word_violations(options: Options, model: model_pb2.Model) -> Iterator[Violation]:
    if options.bad_words and not model.tokenizer:
        description = f"model {model.name} has no tokenizer; send bad_words_token_ids"
        yield Violation(field="options.bad_words", description=description)
    else:
        for index, word in enumerate(options.bad_words[: limits.MAX_BIASES]):
            limit = TokenLimit(limits.MAX_BIAS_TOKENS, "the maximum of a banned word")
            yield from text_violations(model, f"options.bad_words[{index}]", word, limit)
    for index, run in enumerate(options.bad_words_token_ids[: limits.MAX_BIASES]):
        field = f"options.bad_words_token_ids[{index}].ids"
        if not 1 <= len(run.ids) <= limits.MAX_BIAS_TOKENS:
            yield Violation(
                field=field,
                description=f"must have from 1 to {limits.MAX_BIAS_TOKENS} ids, got {len(run.ids)}",
            )
        yield from _id_violations(field, run.ids[: limits.MAX_BIAS_TOKENS], model)


def _wrong_word(word: Sequence[int], model: model_pb2.Model) -> Iterator[str]:
    if not 1 <= len(word) <= limits.MAX_BIAS_TOKENS:
        yield f"must have from 1 to {limits.MAX_BIAS_TOKENS} tokens, got {len(word)}"
    for _, token in islice(_unknown(word[: limits.MAX_BIAS_TOKENS], model), 1):
        yield f"{_must_tokenize(model)}, got {token}"


# Helpers of the checks above.


def _count_violations(field: str, count: int, most: int, what: str) -> Iterator[Violation]:
    if count > most:
        yield Violation(field=field, description=f"must have at most {most} {what}, got {count}")


def _id_violations(
    field: str, ids: Sequence[int], model: model_pb2.Model, *, most: int = MOST_OF_A_LIST
) -> Iterator[Violation]:
    for index, token in islice(_unknown(ids, model), most):
        yield Violation(field=f"{field}[{index}]", description=f"{_vocabulary(model)}, got {token}")


def _unknown(ids: Sequence[int], model: model_pb2.Model) -> Iterator[tuple[int, int]]:
    """The ids that the model does not know, with their indices."""
    return ((i, token) for i, token in enumerate(ids) if not 0 <= token < model.vocab_size)


def _vocabulary(model: model_pb2.Model) -> str:
    return f"must be from 0 to {model.vocab_size - 1} (vocab_size - 1)"


def _must_tokenize(model: model_pb2.Model) -> str:
    return f"must tokenize to ids from 0 to {model.vocab_size - 1} (vocab_size of {model.name} - 1)"


def shown(value: float | str) -> str:
    """A value or a limit in its shortest form."""
    return f"{value:g}" if isinstance(value, float) else str(value)
