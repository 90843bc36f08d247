"""The decode graph: advances the first rows of a lane together, several steps a call."""

import numpy as np
import tensorflow as tf

from shaperouter_service.decoding.lane import Lane
from shaperouter_service.decoding.options import NO_TOKEN, SlotOptions
from shaperouter_service.decoding.program import Program
from shaperouter_service.decoding.sampling import choose_tokens, is_end
from shaperouter_service.models.layers import attention

# Most steps a call can be asked for: the size of its result. The number itself is a tensor.
MAX_STEPS = 16


class CacheAttention:
    """Attention of one new token a row over its slot's cache, which it is appended to.

    Row r is slot r. The caches are written whole, by one scatter, and read up to `length`.
    """

    def __init__(
        self, keys: list[tf.Tensor], values: list[tf.Tensor], positions: tf.Tensor, length: int
    ) -> None:
        """Attends over caches [S, H, T, D] from new tokens at `positions` [R]."""
        self.keys, self.values = keys, values
        self._length = length
        rows, heads = positions.shape[0], keys[0].shape[1]
        row, head = tf.meshgrid(tf.range(rows), tf.range(heads), indexing="ij")
        position = tf.tile(positions[:, tf.newaxis], [1, heads])
        self._indices = tf.stack([row, head, position], axis=-1)  # [R, H, 3]
        # [R, 1, 1, T]
        self._visible = (tf.range(length) <= positions[:, tf.newaxis])[:, tf.newaxis, tf.newaxis]

    def __call__(
        self, layer: int, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, scale: float
    ) -> tf.Tensor:
        """See `Attend`; P = 1."""
        rows = query.shape[0]
        for caches, new in ((self.keys, key), (self.values, value)):
            caches[layer] = tf.tensor_scatter_nd_update(
                caches[layer], self._indices, tf.squeeze(new, 2)
            )
        keys = self.keys[layer][:rows, :, : self._length]
        values = self.values[layer][:rows, :, : self._length]
        return attention(query, keys, values, self._visible, scale)


def decode_program(name: str, lane: Lane, *, rows: int, length: int) -> Program:
    """Makes the decode graph of slots 0 to R - 1 attending to the first T = `length` tokens.

    Its arguments: active [R] bool, and the number of steps, int32, at most MAX_STEPS and such that
    no active slot comes to attend to more than T tokens. A row stops by itself at an end token or
    at its last; inactive rows change no token, and in the cache only what is never seen. Its
    result: tokens [R, MAX_STEPS] int32, filled with NO_TOKEN.
    """
    family = lane.model.family
    layers = family.layers

    def body(active: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
        # Read outside of the loop, so that weights and options are its constants.
        weights = {name: weight.read_value() for name, weight in lane.model.weights.items()}
        options = SlotOptions(*(variable.read_value()[:rows] for variable in lane.options))
        per_row = (lane.tokens, lane.positions, lane.remaining)
        caches = (*lane.keys, *lane.values)

        def step(
            index: tf.Tensor,
            chosen: tf.Tensor,
            token: tf.Tensor,
            position: tf.Tensor,
            remaining: tf.Tensor,
            *caches: tf.Tensor,
        ) -> tuple[tf.Tensor, ...]:
            alive = active & (remaining > 0)
            attend = CacheAttention(list(caches[:layers]), list(caches[layers:]), position, length)
            hidden = family.forward(
                weights, token[:, tf.newaxis], position[:, tf.newaxis], attend
            )  # [R, 1, E]
            logits = family.logits(weights, tf.squeeze(hidden, 1))
            new = choose_tokens(logits, options, position + 1, alive)
            new = tf.where(alive, new, token)
            column = tf.range(MAX_STEPS) == index
            return (
                index + 1,
                tf.where(column & alive[:, tf.newaxis], new[:, tf.newaxis], chosen),
                new,
                position + tf.cast(alive, tf.int32),
                tf.where(alive, tf.where(is_end(new, options), 0, remaining - 1), remaining),
                *attend.keys,
                *attend.values,
            )

        def unfinished(
            index: tf.Tensor,
            chosen: tf.Tensor,
            token: tf.Tensor,
            position: tf.Tensor,
            remaining: tf.Tensor,
            *caches: tf.Tensor,
        ) -> tf.Tensor:
            return (index < steps) & tf.reduce_any(active & (remaining > 0))

        _, chosen, *state = tf.while_loop(
            unfinished,
            step,
            (
                tf.constant(0),
                tf.fill([rows, MAX_STEPS], NO_TOKEN),
                *(variable.read_value()[:rows] for variable in per_row),
                *(variable.read_value() for variable in caches),
            ),
        )
        for variable, new in zip(per_row, state[: len(per_row)], strict=True):
            variable.assign(tf.concat([new, variable.read_value()[rows:]], 0))
        for variable, new in zip(caches, state[len(per_row) :], strict=True):
            variable.assign(new)
        return chosen

    return Program(
        name,
        body,
        specs=[tf.TensorSpec([rows], tf.bool), tf.TensorSpec([], tf.int32)],
        idle_arguments=[np.zeros([rows], np.bool_), np.int32(0)],
    )
