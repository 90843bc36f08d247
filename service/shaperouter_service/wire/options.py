"""Conversion of generation options to and from messages, by the table of options."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shaperouter.v1 import generation_pb2, worker_pb2
from shaperouter_service.generation.limits import MAX_BIASES
from shaperouter_service.generation.option import EarlyStopping, Kind
from shaperouter_service.generation.option_table import OPTIONS
from shaperouter_service.generation.resolution import Resolved

# The first value of the message's enum is never sent.
_FIRST_STOPPING = int(generation_pb2.EARLY_STOPPING_HEURISTIC)


def _early_stopping(value: int) -> EarlyStopping | int:
    """The value of the enum; what is none stays, to be refused."""
    known = 0 <= value - _FIRST_STOPPING < len(EarlyStopping)
    return EarlyStopping(value - _FIRST_STOPPING) if known else value


class _Entries(Sequence[Any]):
    """Too many entries, converted only when they are read: a message has room for 300,000."""

    def __init__(self, entries: Any, convert: Callable[[Any], Any]) -> None:
        self._entries, self._convert = entries, convert

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(map(self._convert, self._entries[index]))
        return self._convert(self._entries[index])


def _entries(convert: Callable[[Any], Any]) -> Callable[[Any], Sequence[Any]]:
    def converted(entries: Any) -> Sequence[Any]:
        if len(entries) > MAX_BIASES:
            return _Entries(entries, convert)
        return tuple(map(convert, entries))

    return converted


_FROM_MESSAGE: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.EARLY_STOPPING: _early_stopping,
    Kind.TOKENS: tuple,
    Kind.TEXTS: tuple,
    Kind.LOGIT_BIAS: _entries(lambda entry: (entry.token_id, entry.bias)),
    Kind.WORDS: tuple,
    Kind.RUNS: _entries(lambda run: tuple(run.ids)),
}
_TO_MESSAGE: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.EARLY_STOPPING: lambda value: value + _FIRST_STOPPING,
    Kind.LOGIT_BIAS: lambda entries: [
        generation_pb2.LogitBias(token_id=token, bias=bias) for token, bias in entries
    ],
    Kind.RUNS: lambda runs: [generation_pb2.TokenIds(ids=run) for run in runs],
}

# Options with a field of their own in `RunOptions`; the others on the device are in `further`.
_OWN = OPTIONS.keys() & worker_pb2.RunOptions.DESCRIPTOR.fields_by_name.keys()
_FURTHER = {name for name, option in OPTIONS.items() if option.on_device} - _OWN


def options_from_message(message: generation_pb2.GenerationOptions) -> dict[str, Any]:
    """The options that a message has, by name."""
    return {field.name: _from_message(field.name, value) for field, value in message.ListFields()}


def options_to_message(options: Mapping[str, Any]) -> generation_pb2.GenerationOptions:
    """The message of options."""
    return generation_pb2.GenerationOptions(**_fields(options))


def run_options_to_message(resolved: Resolved) -> worker_pb2.RunOptions:
    """The message of resolved options."""
    further = {name: resolved[name] for name in _FURTHER if resolved[name] != OPTIONS[name].neutral}
    return worker_pb2.RunOptions(
        **_fields({name: resolved[name] for name in _OWN}),
        biases=[
            worker_pb2.SequenceBias(token_ids=token_ids, bias=bias)
            for token_ids, bias in resolved["biases"]
        ],
        further=options_to_message(further) if further else None,
    )


def run_options_from_message(message: worker_pb2.RunOptions) -> Resolved:
    """The resolved options of a message."""
    further = options_from_message(message.further)
    options = {name: further.get(name, OPTIONS[name].neutral) for name in _FURTHER}
    for name in _OWN:
        field: Any = name
        options[name] = _from_message(name, getattr(message, field))
    if not message.HasField("logprobs"):
        options["logprobs"] = None
    if not message.HasField("prompt_logprobs"):
        options["prompt_logprobs"] = None
    if not message.early_stopping:
        options["early_stopping"] = EarlyStopping.HEURISTIC
    options["biases"] = tuple((tuple(bias.token_ids), bias.bias) for bias in message.biases)
    return options


def _from_message(name: str, value: Any) -> Any:
    convert = _FROM_MESSAGE.get(OPTIONS[name].kind)
    return convert(value) if convert else value


def _fields(options: Mapping[str, Any]) -> dict[str, Any]:
    fields = {}
    for name, value in options.items():
        convert = _TO_MESSAGE.get(OPTIONS[name].kind)
        fields[name] = value if convert is None or value is None else convert(value)
    return fields
