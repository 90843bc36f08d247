"""Construction of request messages; values that they cannot contain are refused by field name."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shaperouter import _values
from shaperouter._enums import by_member
from shaperouter._errors import InvalidArgumentError
from shaperouter._option_message import options_to_message
from shaperouter._options import GenerationOptions
from shaperouter._signature import KINDS, GraphKind, Signature
from shaperouter.v1 import generation_pb2, graph_pb2, model_pb2, signature_pb2

_KINDS = by_member(GraphKind, signature_pb2.GraphKind)


@dataclass(frozen=True, kw_only=True)
class Generating:
    """The content of a request to generate; see `Client.generate`.

    Attributes:
        prompt: Text or token ids.
        decoder_text: The decoder's prompt, as text.
        decoder_token_ids: The decoder's prompt, as token ids.
        model: Name of the model.
        explain: Whether to return the routes.
        options: How to generate.
    """

    prompt: str | Sequence[int]
    decoder_text: str | None
    decoder_token_ids: Sequence[int] | None
    model: str
    explain: bool
    options: GenerationOptions


def generate_request(asked: Generating) -> generation_pb2.GenerateRequest:
    """The request of ``Generate``."""
    return generation_pb2.GenerateRequest(**_fields(asked))


def stream_request(asked: Generating) -> generation_pb2.GenerateStreamRequest:
    """The request of ``GenerateStream``."""
    return generation_pb2.GenerateStreamRequest(**_fields(asked))


def model_request(name: str) -> model_pb2.GetModelRequest:
    """The request of ``GetModel``."""
    return model_pb2.GetModelRequest(name=_values.text("name", name))


def graphs_request(model: str, include_cold: bool) -> graph_pb2.ListGraphsRequest:
    """The request of ``ListGraphs``."""
    return graph_pb2.ListGraphsRequest(
        model=_values.text("model", model), include_cold=_values.flag("include_cold", include_cold)
    )


def watch_request(model: str, include_cold: bool) -> graph_pb2.WatchGraphsRequest:
    """The request of ``WatchGraphs``."""
    return graph_pb2.WatchGraphsRequest(
        model=_values.text("model", model), include_cold=_values.flag("include_cold", include_cold)
    )


def warm_request(
    signatures: Iterable[Signature | str], workers: Iterable[str], all_workers: bool
) -> graph_pb2.WarmGraphsRequest:
    """The request of ``WarmGraphs``."""
    return graph_pb2.WarmGraphsRequest(
        signatures=[
            _signature(f"signatures[{index}]", each)
            for index, each in enumerate(_values.items("signatures", signatures, "signatures"))
        ],
        workers=[
            _values.text(f"workers[{index}]", each)
            for index, each in enumerate(_values.items("workers", workers, "names"))
        ],
        all_workers=_values.flag("all_workers", all_workers),
    )


def _signature(field: str, value: object) -> signature_pb2.Signature:
    if isinstance(value, str):
        value = Signature.parse(value, field=field)
    if not isinstance(value, Signature):
        raise InvalidArgumentError.of(
            field, f"must be a Signature or its short form, got {_values.shown(value)}"
        )
    if value.kind not in _KINDS:
        raise InvalidArgumentError.of(
            f"{field}.kind", f"must be {KINDS}, got {_values.shown(value.kind)}"
        )
    return signature_pb2.Signature(
        model=_values.text(f"{field}.model", value.model),
        kind=_KINDS[value.kind],
        rows=_values.integer(f"{field}.rows", value.rows, bits=32),
        length=_values.integer(f"{field}.length", value.length, bits=32),
        beams=_values.integer(f"{field}.beams", value.beams, bits=32),
    )


def _fields(asked: Generating) -> dict[str, Any]:
    """The fields that both generation requests share."""
    prompt = asked.prompt
    fields: dict[str, Any] = {
        "model": _values.text("model", asked.model),
        "options": options_to_message(asked.options),
        "explain": _values.flag("explain", asked.explain),
    }
    if asked.decoder_text is not None:
        fields["decoder_text"] = _values.text("decoder_text", asked.decoder_text)
    if asked.decoder_token_ids is not None:
        ids = _values.integers("decoder_token_ids.ids", asked.decoder_token_ids)
        fields["decoder_token_ids"] = generation_pb2.TokenIds(ids=ids)
    if isinstance(prompt, str):
        fields["text"] = _values.text("text", prompt)
    elif isinstance(prompt, bytes | bytearray | Mapping) or not isinstance(prompt, Iterable):
        raise InvalidArgumentError.of(
            "prompt", f"must be a str or token ids (integers), got {type(prompt).__name__}"
        )
    else:
        fields["token_ids"] = generation_pb2.TokenIds(ids=_values.integers("token_ids.ids", prompt))
    return fields
