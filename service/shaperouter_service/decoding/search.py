"""Base class of searches, which choose the next tokens from a step's logits."""

import abc
from typing import Any, NamedTuple

import tensorflow as tf

from shaperouter_service.decoding.constraints import Constraints
from shaperouter_service.decoding.options import Options
from shaperouter_service.decoding.softmax import Softmax
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

    @classmethod
    def of(
        cls, logits: tf.Tensor, chosen: tf.Tensor, *, likeliest: tf.Tensor, is_native: bool
    ) -> "Logprobs":
        """Computes log-probabilities.

        Args:
            logits: [R, V] float32.
            chosen: [R] int32, the tokens.
            likeliest: bool, whether to look for the likeliest tokens, too.
            is_native: Whether the native kernels compute softmax, or XLA.
        """
        logprobs = Softmax.of(logits, is_native=is_native).logprobs(logits)
        none = cls.none(logits.shape[0])

        def find() -> tuple[tf.Tensor, tf.Tensor]:
            known = min(MAX_TOP_LOGPROBS, logits.shape[1])
            top, tokens = tf.math.top_k(logprobs, known)
            rest = [[0, 0], [0, MAX_TOP_LOGPROBS - known]]
            return tf.pad(tokens, rest), tf.pad(top, rest)

        # Finding them takes longer than a whole step of a small model.
        top_tokens, top = tf.cond(likeliest, find, lambda: (none.top_tokens, none.top))
        return cls(chosen=tf.gather(logprobs, chosen, batch_dims=1), top_tokens=top_tokens, top=top)


class Search(abc.ABC):
    """Advances every active row of a batch by one token, in pure functions of tensors.

    Attributes:
        is_native: Whether the native kernels compute softmax, truncation and noise, or XLA.
    """

    def __init__(self, *, is_native: bool) -> None:
        """Chooses between the kernels and XLA."""
        self.is_native = is_native

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
