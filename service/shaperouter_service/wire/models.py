"""Descriptions of models and their messages."""

from collections.abc import Mapping

from shaperouter.v1 import model_pb2
from shaperouter_service.routing.served_model import ModelKind, ServedModel
from shaperouter_service.wire.ladders import ladders_from_message, ladders_to_message
from shaperouter_service.wire.options import options_from_message, options_to_message
from shaperouter_service.wire.transcript_settings import (
    transcript_settings_from_message,
    transcript_settings_to_message,
)

_KIND_TO_MESSAGE: Mapping[ModelKind, model_pb2.ModelKind] = {
    ModelKind.DECODER: model_pb2.MODEL_KIND_DECODER,
    ModelKind.ENCODER_DECODER: model_pb2.MODEL_KIND_ENCODER_DECODER,
    ModelKind.TRANSCRIBER: model_pb2.MODEL_KIND_TRANSCRIBER,
}
_KIND_FROM_MESSAGE = {message: kind for kind, message in _KIND_TO_MESSAGE.items()}


def model_to_message(model: ServedModel) -> model_pb2.Model:
    """The message of a model's description."""
    return model_pb2.Model(
        name=model.name,
        family=model.family,
        tokenizer=model.tokenizer,
        characters_per_token=model.characters_per_token,
        vocab_size=model.vocab_size,
        max_length=model.max_length,
        default_options=options_to_message(model.default_options),
        dtype=model.dtype,
        weight_dtype=model.weight_dtype,
        kernels=model.kernels,
        parameters=model.parameters,
        weight_bytes=model.weight_bytes,
        kv_cache_bytes=model.kv_cache_bytes,
        kv_cache_bytes_per_token=model.kv_cache_bytes_per_token,
        slots=model.slots,
        ladders=ladders_to_message(model.ladders),
        ready_workers=model.ready_workers,
        kind=_KIND_TO_MESSAGE[model.kind],
        max_source_length=model.max_source_length,
        encoder_weight_bytes=model.encoder_weight_bytes,
        decoder_start_token_id=model.decoder_start_token_id,
        transcripts=None
        if model.transcripts is None
        else transcript_settings_to_message(model.transcripts),
    )


def model_from_message(message: model_pb2.Model) -> ServedModel:
    """The description of a message."""
    return ServedModel(
        name=message.name,
        family=message.family,
        tokenizer=message.tokenizer,
        characters_per_token=message.characters_per_token,
        vocab_size=message.vocab_size,
        max_length=message.max_length,
        default_options=options_from_message(message.default_options),
        dtype=message.dtype,
        weight_dtype=message.weight_dtype,
        kernels=message.kernels,
        parameters=message.parameters,
        weight_bytes=message.weight_bytes,
        kv_cache_bytes=message.kv_cache_bytes,
        kv_cache_bytes_per_token=message.kv_cache_bytes_per_token,
        slots=message.slots,
        ladders=ladders_from_message(message.ladders),
        ready_workers=message.ready_workers,
        kind=_KIND_FROM_MESSAGE[message.kind],
        max_source_length=message.max_source_length,
        encoder_weight_bytes=message.encoder_weight_bytes,
        decoder_start_token_id=message.decoder_start_token_id
        if message.HasField("decoder_start_token_id")
        else None,
        transcripts=transcript_settings_from_message(message.transcripts)
        if message.HasField("transcripts")
        else None,
    )
