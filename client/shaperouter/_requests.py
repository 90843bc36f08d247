"""Building request messages.

The limits are the service's to check. Here is only refused what the wire cannot carry, so that a
wrong type or an integer beyond its field's width is reported with the field's name, like any other
wrong value.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shaperouter._errors import InvalidArgumentError
from shaperouter._options import GenerationOptions
from shaperouter.v1 import generation_pb2, graph_pb2, model_pb2


def generate_request(
    prompt: str | Sequence[int], model: str, options: GenerationOptions
) -> generation_pb2.GenerateRequest:
    """The request of ``Generate``."""
    return generation_pb2.GenerateRequest(**_fields(prompt, model, options))


def stream_request(
    prompt: str | Sequence[int], model: str, options: GenerationOptions
) -> generation_pb2.GenerateStreamRequest:
    """The request of ``GenerateStream``."""
    return generation_pb2.GenerateStreamRequest(**_fields(prompt, model, options))


def model_request(name: str) -> model_pb2.GetModelRequest:
    """The request of ``GetModel``."""
    return model_pb2.GetModelRequest(name=_text("name", name))


def graphs_request(model: str, include_cold: bool) -> graph_pb2.ListGraphsRequest:
    """The request of ``ListGraphs``."""
    return graph_pb2.ListGraphsRequest(
        model=_text("model", model), include_cold=_flag("include_cold", include_cold)
    )


def _fields(prompt: str | Sequence[int], model: str, options: GenerationOptions) -> dict[str, Any]:
    """The fields that both requests to generate have."""
    fields: dict[str, Any] = {"model": _text("model", model), "options": _options(options)}
    if isinstance(prompt, str):
        fields["text"] = _text("text", prompt)
    elif isinstance(prompt, bytes | bytearray | Mapping) or not isinstance(prompt, Iterable):
        raise InvalidArgumentError.of(
            "prompt", f"must be a str or token ids (integers), got {type(prompt).__name__}"
        )
    else:
        fields["token_ids"] = generation_pb2.TokenIds(ids=_integers("token_ids.ids", prompt))
    return fields


def _options(options: GenerationOptions) -> generation_pb2.GenerationOptions:
    unknown = options.keys() - GenerationOptions.__annotations__.keys()
    if unknown:
        raise TypeError(
            f"unknown option {min(unknown)!r}; "
            f"the options are {', '.join(GenerationOptions.__annotations__)}"
        )
    message = generation_pb2.GenerationOptions()
    if (max_new_tokens := options.get("max_new_tokens")) is not None:
        message.max_new_tokens = _integer("options.max_new_tokens", max_new_tokens, bits=32)
    if (do_sample := options.get("do_sample")) is not None:
        message.do_sample = _flag("options.do_sample", do_sample)
    if (temperature := options.get("temperature")) is not None:
        message.temperature = _number("options.temperature", temperature)
    if (seed := options.get("seed")) is not None:
        message.seed = _integer("options.seed", seed, bits=64)
    if (eos_token_ids := options.get("eos_token_ids")) is not None:
        message.eos_token_ids.extend(_integers("options.eos_token_ids", eos_token_ids))
    return message


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidArgumentError.of(field, f"must be a str, got {_shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError.of(
            field,
            f"cannot be encoded as UTF-8: character {error.start} is the lone surrogate "
            f"U+{ord(value[error.start]):04X}",
        ) from None
    return value


def _flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgumentError.of(field, f"must be True or False, got {_shown(value)}")
    return value


def _integer(field: str, value: object, *, bits: int) -> int:
    try:
        integer = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        integer = None
    if integer is None or isinstance(value, bool):
        raise InvalidArgumentError.of(field, f"must be an integer, got {_shown(value)}")
    if not -(2 ** (bits - 1)) <= integer < 2 ** (bits - 1):
        raise InvalidArgumentError.of(
            field, f"must fit a signed {bits}-bit integer, got {_shown(integer)}"
        )
    return integer


def _integers(field: str, values: object) -> list[int]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidArgumentError.of(field, f"must be integers, got {_shown(values)}")
    return [_integer(f"{field}[{i}]", value, bits=32) for i, value in enumerate(values)]


def _number(field: str, value: object) -> float:
    """A number for a 64-bit field; infinities and NaN fit, and are the service's to refuse."""
    if isinstance(value, str | bytes | bool):
        raise InvalidArgumentError.of(field, f"must be a number, got {_shown(value)}")
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        description = f"must fit a 64-bit float, got {_shown(value)}"
    except (TypeError, ValueError):
        description = f"must be a number, got {_shown(value)}"
    raise InvalidArgumentError.of(field, description)


def _shown(value: object) -> str:
    """A wrong value in a message: short, with its type when that is what is wrong."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if abs(value) < 10**40 else f"an integer of {value.bit_length()} bits"
    shown = repr(value)
    return f"{shown if len(shown) <= 60 else shown[:59] + '…'} ({type(value).__name__})"
