"""SmolLM3 (Bakouch et al. 2025), as in Transformers' `SmolLM3ForCausalLM`."""

from collections.abc import Mapping
from typing import Any, ClassVar

from shaperouter_service.models.config import Config
from shaperouter_service.models.rotary import Rotary, read_rotary
from shaperouter_service.models.rotary_decoder import (
    FULL,
    SLIDING,
    RotaryDecoder,
    layer_types,
    windows,
)


class SmolLM3(RotaryDecoder):
    """A SmolLM3 model, some of whose layers have no positions."""

    name = "smollm3"
    architectures = ("SmolLM3ForCausalLM", "SmolLM3Model")
    default_eos_token_id = 128001
    default_theta = 2000000.0
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": True,
    }

    @classmethod
    def _own(cls, config: Config, shared: Mapping[str, Any]) -> dict[str, Any]:
        bias = config.value("attention_bias", bool, False)
        slides = config.value("use_sliding_window", bool, False)
        slides = slides and config.values.get("sliding_window") is not None
        turned = shared["rotary_of_layer"]
        default = [SLIDING if slides and not each else FULL for each in turned]
        return {
            "projection_bias": bias,
            "output_bias": bias,
            "mlp_bias": config.value("mlp_bias", bool, False),
            "windows": windows(config, layer_types(config, len(turned), default), None),
        }

    @classmethod
    def _rotaries(
        cls, config: Config, size: int, layers: int
    ) -> tuple[tuple[Rotary, ...], tuple[int, ...]]:
        rotary = read_rotary(config, size, theta=cls.default_theta)
        return (rotary.none, rotary), cls._turned_layers(config, layers)

    @staticmethod
    def _turned_layers(config: Config, layers: int) -> tuple[int, ...]:
        """For each layer 1 if it has positions, and else 0."""
        found = config.values.get("no_rope_layers")
        if found is None:
            interval = config.value("no_rope_layer_interval", int, 4)
            return tuple(int((layer + 1) % interval != 0) for layer in range(layers))
        # In spite of its name, it has a 1 for each layer with positions.
        if (
            not isinstance(found, list)
            or len(found) < layers
            or not all(each in (0, 1) for each in found)
        ):
            raise config.error(
                f"no_rope_layers must have 0 or 1 for {layers} layers, got {found!r}"
            )
        return tuple(map(int, found[:layers]))
