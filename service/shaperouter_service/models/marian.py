"""Marian (Junczys-Dowmunt et al. 2018), which OPUS-MT was trained with for many languages.

As in Transformers' `MarianMTModel`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from shaperouter_service.models.config import Config
from shaperouter_service.models.pegasus import Pegasus


class Marian(Pegasus):
    """A Marian model: a Pegasus whose layers normalize their sums."""

    name = "marian"
    architectures = ("MarianMTModel", "MarianModel")
    default_eos_token_id = 0
    default_forced_eos_token_id = 0
    default_decoder_start_token_id = 58100
    norms_before = False
    defaults: ClassVar[Mapping[str, Any]] = {**Pegasus.defaults, "vocab_size": 58101}

    @classmethod
    def own_values(cls, config: Config) -> Mapping[str, Any]:
        # Such models would need a tokenizer for each of their languages.
        if not config.value("share_encoder_decoder_embeddings", bool, True):
            raise config.error("share_encoder_decoder_embeddings must be true, got False")
        vocab_size = config.value("vocab_size", int, cls.defaults["vocab_size"])
        decoder_vocab_size = config.value("decoder_vocab_size", int, vocab_size)
        if decoder_vocab_size != vocab_size:
            raise config.error(
                f"decoder_vocab_size must be vocab_size, {vocab_size}, got {decoder_vocab_size}"
            )
        return super().own_values(config)
