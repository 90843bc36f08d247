"""The interface of a text encoder, and what its families share: layers with the norm at the end."""

import abc
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.models.config import Config
from shaperouter_service.models.encoders.tokens import Tokens
from shaperouter_service.models.layer_loop import run_layers
from shaperouter_service.models.layers import ACTIVATIONS, linear
from shaperouter_service.models.weights import Role, Weights

# Names of our weights; those of layers follow `layers.{layer}.`.
WORDS, POSITIONS, TYPES = "embeddings.words", "embeddings.positions", "embeddings.types"
EMBEDDING_NORM = "embeddings.norm"
LAYERS = "layers"
# Largest size of a head that the native kernels support.
MAX_HEAD_SIZE = 512
# Values that would change answers if they were ignored, and the only ones that are supported.
UNSUPPORTED: Mapping[str, Any] = {
    "is_decoder": False,
    "add_cross_attention": False,
    "is_encoder_decoder": False,
    "position_embedding_type": "absolute",
    "pruned_heads": {},
    "quantization_config": None,
}


@dataclass(frozen=True, kw_only=True)
class LayerNames:
    """Names in a checkpoint of the weights of a layer, each before `.weight` and `.bias`.

    Attributes:
        query: Projects to queries.
        key: Projects to keys.
        value: Projects to values.
        out: Projects what attention returns.
        attention_norm: Norm after attention.
        up: The feed-forward layer's first product.
        down: Its second product.
        norm: Norm after the feed-forward layer.
    """

    query: str
    key: str
    value: str
    out: str
    attention_norm: str
    up: str
    down: str
    norm: str


@dataclass(frozen=True, kw_only=True)
class TextEncoder(abc.ABC):
    """The dimensions of an encoder and its forward pass, pure functions over weights.

    Attributes:
        vocab_size: V, number of token ids.
        width: E.
        num_layers: L.
        num_heads: H.
        inner: Width of the feed-forward layer.
        activation: Activation of the feed-forward layer.
        epsilon: Added to variances.
        num_positions: Number of position embeddings.
        num_types: Number of types of tokens; 0 if tokens have no type.
    """

    vocab_size: int
    width: int
    num_layers: int
    num_heads: int
    inner: int
    activation: str
    epsilon: float
    num_positions: int
    num_types: int

    # Name of the family, which is the `model_type` of config.json.
    name: ClassVar[str]
    # See `Family.other_names`.
    other_names: ClassVar[Mapping[str, str]] = {}
    # How the names of Transformers' classes begin, and of the tensors of a model with a head.
    class_prefix: ClassVar[str]
    prefix: ClassVar[str]
    # Name of the stack of layers in a checkpoint, and of the weights of each.
    stack: ClassVar[str] = "encoder.layer"
    layer_names: ClassVar[LayerNames]
    # What a classifier of texts does with the first token: names of products, and activations.
    classifier: ClassVar[Sequence[tuple[str, str | None]]]

    @classmethod
    @abc.abstractmethod
    def from_config(cls, config: Config) -> Self:
        """Reads the dimensions from the content of config.json.

        Raises:
            StartupError: A value is unusable.
        """

    @property
    def max_length(self) -> int:
        """Maximum number of tokens of a text."""
        return self.num_positions

    @property
    def stacks(self) -> Mapping[str, int]:
        """See `Family.stacks`."""
        return {LAYERS: self.num_layers}

    @property
    def roles(self) -> Mapping[str, Role]:
        """See `Family.roles`."""
        return dict.fromkeys((WORDS, POSITIONS, TYPES), Role.UNPACKED)

    @property
    def redundant(self) -> re.Pattern[str]:
        """See `Family.redundant`: other heads, and constants of old checkpoints."""
        return re.compile(
            r"(cls|lm_head|qa_outputs|vocab_transform|vocab_layer_norm|vocab_projector)\..*"
            rf"|({self.prefix}\.)?(pooler\..*|embeddings\.(position_ids|token_type_ids))"
        )

    def read_weights(
        self, checkpoint: Checkpoint, dtype: np.dtype[Any]
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yields every weight with its name, converted to `dtype`; see `Family.read_weights`."""
        read = EncoderReader(checkpoint, self.prefix, dtype)
        width = self.width
        yield WORDS, read.tensor("embeddings.word_embeddings.weight", self.vocab_size, width)
        yield (
            POSITIONS,
            read.tensor("embeddings.position_embeddings.weight", self.num_positions, width),
        )
        if self.num_types:
            yield (
                TYPES,
                read.tensor("embeddings.token_type_embeddings.weight", self.num_types, width),
            )
        yield from read.norm(EMBEDDING_NORM, "embeddings.LayerNorm", width)
        names = self.layer_names
        for layer in range(self.num_layers):
            to, of = f"{LAYERS}.{layer}", f"{self.stack}.{layer}"
            # One product computes all three, so its input is rearranged only once.
            projections = [f"{of}.{name}" for name in (names.query, names.key, names.value)]
            yield from read.linear(f"{to}.qkv", projections, width, width)
            yield from read.linear(f"{to}.out", [f"{of}.{names.out}"], width, width)
            yield from read.norm(f"{to}.attention_norm", f"{of}.{names.attention_norm}", width)
            yield from read.linear(f"{to}.up", [f"{of}.{names.up}"], width, self.inner)
            yield from read.linear(f"{to}.down", [f"{of}.{names.down}"], self.inner, width)
            yield from read.norm(f"{to}.norm", f"{of}.{names.norm}", width)

    def encode(
        self,
        weights: Weights,
        tokens: Tokens,
        token_ids: tf.Tensor,
        token_types: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Runs all layers.

        Args:
            weights: As named by `read_weights`.
            tokens: The tokens of the batch.
            token_ids: [R, S] int32.
            token_types: [R, S] int32; None if tokens have no type, or all the first one.

        Returns:
            Hidden states after the last norm, [M, E], of the weights' type.
        """
        tables = [(WORDS, token_ids), (POSITIONS, self.positions(tokens, token_ids))]
        if self.num_types:
            first = tf.zeros_like(token_ids)
            tables.append((TYPES, first if token_types is None else token_types))
        x = tokens.embed(weights, EMBEDDING_NORM, tables, self.epsilon)
        biases = self.distance_biases(weights)

        def block(weights: Weights, x: tf.Tensor, tokens: Tokens) -> tf.Tensor:
            count, epsilon = tokens.count, self.epsilon
            projected = linear(weights, "qkv", x, count=count)
            context = tokens.attend(projected, self.num_heads, biases)
            attended = linear(weights, "out", context, count=count)
            x = tokens.add_norm(weights, "attention_norm", x, attended, epsilon)
            inner = linear(weights, "up", x, self.activation, count=count)
            return tokens.add_norm(
                weights, "norm", x, linear(weights, "down", inner, count=count), epsilon
            )

        return run_layers(weights, LAYERS, block, x, tokens, layers=self.num_layers)

    def positions(self, tokens: Tokens, token_ids: tf.Tensor) -> tf.Tensor:
        """Indices of the embeddings of positions, [R, S] int32."""
        del tokens
        return tf.broadcast_to(tf.range(token_ids.shape[1]), token_ids.shape)

    def distance_biases(self, weights: Weights) -> tf.Tensor | None:
        """Biases of attention; see `Tokens.attend`. None without."""
        del weights
        return None


class EncoderReader:
    """Reads the weights of an encoder from a checkpoint, with or without a prefix."""

    def __init__(self, checkpoint: Checkpoint, prefix: str, dtype: np.dtype[Any]) -> None:
        """Finds out whether the names of the encoder's tensors begin with its prefix."""
        self._checkpoint = checkpoint
        self._dtype = dtype
        prefixed = any(name.startswith(f"{prefix}.") for name in checkpoint.names)
        self._prefix = f"{prefix}." if prefixed else ""

    def tensor(self, name: str, *shape: int, transposed: bool = False) -> np.ndarray:
        """Reads one tensor of the encoder."""
        return self._checkpoint.read(
            self._prefix + name, shape=shape, dtype=self._dtype, transposed=transposed
        )

    def norm(self, to: str, name: str, width: int) -> Iterator[tuple[str, np.ndarray]]:
        """Yields gain and bias of a norm; checkpoints of the first years call them otherwise."""
        for ours, old in (("weight", "gamma"), ("bias", "beta")):
            is_old = f"{self._prefix}{name}.{old}" in self._checkpoint.names
            yield f"{to}.{ours}", self.tensor(f"{name}.{old if is_old else ours}", width)

    def linear(
        self, to: str, names: Sequence[str], inputs: int, outputs: int
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yields matrix and bias of products that have the same input, side by side."""
        matrices = [
            self.tensor(f"{name}.weight", outputs, inputs, transposed=True) for name in names
        ]
        biases = [self.tensor(f"{name}.bias", outputs) for name in names]
        if len(names) == 1:
            yield f"{to}.weight", matrices[0]
            yield f"{to}.bias", biases[0]
            return
        yield f"{to}.weight", np.concatenate(matrices, axis=1)
        yield f"{to}.bias", np.concatenate(biases)


def read_dimensions(config: Config, **names: str) -> dict[str, Any]:
    """Reads the dimensions that all families have; missing values default as in Transformers.

    Args:
        config: The content of config.json.
        names: The family's own names of values, by their usual names.

    Raises:
        StartupError: A value is unusable.
    """

    def name(usual: str) -> str:
        return names.get(usual, usual)

    for field, supported in UNSUPPORTED.items():
        value = config.values.get(field)
        if value is not None and value != supported:
            raise config.error(f"{field} must be {supported!r}, got {value!r}")
    dimensions: dict[str, Any] = {
        "vocab_size": config.value("vocab_size", int, 30522),
        "width": config.value(name("hidden_size"), int, 768),
        "num_layers": config.value(name("num_hidden_layers"), int, 12),
        "num_heads": config.value(name("num_attention_heads"), int, 12),
        "inner": config.value(name("intermediate_size"), int, 3072),
        "activation": config.choice(name("hidden_act"), "gelu", ACTIVATIONS),
        "num_positions": config.value("max_position_embeddings", int, 512),
    }
    width, heads = dimensions["width"], dimensions["num_heads"]
    if width % heads or width // heads > MAX_HEAD_SIZE:
        raise config.error(
            f"{name('hidden_size')} must be a multiple of {name('num_attention_heads')}, and at "
            f"most {MAX_HEAD_SIZE} times as many, got {width} and {heads}"
        )
    return dimensions
