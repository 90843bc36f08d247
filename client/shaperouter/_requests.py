"""Building request messages; what the wire cannot carry is refused with the field's name."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shaperouter import _values
from shaperouter._errors import InvalidArgumentError
from shaperouter._option_message import options_to_message
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
    return model_pb2.GetModelRequest(name=_values.text("name", name))


def graphs_request(model: str, include_cold: bool) -> graph_pb2.ListGraphsRequest:
    """The request of ``ListGraphs``."""
    return graph_pb2.ListGraphsRequest(
        model=_values.text("model", model), include_cold=_values.flag("include_cold", include_cold)
    )


def _fields(prompt: str | Sequence[int], model: str, options: GenerationOptions) -> dict[str, Any]:
    """The fields that both requests to generate have."""
    fields: dict[str, Any] = {
        "model": _values.text("model", model),
        "options": options_to_message(options),
    }
    if isinstance(prompt, str):
        fields["text"] = _values.text("text", prompt)
    elif isinstance(prompt, bytes | bytearray | Mapping) or not isinstance(prompt, Iterable):
        raise InvalidArgumentError.of(
            "prompt", f"must be a str or token ids (integers), got {type(prompt).__name__}"
        )
    else:
        fields["token_ids"] = generation_pb2.TokenIds(ids=_values.integers("token_ids.ids", prompt))
    return fields
