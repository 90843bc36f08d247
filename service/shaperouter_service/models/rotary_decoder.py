"""Decoders with rotary positions, RMS norms and gated feed-forward layers.

Most families since LLaMA (Touvron et al. 2023) are such a decoder with a few differences. A family
says what differs; everything else is here.
"""

import abc
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.models.config import Config
from shaperouter_service.models.family import Family
from shaperouter_service.models.layer_loop import AttendInWindow, run_layers
from shaperouter_service.models.layers import (
    ACTIVATIONS,
    embedding,
    linear,
    merge_heads,
    output_logits,
    rms_norm,
    split_heads,
)
from shaperouter_service.models.rotary import Rotary, angles, read_rotary, rotate
from shaperouter_service.models.weights import Role, Weights

# Sizes above these are refused at once. Others are checked against the shapes of the tensors.
MAX_LAYERS, MAX_HEAD_DIM = 10_000, 2**16

# The window of a layer whose queries see every earlier token.
NO_WINDOW = 2**31 - 1

# Values of `layer_types`, as in Transformers.
FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, kw_only=True)
class RotaryDecoder(Family):
    """A decoder of layers with rotary positions; attributes have the names of its config.json.

    Attributes:
        vocab_size: V, number of token ids.
        max_position_embeddings: Maximum number of tokens of a sequence.
        hidden_size: E, width.
        intermediate_size: Width of the feed-forward layer.
        num_hidden_layers: L, number of layers.
        num_attention_heads: H * G, number of heads of queries.
        num_key_value_heads: H, number of heads of keys and values.
        head_dim: D, size of a head.
        hidden_act: Activation of the feed-forward layer's gate.
        rms_norm_eps: Added to mean squares.
        tie_word_embeddings: The output projection is the token embedding.
        rotaries: The kinds of rotary positions.
        rotary_of_layer: Which of them each layer has.
        windows: Number of tokens that a query of each layer sees, itself included; `NO_WINDOW` for
            all.
        projection_bias: Queries, keys and values have biases.
        output_bias: The projections of attention's results have biases.
        mlp_bias: The feed-forward layers have biases.
        norms_heads: Each head of queries and keys is normalized.
        norms_outputs: Results of attention and of feed-forward layers are normalized, too.
        gain_offset: Added to the gains of norms.
        embedding_scale: Factor of token embeddings.
        score_scale: Factor of attention scores.
        score_cap: Bound of attention scores; 0 for none.
        logit_cap: Bound of logits; 0 for none.
    """

    vocab_size: int
    max_position_embeddings: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    hidden_act: str
    rms_norm_eps: float
    tie_word_embeddings: bool
    rotaries: tuple[Rotary, ...]
    rotary_of_layer: tuple[int, ...]
    windows: tuple[int, ...]
    score_scale: float
    projection_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    norms_heads: bool = False
    norms_outputs: bool = False
    gain_offset: float = 0.0
    embedding_scale: float = 1.0
    score_cap: float = 0.0
    logit_cap: float = 0.0

    # Rotary frequencies, which old checkpoints contain, and copies of tied embeddings.
    redundant = re.compile(r".*rotary_emb\.inv_freq|(.*\.)?lm_head\.weight")
    roles: ClassVar[Mapping[str, Role]] = {
        "embed_tokens.weight": Role.VOCABULARY,
        "lm_head.weight": Role.VOCABULARY,
    }
    # Prefixes of tensor names in checkpoints saved with and without a head.
    prefixes: ClassVar[Sequence[str]] = ("model.", "")
    # Defaults of missing config values, as in Transformers.
    defaults: ClassVar[Mapping[str, Any]] = {}
    default_theta: ClassVar[float] = 10000.0
    activation_key: ClassVar[str] = "hidden_act"
    default_activation: ClassVar[str] = "silu"

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Reads the dimensions; missing values default as in Transformers."""
        shared = cls._shared(config)
        return cls(**(shared | cls._own(config, shared)))

    @classmethod
    def _shared(cls, config: Config) -> dict[str, Any]:
        """Reads the dimensions that all families have."""
        defaults = cls.defaults
        layers = config.number(
            "num_hidden_layers", int, defaults["num_hidden_layers"], at_least=1, at_most=MAX_LAYERS
        )
        width = config.value("hidden_size", int, defaults["hidden_size"])
        heads = config.value("num_attention_heads", int, defaults["num_attention_heads"])
        kv_heads = config.value(
            "num_key_value_heads", int, defaults.get("num_key_value_heads") or heads
        )
        if heads % kv_heads:
            raise config.error(
                "num_attention_heads must be a multiple of num_key_value_heads, got "
                f"{heads} and {kv_heads}"
            )
        size = config.value("head_dim", int, defaults.get("head_dim") or max(1, width // heads))
        if size > MAX_HEAD_DIM:
            raise config.error(f"heads must have at most {MAX_HEAD_DIM} numbers, got {size}")
        if config.value("use_bidirectional_attention", bool, False):
            raise config.error("use_bidirectional_attention must be false to generate, got True")
        rotaries, rotary_of_layer = cls._rotaries(config, size, layers)
        return {
            "vocab_size": config.value("vocab_size", int, defaults["vocab_size"]),
            "max_position_embeddings": config.value(
                "max_position_embeddings", int, defaults["max_position_embeddings"]
            ),
            "hidden_size": width,
            "intermediate_size": config.value(
                "intermediate_size", int, defaults["intermediate_size"]
            ),
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": size,
            "hidden_act": config.choice(cls.activation_key, cls.default_activation, ACTIVATIONS),
            "rms_norm_eps": config.value("rms_norm_eps", float, defaults.get("rms_norm_eps", 1e-6)),
            "tie_word_embeddings": config.value(
                "tie_word_embeddings", bool, defaults.get("tie_word_embeddings", False)
            ),
            "rotaries": rotaries,
            "rotary_of_layer": rotary_of_layer,
            "windows": (NO_WINDOW,) * layers,
            "score_scale": size**-0.5,
        }

    @classmethod
    def _rotaries(
        cls, config: Config, size: int, layers: int
    ) -> tuple[tuple[Rotary, ...], tuple[int, ...]]:
        """Reads the kinds of rotary positions, and which of them each layer has."""
        return (read_rotary(config, size, theta=cls.default_theta),), (0,) * layers

    @classmethod
    @abc.abstractmethod
    def _own(cls, config: Config, shared: Mapping[str, Any]) -> dict[str, Any]:
        """Reads what differs between families.

        Args:
            config: Content of config.json.
            shared: What `_shared` has read.
        """

    @property
    def longest(self) -> int:
        limits = [rotary.max_length for rotary in self.rotaries if rotary.max_length is not None]
        return min([self.max_position_embeddings, *limits])

    @property
    def layers(self) -> int:
        return self.num_hidden_layers

    @property
    def heads(self) -> int:
        return self.num_key_value_heads

    @property
    def head_size(self) -> int:
        return self.head_dim

    @property
    def stacks(self) -> Mapping[str, int]:
        return {"layers": self.num_hidden_layers}

    @property
    def tied(self) -> Sequence[str]:
        return ("embed_tokens.weight", "lm_head.weight") if self.tie_word_embeddings else ()

    @property
    def _widths(self) -> tuple[int, int, int]:
        """Numbers of a token's queries, keys and values."""
        of_keys = self.num_key_value_heads * self.head_dim
        return self.num_attention_heads * self.head_dim, of_keys, of_keys

    def read_weights(
        self, checkpoint: Checkpoint, dtype: np.dtype[Any]
    ) -> Iterator[tuple[str, np.ndarray]]:
        prefix = next(
            (each for each in self.prefixes if f"{each}embed_tokens.weight" in checkpoint.names),
            self.prefixes[0],
        )
        width, inner = self.hidden_size, self.intermediate_size

        def read(name: str, *shape: int) -> tuple[str, np.ndarray]:
            return name, checkpoint.read(prefix + name, shape=shape, dtype=dtype)

        def read_linear(
            name: str, parts: Mapping[str, int], inputs: int, *, bias: bool
        ) -> Iterator[tuple[str, np.ndarray]]:
            # Projections of the same input are one matrix, which takes one call of the kernels.
            whole = {f"{prefix}{name}": sum(parts.values())}
            path = name.rpartition(".")[0]
            joined = {f"{prefix}{path}.{part}": rows for part, rows in parts.items()}
            found = whole if f"{prefix}{name}.weight" in checkpoint.names else joined
            shapes = {f"{part}.weight": (rows, inputs) for part, rows in found.items()}
            yield f"{name}.weight", checkpoint.read_joined(shapes, dtype=dtype, transposed=True)
            if bias:
                shapes_of_bias = {f"{part}.bias": (rows,) for part, rows in found.items()}
                yield f"{name}.bias", checkpoint.read_joined(shapes_of_bias, dtype=dtype)

        shape = (self.vocab_size, width)
        yield read("embed_tokens.weight", *shape)
        if not self.tie_word_embeddings:
            # Models that also read images have it at other places.
            found = (each for each in checkpoint.names if each.endswith("lm_head.weight"))
            head = next(found, "lm_head.weight")
            yield "lm_head.weight", checkpoint.read(head, shape=shape, dtype=dtype)
        of_attention = dict(zip(("q_proj", "k_proj", "v_proj"), self._widths, strict=True))
        of_query = self._widths[0]
        for layer in range(self.num_hidden_layers):
            h = f"layers.{layer}"
            attn, mlp = f"{h}.self_attn", f"{h}.mlp"
            bias = self.projection_bias
            yield from read_linear(f"{attn}.qkv_proj", of_attention, width, bias=bias)
            bias = self.output_bias
            yield from read_linear(f"{attn}.o_proj", {"o_proj": width}, of_query, bias=bias)
            gate = {"gate_proj": inner, "up_proj": inner}
            yield from read_linear(f"{mlp}.gate_up_proj", gate, width, bias=self.mlp_bias)
            down = {"down_proj": width}
            yield from read_linear(f"{mlp}.down_proj", down, inner, bias=self.mlp_bias)
            for name in self._norms:
                yield read(f"{h}.{name}.weight", width)
            if self.norms_heads:
                yield read(f"{attn}.q_norm.weight", self.head_dim)
                yield read(f"{attn}.k_norm.weight", self.head_dim)
        yield read("norm.weight", width)

    @property
    def _norms(self) -> tuple[str, ...]:
        """Norms of a layer: before and after attention and feed-forward layer, in their order."""
        if self.norms_outputs:
            return (
                "input_layernorm",
                "post_attention_layernorm",
                "pre_feedforward_layernorm",
                "post_feedforward_layernorm",
            )
        # In spite of its name, the second one is before the feed-forward layer.
        return ("input_layernorm", "post_attention_layernorm")

    def forward(
        self,
        weights: Weights,
        token_ids: tf.Tensor,
        positions: tf.Tensor,
        attend: AttendInWindow,
    ) -> tf.Tensor:
        x = embedding(weights, "embed_tokens.weight", token_ids)
        if self.embedding_scale != 1:
            x *= tf.cast(self.embedding_scale, x.dtype)
        cosines, sines = angles(self.rotaries, positions)

        def block(weights: Weights, x: tf.Tensor, attend: AttendInWindow) -> tf.Tensor:
            kind = self._of_layer(self.rotary_of_layer, attend.layer)
            turn = tf.gather(cosines, kind), tf.gather(sines, kind)
            before, *after = self._norms[: len(self._norms) // 2]
            attended = self._attention(weights, self._norm(weights, before, x), attend, *turn)
            x += self._normed(weights, after, attended)
            before, *after = self._norms[len(self._norms) // 2 :]
            fed = self._feed_forward(weights, self._norm(weights, before, x))
            return x + self._normed(weights, after, fed)

        x = run_layers(weights, "layers", block, x, attend, layers=self.num_hidden_layers)
        return self._norm(weights, "norm", x)

    def logits(self, weights: Weights, hidden: tf.Tensor) -> tf.Tensor:
        head = "embed_tokens.weight" if self.tie_word_embeddings else "lm_head.weight"
        logits = output_logits(weights, head, hidden)
        if self.logit_cap:
            logits = self.logit_cap * tf.tanh(logits / self.logit_cap)
        return logits

    def _attention(
        self,
        weights: Weights,
        x: tf.Tensor,
        attend: AttendInWindow,
        cosines: tf.Tensor,
        sines: tf.Tensor,
    ) -> tf.Tensor:
        projected = linear(weights, "self_attn.qkv_proj", x)
        query, key, value = (
            split_heads(part, part.shape[-1] // self.head_dim)
            for part in tf.split(projected, self._widths, axis=-1)
        )
        if self.norms_heads:
            query = self._norm(weights, "self_attn.q_norm", query, of_heads=True)
            key = self._norm(weights, "self_attn.k_norm", key, of_heads=True)
        query, key = (rotate(each, cosines, sines) for each in (query, key))
        # A window that no sequence exceeds would only cost time.
        has_window = min(self.windows) < self.max_length
        window = self._of_layer(self.windows, attend.layer) if has_window else None
        context = attend(query, key, value, self.score_scale, window=window, cap=self.score_cap)
        return linear(weights, "self_attn.o_proj", merge_heads(context))

    def _feed_forward(self, weights: Weights, x: tf.Tensor) -> tf.Tensor:
        gate, up = tf.split(linear(weights, "mlp.gate_up_proj", x), 2, axis=-1)
        return linear(weights, "mlp.down_proj", ACTIVATIONS[self.hidden_act].function(gate) * up)

    def _norm(
        self, weights: Weights, name: str, x: tf.Tensor, *, of_heads: bool = False
    ) -> tf.Tensor:
        epsilon, offset = self.rms_norm_eps, self.gain_offset
        return rms_norm(weights, name, x, epsilon, gain_offset=offset, of_heads=of_heads)

    def _normed(self, weights: Weights, names: Sequence[str], x: tf.Tensor) -> tf.Tensor:
        for name in names:
            x = self._norm(weights, name, x)
        return x

    @staticmethod
    def _of_layer(values: Sequence[int], layer: int | tf.Tensor) -> tf.Tensor:
        """The value of a layer; a constant if all layers have the same."""
        if len(set(values)) == 1:
            return tf.constant(values[0], tf.int32)
        return tf.gather(tf.constant(values, tf.int32), layer)


def layer_types(config: Config, layers: int, default: Sequence[str]) -> Sequence[str]:
    """Reads the kind of each layer's attention.

    Raises:
        StartupError: There is not one for each layer, or one is unknown.
    """
    found = config.values.get("layer_types")
    if found is None:
        return default
    if not isinstance(found, list) or len(found) < layers:
        raise config.error(f"layer_types must be a list of {layers} kinds, got {found!r}")
    for kind in found[:layers]:
        if kind not in (FULL, SLIDING):
            raise config.error(f"layer_types must have {FULL} or {SLIDING}, got {kind!r}")
    return found[:layers]


def windows(config: Config, kinds: Sequence[str], default: int | None) -> tuple[int, ...]:
    """Reads the window of each layer.

    Args:
        config: Content of config.json.
        kinds: Kind of each layer's attention.
        default: `sliding_window` if the config lacks it; null in the config means none.

    Raises:
        StartupError: The window is unusable, or a sliding layer has none.
    """
    if SLIDING not in kinds:
        return (NO_WINDOW,) * len(kinds)
    if "sliding_window" in config.values and config.values["sliding_window"] is None:
        default = None
    if default is None and config.values.get("sliding_window") is None:
        raise config.error(f"sliding_window must be a number for layers of {SLIDING}, got None")
    window = min(config.value("sliding_window", int, default or 1), NO_WINDOW)
    return tuple(window if kind == SLIDING else NO_WINDOW for kind in kinds)
