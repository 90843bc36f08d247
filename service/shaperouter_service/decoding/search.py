"""Base class of searches, which choose the next tokens from a step's logits."""

import abc
from typing import Any, NamedTuple

import tensorflow as tf

from shaperouter_service.decoding.constraints import Constraints
from shaperouter_service.decoding.options import Options
from shaperouter_service.decoding.state import State
from shaperouter_service.generation.limits import MAX_TOP_LOGPROBS
from shaperouter_service.generation.option import NO_TOKEN


class Logprobs(NamedTuple):
    """Log-probabilities of the tokens of one step, where requested.

    Attributes:
        chosen: [R] float32.
        top_tokens: [R, MAX_TOP_LOGPROBS] int32, most likely first.
        top: [R, MAX_TOP_LOGPROBS] float32.
    """

    chosen: Any
    top_tokens: Any
    top: Any

    @classmethod
    def specs(cls, *shape: int) -> "Logprobs":
        """Static shapes, with leading dimensions of `shape`."""
        return cls(
            chosen=tf.TensorSpec(shape, tf.float32),
            top_tokens=tf.TensorSpec([*shape, MAX_TOP_LOGPROBS], tf.int32),
            top=tf.TensorSpec([*shape, MAX_TOP_LOGPROBS], tf.float32),
        )

    @classmethod
    def none(cls, *shape: int) -> "Logprobs":
        """Empty log-probabilities, with leading dimensions of `shape`."""
        zeros: Logprobs = tf.nest.map_structure(
            lambda spec: tf.zeros(spec.shape, spec.dtype), cls.specs(*shape)
        )
        return zeros


class Search(abc.ABC):
    """Advances every active row of a batch by one token, in pure functions of tensors."""

    @abc.abstractmethod
    def advance(
        self,
        logits: tf.Tensor,
        state: State,
        options: Options,
        active: tf.Tensor,
        constraints: Constraints | tuple[()] = (),
    ) -> tuple[State, Logprobs]:
        """Chooses the next tokens.

        Args:
            logits: [R, B, V] float32.
            state: State before the step.
            options: Options of R rows.
            active: [R] bool; the results of other rows are undefined.
            constraints: What may follow in R rows; empty for models that transcribe.

        Returns:
            The state after the step, and the new tokens' log-probabilities; beam search keeps
            those in its state.
        """


def is_end(tokens: tf.Tensor, options: Options) -> tf.Tensor:
    """Returns which of the tokens [R, ...] end their row's sequence: bool, same shape."""
    ends = options.eos_token_ids
    for _ in tokens.shape[1:]:
        ends = ends[:, tf.newaxis]
    return tf.reduce_any((tokens[..., tf.newaxis] == ends) & (ends != NO_TOKEN), axis=-1)


def append(tokens: tf.Tensor, lengths: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    """Writes `new` [R, B] after the first `lengths` [R] of `tokens` [R, B, N]."""
    newest = tf.range(tokens.shape[2]) == lengths[:, tf.newaxis]  # [R, N]
    return tf.where(newest[:, tf.newaxis], new[..., tf.newaxis], tokens)
