"""The interface of a model family."""

import abc
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.models.config import Config
from shaperouter_service.models.layer_loop import AttendInWindow, AttendWithSource, KeepSource
from shaperouter_service.models.weights import Role, Weights


@dataclass(frozen=True, kw_only=True)
class Family(abc.ABC):
    """The dimensions of a model and its forward pass: pure functions over a mapping of weights.

    A family never sees slots, caches or padding: it embeds tokens at the given positions and leaves
    attention to `attend`. Instances are immutable and safe to share between threads.

    Attributes:
        name: Name of the family, which is the `model_type` of config.json, e.g. `gpt2`.
        architectures: Classes of Transformers whose checkpoints it can serve. Others of the same
            `model_type` have another head, such as a classifier.
        other_names: Other names of values in config.json, each with the family's own name;
            `attribute_map` in Transformers.
        redundant: Pattern of the names of tensors in some checkpoints that no forward pass needs:
            constants, and copies of other tensors.
        default_eos_token_id: End token if the config names none, as in Transformers; None for none.
        default_forced_eos_token_id: Token that ends a sequence of the maximum length if the config
            names none, as in Transformers; None for none.
        has_transcript: Whether it makes transcripts, whose tokens follow rules.
        roles: Roles of the matrices that are not weights of a linear layer.
        vocab_size: V, number of token ids.
        length_limit: Maximum number of tokens of a sequence that is served; None for as many as the
            model has.
    """

    name: ClassVar[str]
    architectures: ClassVar[Sequence[str]]
    other_names: ClassVar[Mapping[str, str]] = {}
    redundant: ClassVar[re.Pattern[str]]
    default_eos_token_id: ClassVar[int | None]
    default_forced_eos_token_id: ClassVar[int | None] = None
    has_transcript: ClassVar[bool] = False
    roles: ClassVar[Mapping[str, Role]]
    vocab_size: int
    length_limit: int | None = None

    @classmethod
    @abc.abstractmethod
    def from_config(cls, config: Config) -> Self:
        """Reads the dimensions from the content of config.json.

        Raises:
            StartupError: A value is unusable.
        """

    @property
    @abc.abstractmethod
    def longest(self) -> int:
        """Maximum number of tokens of a sequence of this model."""

    @property
    def max_length(self) -> int:
        """Maximum number of tokens of a sequence, prompt and generation together."""
        return min(self.longest, self.length_limit or self.longest)

    def limited(self, length: int | None) -> Self:
        """The same family with a limit on its sequences; transcribers keep their length."""
        if length is None or self.has_transcript:
            return self
        return dataclasses.replace(self, length_limit=length)

    @property
    def max_source_length(self) -> int:
        """S, maximum number of positions of a source; 0 for a family without an encoder."""
        return 0

    def source_positions(self, length: int) -> int:
        """Positions for a source in a batch that has `length` positions for tokens."""
        del length
        return 0

    @property
    @abc.abstractmethod
    def layers(self) -> int:
        """L, number of layers that have a cache."""

    @property
    @abc.abstractmethod
    def heads(self) -> int:
        """H, number of heads of keys and values."""

    @property
    @abc.abstractmethod
    def head_size(self) -> int:
        """D, size of a head."""

    @property
    @abc.abstractmethod
    def stacks(self) -> Mapping[str, int]:
        """Number of layers of each stack of equal layers, by the prefix of their weights' names.

        The weight `ln_1.bias` of layer 7 of a stack `h` is called `h.7.ln_1.bias`.
        """

    @property
    def tied(self) -> Sequence[str]:
        """Suffixes of the names of tied tensors; empty if config.json ties none.

        A checkpoint needs only one of these tensors, and only one is read. If it has several, they
        must be equal.
        """
        return ()

    @abc.abstractmethod
    def read_weights(
        self, checkpoint: Checkpoint, dtype: np.dtype[Any]
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yields every weight with its name, converted to `dtype`, one at a time.

        Raises:
            StartupError: A weight is missing or has a wrong shape.
        """

    @abc.abstractmethod
    def forward(
        self,
        weights: Weights,
        token_ids: tf.Tensor,
        positions: tf.Tensor,
        attend: AttendInWindow,
    ) -> tf.Tensor:
        """Runs all layers.

        Only `attend` relates one token to another, so the axis P may hold the tokens of a prompt,
        or the newest tokens of beams, which all have one position.

        Args:
            weights: As named by `read_weights`.
            token_ids: [R, P] int32.
            positions: [R, P] int32, each token's position in its sequence.
            attend: Attention of the current layer.

        Returns:
            Hidden states after the last norm, [R, P, E], of the weights' type.
        """

    @abc.abstractmethod
    def logits(self, weights: Weights, hidden: tf.Tensor) -> tf.Tensor:
        """Projects hidden states [..., E] to the vocabulary: [..., V] float32."""


class EncoderDecoder(Family):
    """A family whose encoder reads a source, to which its decoder attends.

    `forward` and `logits` are the decoder's. `encode` computes the keys and values that the
    decoder's layers attend to, once for each source.

    Attributes:
        has_whole_source: Whether every source takes S positions. Otherwise it takes one for each
            token, and a decode graph has as many positions for the source as for tokens, up to S;
            S is at most `max_length` in this case.
        prompt_piece: Maximum number of tokens of a decoder's prompt that one call reads.
        default_decoder_start_token_id: First token of a decoder's prompt if the checkpoint names
            none.
    """

    has_whole_source: ClassVar[bool] = False
    prompt_piece: ClassVar[int]
    default_decoder_start_token_id: ClassVar[int]

    @property
    @abc.abstractmethod
    def max_source_length(self) -> int:
        """S, maximum number of positions of a source."""

    def source_positions(self, length: int) -> int:
        """Positions for a source in a batch that has `length` positions for tokens."""
        return (
            self.max_source_length if self.has_whole_source else min(length, self.max_source_length)
        )

    @abc.abstractmethod
    def is_of_encoder(self, weight: str) -> bool:
        """Returns whether only `encode` reads a weight."""

    @abc.abstractmethod
    def source_spec(self, rows: int, length: int) -> tf.TensorSpec:
        """Returns the static shape and type of a batch of sources padded to `length` positions."""

    @abc.abstractmethod
    def encode(
        self, weights: Weights, source: tf.Tensor, lengths: tf.Tensor, keep: KeepSource
    ) -> None:
        """Runs the encoder.

        Args:
            weights: As named by `read_weights`.
            source: Shaped as `source_spec` says.
            lengths: [R] int32, positions of each source; the padding beyond has no effect.
            keep: Stores the keys and values that each layer of the decoder attends to.
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
