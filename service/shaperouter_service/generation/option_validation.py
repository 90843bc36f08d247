"""Validation of options by themselves: each violation names the field, the limit and the value.

`contradictions` compares options with each other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from shaperouter_service.errors import Violation
from shaperouter_service.generation import limits
from shaperouter_service.generation.option import (
    INT32_MAX,
    NO_TOKEN,
    EarlyStopping,
    Kind,
    ModelLimit,
    Option,
    Range,
    shown,
)
from shaperouter_service.generation.option_table import OPTIONS
from shaperouter_service.generation.resolution import BIASING, Given, default_biases
from shaperouter_service.generation.text_validation import (
    MAX_VIOLATIONS_OF_LIST,
    TokenLimit,
    id_violations,
    text_violations,
    tokenized_violations,
    vocabulary,
)
from shaperouter_service.routing.served_model import ServedModel

_REMARKS = {ModelLimit.VOCABULARY: "vocab_size of {name}", ModelLimit.BEAMS: "maximum of {name}"}


def option_violations(given: Given, model: ServedModel) -> Iterator[Violation]:
    """Violations of options, whatever the prompt and the other options are."""
    for name, value in given.items():
        option = OPTIONS[name]
        if option.range is not None:
            yield from _range_violations(option, option.range, value, model)
        if check := _CHECKS.get(option.kind):
            yield from islice(check(option, value, model), MAX_VIOLATIONS_OF_LIST)
    yield from _bias_count_violations(given, model)


def room_violations(given: Given, model: ServedModel, prompt_tokens: int) -> Iterator[Violation]:
    """Options that need more new tokens than the prompt leaves of the model's length."""
    room = model.max_length - prompt_tokens
    for name in ("max_new_tokens", "min_new_tokens"):
        if given.get(name, 0) > room:
            yield Violation(
                field=f"options.{name}",
                description=f"must be at most {room} after a prompt of {prompt_tokens} tokens "
                f"(max_length of {model.name} is {model.max_length}), got {given[name]}",
                reason=limits.CONTEXT_LENGTH_EXCEEDED,
            )


def word_violations(model: ServedModel, words: Sequence[Sequence[int]]) -> Iterator[Violation]:
    """Violations of banned words' tokens."""
    wrong = (
        Violation(field=f"options.bad_words[{index}]", description=description)
        for index, word in enumerate(words)
        for description in _wrong_word(word, model)
    )
    yield from islice(wrong, MAX_VIOLATIONS_OF_LIST)


def without(given: Given, violations: Sequence[Violation]) -> Given:
    """The options that are valid by themselves."""
    wrong = {each.field.removeprefix("options.").partition("[")[0] for each in violations}
    return {name: value for name, value in given.items() if name not in wrong}


def _range_violations(
    option: Option, limit: Range, value: Any, model: ServedModel
) -> Iterator[Violation]:
    high, told, remark = limit.high, None, option.hint
    if isinstance(high, ModelLimit):
        remark = _REMARKS[high].format(name=model.name)
        high = getattr(model, high)
    if high is None and value > INT32_MAX:
        told = shown(INT32_MAX)
    elif high is not None:
        told = shown(high)
    if not limit.contains(value, INT32_MAX if high is None else high):
        rule = f"must be {limit.rule(told)}{f' ({remark})' if remark else ''}"
        yield Violation(field=_field(option), description=f"{rule}, got {shown(value)}")


def _early_stopping(option: Option, value: Any, _: ServedModel) -> Iterator[Violation]:
    if not isinstance(value, EarlyStopping):
        names = ", ".join(f"EARLY_STOPPING_{each.name}" for each in EarlyStopping)
        yield Violation(field=_field(option), description=f"must be one of {names}, got {value}")


def _token(option: Option, value: Any, model: ServedModel) -> Iterator[Violation]:
    if not NO_TOKEN <= value < model.vocab_size:
        description = f"{vocabulary(model)}, or {NO_TOKEN} for none, got {value}"
        yield Violation(field=_field(option), description=description)


def _tokens(option: Option, value: Any, model: ServedModel) -> Iterator[Violation]:
    yield from _count_violations(option, len(value), "ids")
    yield from id_violations(_field(option), value[: option.max_items], model)


def _needs_tokenizer(option: Option, model: ServedModel) -> Iterator[Violation]:
    if not model.has_tokenizer:
        description = (
            f"must not be set: model {model.name} has no tokenizer, so it generates no text"
        )
        yield Violation(field=_field(option), description=description)


def _text(option: Option, value: Any, model: ServedModel) -> Iterator[Violation]:
    yield from _needs_tokenizer(option, model)
    if not 1 <= len(value) <= option.max_items:
        description = f"must have from 1 to {option.max_items} characters, got {len(value)}"
        yield Violation(field=_field(option), description=description)


def _texts(option: Option, value: Any, model: ServedModel) -> Iterator[Violation]:
    yield from _needs_tokenizer(option, model)
    yield from _count_violations(option, len(value), "strings")
    for index, text in enumerate(value[: option.max_items]):
        if not 1 <= len(text) <= limits.MAX_STOP_CHARACTERS:
            yield Violation(
                field=f"{_field(option)}[{index}]",
                description=f"must have from 1 to {limits.MAX_STOP_CHARACTERS} characters, got "
                f"{len(text)}",
            )


def _logit_bias(option: Option, value: Any, model: ServedModel) -> Iterator[Violation]:
    seen = set()
    for index, (token, bias) in enumerate(value[: option.max_items]):
        field = f"{_field(option)}[{index}]"
        if not 0 <= token < model.vocab_size:
            description = f"{vocabulary(model)}, got {token}"
            yield Violation(field=f"{field}.token_id", description=description)
        elif token in seen:
            description = f"must occur only once, got {token} again"
            yield Violation(field=f"{field}.token_id", description=description)
        seen.add(token)
        if not limits.MIN_BIAS <= bias <= limits.MAX_BIAS:
            yield Violation(
                field=f"{field}.bias",
                description=f"must be from {limits.MIN_BIAS:g} to {limits.MAX_BIAS:g}, got "
                f"{bias:g}",
            )


def _words(option: Option, value: Any, model: ServedModel) -> Iterator[Violation]:
    if not model.has_tokenizer:
        description = f"model {model.name} has no tokenizer; send bad_words_token_ids"
        yield Violation(field=_field(option), description=description)
        return
    limit = TokenLimit(limits.MAX_BIAS_TOKENS, "the maximum of a banned word")
    for index, word in enumerate(value[: option.max_items]):
        yield from text_violations(model, f"{_field(option)}[{index}]", word, limit)


def _runs(option: Option, value: Any, model: ServedModel) -> Iterator[Violation]:
    for index, run in enumerate(value[: option.max_items]):
        field = f"{_field(option)}[{index}].ids"
        if not 1 <= len(run) <= limits.MAX_BIAS_TOKENS:
            yield Violation(
                field=field,
                description=f"must have from 1 to {limits.MAX_BIAS_TOKENS} ids, got {len(run)}",
            )
        yield from id_violations(field, run[: limits.MAX_BIAS_TOKENS], model)


_CHECKS: Mapping[Kind, Callable[[Option, Any, ServedModel], Iterator[Violation]]] = {
    Kind.EARLY_STOPPING: _early_stopping,
    Kind.TOKEN: _token,
    Kind.TOKENS: _tokens,
    Kind.TEXT: _text,
    Kind.TEXTS: _texts,
    Kind.LOGIT_BIAS: _logit_bias,
    Kind.WORDS: _words,
    Kind.RUNS: _runs,
}


def _bias_count_violations(given: Given, model: ServedModel) -> Iterator[Violation]:
    lists = {name: len(given[name]) for name in BIASING if name in given}
    count, inherited = sum(lists.values()), default_biases(given, model)
    maximum = limits.MAX_BIASES - inherited
    if lists and count > maximum:
        beside = f" besides the checkpoint's {inherited}" if inherited else ""
        yield Violation(
            field=f"options.{next(iter(lists))}",
            description=f"{', '.join(BIASING)} must have at most {maximum} entries in "
            f"total{beside}, got {count}",
        )


def _wrong_word(word: Sequence[int], model: ServedModel) -> Iterator[str]:
    if not 1 <= len(word) <= limits.MAX_BIAS_TOKENS:
        yield f"must have from 1 to {limits.MAX_BIAS_TOKENS} tokens, got {len(word)}"
    yield from tokenized_violations(word[: limits.MAX_BIAS_TOKENS], model)


def _count_violations(option: Option, count: int, what: str) -> Iterator[Violation]:
    if count > option.max_items:
        description = f"must have at most {option.max_items} {what}, got {count}"
        yield Violation(field=_field(option), description=description)


def _field(option: Option) -> str:
    return f"options.{option.name}"
