"""Conversion of options to and from their message."""

from collections.abc import Callable, Mapping
from typing import Any

from shaperouter import _values
from shaperouter._errors import InvalidArgumentError
from shaperouter._options import GenerationOptions
from shaperouter.v1 import generation_pb2

# Transformers' values of early_stopping.
_EARLY_STOPPING: tuple[tuple[bool | str, generation_pb2.EarlyStopping], ...] = (
    (False, generation_pb2.EARLY_STOPPING_HEURISTIC),
    (True, generation_pb2.EARLY_STOPPING_FIRST),
    ("never", generation_pb2.EARLY_STOPPING_NEVER),
)


def options_to_message(options: GenerationOptions) -> generation_pb2.GenerationOptions:
    """Converts options to their message, without those that are None.

    Raises:
        TypeError: There is no such option.
        InvalidArgumentError: The message cannot contain a value.
    """
    unknown = options.keys() - _TO_FIELD.keys()
    if unknown:
        raise TypeError(f"unknown option {min(unknown)!r}; the options are {', '.join(_TO_FIELD)}")
    fields: dict[str, Any] = {
        name: _TO_FIELD[name](f"options.{name}", value)
        for name, value in options.items()
        if value is not None
    }
    words, runs = fields.pop("bad_words", ((), ()))
    message = generation_pb2.GenerationOptions(**fields)
    message.bad_words.extend(words)
    message.bad_words_token_ids.extend(runs)
    return message


def options_from_message(message: generation_pb2.GenerationOptions) -> GenerationOptions:
    """Reads options from their message."""
    options: Any = {}
    for descriptor, value in message.ListFields():
        name = descriptor.name
        match name:
            case "early_stopping":
                known = {told: python for python, told in _EARLY_STOPPING}
                if value in known:  # otherwise the service is newer than this client
                    options[name] = known[value]
            case "logit_bias":
                options[name] = {entry.token_id: entry.bias for entry in value}
            case "bad_words" | "bad_words_token_ids":
                words = [word if isinstance(word, str) else tuple(word.ids) for word in value]
                options.setdefault("bad_words", []).extend(words)
            case "eos_token_ids" | "stop":
                options[name] = tuple(value)
            case _ if name in _TO_FIELD:
                options[name] = value
    known_options: GenerationOptions = options
    return known_options


def _count(field: str, value: object) -> int:
    return _values.integer(field, value, bits=32)


def _seed(field: str, value: object) -> int:
    return _values.integer(field, value, bits=64)


def _early_stopping(field: str, value: object) -> generation_pb2.EarlyStopping:
    for python, told in _EARLY_STOPPING:
        # Compare types as well: 0 and 1 equal False and True.
        if type(value) is type(python) and value == python:
            return told
    description = f'must be False, True or "never", got {_values.shown(value)}'
    raise InvalidArgumentError.of(field, description)


def _logit_bias(field: str, value: object) -> list[generation_pb2.LogitBias]:
    if not isinstance(value, Mapping):
        description = f"must be numbers by token id, got {_values.shown(value)}"
        raise InvalidArgumentError.of(field, description)
    return [
        generation_pb2.LogitBias(
            token_id=_values.integer(f"{field}[{index}].token_id", token, bits=32),
            bias=_values.number(f"{field}[{index}].bias", bias),
        )
        for index, (token, bias) in enumerate(value.items())
    ]


def _bad_words(field: str, value: object) -> tuple[list[str], list[generation_pb2.TokenIds]]:
    words, runs = [], []
    for index, word in enumerate(_values.items(field, value, "words")):
        if isinstance(word, str):
            words.append(_values.text(f"{field}[{index}]", word))
        else:
            ids = _values.integers(f"{field}[{index}]", word)
            runs.append(generation_pb2.TokenIds(ids=ids))
    return words, runs


def _stop(field: str, value: object) -> list[str]:
    strings = [value] if isinstance(value, str) else _values.items(field, value, "strings")
    return [_values.text(f"{field}[{index}]", text) for index, text in enumerate(strings)]


# Functions that check an option's value and convert it to its field of the message.
_TO_FIELD: dict[str, Callable[[str, object], Any]] = {
    "max_new_tokens": _count,
    "min_new_tokens": _count,
    "eos_token_ids": _values.integers,
    "stop": _stop,
    "do_sample": _values.flag,
    "temperature": _values.number,
    "top_k": _count,
    "top_p": _values.number,
    "min_p": _values.number,
    "typical_p": _values.number,
    "seed": _seed,
    "num_beams": _count,
    "length_penalty": _values.number,
    "early_stopping": _early_stopping,
    "num_return_sequences": _count,
    "repetition_penalty": _values.number,
    "no_repeat_ngram_size": _count,
    "logit_bias": _logit_bias,
    "bad_words": _bad_words,
    "logprobs": _count,
    "echo": _values.flag,
}
