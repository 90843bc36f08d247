"""Llama 2 and 3 (Touvron et al. 2023), TinyLlama and SmolLM2, as in `LlamaForCausalLM`."""

from collections.abc import Mapping
from typing import Any, ClassVar

from shaperouter_service.models.config import Config
from shaperouter_service.models.rotary_decoder import RotaryDecoder


class Llama(RotaryDecoder):
    """A Llama model."""

    name = "llama"
    architectures = ("LlamaForCausalLM", "LlamaModel")
    default_eos_token_id = 2
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 2048,
    }

    @classmethod
    def _own(cls, config: Config, shared: Mapping[str, Any]) -> dict[str, Any]:
        del shared
        bias = config.value("attention_bias", bool, False)
        return {
            "projection_bias": bias,
            "output_bias": bias,
            "mlp_bias": config.value("mlp_bias", bool, False),
        }
