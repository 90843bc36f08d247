"""What a family of models supplies."""

import abc
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from shaperouter_service.models.checkpoint import Checkpoint
from shaperouter_service.models.config import Config
from shaperouter_service.models.layers import Attend
from shaperouter_service.models.weights import Weights


class Family(abc.ABC):
    """The dimensions of a model and its forward pass: pure functions over a mapping of weights.

    A family never sees slots, caches or padding: it embeds tokens at the positions it is given and
    leaves attention to `attend`. Instances are immutable and safe to share between threads.

    Attributes:
        name: Name of the family, which is the `model_type` of config.json, e.g. `gpt2`.
        default_eos_token_id: End token of a config that names none, as in Transformers.
        vocab_size: V, token ids.
    """

    name: ClassVar[str]
    default_eos_token_id: ClassVar[int]
    vocab_size: int

    @classmethod
    @abc.abstractmethod
    def from_config(cls, config: Config) -> Self:
        """Reads the dimensions from the content of config.json.

        Raises:
            StartupError: A value is unusable.
        """

    @property
    @abc.abstractmethod
    def max_length(self) -> int:
        """Most tokens of a sequence, prompt and generation together."""

    @property
    @abc.abstractmethod
    def layers(self) -> int:
        """L, layers that have a cache."""

    @property
    @abc.abstractmethod
    def heads(self) -> int:
        """H, heads of keys and values."""

    @property
    @abc.abstractmethod
    def head_size(self) -> int:
        """D, size of a head."""

    @abc.abstractmethod
    def read_weights(
        self, checkpoint: Checkpoint, dtype: np.dtype[Any]
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yields every weight by name, converted, one at a time.

        Raises:
            StartupError: One is missing or has a wrong shape.
        """

    @abc.abstractmethod
    def forward(
        self,
        weights: Weights,
        token_ids: tf.Tensor,
        positions: tf.Tensor,
        attend: Attend,
    ) -> tf.Tensor:
        """Runs all layers.

        Nothing but `attend` relates one token to another: along P may lie the tokens of a prompt,
        or the newest tokens of beams, all at one position.

        Args:
            weights: As named by `read_weights`.
            token_ids: [R, P] int32.
            positions: [R, P] int32, each token's place in its sequence.
            attend: Attention of every layer.

        Returns:
            Hidden states after the last norm, [R, P, E], of the weights' type.
        """

    @abc.abstractmethod
    def logits(self, weights: Weights, hidden: tf.Tensor) -> tf.Tensor:
        """Projects hidden states [..., E] to the vocabulary: [..., V] float32."""
