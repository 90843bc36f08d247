"""Generations and their messages."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from shaperouter.v1 import generation_pb2
from shaperouter_service.generation.events import Completed, Delta, Generation, GenerationEvent
from shaperouter_service.generation.inputs import Input
from shaperouter_service.generation.request import GenerationRequest
from shaperouter_service.generation.run_events import PromptLogprobs, Stalled
from shaperouter_service.wire.chat import chat_from_message
from shaperouter_service.wire.decisions import DECISIONS
from shaperouter_service.wire.options import options_from_message
from shaperouter_service.wire.run_events import LOGPROBS
from shaperouter_service.wire.translation import EventTranslation, Translation

GenerateAny: TypeAlias = generation_pb2.GenerateRequest | generation_pb2.GenerateStreamRequest


def generation_from_message(message: GenerateAny) -> GenerationRequest:
    """The request of a message."""
    return GenerationRequest(
        model=message.model,
        input=_input(message, "text", "token_ids"),
        chat=chat_from_message(message),
        decoder_input=_input(message, "decoder_text", "decoder_token_ids"),
        options=options_from_message(message.options),
        explain=message.explain,
        reads_along=isinstance(message, generation_pb2.GenerateStreamRequest),
    )


def _input(message: GenerateAny, text_field: Any, ids_field: Any) -> Input:
    text: str | None = getattr(message, text_field) if message.HasField(text_field) else None
    ids: Sequence[int] | None = None
    if message.HasField(ids_field):
        ids = getattr(message, ids_field).ids
    return Input(text_field=text_field, text=text, ids_field=ids_field, token_ids=ids)


_EVENTS = EventTranslation[GenerationEvent, generation_pb2.GenerateStreamResponse](
    generation_pb2.GenerateStreamResponse,
    {
        "stall": Stalled,
        "prompt_logprobs": PromptLogprobs,
        "delta": Delta,
        "completion": Completed,
    },
    codecs={**LOGPROBS, **DECISIONS},
)
generation_event_to_message = _EVENTS.to_message

generation_to_message = Translation(
    Generation, generation_pb2.GenerateResponse, codecs={**LOGPROBS, **DECISIONS}
).to_message
