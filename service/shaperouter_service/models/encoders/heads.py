"""Heads, which turn a text encoder's hidden states into embeddings or scores."""

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.models.encoders.pooling import Step
from shaperouter_service.models.encoders.text_encoder import TextEncoder
from shaperouter_service.models.encoders.tokens import Tokens
from shaperouter_service.models.layers import linear
from shaperouter_service.models.weights import Role, Weights
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.tensors.specs import TensorSpec

# Names of weights of heads begin with it.
HEAD = "head"
EMBEDDING, SCORES = "embedding", "scores"

NamedArrays: TypeAlias = Iterator[tuple[str, np.ndarray]]


class Head(abc.ABC):
    """The last part of a model; pure functions over weights.

    Attributes:
        labels: Names of the classes, in the order of scores; empty without classes.
    """

    labels: tuple[str, ...] = ()

    @property
    @abc.abstractmethod
    def output(self) -> TensorSpec:
        """The tensor that it gives."""

    @property
    @abc.abstractmethod
    def roles(self) -> Mapping[str, Role]:
        """See `Family.roles`."""

    @abc.abstractmethod
    def read_weights(self, checkpoint: Checkpoint, dtype: np.dtype[Any]) -> NamedArrays:
        """Yields its weights; see `Family.read_weights`."""

    @abc.abstractmethod
    def __call__(self, weights: Weights, tokens: Tokens, x: tf.Tensor) -> tf.Tensor:
        """Computes the output, float32, from hidden states [M, E]."""


@dataclass(frozen=True, kw_only=True)
class Embedder(Head):
    """Turns each text into one vector, as sentence-transformers' modules do.

    Attributes:
        width: E.
        steps: The modules that follow the encoder; the first one pools.
    """

    width: int
    steps: Sequence[Step]

    @property
    def output(self) -> TensorSpec:
        width = self.width
        for step in self.steps:
            width = step.output_width(width)
        return TensorSpec(name=EMBEDDING, dtype=DType.FP32, shape=(None, width))

    @property
    def roles(self) -> Mapping[str, Role]:
        return {f"{HEAD}.{index}.weight": Role.UNPACKED for index in range(len(self.steps))}

    def read_weights(self, checkpoint: Checkpoint, dtype: np.dtype[Any]) -> NamedArrays:
        width = self.width
        for index, step in enumerate(self.steps):
            for name, array in step.read_weights(width, dtype):
                yield f"{HEAD}.{index}.{name}", array
            width = step.output_width(width)

    def __call__(self, weights: Weights, tokens: Tokens, x: tf.Tensor) -> tf.Tensor:
        for index, step in enumerate(self.steps):
            x = step(weights, f"{HEAD}.{index}", tokens, x)
        return tf.cast(x, tf.float32)


@dataclass(frozen=True, kw_only=True)
class Classifier(Head):
    """Scores each text, or each pair of texts, from its first token.

    Attributes:
        encoder: The encoder, which knows the products between hidden states and logits.
        labels: Names of the classes.
        activation: Turns logits into scores: `softmax`, `sigmoid` or `identity`.
    """

    encoder: TextEncoder
    labels: tuple[str, ...]
    activation: str

    @property
    def output(self) -> TensorSpec:
        return TensorSpec(name=SCORES, dtype=DType.FP32, shape=(None, len(self.labels)))

    @property
    def roles(self) -> Mapping[str, Role]:
        return {f"{HEAD}.{name}.weight": Role.UNPACKED for name, _ in self.encoder.classifier}

    def read_weights(self, checkpoint: Checkpoint, dtype: np.dtype[Any]) -> NamedArrays:
        width, products = self.encoder.width, self.encoder.classifier
        for name, _ in products:
            outputs = len(self.labels) if name == products[-1][0] else width
            yield from _read_linear(checkpoint, name, width, outputs, dtype)

    def __call__(self, weights: Weights, tokens: Tokens, x: tf.Tensor) -> tf.Tensor:
        x = tokens.first(x)
        for name, activation in self.encoder.classifier:
            x = linear(weights, f"{HEAD}.{name}", x, activation)
        return as_scores(x, self.activation)


@dataclass(frozen=True, kw_only=True)
class TokenClassifier(Head):
    """Scores each token; positions without one get zeros.

    Attributes:
        width: E.
        labels: Names of the classes.
        activation: See `Classifier`.
    """

    width: int
    labels: tuple[str, ...]
    activation: str

    NAME = "classifier"

    @property
    def output(self) -> TensorSpec:
        return TensorSpec(name=SCORES, dtype=DType.FP32, shape=(None, None, len(self.labels)))

    @property
    def roles(self) -> Mapping[str, Role]:
        return {f"{HEAD}.{self.NAME}.weight": Role.UNPACKED}

    def read_weights(self, checkpoint: Checkpoint, dtype: np.dtype[Any]) -> NamedArrays:
        yield from _read_linear(checkpoint, self.NAME, self.width, len(self.labels), dtype)

    def __call__(self, weights: Weights, tokens: Tokens, x: tf.Tensor) -> tf.Tensor:
        logits = linear(weights, f"{HEAD}.{self.NAME}", tokens.padded(x))
        scores = as_scores(logits, self.activation)
        return tf.where(tokens.visible[..., tf.newaxis], scores, 0.0)


def as_scores(logits: tf.Tensor, activation: str) -> tf.Tensor:
    """Turns logits [..., labels] into scores, float32."""
    logits = tf.cast(logits, tf.float32)
    if activation == "softmax":
        return tf.nn.softmax(logits)
    return tf.math.sigmoid(logits) if activation == "sigmoid" else logits


def _read_linear(
    checkpoint: Checkpoint, name: str, inputs: int, outputs: int, dtype: np.dtype[Any]
) -> NamedArrays:
    yield (
        f"{HEAD}.{name}.weight",
        checkpoint.read(f"{name}.weight", shape=(outputs, inputs), dtype=dtype, transposed=True),
    )
    yield f"{HEAD}.{name}.bias", checkpoint.read(f"{name}.bias", shape=(outputs,), dtype=dtype)
