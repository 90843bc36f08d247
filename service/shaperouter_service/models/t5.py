"""T5 (Raffel et al. 2020) in its versions 1.0 and 1.1, Flan-T5, and mT5 (Xue et al. 2021).

As in Transformers' `T5ForConditionalGeneration` and `MT5ForConditionalGeneration`.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.models.config import Config
from shaperouter_service.models.family import EncoderDecoder
from shaperouter_service.models.layer_loop import (
    Attend,
    AttendWithSource,
    EncoderAttention,
    KeepSource,
    run_layers,
)
from shaperouter_service.models.layers import (
    ACTIVATIONS,
    embedding,
    linear,
    merge_heads,
    output_logits,
    rms_norm,
    split_heads,
)
from shaperouter_service.models.weights import Role, Weights

GATED = "gated-"
# The activation that Transformers uses for `gated-gelu`; the models were trained with it.
GATED_GELU = "gelu_new"
# Possible names of the embeddings in a checkpoint, depending on the program that saved it.
EMBEDDINGS = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
HEAD = "lm_head.weight"
# A table has an entry for each distance up to the maximum one.
MAX_DISTANCE = 2**16
# Biases that the heads of an encoder or decoder add to scores by distance. Checkpoints store those
# of the first layer, which all layers use.
DISTANCE_BIASES = "{}.relative_attention_bias.weight"
DISTANCE_BIASES_IN_CHECKPOINT = "{}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"


@dataclass(frozen=True, kw_only=True)
class T5(EncoderDecoder):
    """A T5 model; attributes have the names of its config.json.

    Attributes:
        vocab_size: V, number of token ids.
        n_positions: Maximum number of tokens of a source, and of a decoder's prompt and generation
            together. T5's positions are relative, so this is only the length it was trained for.
        d_model: E, width.
        d_kv: D, size of a head; H * D need not be E.
        d_ff: Width of the feed-forward layer.
        num_layers: Number of layers of the encoder.
        num_decoder_layers: L, number of layers of the decoder; the encoder's unless given.
        num_heads: H, number of attention heads.
        relative_attention_num_buckets: Number of biases of each head for distances between tokens.
        relative_attention_max_distance: Distance from which all tokens share one bias.
        layer_norm_epsilon: Added to mean squares.
        dense_act_fn: Activation of the feed-forward layer.
        is_gated_act: The feed-forward layer has a gate, as since version 1.1.
        scale_decoder_outputs: Hidden states are divided by the root of E before the output
            projection, as in version 1.0, where the projection is the token embedding.
    """

    vocab_size: int
    n_positions: int
    d_model: int
    d_kv: int
    d_ff: int
    num_layers: int
    num_decoder_layers: int
    num_heads: int
    relative_attention_num_buckets: int
    relative_attention_max_distance: int
    layer_norm_epsilon: float
    dense_act_fn: str
    is_gated_act: bool
    scale_decoder_outputs: bool

    name = "t5"
    architectures: ClassVar[Sequence[str]] = (
        "T5ForConditionalGeneration",
        "T5Model",
        "T5WithLMHeadModel",
    )
    other_names: ClassVar[Mapping[str, str]] = {
        "head_dim": "d_kv",
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
    }
    # The second tensor is in the original checkpoints; attention to a source does not use it.
    redundant = re.compile(
        "|".join(map(re.escape, EMBEDDINGS))
        + r"|decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"
    )
    default_eos_token_id = 1
    default_decoder_start_token_id = 0
    prompt_piece = 8
    roles: ClassVar[Mapping[str, Role]] = {
        EMBEDDINGS[0]: Role.VOCABULARY,
        HEAD: Role.VOCABULARY,
        **dict.fromkeys(map(DISTANCE_BIASES.format, ("encoder", "decoder")), Role.UNPACKED),
    }
    # Defaults of missing config values, as in Transformers.
    _defaults: ClassVar[dict[str, Any]] = {
        "vocab_size": 32128,
        "d_ff": 2048,
        "num_layers": 6,
        "num_heads": 8,
        "feed_forward_proj": "relu",
    }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Reads the dimensions; missing values default as in Transformers."""
        defaults = cls._defaults
        num_layers = config.value("num_layers", int, defaults["num_layers"])
        feed_forward = config.choice(
            "feed_forward_proj",
            defaults["feed_forward_proj"],
            [*ACTIVATIONS, *(GATED + name for name in ACTIVATIONS)],
        )
        is_gated = feed_forward.startswith(GATED)
        activation = (
            GATED_GELU if feed_forward == "gated-gelu" else feed_forward.removeprefix(GATED)
        )
        dims = cls(
            vocab_size=config.value("vocab_size", int, defaults["vocab_size"]),
            n_positions=config.value("n_positions", int, 512),
            d_model=config.value("d_model", int, 512),
            d_kv=config.value("d_kv", int, 64),
            d_ff=config.value("d_ff", int, defaults["d_ff"]),
            num_layers=num_layers,
            num_decoder_layers=config.value("num_decoder_layers", int, num_layers),
            num_heads=config.value("num_heads", int, defaults["num_heads"]),
            relative_attention_num_buckets=config.value("relative_attention_num_buckets", int, 32),
            relative_attention_max_distance=config.number(
                "relative_attention_max_distance", int, 128, at_least=1, at_most=MAX_DISTANCE
            ),
            layer_norm_epsilon=config.value("layer_norm_epsilon", float, 1e-6),
            # Derived from `feed_forward_proj`, but the saved values take precedence.
            dense_act_fn=config.choice("dense_act_fn", activation, ACTIVATIONS),
            is_gated_act=config.value("is_gated_act", bool, is_gated),
            scale_decoder_outputs=cls._scales_outputs(config),
        )
        buckets, distance = (
            dims.relative_attention_num_buckets,
            dims.relative_attention_max_distance,
        )
        if buckets % 4 or distance <= buckets // 2:
            raise config.error(
                "relative_attention_num_buckets must be a multiple of 4 and less than twice "
                f"relative_attention_max_distance, got {buckets} and {distance}"
            )
        return dims

    @classmethod
    def _scales_outputs(cls, config: Config) -> bool:
        # Transformers writes `scale_decoder_outputs` since version 5; before, it followed from
        # `tie_word_embeddings`. The tensors show whether the embeddings are tied.
        tied = config.value("tie_word_embeddings", bool, True)
        return config.value("scale_decoder_outputs", bool, tied)

    @property
    def longest(self) -> int:
        return self.n_positions

    @property
    def max_source_length(self) -> int:
        return self.max_length

    @property
    def layers(self) -> int:
        return self.num_decoder_layers

    @property
    def heads(self) -> int:
        return self.num_heads

    @property
    def head_size(self) -> int:
        return self.d_kv

    @property
    def stacks(self) -> Mapping[str, int]:
        return {"encoder.block": self.num_layers, "decoder.block": self.num_decoder_layers}

    def read_weights(
        self, checkpoint: Checkpoint, dtype: np.dtype[Any]
    ) -> Iterator[tuple[str, np.ndarray]]:
        width, inner, heads = self.d_model, self.d_ff, self.num_heads * self.d_kv

        def read(name: str, *shape: int, transposed: bool = False) -> tuple[str, np.ndarray]:
            return name, checkpoint.read(name, shape=shape, dtype=dtype, transposed=transposed)

        def read_attention(name: str) -> Iterator[tuple[str, np.ndarray]]:
            # Transposed to [I, O], with which XLA on CPU computes long prompts a little faster.
            for part in "qkv":
                yield read(f"{name}.{part}.weight", heads, width, transposed=True)
            yield read(f"{name}.o.weight", width, heads, transposed=True)

        embeddings = next((name for name in EMBEDDINGS if name in checkpoint.names), EMBEDDINGS[0])
        shape = (self.vocab_size, width)
        yield EMBEDDINGS[0], checkpoint.read(embeddings, shape=shape, dtype=dtype)
        if HEAD in checkpoint.names:
            yield read(HEAD, *shape)
        for stack, layers, attentions in (
            ("encoder", self.num_layers, ["SelfAttention"]),
            ("decoder", self.num_decoder_layers, ["SelfAttention", "EncDecAttention"]),
        ):
            name = DISTANCE_BIASES_IN_CHECKPOINT.format(stack)
            _, biases = read(name, self.relative_attention_num_buckets, self.num_heads)
            yield DISTANCE_BIASES.format(stack), biases
            for block in range(layers):
                for index, attention_name in enumerate(attentions):
                    layer = f"{stack}.block.{block}.layer.{index}"
                    yield from read_attention(f"{layer}.{attention_name}")
                    yield read(f"{layer}.layer_norm.weight", width)
                layer = f"{stack}.block.{block}.layer.{len(attentions)}"
                for part in ("wi_0", "wi_1") if self.is_gated_act else ("wi",):
                    name = f"{layer}.DenseReluDense.{part}.weight"
                    yield read(name, inner, width, transposed=True)
                yield read(f"{layer}.DenseReluDense.wo.weight", width, inner, transposed=True)
                yield read(f"{layer}.layer_norm.weight", width)
            yield read(f"{stack}.final_layer_norm.weight", width)

    def is_of_encoder(self, weight: str) -> bool:
        keys_and_values = ("EncDecAttention.k.weight", "EncDecAttention.v.weight")
        return weight.startswith("encoder.") or weight.endswith(keys_and_values)

    def source_spec(self, rows: int, length: int) -> tf.TensorSpec:
        return tf.TensorSpec([rows, length], tf.int32)

    def encode(
        self, weights: Weights, source: tf.Tensor, lengths: tf.Tensor, keep: KeepSource
    ) -> None:
        position = tf.range(source.shape[1])
        visible = (position < lengths[:, tf.newaxis])[:, tf.newaxis, tf.newaxis]  # [R, 1, 1, S]
        ahead = position[tf.newaxis] - position[:, tf.newaxis]
        bias = self._bias(weights, "encoder", ahead[tf.newaxis], bidirectional=True)

        def block(weights: Weights, x: tf.Tensor, attend: Attend) -> tf.Tensor:
            x = self._self_attention(weights, x, attend, bias)
            return self._feed_forward(weights, "layer.1", x)

        def keys_and_values(weights: Weights, x: tf.Tensor, keep: KeepSource) -> tf.Tensor:
            key, value = (
                split_heads(linear(weights, f"layer.1.EncDecAttention.{part}", x), self.num_heads)
                for part in "kv"
            )
            keep(key, value)
            return x

        x = embedding(weights, EMBEDDINGS[0], source)
        attend = EncoderAttention(visible)
        x = run_layers(weights, "encoder.block", block, x, attend, layers=self.num_layers)
        x = self._norm(weights, "encoder.final_layer_norm", x)
        run_layers(weights, "decoder.block", keys_and_values, x, keep, layers=self.layers)

    def forward(
        self,
        weights: Weights,
        token_ids: tf.Tensor,
        positions: tf.Tensor,
        attend: AttendWithSource,  # type: ignore[override]  # see EncoderDecoder
    ) -> tf.Tensor:
        ahead = attend.positions[:, tf.newaxis] - positions[..., tf.newaxis]  # [R, P, T]
        bias = self._bias(weights, "decoder", ahead, bidirectional=False)

        def block(weights: Weights, x: tf.Tensor, attend: AttendWithSource) -> tf.Tensor:
            x = self._self_attention(weights, x, attend, bias)
            (query,) = self._projected(weights, "layer.1", "EncDecAttention", "q", x)
            context = attend.to_source(query, 1.0)
            x += linear(weights, "layer.1.EncDecAttention.o", merge_heads(context))
            return self._feed_forward(weights, "layer.2", x)

        x = embedding(weights, EMBEDDINGS[0], token_ids)
        x = run_layers(weights, "decoder.block", block, x, attend, layers=self.layers)
        return self._norm(weights, "decoder.final_layer_norm", x)

    def logits(self, weights: Weights, hidden: tf.Tensor) -> tf.Tensor:
        if self.scale_decoder_outputs:
            hidden *= self.d_model**-0.5
        return output_logits(weights, HEAD if HEAD in weights else EMBEDDINGS[0], hidden)

    def _self_attention(
        self, weights: Weights, x: tf.Tensor, attend: Attend, bias: tf.Tensor
    ) -> tf.Tensor:
        query, key, value = self._projected(weights, "layer.0", "SelfAttention", "qkv", x)
        context = attend(query, key, value, 1.0, bias=bias)
        return x + linear(weights, "layer.0.SelfAttention.o", merge_heads(context))

    def _projected(
        self, weights: Weights, layer: str, name: str, parts: str, x: tf.Tensor
    ) -> list[tf.Tensor]:
        """Normalizes `x` and projects it to queries, keys or values: [R, H, P, D] each."""
        normed = self._norm(weights, f"{layer}.layer_norm", x)
        return [
            split_heads(linear(weights, f"{layer}.{name}.{part}", normed), self.num_heads)
            for part in parts
        ]

    def _feed_forward(self, weights: Weights, layer: str, x: tf.Tensor) -> tf.Tensor:
        dense = f"{layer}.DenseReluDense"
        normed = self._norm(weights, f"{layer}.layer_norm", x)
        if self.is_gated_act:
            inner = linear(weights, f"{dense}.wi_0", normed, self.dense_act_fn)
            inner *= linear(weights, f"{dense}.wi_1", normed)
        else:
            inner = linear(weights, f"{dense}.wi", normed, self.dense_act_fn)
        return x + linear(weights, f"{dense}.wo", inner)

    def _norm(self, weights: Weights, name: str, x: tf.Tensor) -> tf.Tensor:
        return rms_norm(weights, name, x, self.layer_norm_epsilon)

    def _bias(
        self, weights: Weights, stack: str, ahead: tf.Tensor, *, bidirectional: bool
    ) -> tf.Tensor:
        """Returns the biases [R, H, P, T] for distances [R, P, T] of keys ahead of queries.

        All layers of a stack share the biases of the first layer.
        """
        buckets = position_buckets(
            self.relative_attention_num_buckets,
            self.relative_attention_max_distance,
            bidirectional=bidirectional,
        )
        farthest = self.relative_attention_max_distance
        biases = weights[DISTANCE_BIASES.format(stack)]
        # Two look-ups, so that the one as large as the scores reads one small table.
        by_distance = tf.gather(tf.cast(biases, tf.float32), buckets)
        distance = tf.clip_by_value(ahead, -farthest, farthest) + farthest
        return tf.transpose(tf.gather(by_distance, distance), [0, 3, 1, 2])


class MT5(T5):
    """An mT5 model: a T5 1.1 with a vocabulary of many languages."""

    name = "mt5"
    architectures = ("MT5ForConditionalGeneration", "MT5Model")
    _defaults: ClassVar[dict[str, Any]] = {
        "vocab_size": 250112,
        "d_ff": 1024,
        "num_layers": 8,
        "num_heads": 6,
        "feed_forward_proj": "gated-gelu",
    }

    @classmethod
    def _scales_outputs(cls, config: Config) -> bool:
        del config
        return False


def position_buckets(buckets: int, max_distance: int, *, bidirectional: bool) -> np.ndarray:
    """Returns the bucket of each distance of a key from its query, within `max_distance`.

    The distances run from -`max_distance` to `max_distance`. Half of the buckets hold one distance
    each; the others hold ranges that grow with the distance, up to `max_distance`. In bidirectional
    attention, half of all buckets are for keys after the query. Otherwise no query sees such keys,
    and they share the bucket of the query itself.
    """
    ahead = np.arange(-max_distance, max_distance + 1)
    offset = np.zeros_like(ahead)
    if bidirectional:
        buckets //= 2
        offset = np.where(ahead > 0, buckets, 0)
        distance = np.abs(ahead)
    else:
        distance = np.maximum(-ahead, 0)
    exact = buckets // 2
    # In single precision and in this order, to round as Transformers does.
    octaves = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact))
    ranges = octaves / np.float32(math.log(max_distance / exact)) * np.float32(buckets - exact)
    far = np.minimum(exact + ranges.astype(np.int64), buckets - 1)
    return (offset + np.where(distance < exact, distance, far)).astype(np.int32)
