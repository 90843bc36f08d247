"""Mistral (Jiang et al. 2023) and Ministral, as in `MistralForCausalLM`, `MinistralForCausalLM`."""

from collections.abc import Mapping
from typing import Any, ClassVar

from shaperouter_service.models.config import Config
from shaperouter_service.models.rotary_decoder import (
    FULL,
    SLIDING,
    RotaryDecoder,
    layer_types,
    windows,
)


class Mistral(RotaryDecoder):
    """A Mistral model, whose layers may all have a window."""

    name = "mistral"
    architectures = ("MistralForCausalLM", "MistralModel")
    default_eos_token_id = 2
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
    }

    @classmethod
    def _own(cls, config: Config, shared: Mapping[str, Any]) -> dict[str, Any]:
        return {"windows": windows(config, cls._kinds(config, shared), 4096)}

    @classmethod
    def _kinds(cls, config: Config, shared: Mapping[str, Any]) -> list[str]:
        slides = config.values.get("sliding_window", 4096) is not None
        return [SLIDING if slides else FULL] * int(shared["num_hidden_layers"])


class Ministral(Mistral):
    """A Ministral model, some of whose layers have a window."""

    name = "ministral"
    architectures = ("MinistralForCausalLM", "MinistralModel")

    @classmethod
    def _own(cls, config: Config, shared: Mapping[str, Any]) -> dict[str, Any]:
        default = cls._kinds(config, shared)
        return {"windows": windows(config, layer_types(config, len(default), default), 4096)}
