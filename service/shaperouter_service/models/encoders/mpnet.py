"""MPNet (Song et al. 2020), as in Transformers' `MPNetModel`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import tensorflow as tf

from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.models.config import Config
from shaperouter_service.models.encoders.bert import EPSILON
from shaperouter_service.models.encoders.text_encoder import (
    EncoderReader,
    LayerNames,
    TextEncoder,
    read_dimensions,
)
from shaperouter_service.models.encoders.tokens import Tokens
from shaperouter_service.models.layers import positions_after
from shaperouter_service.models.t5 import position_buckets
from shaperouter_service.models.weights import Role, Weights

# The same for every model, whatever its config says, as in Transformers.
PAD_TOKEN_ID = 1
BUCKETS, MAX_DISTANCE = 32, 128
DISTANCES = "embeddings.distances"


@dataclass(frozen=True, kw_only=True)
class MPNet(TextEncoder):
    """An MPNet: tokens have positions, and attention has biases by distance, but tokens no types.

    Attributes:
        num_buckets: Number of biases of each head that the checkpoint has.
    """

    num_buckets: int

    name = "mpnet"
    class_prefix = "MPNet"
    prefix = "mpnet"
    layer_names = LayerNames(
        query="attention.attn.q",
        key="attention.attn.k",
        value="attention.attn.v",
        out="attention.attn.o",
        attention_norm="attention.LayerNorm",
        up="intermediate.dense",
        down="output.dense",
        norm="output.LayerNorm",
    )
    classifier = (("classifier.dense", "tanh"), ("classifier.out_proj", None))

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Reads the dimensions; missing values default as in Transformers."""
        dimensions = read_dimensions(config)
        dimensions["vocab_size"] = config.value("vocab_size", int, 30527)
        buckets = config.value("relative_attention_num_buckets", int, BUCKETS)
        if buckets < BUCKETS:
            raise config.error(
                f"relative_attention_num_buckets must be at least {BUCKETS}, got {buckets}"
            )
        return cls(
            **dimensions,
            epsilon=config.value("layer_norm_eps", float, EPSILON),
            num_types=0,
            num_buckets=buckets,
        )

    @property
    def max_length(self) -> int:
        return self.num_positions - PAD_TOKEN_ID - 1

    @property
    def roles(self) -> Mapping[str, Role]:
        return {**super().roles, DISTANCES: Role.UNPACKED}

    def read_weights(
        self, checkpoint: Checkpoint, dtype: np.dtype[Any]
    ) -> Iterator[tuple[str, np.ndarray]]:
        yield from super().read_weights(checkpoint, dtype)
        read = EncoderReader(checkpoint, self.prefix, dtype)
        yield (
            DISTANCES,
            read.tensor("encoder.relative_attention_bias.weight", self.num_buckets, self.num_heads),
        )

    def positions(self, tokens: Tokens, token_ids: tf.Tensor) -> tf.Tensor:
        del tokens
        return positions_after(PAD_TOKEN_ID, token_ids)

    def distance_biases(self, weights: Weights) -> tf.Tensor:
        buckets = position_buckets(BUCKETS, MAX_DISTANCE, bidirectional=True)
        return tf.gather(tf.cast(weights[DISTANCES], tf.float32), buckets)
