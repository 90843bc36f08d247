"""DistilBERT (Sanh et al. 2019), as in Transformers' `DistilBertModel`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from shaperouter_service.models.config import Config
from shaperouter_service.models.encoders.text_encoder import (
    LayerNames,
    TextEncoder,
    read_dimensions,
)

# No config names another one.
EPSILON = 1e-12


@dataclass(frozen=True, kw_only=True)
class DistilBert(TextEncoder):
    """A DistilBERT: a BERT without types of tokens."""

    name = "distilbert"
    other_names: ClassVar[Mapping[str, str]] = {
        "hidden_size": "dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
    }
    class_prefix = "DistilBert"
    prefix = "distilbert"
    stack = "transformer.layer"
    layer_names = LayerNames(
        query="attention.q_lin",
        key="attention.k_lin",
        value="attention.v_lin",
        out="attention.out_lin",
        attention_norm="sa_layer_norm",
        up="ffn.lin1",
        down="ffn.lin2",
        norm="output_layer_norm",
    )
    classifier = (("pre_classifier", "relu"), ("classifier", None))

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Reads the dimensions; missing values default as in Transformers.

        Whether positions were sinusoids at first does not matter: the checkpoint has them.
        """
        dimensions = read_dimensions(
            config,
            hidden_size="dim",
            num_hidden_layers="n_layers",
            num_attention_heads="n_heads",
            intermediate_size="hidden_dim",
            hidden_act="activation",
        )
        dimensions["num_layers"] = config.value("n_layers", int, 6)
        return cls(**dimensions, epsilon=EPSILON, num_types=0)
