"""The prefill graph: reads whole prompts into slots and chooses their first tokens."""

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.python.xla import dynamic_slice, dynamic_update_slice

from shaperouter_service.decoding.lane import Lane
from shaperouter_service.decoding.options import SlotOptions
from shaperouter_service.decoding.program import Program
from shaperouter_service.decoding.sampling import choose_tokens, is_end
from shaperouter_service.models import DTYPE
from shaperouter_service.models.layers import attention


class PromptAttention:
    """Attention of prompts over themselves; keeps their keys and values for the cache.

    Prompts are padded at the end, so the causal mask alone hides padding: a real token sees only
    what lies before it. What padding leaves in the cache is overwritten before anything sees it.
    """

    def __init__(self, length: int, layers: int) -> None:
        """Attends within `length` tokens."""
        self._causal = tf.linalg.band_part(tf.ones([length, length], tf.bool), -1, 0)
        self.keys: list[Any] = [None] * layers
        self.values: list[Any] = [None] * layers

    def __call__(
        self, layer: int, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, scale: float
    ) -> tf.Tensor:
        """See `Attend`."""
        self.keys[layer], self.values[layer] = key, value
        return attention(query, key, value, self._causal, scale)


def prefill_program(name: str, lane: Lane, *, rows: int, length: int) -> Program:
    """Makes the prefill graph of R = `rows` prompts padded to P = `length` tokens.

    Its arguments: token ids [R, P] int32, prompt lengths [R] int32, slots [R] int32, active [R]
    bool, and the options. Inactive rows change no slot. Its result: the first tokens, [R] int32.
    """
    family = lane.model.family

    def body(
        token_ids: tf.Tensor,
        lengths: tf.Tensor,
        slots: tf.Tensor,
        active: tf.Tensor,
        *options: tf.Tensor,
    ) -> tf.Tensor:
        record = SlotOptions(*options)
        weights = {name: weight.read_value() for name, weight in lane.model.weights.items()}

        def read_prompts() -> tuple[tf.Tensor, list[tf.Tensor], list[tf.Tensor]]:
            attend = PromptAttention(length, family.layers)
            positions = tf.tile(tf.range(length)[tf.newaxis], [rows, 1])
            hidden = family.forward(weights, token_ids, positions, attend)
            last = tf.gather(hidden, lengths - 1, axis=1, batch_dims=1)  # [R, E]
            tokens = choose_tokens(family.logits(weights, last), record, lengths, active)
            return tokens, attend.keys, attend.values

        def read_nothing() -> tuple[tf.Tensor, list[tf.Tensor], list[tf.Tensor]]:
            shape = [rows, family.heads, length, family.head_size]
            empty = [tf.zeros(shape, DTYPE) for _ in range(family.layers)]
            return tf.zeros([rows], tf.int32), empty, empty

        # The call that compiles the graph has no active row. It holds the lane's variables while it
        # runs, and would stop every stream for as long as a prompt of this length takes.
        tokens, keys, values = tf.cond(tf.reduce_any(active), read_prompts, read_nothing)
        for variable, new in [
            *zip(lane.keys, keys, strict=True),
            *zip(lane.values, values, strict=True),
            (lane.tokens, tokens),
            (lane.positions, lengths),
            (lane.remaining, tf.where(is_end(tokens, record), 0, record.max_new_tokens - 1)),
            *zip(lane.options, record, strict=True),
        ]:
            variable.assign(_write_slots(variable.read_value(), new, slots, active))
        return tokens

    return Program(
        name,
        body,
        specs=[
            tf.TensorSpec([rows, length], tf.int32),
            tf.TensorSpec([rows], tf.int32),
            tf.TensorSpec([rows], tf.int32),
            tf.TensorSpec([rows], tf.bool),
            *SlotOptions.specs(rows),
        ],
        idle_arguments=[
            np.zeros([rows, length], np.int32),
            np.ones([rows], np.int32),
            np.zeros([rows], np.int32),
            np.zeros([rows], np.bool_),
            *(np.ones(spec.shape, spec.dtype.as_numpy_dtype) for spec in SlotOptions.specs(rows)),
        ],
    )


def _write_slots(
    variable: tf.Tensor, new: tf.Tensor, slots: tf.Tensor, active: tf.Tensor
) -> tf.Tensor:
    """Writes row r of `new` [R, ...] at the start of slot `slots[r]` of `variable` [S, ...]."""
    for row in range(new.shape[0]):
        update = new[row : row + 1]
        start = tf.concat([slots[row : row + 1], tf.zeros([len(new.shape) - 1], tf.int32)], 0)
        old = dynamic_slice(variable, start, update.shape.as_list())
        variable = dynamic_update_slice(variable, tf.where(active[row], update, old), start)
    return variable
