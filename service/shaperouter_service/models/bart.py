"""BART (Lewis et al. 2019) and mBART (Liu et al. 2020).

As in Transformers' `BartForConditionalGeneration` and `MBartForConditionalGeneration`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import tensorflow as tf

from shaperouter_service.models.config import Config
from shaperouter_service.models.seq2seq import (
    EMBEDDINGS,
    HEADS,
    POSITIONS,
    SHARED,
    SOURCE_EMBEDDINGS,
    NamedWeight,
    Seq2Seq,
    Tensors,
)
from shaperouter_service.models.weights import Weights

# Maximum of `max_position_embeddings`; some families compute the embeddings of all positions.
MAX_POSITIONS = 2**16
# A bias of the logits, outside of what checkpoints call the model.
LOGITS_BIAS = "final_logits_bias"


@dataclass(frozen=True, kw_only=True)
class Bart(Seq2Seq):
    """A BART model; attributes have the names of its config.json.

    Attributes:
        max_position_embeddings: Maximum number of tokens of a source, and of a decoder's prompt and
            generation together.
        scale_embedding: Token embeddings are multiplied by the root of E.
    """

    max_position_embeddings: int
    scale_embedding: bool

    name = "bart"
    architectures = ("BartForConditionalGeneration", "BartModel")
    # Copies of the embeddings, and constants of early versions of Transformers.
    redundant = re.compile(
        rf"(model\.)?({'|'.join(map(re.escape, SHARED))}|(encoder|decoder)\.version)|"
        + re.escape(HEADS[0])
    )
    default_eos_token_id = 2
    default_forced_eos_token_id: ClassVar[int | None] = 2
    default_decoder_start_token_id = 2
    prompt_piece = 8
    norms_before = False
    norms_embeddings = True
    position_offset = 2
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 50265,
        "d_model": 1024,
        "encoder_layers": 12,
        "encoder_attention_heads": 16,
        "encoder_ffn_dim": 4096,
        "decoder_layers": 12,
        "decoder_attention_heads": 16,
        "decoder_ffn_dim": 4096,
        "activation_function": "gelu",
        "scale_embedding": False,
    }

    @classmethod
    def own_values(cls, config: Config) -> Mapping[str, Any]:
        return {
            "max_position_embeddings": config.number(
                "max_position_embeddings", int, 1024, at_least=1, at_most=MAX_POSITIONS
            ),
            "scale_embedding": config.value(
                "scale_embedding", bool, cls.defaults["scale_embedding"]
            ),
        }

    @property
    def longest(self) -> int:
        return self.max_position_embeddings

    @property
    def max_source_length(self) -> int:
        return self.max_length

    def read_inputs(self, tensors: Tensors) -> Iterator[NamedWeight]:
        shape = (self.vocab_size, self.d_model)
        shared = next((name for name in SHARED if name in tensors), SHARED[0])
        if self.tie_word_embeddings:
            yield EMBEDDINGS, tensors.read(shared, *shape)[1]
        else:
            for name in (SOURCE_EMBEDDINGS, EMBEDDINGS):
                yield name, tensors.read(name if name in tensors else shared, *shape)[1]
        for name in POSITIONS:
            yield self.read_positions(tensors, name)
        names = tensors.checkpoint.names
        if LOGITS_BIAS in names:
            bias = tensors.checkpoint.read(
                LOGITS_BIAS, shape=(1, self.vocab_size), dtype=tensors.dtype
            )
            yield LOGITS_BIAS, bias[0]

    def read_positions(self, tensors: Tensors, name: str) -> NamedWeight:
        """Reads or computes the position embeddings of a stack of layers."""
        rows = self.max_position_embeddings + self.position_offset
        return tensors.read(name, rows, self.d_model)

    def source_spec(self, rows: int, length: int) -> tf.TensorSpec:
        return tf.TensorSpec([rows, length], tf.int32)

    def encode_source(self, weights: Weights, source: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        positions = tf.range(source.shape[1])[tf.newaxis]  # [1, S]
        embeddings = SOURCE_EMBEDDINGS if SOURCE_EMBEDDINGS in weights else EMBEDDINGS
        x = self.embed(weights, embeddings, source)
        x += tf.gather(weights[POSITIONS[0]], self.source_rows(source))
        visible = (positions < lengths[:, tf.newaxis])[:, tf.newaxis, tf.newaxis]  # [R, 1, 1, S]
        return self.run_encoder(weights, x, visible)

    def source_rows(self, source: tf.Tensor) -> tf.Tensor:
        """Rows of the position embeddings for a source, [R, S] int32."""
        return self.position_rows(source, tf.range(source.shape[1])[tf.newaxis])

    def embed(self, weights: Weights, name: str, token_ids: tf.Tensor) -> tf.Tensor:
        x = super().embed(weights, name, token_ids)
        return x * self.d_model**0.5 if self.scale_embedding else x

    def logits(self, weights: Weights, hidden: tf.Tensor) -> tf.Tensor:
        logits = super().logits(weights, hidden)
        if LOGITS_BIAS in weights:
            logits += tf.cast(weights[LOGITS_BIAS], tf.float32)
        return logits


class MBart(Bart):
    """An mBART or mBART-50 model: a BART whose layers normalize their inputs."""

    name = "mbart"
    architectures = ("MBartForConditionalGeneration", "MBartModel")
    norms_before = True
