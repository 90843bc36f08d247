"""GPT-2 (Radford et al. 2019), as in Transformers' `GPT2LMHeadModel`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.models.config import Config
from shaperouter_service.models.family import Family
from shaperouter_service.models.layer_loop import Attend, run_layers
from shaperouter_service.models.layers import (
    ACTIVATIONS,
    embedding,
    layer_norm,
    linear,
    merge_heads,
    output_logits,
    split_heads,
)
from shaperouter_service.models.weights import Role, Weights


@dataclass(frozen=True, kw_only=True)
class GPT2(Family):
    """A GPT-2 model; attributes have the names of its config.json.

    Attributes:
        vocab_size: V, number of token ids.
        n_positions: Maximum number of tokens of a sequence.
        n_embd: E, width.
        n_layer: L, number of layers.
        n_head: H, number of attention heads.
        n_inner: Width of the feed-forward layer; 4 E unless given.
        activation_function: Activation of the feed-forward layer.
        layer_norm_epsilon: Added to variances.
        scale_attn_weights: Divide scores by the square root of D.
        scale_attn_by_inverse_layer_idx: Divide scores by the layer's number, too.
        tie_word_embeddings: The output projection is the token embedding.
    """

    vocab_size: int
    n_positions: int
    n_embd: int
    n_layer: int
    n_head: int
    n_inner: int
    activation_function: str
    layer_norm_epsilon: float
    scale_attn_weights: bool
    scale_attn_by_inverse_layer_idx: bool
    tie_word_embeddings: bool

    name = "gpt2"
    architectures = ("GPT2LMHeadModel", "GPT2Model")
    other_names: ClassVar[Mapping[str, str]] = {
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    }
    redundant = re.compile(r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias|lm_head\.weight")
    default_eos_token_id = 50256
    roles: ClassVar[Mapping[str, Role]] = {
        "wte.weight": Role.VOCABULARY,
        "lm_head.weight": Role.VOCABULARY,
        "wpe.weight": Role.UNPACKED,
    }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Reads the dimensions; missing values default as in Transformers."""
        n_embd = config.value("n_embd", int, 768)
        dims = cls(
            vocab_size=config.value("vocab_size", int, 50257),
            n_positions=config.value("n_positions", int, 1024),
            n_embd=n_embd,
            n_layer=config.value("n_layer", int, 12),
            n_head=config.value("n_head", int, 12),
            n_inner=config.value("n_inner", int, 4 * n_embd),
            activation_function=config.choice("activation_function", "gelu_new", ACTIVATIONS),
            layer_norm_epsilon=config.value("layer_norm_epsilon", float, 1e-5),
            scale_attn_weights=config.value("scale_attn_weights", bool, True),
            scale_attn_by_inverse_layer_idx=config.value(
                "scale_attn_by_inverse_layer_idx", bool, False
            ),
            tie_word_embeddings=config.value("tie_word_embeddings", bool, True),
        )
        if dims.n_embd % dims.n_head:
            raise config.error(
                f"n_embd must be a multiple of n_head, got {dims.n_embd} and {dims.n_head}"
            )
        if config.value("add_cross_attention", bool, False):
            raise config.error("add_cross_attention is not supported for gpt2")
        return dims

    @property
    def longest(self) -> int:
        return self.n_positions

    @property
    def layers(self) -> int:
        return self.n_layer

    @property
    def heads(self) -> int:
        return self.n_head

    @property
    def head_size(self) -> int:
        return self.n_embd // self.n_head

    def _shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        width, inner = self.n_embd, self.n_inner
        yield "wte.weight", (self.vocab_size, width)
        yield "wpe.weight", (self.n_positions, width)
        for layer in range(self.n_layer):
            for name, *shape in (
                ("ln_1", width),
                ("attn.c_attn", width, 3 * width),
                ("attn.c_proj", width, width),
                ("ln_2", width),
                ("mlp.c_fc", width, inner),
                ("mlp.c_proj", inner, width),
            ):
                yield f"h.{layer}.{name}.weight", tuple(shape)
                yield f"h.{layer}.{name}.bias", (shape[-1],)
        yield "ln_f.weight", (width,)
        yield "ln_f.bias", (width,)

    @property
    def stacks(self) -> Mapping[str, int]:
        return {"h": self.n_layer}

    @property
    def tied(self) -> Sequence[str]:
        return ("wte.weight", "lm_head.weight") if self.tie_word_embeddings else ()

    def read_weights(
        self, checkpoint: Checkpoint, dtype: np.dtype[Any]
    ) -> Iterator[tuple[str, np.ndarray]]:
        # Checkpoints of the bare `GPT2Model`, such as the original one, have no prefix.
        prefix = "" if "wte.weight" in checkpoint.names else "transformer."
        for name, shape in self._shapes():
            yield name, checkpoint.read(prefix + name, shape=shape, dtype=dtype)
        if not self.tie_word_embeddings:
            shape = (self.vocab_size, self.n_embd)
            yield "lm_head.weight", checkpoint.read("lm_head.weight", shape=shape, dtype=dtype)

    def forward(
        self,
        weights: Weights,
        token_ids: tf.Tensor,
        positions: tf.Tensor,
        attend: Attend,
    ) -> tf.Tensor:
        x = embedding(weights, "wte.weight", token_ids)
        x += tf.gather(weights["wpe.weight"], positions)
        x = run_layers(weights, "h", self._block, x, attend, layers=self.n_layer)
        return self._norm(weights, "ln_f", x)

    def logits(self, weights: Weights, hidden: tf.Tensor) -> tf.Tensor:
        head = "wte.weight" if self.tie_word_embeddings else "lm_head.weight"
        return output_logits(weights, head, hidden)

    def _block(self, weights: Weights, x: tf.Tensor, attend: Attend) -> tf.Tensor:
        projected = linear(weights, "attn.c_attn", self._norm(weights, "ln_1", x))  # [R, P, 3E]
        query, key, value = (
            split_heads(part, self.n_head) for part in tf.split(projected, 3, axis=-1)
        )
        if self.scale_attn_by_inverse_layer_idx:
            query /= tf.cast(attend.layer + 1, query.dtype)
        scale = self.head_size**-0.5 if self.scale_attn_weights else 1.0
        context = attend(query, key, value, scale)
        x += linear(weights, "attn.c_proj", merge_heads(context))
        normed = self._norm(weights, "ln_2", x)
        inner = linear(weights, "mlp.c_fc", normed, self.activation_function)
        return x + linear(weights, "mlp.c_proj", inner)

    def _norm(self, weights: Weights, name: str, x: tf.Tensor) -> tf.Tensor:
        return layer_norm(weights, name, x, self.layer_norm_epsilon)
