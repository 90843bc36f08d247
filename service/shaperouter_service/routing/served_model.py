"""A served model and its limits, as workers describe it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from shaperouter_service.routing.call_ladders import ServedCall
from shaperouter_service.routing.deployments import Target
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.speech.transcription import TranscriptSettings


class ModelKind(StrEnum):
    """What a model does with its input."""

    DECODER = "decoder"  # continues a prompt
    ENCODER_DECODER = "encoder-decoder"  # answers a source
    TRANSCRIBER = "transcriber"  # transcribes recordings
    EMBEDDER = "embedder"  # answers a text with an embedding
    CLASSIFIER = "classifier"  # answers a text, or a pair, with scores
    FUNCTION = "function"  # computes tensors from tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model's description. It has either `ladders` or `call`.

    Attributes:
        name: Name that requests use.
        family: Family of the architecture, e.g. `gpt2`.
        kind: What it does with its input.
        vocab_size: Number of token ids.
        token_types: Number of types of tokens of a text encoder; 0 if tokens have no types, or if
            its worker does not tell.
        text_prompt: Text that a router puts before each text for a text encoder that is not one of
            a pair; may be empty.
        lowercases_text: Whether a router makes the texts for a text encoder lowercase.
        max_length: Maximum tokens of prompt and generated text together; the decoder's, if there
            is an encoder. Of a text encoder, maximum tokens of a text; 0 for a function.
        max_source_length: Maximum tokens of a source; 0 without an encoder.
        decoder_start_token_id: First token of every decoder's prompt; None without an encoder.
        default_options: The defaults of all options that have one, by name.
        default_max_length: Default maximum tokens of a decoder's prompt and the new tokens
            together, in place of the default `max_new_tokens`; 0 for none.
        default_min_length: The same as a minimum.
        transcripts: How it makes transcripts; None for a model that makes none.
        ladders: The shapes that its graphs can have, if it generates tokens.
        call: How it is called, if it answers once.
        dtype: Data type of most computations.
        weight_dtype: Data type of the weight matrices.
        kernels: Instruction set of the native kernels; empty if XLA computes products.
        parameters: Number of parameters.
        weight_bytes: Memory of the weights on one device.
        encoder_weight_bytes: Memory of the weights that only the encoder reads.
        kv_cache_bytes: Memory of the key/value caches of the requests that run now.
        kv_cache_bytes_per_token: Memory of one position of these caches.
        slots: Number of requests without beam search that one worker runs at a time.
        ready_workers: Number of workers that are ready for it; only the router knows it.
        revision: Digest of its files; see `checkpoints.digest`. Empty if its worker does not tell.
        tokenizer: Class of its tokenizer, which only the router knows; empty without one.
        characters_per_token: Maximum characters of a text per token; 0 without a tokenizer.
        targets: Where requests go, which only the router knows; see `Revisions.targets`.
    """

    name: str
    family: str = ""
    kind: ModelKind = ModelKind.DECODER
    vocab_size: int = 0
    token_types: int = 0
    text_prompt: str = ""
    lowercases_text: bool = False
    max_length: int = 0
    max_source_length: int = 0
    decoder_start_token_id: int | None = None
    default_options: Mapping[str, Any] = field(default_factory=dict)
    default_max_length: int = 0
    default_min_length: int = 0
    transcripts: TranscriptSettings | None = None
    ladders: Ladders | None = None
    call: ServedCall | None = None
    dtype: str = ""
    weight_dtype: str = ""
    kernels: str = ""
    parameters: int = 0
    weight_bytes: int = 0
    encoder_weight_bytes: int = 0
    kv_cache_bytes: int = 0
    kv_cache_bytes_per_token: int = 0
    slots: int = 0
    ready_workers: int = 0
    revision: str = ""
    tokenizer: str = ""
    characters_per_token: int = 0
    targets: Sequence[Target] = ()

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether it answers a source instead of continuing a prompt."""
        return self.kind is ModelKind.ENCODER_DECODER

    @property
    def has_tokenizer(self) -> bool:
        """Whether it reads and writes text."""
        return bool(self.tokenizer)

    @property
    def max_beams(self) -> int:
        """Its largest beam width; 1 means no beam search."""
        return 1 if self.ladders is None else self.ladders.lanes[-1].beams
