"""Generation options as tensors: a fixed-size record for each slot, so that none ever retraces."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from shaperouter_service.limits import MAX_EOS_TOKENS

# Fills the record; never equal to a token id.
NO_TOKEN = -1


class SlotOptions(NamedTuple):
    """The options of R requests, one row each; also the lane's variables, with S rows.

    Attributes:
        max_new_tokens: [R] int32, at least 1.
        do_sample: [R] bool.
        temperature: [R] float32, above 0; read only where `do_sample`.
        seed: [R, 2] uint32, the low and the high half.
        eos_token_ids: [R, MAX_EOS_TOKENS] int32, filled with NO_TOKEN.
    """

    max_new_tokens: tf.Tensor
    do_sample: tf.Tensor
    temperature: tf.Tensor
    seed: tf.Tensor
    eos_token_ids: tf.Tensor

    @classmethod
    def of(
        cls,
        *,
        max_new_tokens: int,
        do_sample: bool,
        temperature: float,
        seed: int,
        eos_token_ids: Sequence[int],
    ) -> "SlotOptions":
        """The record of one request, R = 1, as NumPy arrays; values are validated before."""
        eos = np.full([1, MAX_EOS_TOKENS], NO_TOKEN, np.int32)
        eos[0, : len(eos_token_ids)] = eos_token_ids
        return cls(
            max_new_tokens=np.array([max_new_tokens], np.int32),
            do_sample=np.array([do_sample]),
            temperature=np.array([temperature], np.float32),
            seed=np.array([[seed & 0xFFFFFFFF, seed >> 32]], np.uint32),
            eos_token_ids=eos,
        )

    @classmethod
    def specs(cls, rows: int) -> "SlotOptions":
        """The static shapes of a record of `rows` rows."""
        return cls(
            max_new_tokens=tf.TensorSpec([rows], tf.int32),
            do_sample=tf.TensorSpec([rows], tf.bool),
            temperature=tf.TensorSpec([rows], tf.float32),
            seed=tf.TensorSpec([rows, 2], tf.uint32),
            eos_token_ids=tf.TensorSpec([rows, MAX_EOS_TOKENS], tf.int32),
        )
