"""OPT (Zhang et al. 2022), as in Transformers' `OPTForCausalLM`."""

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

# Position 0 is row 2 of the position embeddings.
POSITION_OFFSET = 2
# Default of PyTorch's `LayerNorm`; no config names another.
LAYER_NORM_EPSILON = 1e-5
# Prefixes of tensor names in checkpoints saved as `OPTForCausalLM` and as `OPTModel`.
PREFIXES = ("model.decoder.", "decoder.")


@dataclass(frozen=True, kw_only=True)
class OPT(Family):
    """An OPT model; attributes have the names of its config.json.

    Attributes:
        vocab_size: V, number of token ids.
        max_position_embeddings: Maximum number of tokens of a sequence.
        hidden_size: E, width.
        word_embed_proj_dim: Width of the token embeddings, which are projected to and from E if it
            differs; E unless given.
        num_hidden_layers: L, number of layers.
        num_attention_heads: H, number of attention heads.
        ffn_dim: Width of the feed-forward layer.
        activation_function: Activation of the feed-forward layer.
        do_layer_norm_before: Normalize the inputs of attention and feed-forward layer, and the
            final hidden states; otherwise normalize the sums after them.
        remove_final_layer_norm: Do not normalize the final hidden states, as checkpoints tuned with
            early versions of Transformers require; `_remove_final_layer_norm` in config.json.
        enable_bias: The layers' projections have biases.
        layer_norm_elementwise_affine: Norms have gains and biases.
        tie_word_embeddings: The output projection is the token embedding.
    """

    vocab_size: int
    max_position_embeddings: int
    hidden_size: int
    word_embed_proj_dim: int
    num_hidden_layers: int
    num_attention_heads: int
    ffn_dim: int
    activation_function: str
    do_layer_norm_before: bool
    remove_final_layer_norm: bool
    enable_bias: bool
    layer_norm_elementwise_affine: bool
    tie_word_embeddings: bool

    name = "opt"
    architectures = ("OPTForCausalLM", "OPTModel")
    redundant = re.compile(r"lm_head\.weight")
    default_eos_token_id = 2
    roles: ClassVar[Mapping[str, Role]] = {
        "embed_tokens.weight": Role.VOCABULARY,
        "lm_head.weight": Role.VOCABULARY,
        "embed_positions.weight": Role.UNPACKED,
    }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Reads the dimensions; missing values default as in Transformers."""
        hidden_size = config.value("hidden_size", int, 768)
        dims = cls(
            vocab_size=config.value("vocab_size", int, 50272),
            max_position_embeddings=config.value("max_position_embeddings", int, 2048),
            hidden_size=hidden_size,
            word_embed_proj_dim=config.value("word_embed_proj_dim", int, hidden_size),
            num_hidden_layers=config.value("num_hidden_layers", int, 12),
            num_attention_heads=config.value("num_attention_heads", int, 12),
            ffn_dim=config.value("ffn_dim", int, 3072),
            activation_function=config.choice("activation_function", "relu", ACTIVATIONS),
            do_layer_norm_before=config.value("do_layer_norm_before", bool, True),
            remove_final_layer_norm=config.value("_remove_final_layer_norm", bool, False),
            enable_bias=config.value("enable_bias", bool, True),
            layer_norm_elementwise_affine=config.value("layer_norm_elementwise_affine", bool, True),
            tie_word_embeddings=config.value("tie_word_embeddings", bool, True),
        )
        if dims.hidden_size % dims.num_attention_heads:
            raise config.error(
                "hidden_size must be a multiple of num_attention_heads, got "
                f"{dims.hidden_size} and {dims.num_attention_heads}"
            )
        return dims

    @property
    def longest(self) -> int:
        return self.max_position_embeddings

    @property
    def layers(self) -> int:
        return self.num_hidden_layers

    @property
    def heads(self) -> int:
        return self.num_attention_heads

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def _projects_embeddings(self) -> bool:
        return self.word_embed_proj_dim != self.hidden_size

    @property
    def _has_final_layer_norm(self) -> bool:
        return self.do_layer_norm_before and not self.remove_final_layer_norm

    @property
    def stacks(self) -> Mapping[str, int]:
        return {"layers": self.num_hidden_layers}

    @property
    def tied(self) -> Sequence[str]:
        return ("embed_tokens.weight", "lm_head.weight") if self.tie_word_embeddings else ()

    def read_weights(
        self, checkpoint: Checkpoint, dtype: np.dtype[Any]
    ) -> Iterator[tuple[str, np.ndarray]]:
        prefix = next(
            (prefix for prefix in PREFIXES if f"{prefix}embed_tokens.weight" in checkpoint.names),
            PREFIXES[0],
        )
        width, inner, embedded = self.hidden_size, self.ffn_dim, self.word_embed_proj_dim

        def read(name: str, *shape: int, transposed: bool = False) -> tuple[str, np.ndarray]:
            return name, checkpoint.read(
                prefix + name, shape=shape, dtype=dtype, transposed=transposed
            )

        def read_linear(name: str, inputs: int, outputs: int) -> Iterator[tuple[str, np.ndarray]]:
            # Transposed to [I, O], with which XLA on CPU computes long prompts a little faster.
            yield read(f"{name}.weight", outputs, inputs, transposed=True)
            if self.enable_bias:
                yield read(f"{name}.bias", outputs)

        def read_norm(name: str) -> Iterator[tuple[str, np.ndarray]]:
            if self.layer_norm_elementwise_affine:
                yield read(f"{name}.weight", width)
                yield read(f"{name}.bias", width)

        yield read("embed_tokens.weight", self.vocab_size, embedded)
        yield read("embed_positions.weight", self.max_position_embeddings + POSITION_OFFSET, width)
        if not self.tie_word_embeddings:
            shape = (self.vocab_size, embedded)
            yield "lm_head.weight", checkpoint.read("lm_head.weight", shape=shape, dtype=dtype)
        if self._projects_embeddings:
            # The only linear layers that never have a bias.
            yield read("project_in.weight", width, embedded, transposed=True)
            yield read("project_out.weight", embedded, width, transposed=True)
        for layer in range(self.num_hidden_layers):
            h = f"layers.{layer}"
            attn = f"{h}.self_attn"
            for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                yield from read_linear(f"{attn}.{part}", width, width)
            yield from read_linear(f"{h}.fc1", width, inner)
            yield from read_linear(f"{h}.fc2", inner, width)
            yield from read_norm(f"{attn}_layer_norm")
            yield from read_norm(f"{h}.final_layer_norm")
        if self._has_final_layer_norm:
            yield from read_norm("final_layer_norm")

    def forward(
        self,
        weights: Weights,
        token_ids: tf.Tensor,
        positions: tf.Tensor,
        attend: Attend,
    ) -> tf.Tensor:
        x = embedding(weights, "embed_tokens.weight", token_ids)
        if self._projects_embeddings:
            x = linear(weights, "project_in", x)
        x += tf.gather(weights["embed_positions.weight"], positions + POSITION_OFFSET)
        x = run_layers(weights, "layers", self._block, x, attend, layers=self.num_hidden_layers)
        return _norm(weights, "final_layer_norm", x) if self._has_final_layer_norm else x

    def logits(self, weights: Weights, hidden: tf.Tensor) -> tf.Tensor:
        if self._projects_embeddings:
            hidden = linear(weights, "project_out", hidden)
        head = "embed_tokens.weight" if self.tie_word_embeddings else "lm_head.weight"
        return output_logits(weights, head, hidden)

    def _block(self, weights: Weights, x: tf.Tensor, attend: Attend) -> tf.Tensor:
        before = self.do_layer_norm_before

        inputs = _norm(weights, "self_attn_layer_norm", x) if before else x
        query, key, value = (
            split_heads(linear(weights, f"self_attn.{part}_proj", inputs), self.heads)
            for part in "qkv"
        )
        context = attend(query, key, value, self.head_size**-0.5)
        x += linear(weights, "self_attn.out_proj", merge_heads(context))
        if not before:
            x = _norm(weights, "self_attn_layer_norm", x)

        inputs = _norm(weights, "final_layer_norm", x) if before else x
        inner = linear(weights, "fc1", inputs, self.activation_function)
        x += linear(weights, "fc2", inner)
        return x if before else _norm(weights, "final_layer_norm", x)


def _norm(weights: Weights, name: str, x: tf.Tensor) -> tf.Tensor:
    return layer_norm(weights, name, x, LAYER_NORM_EPSILON)
