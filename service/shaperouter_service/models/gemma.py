"""Gemma 2 and 3 (Gemma team 2024, 2025), as in `Gemma2ForCausalLM` and `Gemma3ForCausalLM`."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from shaperouter_service.errors import StartupError
from shaperouter_service.models.config import Config
from shaperouter_service.models.rotary import Rotary, read_rotary, rope_parameters
from shaperouter_service.models.rotary_decoder import (
    FULL,
    SLIDING,
    RotaryDecoder,
    layer_types,
    windows,
)


class Gemma2(RotaryDecoder):
    """A Gemma 2 model: every second layer has a window, and scores and logits are bounded."""

    name = "gemma2"
    architectures = ("Gemma2ForCausalLM", "Gemma2Model")
    default_eos_token_id = 1
    activation_key = "hidden_activation"
    default_activation = "gelu_pytorch_tanh"
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 256000,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "score_cap": 50.0,
        "logit_cap": 30.0,
    }

    @classmethod
    def _own(cls, config: Config, shared: Mapping[str, Any]) -> dict[str, Any]:
        bias = config.value("attention_bias", bool, False)
        scalar = config.value("query_pre_attn_scalar", float, 256.0)
        return {
            "projection_bias": bias,
            "output_bias": bias,
            "norms_outputs": True,
            "gain_offset": 1.0,
            "embedding_scale": shared["hidden_size"] ** 0.5,
            "score_scale": scalar**-0.5,
            "score_cap": cls._cap(config, "attn_logit_softcapping", cls.defaults["score_cap"]),
            "logit_cap": cls._cap(config, "final_logit_softcapping", cls.defaults["logit_cap"]),
            "windows": windows(config, cls._kinds(config, shared["num_hidden_layers"]), 4096),
        }

    @staticmethod
    def _cap(config: Config, name: str, default: float) -> float:
        """Reads a bound; null in the config means none."""
        if name in config.values and config.values[name] is None:
            return 0.0
        return config.value(name, float, default) if default or name in config.values else 0.0

    @classmethod
    def _kinds(cls, config: Config, layers: int) -> list[str]:
        """The kinds of the layers: all have a window except the last of each `_pattern` layers."""
        pattern = cls._pattern(config)
        default = [FULL if (layer + 1) % pattern == 0 else SLIDING for layer in range(layers)]
        return list(layer_types(config, layers, default))

    @classmethod
    def _pattern(cls, config: Config) -> int:
        del config
        return 2


class Gemma3Text(Gemma2):
    """The text model of Gemma 3: five of six layers have a window, and frequencies of their own."""

    name = "gemma3_text"
    architectures = ("Gemma3ForCausalLM", "Gemma3TextModel")
    defaults: ClassVar[Mapping[str, Any]] = {
        **Gemma2.defaults,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "score_cap": 0.0,
        "logit_cap": 0.0,
    }

    @classmethod
    def _own(cls, config: Config, shared: Mapping[str, Any]) -> dict[str, Any]:
        # Transformers' class has `attn_logit_softcapping`, too, but does not bound scores.
        return super()._own(config, shared) | {"norms_heads": True, "score_cap": 0.0}

    @classmethod
    def _rotaries(
        cls, config: Config, size: int, layers: int
    ) -> tuple[tuple[Rotary, ...], tuple[int, ...]]:
        found = rope_parameters(config)
        # One for each kind of layer since version 5 of Transformers; before, it was for full ones.
        nested = {kind: found.get(kind) or {} for kind in (FULL, SLIDING)}
        if FULL not in found and SLIDING not in found:
            nested[FULL] = found
        for kind, value in nested.items():
            if not isinstance(value, dict):
                raise config.error(f"rope_parameters.{kind} must be an object, got {value!r}")
        local = {"rope_theta": config.value("rope_local_base_freq", float, 10000.0)}
        rotaries = (
            read_rotary(config, size, theta=1e6, parameters=nested[FULL]),
            read_rotary(config, size, parameters=local | nested[SLIDING]),
        )
        return rotaries, tuple(int(kind == SLIDING) for kind in cls._kinds(config, layers))

    @classmethod
    def _pattern(cls, config: Config) -> int:
        return config.value("sliding_window_pattern", int, 6)


class Gemma3(Gemma3Text):
    """Gemma 3 with image input. Only its text model is served."""

    name = "gemma3"
    architectures = ("Gemma3ForConditionalGeneration", "Gemma3Model")
    prefixes = ("language_model.model.", "model.language_model.", "language_model.")
    redundant = re.compile(
        r"(model\.)?(vision_tower|multi_modal_projector)\..*|" + Gemma3Text.redundant.pattern
    )

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Reads the dimensions of the text model."""
        found = config.values.get("text_config")
        if not isinstance(found, dict):
            raise config.error(f"text_config must be an object, got {found!r}")
        # The head is not part of the text model, so what is said beside its config counts.
        tied = config.value("tie_word_embeddings", bool, True)
        try:
            return super().from_config(Config(config.path, found | {"tie_word_embeddings": tied}))
        except StartupError as error:
            raise StartupError(f"{error} (in text_config)") from error

    @classmethod
    def _own(cls, config: Config, shared: Mapping[str, Any]) -> dict[str, Any]:
        # Transformers bounds the logits of `Gemma3ForCausalLM`, but not of this class.
        return super()._own(config, shared) | {"logit_cap": 0.0}
