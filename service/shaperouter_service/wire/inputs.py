"""What a request gives a model to read, from its message."""

from collections.abc import Sequence
from typing import Any

from shaperouter.v1 import generation_pb2
from shaperouter_service.generation.inputs import Input

GenerateAny = generation_pb2.GenerateRequest | generation_pb2.GenerateStreamRequest


def input_from_message(request: GenerateAny) -> Input:
    """The prompt, or the source of a model with an encoder."""
    return _input(request, "text", "token_ids")


def decoder_input_from_message(request: GenerateAny) -> Input:
    """The decoder's prompt."""
    return _input(request, "decoder_text", "decoder_token_ids")


def _input(request: GenerateAny, text_field: Any, ids_field: Any) -> Input:
    text: str | None = getattr(request, text_field) if request.HasField(text_field) else None
    ids: Sequence[int] | None = None
    if request.HasField(ids_field):
        ids = getattr(request, ids_field).ids
    return Input(text_field=text_field, text=text, ids_field=ids_field, token_ids=ids)
