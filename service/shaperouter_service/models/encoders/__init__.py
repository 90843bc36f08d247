"""Text encoders: families, and heads that turn hidden states into embeddings or scores."""

from shaperouter_service.models.encoders.loading import is_encoder, load_encoder, read_encoder
from shaperouter_service.models.encoders.model import EncoderModel, encoder_ladders

__all__ = ["EncoderModel", "encoder_ladders", "is_encoder", "load_encoder", "read_encoder"]
