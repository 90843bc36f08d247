"""Phi-3, Phi-3.5 and Phi-4-mini (Abdin et al. 2024), as in `Phi3ForCausalLM`."""

from collections.abc import Mapping
from typing import Any, ClassVar

from shaperouter_service.models.config import Config
from shaperouter_service.models.rotary_decoder import FULL, SLIDING, RotaryDecoder, windows


class Phi3(RotaryDecoder):
    """A Phi-3 model.

    LongRoPE has one set of frequencies for short sequences and one for long ones. Only short
    sequences are served, because a sequence that grows long would need all its keys recomputed.
    """

    name = "phi3"
    architectures = ("Phi3ForCausalLM", "Phi3Model")
    default_eos_token_id = 32000
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 32064,
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
    }

    @classmethod
    def _own(cls, config: Config, shared: Mapping[str, Any]) -> dict[str, Any]:
        slides = config.values.get("sliding_window") is not None
        kinds = [SLIDING if slides else FULL] * shared["num_hidden_layers"]
        return {"windows": windows(config, kinds, None)}
