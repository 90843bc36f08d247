"""What a family of models supplies."""

import abc
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.models.config import Config
from shaperouter_service.models.layers import Attend, AttendWithSource
from shaperouter_service.models.weights import Role, Weights


class Family(abc.ABC):
    """The dimensions of a model and its forward pass: pure functions over a mapping of weights.

    A family never sees slots, caches or padding: it embeds tokens at the positions it is given and
    leaves attention to `attend`. Instances are immutable and safe to share between threads.

    Attributes:
        name: Name of the family, which is the `model_type` of config.json, e.g. `gpt2`.
        architectures: Classes of Transformers whose checkpoints it can serve. Others of the same
            `model_type` have another head, such as a classifier.
        redundant: Matches the names of tensors that some checkpoints have and no forward pass
            needs: constants, and copies of others.
        default_eos_token_id: End token of a config that names none, as in Transformers.
        has_transcript: Whether it makes transcripts, whose tokens follow rules.
        roles: Of matrices among its weights that are none of a linear layer.
        vocab_size: V, token ids.
    """

    name: ClassVar[str]
    architectures: ClassVar[Sequence[str]]
    redundant: ClassVar[re.Pattern[str]]
    default_eos_token_id: ClassVar[int]
    has_transcript: ClassVar[bool] = False
    roles: ClassVar[Mapping[str, Role]]
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
    def max_source_length(self) -> int:
        """S, most places of a source; 0 for a family that has no encoder."""
        return 0

    def source_places(self, length: int) -> int:
        """Places of a source that decoding has beside a cache of `length` places."""
        del length
        return 0

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


class EncoderDecoder(Family):
    """A family whose encoder reads a source, and whose decoder attends to what comes of it.

    `forward` and `logits` are the decoder's. What of the encoder's result its layers attend to,
    keys and values, is computed once, by `encode`.

    Attributes:
        has_whole_source: Whether every source takes S places, whatever is in it. Else it takes one
            for each token, and the caches of a decode graph have as many for the source as they
            have for its tokens, up to S, which is at most `max_length` then.
        prompt_piece: Tokens of a decoder's prompt that one call reads at most: most such prompts
            are short.
        default_decoder_start_token_id: What a decoder's prompt begins with if the checkpoint does
            not say.
    """

    has_whole_source: ClassVar[bool] = False
    prompt_piece: ClassVar[int]
    default_decoder_start_token_id: ClassVar[int]

    @property
    @abc.abstractmethod
    def max_source_length(self) -> int:
        """S, most places of a source."""

    def source_places(self, length: int) -> int:
        """Places of a source that decoding has beside a cache of `length` places."""
        return (
            self.max_source_length if self.has_whole_source else min(length, self.max_source_length)
        )

    @abc.abstractmethod
    def is_of_encoder(self, weight: str) -> bool:
        """Whether a weight is read by `encode` and by nothing else."""

    @abc.abstractmethod
    def source_spec(self, rows: int, length: int) -> tf.TensorSpec:
        """The static shape of sources padded to `length` places: rows, and then what is padded."""

    @abc.abstractmethod
    def encode(
        self, weights: Weights, source: tf.Tensor, lengths: tf.Tensor
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Runs the encoder.

        Args:
            weights: As named by `read_weights`.
            source: As `source_spec` says.
            lengths: [R] int32, places of each source; what is beyond changes nothing.

        Returns:
            What the decoder attends to: of each of its layers keys, and of each values,
            [R, H, S, D].
        """

    @abc.abstractmethod
    def forward(
        self,
        weights: Weights,
        token_ids: tf.Tensor,
        positions: tf.Tensor,
        attend: AttendWithSource,  # type: ignore[override]  # decoding knows which family it has
    ) -> tf.Tensor:
        """Runs all layers of the decoder; see `Family.forward`."""
