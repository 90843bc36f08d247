"""M2M100 (Fan et al. 2020) and NLLB-200 (NLLB Team 2022).

As in Transformers' `M2M100ForConditionalGeneration`.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from shaperouter_service.models.bart import LOGITS_BIAS, Bart
from shaperouter_service.models.config import Config
from shaperouter_service.models.layers import positions_after
from shaperouter_service.models.seq2seq import NamedWeight, Tensors


@dataclass(frozen=True, kw_only=True)
class M2M100(Bart):
    """An M2M100 model: a BART whose positions are sinusoids, and whose padding token has its own.

    Attributes:
        pad_token_id: The padding token. Positions are counted from the number after its id.
    """

    pad_token_id: int

    name = "m2m_100"
    architectures = ("M2M100ForConditionalGeneration", "M2M100Model")
    # Position embeddings are computed, and there is no bias of the logits.
    redundant = re.compile(
        rf"{Bart.redundant.pattern}|{LOGITS_BIAS}"
        r"|(model\.)?(encoder|decoder)\.embed_positions\.weights?"
    )
    default_forced_eos_token_id = None
    norms_before = True
    norms_embeddings = False
    defaults: ClassVar[Mapping[str, Any]] = {
        **Bart.defaults,
        "vocab_size": 128112,
        "activation_function": "relu",
        "scale_embedding": True,
    }

    @classmethod
    def own_values(cls, config: Config) -> Mapping[str, Any]:
        vocab_size = config.value("vocab_size", int, cls.defaults["vocab_size"])
        pad = config.number("pad_token_id", int, 1, at_least=0, at_most=vocab_size - 1)
        return {**super().own_values(config), "pad_token_id": pad}

    def read_positions(self, tensors: Tensors, name: str) -> NamedWeight:
        # In single precision, as Transformers computes them.
        positions = np.arange(self.pad_token_id + 1 + self.max_position_embeddings)
        pairs = self.d_model // 2
        step = np.float32(-math.log(10000) / max(1, pairs - 1))
        frequencies = np.exp(np.arange(pairs, dtype=np.float32) * step)
        angles = positions.astype(np.float32)[:, np.newaxis] * frequencies
        table = np.zeros([len(positions), self.d_model], np.float32)
        table[:, : 2 * pairs] = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        table[self.pad_token_id] = 0
        return name, table.astype(tensors.dtype)

    def source_rows(self, source: tf.Tensor) -> tf.Tensor:
        return positions_after(self.pad_token_id, source)

    def position_rows(self, token_ids: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        is_padding = token_ids == self.pad_token_id
        return tf.where(is_padding, self.pad_token_id, positions + self.pad_token_id + 1)
