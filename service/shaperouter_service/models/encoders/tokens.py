"""The tokens of a batch of texts: how they are laid out, attended to and put back into rows.

Letters in shapes: R texts of up to S tokens, M = R * S; H heads of size D, width E; L layers.
"""

import abc
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from shaperouter_service import kernels
from shaperouter_service.models.layers import attention, layer_norm
from shaperouter_service.models.weights import Weights


class Tokens(abc.ABC):
    """The tokens of a batch, as rows of a matrix; a `LayerState`.

    Layers see a matrix [M, E] of all tokens and do not know which texts they belong to. Rows that
    hold no token have values that are never used.

    Attributes:
        visible: [R, S] boolean, where the batch has tokens.
        layer: Index of the current layer, set by `run_layers`.
        caches: Empty: layers share nothing but the tokens.
    """

    def __init__(self, visible: tf.Tensor) -> None:
        """Sets the positions that have tokens: boolean, [R, S]."""
        self.visible = visible
        self.layer: int | tf.Tensor = 0
        self.caches: Any = ()

    @staticmethod
    def of(visible: tf.Tensor, weights: Weights) -> "Tokens":
        """Lays out the tokens in the way that is fast where these weights are multiplied."""
        return JoinedTokens(visible) if weights.is_packed else PaddedTokens(visible)

    @property
    @abc.abstractmethod
    def count(self) -> tf.Tensor | None:
        """[1] int32, number of rows to compute, from the first; None for all."""

    @abc.abstractmethod
    def rows(self, values: tf.Tensor) -> tf.Tensor:
        """Lays out a value for each position, [R, S] int32: [M]."""

    @abc.abstractmethod
    def padded(self, x: tf.Tensor) -> tf.Tensor:
        """Puts [M, E] back to [R, S, E]; zeros where there is no token."""

    @abc.abstractmethod
    def first(self, x: tf.Tensor) -> tf.Tensor:
        """The first token of each text, of [M, E]: [R, E]."""

    @abc.abstractmethod
    def total(self, x: tf.Tensor) -> tf.Tensor:
        """The sum of the tokens of each text, of [M, E]: [R, E] float32."""

    @abc.abstractmethod
    def embed(
        self,
        weights: Weights,
        name: str,
        tables: Sequence[tuple[str, tf.Tensor]],
        epsilon: float,
    ) -> tf.Tensor:
        """Layer norm of the sum of a row of each table, [M, E].

        Args:
            weights: Have the tables and the norm.
            name: Name of the norm.
            tables: Names of up to three tables, each with the indices of its rows, [R, S] int32.
            epsilon: Added to variances.
        """

    @abc.abstractmethod
    def add_norm(
        self, weights: Weights, name: str, x: tf.Tensor, y: tf.Tensor, epsilon: float
    ) -> tf.Tensor:
        """Layer norm of x + y, [M, E]; see `layers.layer_norm`."""

    @abc.abstractmethod
    def attend(
        self, projected: tf.Tensor, heads: int, biases: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Attends from each token to all tokens of its text.

        Args:
            projected: [M, 3 E], queries, keys and values.
            heads: H.
            biases: [2 N + 1, H] float32, added to scores by the distance of the key ahead of the
                query, from -N to N, to which farther keys are counted.

        Returns:
            [M, E].
        """


class PaddedTokens(Tokens):
    """One row for each position, as XLA computes on any device."""

    @property
    def count(self) -> None:
        return None

    def rows(self, values: tf.Tensor) -> tf.Tensor:
        return tf.reshape(values, [-1])

    def padded(self, x: tf.Tensor) -> tf.Tensor:
        rows = tf.reshape(x, [*self.visible.shape, x.shape[-1]])
        return tf.where(self.visible[..., tf.newaxis], rows, tf.zeros([], x.dtype))

    def first(self, x: tf.Tensor) -> tf.Tensor:
        texts, length = self.visible.shape
        start = tf.argmax(self.visible, axis=1, output_type=tf.int32)
        return tf.gather(x, tf.range(texts) * length + start)

    def total(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.cast(self.padded(x), tf.float32), axis=1)

    def embed(
        self,
        weights: Weights,
        name: str,
        tables: Sequence[tuple[str, tf.Tensor]],
        epsilon: float,
    ) -> tf.Tensor:
        rows = [tf.gather(weights[table], self.rows(ids)) for table, ids in tables]
        return layer_norm(weights, name, tf.add_n(rows), epsilon)

    def add_norm(
        self, weights: Weights, name: str, x: tf.Tensor, y: tf.Tensor, epsilon: float
    ) -> tf.Tensor:
        return layer_norm(weights, name, x + y, epsilon)

    def attend(
        self, projected: tf.Tensor, heads: int, biases: tf.Tensor | None = None
    ) -> tf.Tensor:
        texts, length = self.visible.shape
        size = projected.shape[-1] // (3 * heads)
        split = tf.transpose(
            tf.reshape(projected, [texts, length, 3, heads, size]), [2, 0, 3, 1, 4]
        )  # [3, R, H, S, D]
        bias = None
        if biases is not None:
            reach = biases.shape[0] // 2
            position = tf.range(length)
            ahead = position - position[:, tf.newaxis]
            by_pair = tf.gather(biases, tf.clip_by_value(ahead, -reach, reach) + reach)
            bias = tf.transpose(by_pair, [2, 0, 1])
        visible = self.visible[:, tf.newaxis, tf.newaxis]  # [R, 1, 1, S]
        context = attention(split[0], split[1], split[2], visible, size**-0.5, bias=bias)
        return tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [-1, heads * size])


class JoinedTokens(Tokens):
    """The tokens of all texts one after the other, as the native kernels compute on a CPU.

    The kernels compute only the actual tokens, whatever shape a graph has.
    """

    def __init__(self, visible: tf.Tensor) -> None:
        """See `Tokens`."""
        super().__init__(visible)
        texts, length = visible.shape
        lengths = tf.reduce_sum(tf.cast(visible, tf.int32), axis=1)
        # Two short cumulative sums instead of one over all positions: XLA takes quadratic time.
        starts = tf.cumsum(lengths)
        self._starts = tf.concat([[0], starts], axis=0)  # [R + 1]
        before = tf.cumsum(tf.cast(visible, tf.int32), axis=1, exclusive=True)
        row = self._starts[:-1, tf.newaxis] + before
        self._row = tf.where(visible, row, texts * length)  # [R, S], the row of each position
        position = tf.reshape(tf.range(texts * length), [-1, 1])
        # One more row takes the positions that have no token.
        self._order = tf.tensor_scatter_nd_update(
            tf.zeros([texts * length + 1], tf.int32),
            tf.reshape(self._row, [-1, 1]),
            position[:, 0],
        )[:-1]  # [M], the position of each row

    @property
    def count(self) -> tf.Tensor:
        return self._starts[-1:]

    def rows(self, values: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.reshape(values, [-1]), self._order)

    def padded(self, x: tf.Tensor) -> tf.Tensor:
        rows = tf.gather(x, tf.minimum(self._row, x.shape[0] - 1))
        return tf.where(self.visible[..., tf.newaxis], rows, tf.zeros([], x.dtype))

    def first(self, x: tf.Tensor) -> tf.Tensor:
        # A text without tokens is padding. It has no row, and must not get that of another text.
        has_tokens = self._starts[1:] > self._starts[:-1]
        start = tf.where(has_tokens, self._starts[:-1], 0)
        return tf.where(has_tokens[:, tf.newaxis], tf.gather(x, start), tf.zeros([], x.dtype))

    def total(self, x: tf.Tensor) -> tf.Tensor:
        return kernels.sum_tokens(x, self._starts)

    def embed(
        self,
        weights: Weights,
        name: str,
        tables: Sequence[tuple[str, tf.Tensor]],
        epsilon: float,
    ) -> tf.Tensor:
        return kernels.embed(
            [weights[table] for table, _ in tables],
            [self.rows(ids) for _, ids in tables],
            weights[f"{name}.weight"],
            weights[f"{name}.bias"],
            epsilon,
            count=self.count,
        )

    def add_norm(
        self, weights: Weights, name: str, x: tf.Tensor, y: tf.Tensor, epsilon: float
    ) -> tf.Tensor:
        gain, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return kernels.norm(x, gain, bias, epsilon, added=y, count=self.count)

    def attend(
        self, projected: tf.Tensor, heads: int, biases: tf.Tensor | None = None
    ) -> tf.Tensor:
        size = projected.shape[-1] // (3 * heads)
        positions = None
        if biases is not None:
            texts, length = self.visible.shape
            columns = tf.broadcast_to(tf.range(length), [texts, length])
            positions, biases = self.rows(columns), tf.transpose(biases)
        return kernels.attend_tokens(
            projected, self._starts, size**-0.5, heads=heads, positions=positions, biases=biases
        )
