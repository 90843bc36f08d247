"""Phi-3, Phi-3.5 and Phi-4-mini (Abdin et al. 2024), as in `Phi3ForCausalLM`."""

from collections.abc import Mapping
from typing import Any, ClassVar

from shaperouter_service.models.config import Config
from shaperouter_service.models.rotary import Rotary, read_rotary, rope_parameters
from shaperouter_service.models.rotary_decoder import FULL, SLIDING, RotaryDecoder, windows

# What each `rope_type` means; early checkpoints have other names for LongRoPE.
ROPE_TYPES = {"default": "default", "longrope": "longrope", "su": "longrope", "yarn": "longrope"}
ORIGINAL_LENGTH = 4096


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
    def _rotaries(
        cls, config: Config, size: int, layers: int
    ) -> tuple[tuple[Rotary, ...], tuple[int, ...]]:
        found = rope_parameters(config)
        default = str(found.get("type") or "default")
        kind = Config(config.path, found).choice("rope_type", default, ROPE_TYPES)
        # The value beside the parameters counts, or its default; one among them does not.
        original = config.value("original_max_position_embeddings", int, ORIGINAL_LENGTH)
        parameters = {
            **found,
            "rope_type": ROPE_TYPES[kind],
            "original_max_position_embeddings": original,
        }
        rotary = read_rotary(
            config, size, theta=cls.default_theta, may_be_partial=True, parameters=parameters
        )
        return (rotary,), (0,) * layers

    @classmethod
    def _own(cls, config: Config, shared: Mapping[str, Any]) -> dict[str, Any]:
        slides = config.values.get("sliding_window") is not None
        kinds = [SLIDING if slides else FULL] * shared["num_hidden_layers"]
        return {"windows": windows(config, kinds, None)}
