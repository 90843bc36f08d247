"""Conversion of options to and from their message."""

from collections.abc import Callable, Mapping
from typing import Any

from shaperouter import _values
from shaperouter._errors import InvalidArgumentError
from shaperouter._option import Kind
from shaperouter._options import OPTIONS, GenerationOptions
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
    fields = _values.fields(options, _CHECKS)
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
        match _KINDS.get(name):
            case Kind.EARLY_STOPPING:
                known = {told: python for python, told in _EARLY_STOPPING}
                if value in known:  # otherwise the service is newer than this client
                    options[name] = known[value]
            case Kind.LOGIT_BIAS:
                options[name] = {entry.token_id: entry.bias for entry in value}
            case Kind.WORDS:
                options.setdefault(name, []).extend(value)
            case Kind.TOKENS | Kind.TEXTS:
                options[name] = tuple(value)
            case None:
                if name == "bad_words_token_ids":
                    words = options.setdefault("bad_words", [])
                    words.extend(tuple(run.ids) for run in value)
            case _:
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


# The kind of each option.
_KINDS = {option.name: option.kind for option in OPTIONS}
# Functions that check the values of a kind and convert them to their field of the message.
_TO_FIELD: dict[Kind, Callable[[str, object], Any]] = {
    Kind.FLAG: _values.flag,
    Kind.COUNT: _count,
    Kind.SEED: _seed,
    Kind.NUMBER: _values.number,
    Kind.TOKEN: _count,
    Kind.EARLY_STOPPING: _early_stopping,
    Kind.TOKENS: _values.integers,
    Kind.LANGUAGE: _values.text,
    Kind.TEXT: _values.text,
    Kind.TEXTS: _stop,
    Kind.LOGIT_BIAS: _logit_bias,
    Kind.WORDS: _bad_words,
}
_CHECKS = {name: _TO_FIELD[kind] for name, kind in _KINDS.items()}
