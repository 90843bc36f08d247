"""Pegasus (Zhang et al. 2019), as in Transformers' `PegasusForConditionalGeneration`."""

import numpy as np

from shaperouter_service.models.bart import Bart
from shaperouter_service.models.seq2seq import NamedWeight, Tensors


class Pegasus(Bart):
    """A Pegasus model: an mBART with sinusoids for positions, and no norms of embeddings."""

    name = "pegasus"
    architectures = ("PegasusForConditionalGeneration", "PegasusModel")
    default_eos_token_id = 1
    default_forced_eos_token_id = 1
    default_decoder_start_token_id = 0
    norms_before = True
    norms_embeddings = False
    position_offset = 0

    def read_positions(self, tensors: Tensors, name: str) -> NamedWeight:
        if name in tensors:
            return super().read_positions(tensors, name)
        # Sines with falling frequencies, then cosines.
        width = self.d_model
        pairs = np.arange((width + 1) // 2)
        positions = np.arange(self.max_position_embeddings)[:, np.newaxis]
        angles = positions / np.power(10000, 2 * pairs / width)
        table = np.concatenate([np.sin(angles), np.cos(angles[:, : width // 2])], axis=1)
        return name, table.astype(tensors.dtype)
