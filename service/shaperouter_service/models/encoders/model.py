"""A text encoder with its head in memory."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import tensorflow as tf

from shaperouter_service.models.call_model import CallModel
from shaperouter_service.models.encoders.heads import Embedder, Head
from shaperouter_service.models.encoders.text_encoder import TextEncoder
from shaperouter_service.models.encoders.tokens import Tokens
from shaperouter_service.models.weights import Weights
from shaperouter_service.routing.call_ladders import BATCH, AxisLadder, CallLadders
from shaperouter_service.routing.ladder import doubling_ladder, length_ladder
from shaperouter_service.routing.served_model import ModelKind
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.tensors.specs import Axis, CallSpec, TensorSpec

TOKEN_IDS, MASK, TOKEN_TYPES = "input_ids", "attention_mask", "token_type_ids"
LENGTH = "length"
# For the default ladders: texts of a batch, tokens of the shortest rung, and how much longer a rung
# is than the one below. The native kernels compute no padding, so their graphs can be few.
MAX_ROWS = 32
SHORTEST = 16
MAX_PADDING, MAX_PADDING_OF_KERNELS = 0.5, 1.0


def encoder_ladders(max_length: int, *, packed: bool) -> CallLadders:
    """The ladders of a text encoder.

    Args:
        max_length: Maximum tokens of a text.
        packed: Whether the native kernels compute, which skip padding.
    """
    lengths = length_ladder(
        max_length,
        shortest=min(SHORTEST, max_length),
        max_padding=MAX_PADDING_OF_KERNELS if packed else MAX_PADDING,
    )
    return CallLadders(
        rows=doubling_ladder(MAX_ROWS), axes=(AxisLadder(name=LENGTH, ladder=lengths),)
    )


@dataclass(frozen=True, kw_only=True)
class EncoderModel(CallModel):
    """A text encoder with its head; see `CallModel`.

    A mask is 1 for tokens and 0 for padding. It may begin with zeros or have some in the middle; a
    text's first token is the first one that the mask shows.

    Attributes:
        encoder: Its dimensions and forward pass.
        head: What becomes of hidden states.
        dtype: Type of most computations.
    """

    name: str
    encoder: TextEncoder
    head: Head
    weights: Weights
    dtype: tf.DType
    weight_dtype: tf.DType
    parameters: int
    weight_bytes: int
    max_length: int
    text_prompt: str = ""
    lowercases_text: bool = False

    @property
    def kind(self) -> ModelKind:  # type: ignore[override]  # it follows from the head
        """See `CallModel`."""
        return ModelKind.EMBEDDER if isinstance(self.head, Embedder) else ModelKind.CLASSIFIER

    @property
    def family(self) -> str:  # type: ignore[override]  # it is the encoder's
        """See `CallModel`."""
        return self.encoder.name

    @property
    def vocab_size(self) -> int:  # type: ignore[override]  # it is the encoder's
        """See `CallModel`."""
        return self.encoder.vocab_size

    @property
    def token_types(self) -> int:  # type: ignore[override]  # it is the encoder's
        """See `CallModel`."""
        return self.encoder.num_types

    @property
    def labels(self) -> tuple[str, ...]:  # type: ignore[override]  # they are the head's
        """See `CallModel`."""
        return self.head.labels

    @property
    def spec(self) -> CallSpec:  # type: ignore[override]  # it follows from encoder and head
        """See `CallModel`."""
        names = [TOKEN_IDS, MASK, *([TOKEN_TYPES] if self.encoder.num_types > 1 else [])]
        output = self.head.output
        # The scores of tokens have a length, too.
        lengths = {output.name: 1} if output.shape[1] is None else {}
        return CallSpec(
            inputs=tuple(
                TensorSpec(name=name, dtype=DType.INT64, shape=(None, None)) for name in names
            ),
            outputs=(output,),
            batch=Axis(name=BATCH, inputs=dict.fromkeys(names, 0), outputs={output.name: 0}),
            axes=(Axis(name=LENGTH, inputs=dict.fromkeys(names, 1), outputs=lengths),),
        )

    @property
    def ladders(self) -> CallLadders:  # type: ignore[override]  # they follow from the length
        """See `CallModel`."""
        return encoder_ladders(self.max_length, packed=self.weights.is_packed)

    def call(self, weights: Weights, inputs: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        """See `CallModel`."""
        narrow = {name: tf.cast(values, tf.int32) for name, values in inputs.items()}
        tokens = Tokens.of(narrow[MASK] != 0, weights)
        hidden = self.encoder.encode(weights, tokens, narrow[TOKEN_IDS], narrow.get(TOKEN_TYPES))
        return {self.head.output.name: self.head(weights, tokens, hidden)}

    @property
    def cache_parts(self) -> Mapping[str, Any]:
        """See `CallModel`."""
        return {
            "family": self.family,
            "dimensions": asdict(self.encoder),
            "head": repr(self.head),
            "packed": sorted(self.weights.packed.items()),
        }
