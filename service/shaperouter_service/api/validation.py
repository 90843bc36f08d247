"""Checks of a request: every violation names the field, the limit and the value received."""

import secrets
from collections.abc import Iterator, Sequence

from shaperouter.v1 import generation_pb2, model_pb2, worker_pb2
from shaperouter_service.errors import InvalidRequestError, Violation
from shaperouter_service.limits import MAX_EOS_TOKENS

DEFAULT_MAX_NEW_TOKENS = 64
# Far beyond what changes an answer, and well inside of what single precision divides by.
# Of seeds that the service chooses: what a JSON number holds exactly in every language.
SEED_BITS = 53
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-6, 1e6

GenerateAny = generation_pb2.GenerateRequest | generation_pb2.GenerateStreamRequest


def check_prompt(request: GenerateAny, model: model_pb2.Model) -> None:
    """Checks the prompt as it came, before it is tokenized.

    Raises:
        InvalidRequestError: It is missing, empty, there twice, or has ids out of the vocabulary.
    """
    has_text, has_ids = request.HasField("text"), request.HasField("token_ids")
    if has_text and has_ids:
        raise InvalidRequestError(
            Violation(field="text", description="must not be set together with token_ids")
        )
    if not has_text and not has_ids:
        raise InvalidRequestError(
            Violation(field="text", description="one of text and token_ids must be set, got none")
        )
    if has_text:
        if not request.text:
            raise InvalidRequestError(Violation(field="text", description="must not be empty"))
        if not model.tokenizer:
            raise InvalidRequestError(
                Violation(
                    field="text",
                    description=f"model {model.name} has no tokenizer; send token_ids",
                )
            )
        return
    ids = request.token_ids.ids
    if not ids:
        raise InvalidRequestError(
            Violation(field="token_ids.ids", description="must not be empty, got 0 ids")
        )
    # No further than a prompt can be: what is longer is refused for that, without reading it all.
    wrong = _out_of_vocabulary(ids[: model.max_length], model)
    if wrong is not None:
        raise InvalidRequestError(
            Violation(
                field=f"token_ids.ids[{wrong}]",
                description=f"must be from 0 to {model.vocab_size - 1} (vocab_size - 1), got "
                f"{ids[wrong]}",
            )
        )


def resolve_options(
    request: GenerateAny, model: model_pb2.Model, prompt: Sequence[int]
) -> worker_pb2.RunOptions:
    """Checks the options and the prompt's length, and fills in every default.

    Raises:
        InvalidRequestError: With all violations there are.
    """
    violations = [
        *_length_violations(request, model, len(prompt)),
        *_tokenizer_violations(request, model, prompt),
        *_option_violations(request.options, model),
    ]
    if violations:
        raise InvalidRequestError(*violations)
    options = request.options
    room = model.max_length - len(prompt)
    return worker_pb2.RunOptions(
        max_new_tokens=(
            options.max_new_tokens
            if options.HasField("max_new_tokens")
            else min(DEFAULT_MAX_NEW_TOKENS, room)
        ),
        do_sample=_do_sample(options, model),
        temperature=(
            options.temperature if options.HasField("temperature") else model.default_temperature
        ),
        seed=options.seed if options.HasField("seed") else secrets.randbits(SEED_BITS),
        eos_token_ids=options.eos_token_ids or model.eos_token_ids,
    )


def _out_of_vocabulary(ids: Sequence[int], model: model_pb2.Model) -> int | None:
    """The index of the first id that the model does not know."""
    return next((i for i, token in enumerate(ids) if not 0 <= token < model.vocab_size), None)


def _do_sample(options: generation_pb2.GenerationOptions, model: model_pb2.Model) -> bool:
    if options.HasField("do_sample"):
        return options.do_sample
    return options.HasField("temperature") or model.default_do_sample


def _length_violations(
    request: GenerateAny, model: model_pb2.Model, prompt_tokens: int
) -> Iterator[Violation]:
    field = "text" if request.HasField("text") else "token_ids.ids"
    room = model.max_length - prompt_tokens
    if prompt_tokens == 0:
        yield Violation(field=field, description="must not be empty, got 0 tokens")
    elif room < 1:
        yield Violation(
            field=field,
            description=f"must have at most {model.max_length - 1} tokens (max_length of "
            f"{model.name} less one to generate), got {prompt_tokens}",
        )
    elif request.options.max_new_tokens > room:
        yield Violation(
            field="options.max_new_tokens",
            description=f"must be at most {room} after a prompt of {prompt_tokens} tokens "
            f"(max_length of {model.name} is {model.max_length}), got "
            f"{request.options.max_new_tokens}",
        )


def _tokenizer_violations(
    request: GenerateAny, model: model_pb2.Model, prompt: Sequence[int]
) -> Iterator[Violation]:
    """Texts of whose tokens the model has no embedding: its tokenizer knows more than it does."""
    if not request.HasField("text"):
        return
    wrong = _out_of_vocabulary(prompt[: model.max_length], model)
    if wrong is not None:
        yield Violation(
            field="text",
            description=f"must tokenize to ids from 0 to {model.vocab_size - 1} (vocab_size of "
            f"{model.name} - 1), but its tokenizer gives {prompt[wrong]}",
        )


def _option_violations(
    options: generation_pb2.GenerationOptions, model: model_pb2.Model
) -> Iterator[Violation]:
    if options.HasField("max_new_tokens") and options.max_new_tokens < 1:
        yield Violation(
            field="options.max_new_tokens",
            description=f"must be at least 1, got {options.max_new_tokens}",
        )
    if options.HasField("temperature"):
        temperature = options.temperature
        if not MIN_TEMPERATURE <= temperature <= MAX_TEMPERATURE:
            yield Violation(
                field="options.temperature",
                description=f"must be from {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g} (for greedy "
                f"decoding set do_sample to false), got {temperature:g}",
            )
        elif options.HasField("do_sample") and not options.do_sample:
            yield Violation(
                field="options.temperature",
                description=f"contradicts do_sample = false, got {temperature:g}",
            )
    if options.HasField("seed") and options.seed < 0:
        yield Violation(
            field="options.seed",
            description=f"must be from 0 to 9223372036854775807, got {options.seed}",
        )
    if len(options.eos_token_ids) > MAX_EOS_TOKENS:
        yield Violation(
            field="options.eos_token_ids",
            description=f"must have at most {MAX_EOS_TOKENS} ids, got {len(options.eos_token_ids)}",
        )
    for index, token in enumerate(options.eos_token_ids[:MAX_EOS_TOKENS]):
        if not 0 <= token < model.vocab_size:
            yield Violation(
                field=f"options.eos_token_ids[{index}]",
                description=f"must be from 0 to {model.vocab_size - 1} (vocab_size - 1), got "
                f"{token}",
            )
