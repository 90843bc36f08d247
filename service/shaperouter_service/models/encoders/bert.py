"""BERT (Devlin et al. 2018), as in Transformers' `BertModel`."""

from dataclasses import dataclass
from typing import Self

from shaperouter_service.models.config import Config
from shaperouter_service.models.encoders.text_encoder import (
    LayerNames,
    TextEncoder,
    read_dimensions,
)

# Default of a missing `layer_norm_eps`.
EPSILON = 1e-12


@dataclass(frozen=True, kw_only=True)
class Bert(TextEncoder):
    """A BERT."""

    name = "bert"
    class_prefix = "Bert"
    prefix = "bert"
    layer_names = LayerNames(
        query="attention.self.query",
        key="attention.self.key",
        value="attention.self.value",
        out="attention.output.dense",
        attention_norm="attention.output.LayerNorm",
        up="intermediate.dense",
        down="output.dense",
        norm="output.LayerNorm",
    )
    classifier = (("bert.pooler.dense", "tanh"), ("classifier", None))

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Reads the dimensions; missing values default as in Transformers."""
        return cls(
            **read_dimensions(config),
            epsilon=config.value("layer_norm_eps", float, EPSILON),
            num_types=config.value("type_vocab_size", int, 2),
        )
