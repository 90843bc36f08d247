"""A lane: all that the device holds for the requests of one model and beam width."""

import numpy as np
import tensorflow as tf

from shaperouter_service.decoding.options import SlotOptions
from shaperouter_service.models import DTYPE, Model


class Lane:
    """The slots of one model: key/value caches, tokens, positions and options, as variables.

    Graphs capture these variables and update them in place. Only the device thread runs graphs of
    a lane with active rows; compile threads run them with none, which changes nothing.

    Attributes:
        model: The model whose requests run here.
        slots: S.
        keys: For each layer [S, H, T, D], T being the model's maximum.
        values: For each layer [S, H, T, D].
        tokens: [S] int32, the newest token of each slot; its keys are not in the cache yet.
        positions: [S] int32, the newest token's place in its sequence.
        remaining: [S] int32, tokens still to be made; 0 when the slot is free or has ended.
        options: The options of each slot.
    """

    def __init__(self, model: Model, slots: int) -> None:
        """Allocates the variables."""
        family = model.family
        cache_shape = [slots, family.heads, family.max_length, family.head_size]
        self.model = model
        self.slots = slots
        self.keys = [_zeros(cache_shape, DTYPE) for _ in range(family.layers)]
        self.values = [_zeros(cache_shape, DTYPE) for _ in range(family.layers)]
        self.tokens = _zeros([slots], tf.int32)
        self.positions = _zeros([slots], tf.int32)
        self.remaining = _zeros([slots], tf.int32)
        self.options = SlotOptions(
            *(_zeros(spec.shape, spec.dtype) for spec in SlotOptions.specs(slots))
        )

    @property
    def cache_bytes(self) -> int:
        """Memory of the key/value caches."""
        caches = self.keys + self.values
        return sum(int(np.prod(cache.shape)) * cache.dtype.size for cache in caches)


def _zeros(shape: list[int] | tf.TensorShape, dtype: tf.DType) -> tf.Variable:
    return tf.Variable(tf.zeros(shape, dtype), trainable=False)
