"""Construction of request messages; a value that they cannot contain is refused by field name."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from shaperouter import _values
from shaperouter._enums import by_member
from shaperouter._errors import InvalidArgumentError
from shaperouter._option_message import options_to_message
from shaperouter._options import GenerationOptions
from shaperouter._signature import KINDS, GraphKind, Signature
from shaperouter.v1 import generation_pb2, graph_pb2, model_pb2, signature_pb2

_KINDS = by_member(GraphKind, signature_pb2.GraphKind)

# Pairs of requests that have the same fields.
_GenerationT = TypeVar(
    "_GenerationT", generation_pb2.GenerateRequest, generation_pb2.GenerateStreamRequest
)
_GraphsT = TypeVar("_GraphsT", graph_pb2.ListGraphsRequest, graph_pb2.WatchGraphsRequest)


def generation_request(
    message: type[_GenerationT],
    prompt: Any,
    *,
    decoder_text: str | None,
    decoder_token_ids: Sequence[int] | None,
    model: str,
    explain: bool,
    options: GenerationOptions,
) -> _GenerationT:
    """The request of ``Generate`` or ``GenerateStream``; see `Client.generate`."""
    fields: dict[str, Any] = {
        "model": _values.text("model", model),
        "options": options_to_message(options),
        "explain": _values.flag("explain", explain),
    }
    if decoder_text is not None:
        fields["decoder_text"] = _values.text("decoder_text", decoder_text)
    if decoder_token_ids is not None:
        ids = _values.integers("decoder_token_ids.ids", decoder_token_ids)
        fields["decoder_token_ids"] = generation_pb2.TokenIds(ids=ids)
    if isinstance(prompt, str):
        fields["text"] = _values.text("text", prompt)
    elif isinstance(prompt, bytes | bytearray | Mapping) or not isinstance(prompt, Iterable):
        raise InvalidArgumentError.of(
            "prompt", f"must be a str or token ids (integers), got {type(prompt).__name__}"
        )
    else:
        fields["token_ids"] = generation_pb2.TokenIds(ids=_values.integers("token_ids.ids", prompt))
    return message(**fields)


def chat_request(
    message: type[_GenerationT],
    messages: Any,
    *,
    tools: Any,
    chat_template_kwargs: Any,
    model: str,
    explain: bool,
    options: GenerationOptions,
) -> _GenerationT:
    """The request of ``Generate`` or ``GenerateStream`` for a conversation; see `Client.chat`."""
    listed = _values.items("messages", messages, "messages")
    if not listed:
        raise InvalidArgumentError.of("messages", "must not be empty, got 0 messages")
    fields: dict[str, Any] = {
        "model": _values.text("model", model),
        "options": options_to_message(options),
        "explain": _values.flag("explain", explain),
        "messages": [_chat_message(f"messages[{i}]", each) for i, each in enumerate(listed)],
        "tools": [
            _json_object(f"tools[{i}]", each)
            for i, each in enumerate(_values.items("tools", tools, "tools"))
        ],
    }
    if chat_template_kwargs:
        fields["chat_template_kwargs"] = _json_object("chat_template_kwargs", chat_template_kwargs)
    return message(**fields)


def _chat_message(field: str, value: object) -> generation_pb2.ChatMessage:
    if not isinstance(value, Mapping):
        raise InvalidArgumentError.of(
            field, f"must be a mapping with role and content, got {_values.shown(value)}"
        )
    others = dict(value)
    message = generation_pb2.ChatMessage(role=_values.text(f"{field}.role", others.pop("role", "")))
    # A content of parts is sent as JSON, like all other fields.
    if others.get("content") is None or isinstance(others["content"], str):
        content = others.pop("content", None)
        if content is not None:
            message.content = _values.text(f"{field}.content", content)
    if others:
        message.other_fields = _json_object(field, others)
    return message


def _json_object(field: str, value: object) -> str:
    if not isinstance(value, Mapping):
        raise InvalidArgumentError.of(field, f"must be a mapping, got {_values.shown(value)}")
    try:
        return json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError.of(field, f"cannot be sent as JSON: {error}") from None


def model_request(name: str) -> model_pb2.GetModelRequest:
    """The request of ``GetModel``."""
    return model_pb2.GetModelRequest(name=_values.text("name", name))


def load_request(name: str, location: str, share: float) -> model_pb2.LoadModelRequest:
    """The request of ``LoadModel``."""
    return model_pb2.LoadModelRequest(
        name=_values.text("name", name),
        location=_values.text("location", location),
        share=_values.number("share", share),
    )


def unload_request(name: str) -> model_pb2.UnloadModelRequest:
    """The request of ``UnloadModel``."""
    return model_pb2.UnloadModelRequest(name=_values.text("name", name))


def alias_request(name: str, targets: str | Mapping[str, float]) -> model_pb2.SetAliasRequest:
    """The request of ``SetAlias``."""
    shares = {targets: 1.0} if isinstance(targets, str) else targets
    return model_pb2.SetAliasRequest(
        name=_values.text("name", name),
        targets=[
            model_pb2.Target(
                model=_values.text("targets", model),
                share=_values.number(f"targets[{model}]", share),
            )
            for model, share in shares.items()
        ],
    )


def graphs_request(message: type[_GraphsT], model: str, include_cold: bool) -> _GraphsT:
    """The request of ``ListGraphs`` or ``WatchGraphs``."""
    return message(
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
        further=_values.integers(f"{field}.further", value.further),
        exact=_values.integers(f"{field}.exact", value.exact),
    )
