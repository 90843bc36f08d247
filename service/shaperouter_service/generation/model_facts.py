"""Properties of a model that the checks of prompts and options need."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shaperouter_service.routing.served_model import ModelKind, ServedModel


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Facts of a model.

    Attributes:
        name: Name of the model.
        vocab_size: Number of its token ids.
        max_length: Maximum tokens of a prompt and its continuation together.
        max_source_length: Maximum tokens of a source; 0 without an encoder.
        has_encoder: Whether it answers a source instead of continuing a prompt.
        has_tokenizer: Whether it reads and writes text.
        characters_per_token: Characters of a text for each token that it may have.
        widest_beams: Its largest beam width; 1 means no beam search.
        defaults: The checkpoint's options, by name.
    """

    name: str
    vocab_size: int
    max_length: int = 0
    max_source_length: int = 0
    has_encoder: bool = False
    has_tokenizer: bool = False
    characters_per_token: int = 0
    widest_beams: int = 1
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: ServedModel) -> "ModelFacts":
        """The facts of a served model."""
        return cls(
            name=model.name,
            vocab_size=model.vocab_size,
            max_length=model.max_length,
            max_source_length=model.max_source_length,
            has_encoder=model.kind is ModelKind.ENCODER_DECODER,
            has_tokenizer=bool(model.tokenizer),
            characters_per_token=model.characters_per_token,
            widest_beams=model.ladders.lanes[-1].beams,
            defaults=model.default_options,
        )
