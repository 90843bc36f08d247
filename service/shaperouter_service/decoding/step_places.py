"""Places of the tokens that a step with proposals reads, one after the other.

They are the newest token of each row and the proposals after it. A row without proposals takes one
place, and a row that does not advance takes none.
"""

from typing import Any, NamedTuple

import tensorflow as tf

# Maximum number of proposals of a row. With its newest token they fill a block of the kernels.
MAX_PROPOSALS = 7

# Maximum number of proposals of all rows in a step. It bounds the memory of the logits.
MAX_ALL_PROPOSALS = 24


class StepPlaces(NamedTuple):
    """The places of a step's tokens: the newest token of each row, then its proposals.

    Attributes:
        rows: [M] int32, the row of each place.
        offsets: [M] int32, its place among the tokens of the row; 0 is the newest token.
        used: [M] bool, the first ones.
        firsts: [R] int32, the first place of each row.
        counts: [R] int32, number of places of each row.
    """

    rows: Any
    offsets: Any
    used: Any
    firsts: Any
    counts: Any

    @classmethod
    def of(cls, alive: tf.Tensor, counts: tf.Tensor) -> "StepPlaces":
        """Lays out the tokens of a step.

        Args:
            alive: [R] bool, rows that take part.
            counts: [R] int32, proposals of each row.
        """
        rows = alive.shape[0]
        sizes = tf.where(alive, counts + 1, 0)
        ends = tf.cumsum(sizes)
        place = tf.range(place_count(rows))
        row = tf.reduce_sum(tf.cast(place[:, tf.newaxis] >= ends, tf.int32), axis=1)
        firsts = ends - sizes
        inside = tf.minimum(row, rows - 1)
        return cls(
            rows=inside,
            offsets=tf.where(row < rows, place - tf.gather(firsts, inside), 0),
            used=row < rows,
            firsts=firsts,
            counts=sizes,
        )

    @property
    def count(self) -> tf.Tensor:
        """[1] int32, number of used places."""
        return tf.reduce_sum(self.counts, keepdims=True)

    @property
    def of_rows(self) -> tf.Tensor:
        """[R, 1 + K] int32, the places of the rows' tokens; any places beyond these."""
        ahead = self.firsts[:, tf.newaxis] + tf.range(1 + MAX_PROPOSALS)
        return tf.minimum(ahead, self.rows.shape[0] - 1)


def place_count(rows: int) -> int:
    """Returns M, the places of a step of R rows."""
    return rows + min(rows * MAX_PROPOSALS, MAX_ALL_PROPOSALS)


def within_places(counts: tf.Tensor, used: tf.Tensor | int = 0) -> tf.Tensor:
    """Bounds numbers of proposals by the places: later rows get fewer.

    Args:
        counts: [R] int32, at least 0.
        used: int32, the number of places that other proposals take.
    """
    rows = counts.shape[0]
    left = place_count(rows) - rows - used - tf.cumsum(counts, exclusive=True)
    return tf.clip_by_value(left, 0, counts)
