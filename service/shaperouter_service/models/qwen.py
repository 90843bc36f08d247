"""Qwen2, Qwen2.5 and Qwen3 (Qwen team 2024, 2025), as in `Qwen2ForCausalLM`, `Qwen3ForCausalLM`."""

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


class Qwen2(RotaryDecoder):
    """A Qwen2 or Qwen2.5 model."""

    name = "qwen2"
    architectures = ("Qwen2ForCausalLM", "Qwen2Model")
    default_eos_token_id = None
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 22016,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "max_position_embeddings": 32768,
    }

    @classmethod
    def _own(cls, config: Config, shared: Mapping[str, Any]) -> dict[str, Any]:
        return {"projection_bias": True, "windows": cls._windows(config, shared)}

    @classmethod
    def _windows(cls, config: Config, shared: Mapping[str, Any]) -> tuple[int, ...]:
        layers = shared["num_hidden_layers"]
        # A window that is not used counts as none, and layers cannot slide then.
        slides = config.value("use_sliding_window", bool, False)
        first = config.number("max_window_layers", int, 28, at_least=0, at_most=2**31 - 1)
        has_window = slides and config.values.get("sliding_window", 4096) is not None
        default = [SLIDING if has_window and layer >= first else FULL for layer in range(layers)]
        kinds = layer_types(config, layers, default)
        if SLIDING in kinds and not slides:
            raise config.error(
                f"use_sliding_window must be true for layers of {SLIDING}, got False"
            )
        return windows(config, kinds, 4096)


class Qwen3(Qwen2):
    """A Qwen3 model: heads are normalized, and have a size of their own."""

    name = "qwen3"
    architectures = ("Qwen3ForCausalLM", "Qwen3Model")
    defaults: ClassVar[Mapping[str, Any]] = {**Qwen2.defaults, "head_dim": 128}

    @classmethod
    def _own(cls, config: Config, shared: Mapping[str, Any]) -> dict[str, Any]:
        bias = config.value("attention_bias", bool, False)
        return {
            "projection_bias": bias,
            "output_bias": bias,
            "norms_heads": True,
            "windows": cls._windows(config, shared),
        }
