"""The layers of Vaswani et al. (2017), which several families of encoder-decoders share."""

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    layer_norm,
    linear,
    merge_heads,
    output_logits,
    split_heads,
)
from shaperouter_service.models.weights import Role, Weights

# Default of PyTorch's `LayerNorm`; no config names another.
LAYER_NORM_EPSILON = 1e-5
# Prefixes of tensor names in checkpoints saved with their head and without it.
PREFIXES = ("model.", "")
# Possible names of tied embeddings in a checkpoint, depending on the program that saved it.
SHARED = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_, SOURCE_EMBEDDINGS, EMBEDDINGS = SHARED
HEADS = ("lm_head.weight", "proj_out.weight")
POSITIONS = ("encoder.embed_positions.weight", "decoder.embed_positions.weight")

NamedWeight = tuple[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Tensors:
    """Reads the tensors of a checkpoint by their names without its prefix."""

    checkpoint: Checkpoint
    dtype: np.dtype[Any]
    prefix: str

    @classmethod
    def of(cls, checkpoint: Checkpoint, dtype: np.dtype[Any]) -> Self:
        """Finds the prefix of a checkpoint."""
        with_head, without = PREFIXES
        is_with_head = any(name.startswith(f"{with_head}decoder.") for name in checkpoint.names)
        return cls(checkpoint, dtype, with_head if is_with_head else without)

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.checkpoint.names

    def read(self, name: str, *shape: int, transposed: bool = False) -> NamedWeight:
        """Reads a tensor and returns it with its name."""
        return name, self.checkpoint.read(
            self.prefix + name, shape=shape, dtype=self.dtype, transposed=transposed
        )

    def read_linear(
        self, name: str, inputs: int, outputs: int, *, bias: bool = True
    ) -> Iterator[NamedWeight]:
        """Reads the weight, [I, O], and the bias of a linear layer."""
        # Transposed to [I, O], with which XLA on CPU computes long inputs a little faster.
        yield self.read(f"{name}.weight", outputs, inputs, transposed=True)
        if bias:
            yield self.read(f"{name}.bias", outputs)

    def read_norm(self, name: str, width: int) -> Iterator[NamedWeight]:
        """Reads the gain and the bias of a norm."""
        yield self.read(f"{name}.weight", width)
        yield self.read(f"{name}.bias", width)


@dataclass(frozen=True, kw_only=True)
class Seq2Seq(EncoderDecoder):
    """The layers of an encoder and a decoder; attributes have the names of config.json.

    Attributes:
        norms_before: Each part of a layer normalizes its input, and each stack of layers its
            output. Otherwise the sum after each part is normalized.
        norms_embeddings: Each stack normalizes its embeddings.
        has_key_biases: The projections to keys have biases, as the others have.
        head: Name of the output projection.
        position_offset: Row of the position embeddings for position 0.
        defaults: Values missing in config.json, as in Transformers.
        vocab_size: V, number of token ids.
        d_model: E, width.
        encoder_layers: Number of layers of the encoder.
        encoder_attention_heads: Number of attention heads of the encoder.
        encoder_ffn_dim: Width of the encoder's feed-forward layer.
        decoder_layers: L, number of layers of the decoder.
        decoder_attention_heads: H, number of attention heads of the decoder.
        decoder_ffn_dim: Width of the decoder's feed-forward layer.
        activation_function: Activation of the feed-forward layers.
        tie_word_embeddings: The encoder, the decoder and the output projection share embeddings.
    """

    norms_before: ClassVar[bool]
    norms_embeddings: ClassVar[bool]
    has_key_biases: ClassVar[bool] = True
    head: ClassVar[str] = HEADS[0]
    position_offset: ClassVar[int] = 0
    defaults: ClassVar[Mapping[str, Any]]
    # In Transformers too, these are names of the encoder's numbers alone.
    other_names: ClassVar[Mapping[str, str]] = {
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    }

    vocab_size: int
    d_model: int
    encoder_layers: int
    encoder_attention_heads: int
    encoder_ffn_dim: int
    decoder_layers: int
    decoder_attention_heads: int
    decoder_ffn_dim: int
    activation_function: str
    tie_word_embeddings: bool

    roles: ClassVar[Mapping[str, Role]] = {
        **dict.fromkeys((SOURCE_EMBEDDINGS, EMBEDDINGS, *HEADS), Role.VOCABULARY),
        **dict.fromkeys(POSITIONS, Role.UNPACKED),
    }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Reads the dimensions; missing values default as in Transformers."""
        defaults = cls.defaults

        def size(name: str) -> int:
            return config.value(name, int, defaults[name])

        dims = cls(
            vocab_size=size("vocab_size"),
            d_model=size("d_model"),
            encoder_layers=size("encoder_layers"),
            encoder_attention_heads=size("encoder_attention_heads"),
            encoder_ffn_dim=size("encoder_ffn_dim"),
            decoder_layers=size("decoder_layers"),
            decoder_attention_heads=size("decoder_attention_heads"),
            decoder_ffn_dim=size("decoder_ffn_dim"),
            activation_function=config.choice(
                "activation_function", defaults["activation_function"], ACTIVATIONS
            ),
            tie_word_embeddings=config.value("tie_word_embeddings", bool, True),
            **cls.own_values(config),
        )
        for part in ("encoder", "decoder"):
            heads = getattr(dims, f"{part}_attention_heads")
            if dims.d_model % heads:
                raise config.error(
                    f"d_model must be a multiple of {part}_attention_heads, got {dims.d_model} "
                    f"and {heads}"
                )
        return dims

    @classmethod
    @abc.abstractmethod
    def own_values(cls, config: Config) -> Mapping[str, Any]:
        """Reads the values of the attributes that only this family has."""

    @property
    def layers(self) -> int:
        return self.decoder_layers

    @property
    def heads(self) -> int:
        return self.decoder_attention_heads

    @property
    def head_size(self) -> int:
        return self.d_model // self.decoder_attention_heads

    @property
    def stacks(self) -> Mapping[str, int]:
        return {"encoder.layers": self.encoder_layers, "decoder.layers": self.decoder_layers}

    @property
    def tied(self) -> Sequence[str]:
        return (*SHARED, *HEADS) if self.tie_word_embeddings else ()

    def read_weights(self, checkpoint: Checkpoint, dtype: np.dtype[Any]) -> Iterator[NamedWeight]:
        tensors = Tensors.of(checkpoint, dtype)
        yield from self.read_inputs(tensors)
        if not self.tie_word_embeddings:
            shape = (self.vocab_size, self.d_model)
            yield self.head, checkpoint.read(self.head, shape=shape, dtype=dtype)
        width = self.d_model
        for part, layers, inner, attentions in (
            ("encoder", self.encoder_layers, self.encoder_ffn_dim, ["self_attn"]),
            ("decoder", self.decoder_layers, self.decoder_ffn_dim, ["self_attn", "encoder_attn"]),
        ):
            if self.norms_embeddings:
                yield from tensors.read_norm(f"{part}.layernorm_embedding", width)
            if self.norms_before:
                yield from tensors.read_norm(f"{part}.layer_norm", width)
            for layer in range(layers):
                h = f"{part}.layers.{layer}"
                for attn in attentions:
                    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                        bias = name != "k_proj" or self.has_key_biases
                        yield from tensors.read_linear(
                            f"{h}.{attn}.{name}", width, width, bias=bias
                        )
                    yield from tensors.read_norm(f"{h}.{attn}_layer_norm", width)
                yield from tensors.read_linear(f"{h}.fc1", width, inner)
                yield from tensors.read_linear(f"{h}.fc2", inner, width)
                yield from tensors.read_norm(f"{h}.final_layer_norm", width)

    @abc.abstractmethod
    def read_inputs(self, tensors: Tensors) -> Iterator[NamedWeight]:
        """Yields what comes before the layers: the embeddings, at least `EMBEDDINGS`."""

    def is_of_encoder(self, weight: str) -> bool:
        keys_and_values = ("encoder_attn.k_proj", "encoder_attn.v_proj")
        return weight.startswith("encoder.") or weight.rpartition(".")[0].endswith(keys_and_values)

    def encode(
        self, weights: Weights, source: tf.Tensor, lengths: tf.Tensor, keep: KeepSource
    ) -> None:
        def keys_and_values(weights: Weights, x: tf.Tensor, keep: KeepSource) -> tf.Tensor:
            key, value = (
                split_heads(linear(weights, f"encoder_attn.{part}_proj", x), self.heads)
                for part in "kv"
            )
            keep(key, value)
            return x

        x = self.encode_source(weights, source, lengths)
        run_layers(weights, "decoder.layers", keys_and_values, x, keep, layers=self.layers)

    @abc.abstractmethod
    def encode_source(self, weights: Weights, source: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Runs the encoder.

        Args:
            weights: As named by `read_weights`.
            source: Shaped as `source_spec` says.
            lengths: [R] int32, positions of each source.

        Returns:
            Hidden states after the last norm, [R, S, E], of the weights' type.
        """

    def run_encoder(self, weights: Weights, x: tf.Tensor, visible: tf.Tensor) -> tf.Tensor:
        """Runs the layers of the encoder on embeddings.

        Args:
            weights: As named by `read_weights`.
            x: [R, S, E].
            visible: Boolean, broadcastable to [R, H, S, S]: the positions that each one sees.

        Returns:
            Hidden states after the last norm, [R, S, E].
        """

        def block(weights: Weights, x: tf.Tensor, attend: Attend) -> tf.Tensor:
            x = self._self_attention(weights, x, attend, self.encoder_attention_heads)
            return self._feed_forward(weights, x)

        if self.norms_embeddings:
            x = _norm(weights, "encoder.layernorm_embedding", x)
        attend = EncoderAttention(visible)
        x = run_layers(weights, "encoder.layers", block, x, attend, layers=self.encoder_layers)
        return _norm(weights, "encoder.layer_norm", x) if self.norms_before else x

    def forward(
        self,
        weights: Weights,
        token_ids: tf.Tensor,
        positions: tf.Tensor,
        attend: AttendWithSource,  # type: ignore[override]  # see EncoderDecoder
    ) -> tf.Tensor:
        def block(weights: Weights, x: tf.Tensor, attend: AttendWithSource) -> tf.Tensor:
            def attend_to_source(x: tf.Tensor) -> tf.Tensor:
                query = split_heads(linear(weights, "encoder_attn.q_proj", x), self.heads)
                context = attend.to_source(query, self.head_size**-0.5)
                return linear(weights, "encoder_attn.out_proj", merge_heads(context))

            x = self._self_attention(weights, x, attend, self.heads)
            x = self._add(weights, "encoder_attn_layer_norm", x, attend_to_source)
            return self._feed_forward(weights, x)

        x = self.embed(weights, EMBEDDINGS, token_ids)
        x += tf.gather(weights[POSITIONS[1]], self.position_rows(token_ids, positions))
        if self.norms_embeddings:
            x = _norm(weights, "decoder.layernorm_embedding", x)
        x = run_layers(weights, "decoder.layers", block, x, attend, layers=self.layers)
        return _norm(weights, "decoder.layer_norm", x) if self.norms_before else x

    def logits(self, weights: Weights, hidden: tf.Tensor) -> tf.Tensor:
        return output_logits(weights, EMBEDDINGS if self.tie_word_embeddings else self.head, hidden)

    def embed(self, weights: Weights, name: str, token_ids: tf.Tensor) -> tf.Tensor:
        """Looks up the embeddings of tokens: [R, P, E]."""
        return embedding(weights, name, token_ids)

    def position_rows(self, token_ids: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """Rows of the position embeddings for tokens at `positions`; both are [R, P] int32."""
        del token_ids
        return positions + self.position_offset

    def _self_attention(
        self, weights: Weights, x: tf.Tensor, attend: Attend, heads: int
    ) -> tf.Tensor:
        def attend_to_self(x: tf.Tensor) -> tf.Tensor:
            query, key, value = (
                split_heads(linear(weights, f"self_attn.{part}_proj", x), heads) for part in "qkv"
            )
            context = attend(query, key, value, query.shape[-1] ** -0.5)
            return linear(weights, "self_attn.out_proj", merge_heads(context))

        return self._add(weights, "self_attn_layer_norm", x, attend_to_self)

    def _feed_forward(self, weights: Weights, x: tf.Tensor) -> tf.Tensor:
        def feed_forward(x: tf.Tensor) -> tf.Tensor:
            inner = linear(weights, "fc1", x, self.activation_function)
            return linear(weights, "fc2", inner)

        return self._add(weights, "final_layer_norm", x, feed_forward)

    def _add(
        self, weights: Weights, norm: str, x: tf.Tensor, part: Callable[[tf.Tensor], tf.Tensor]
    ) -> tf.Tensor:
        """Adds to `x` what a part of a layer makes of it, with the norm before or after it."""
        if self.norms_before:
            return x + part(_norm(weights, norm, x))
        return _norm(weights, norm, x + part(x))


def _norm(weights: Weights, name: str, x: tf.Tensor) -> tf.Tensor:
    return layer_norm(weights, name, x, LAYER_NORM_EPSILON)
